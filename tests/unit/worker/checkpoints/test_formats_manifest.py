"""Whether a checkpoint with a manifest is whole, and why not: table tests over real files."""

import json
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.checkpoints.formats import InterruptedCheckError, examination, examine, verify_checkpoint
from lockstep.worker.checkpoints.formats import manifest as manifest_format
from support.saved_steps import RUN_UID, commit, look, manifest


def test_a_complete_manifest_checkpoint_is_valid(tmp_path: Path) -> None:
    finding = examine(str(commit(tmp_path / "step-100")), run_uid=RUN_UID, step=100)
    assert finding is not None
    assert (finding.verdict, finding.world, finding.bytes, finding.format) == ("Valid", 2, 6, "Manifest")
    assert finding.committed_at > 0


def overwrite(directory: Path, text: str) -> None:
    (directory / "manifest.json").write_text(text)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda d: (d / "manifest.json").unlink(), "no manifest.json: it was never committed"),
        (lambda d: (d / "a.bin").unlink(), "a.bin is missing"),
        (lambda d: (d / "a.bin").write_bytes(b"aaa"), "a.bin has 3 bytes, its commit says 4"),
        (lambda d: (d / "a.bin").write_bytes(b"aaaaa"), "a.bin has 5 bytes, its commit says 4"),
        (lambda d: os.utime(d / "sub/b.bin", (4e9, 4e9)), "sub/b.bin changed after its commit"),
        (lambda d: overwrite(d, json.dumps(manifest({"a.bin": b"aaaa"}, step=90))), "manifest.json says step 90"),
        (lambda d: overwrite(d, json.dumps(manifest({"a.bin": b""}, runUID="x"))), "belongs to another run (x)"),
        (lambda d: overwrite(d, json.dumps(manifest({}))), "manifest.json lists no file"),
        (lambda d: overwrite(d, json.dumps(manifest({}, format="v9"))), "manifest.json is of format 'v9'"),
        (lambda d: overwrite(d, '{"format": "lockstep/1", "ste'), "manifest.json is not readable"),
        (lambda d: overwrite(d, "[1]"), "manifest.json is not readable"),
        (lambda d: overwrite(d, "[" * 100_000), "manifest.json is not readable"),
        (lambda d: overwrite(d, json.dumps(manifest({"../a": b""}))), "manifest.json is not readable"),
        (lambda d: overwrite(d, json.dumps(manifest({"/etc/passwd": b""}))), "manifest.json is not readable"),
        (lambda d: overwrite(d, json.dumps(manifest({"a": b""}, world="2"))), "manifest.json is not readable"),
        (lambda d: overwrite(d, json.dumps(manifest({"a": b""}, attempt=-1))), "manifest.json is not readable"),
    ],
)
def test_a_torn_manifest_checkpoint_is_invalid_with_the_reason(tmp_path: Path, damage: Any, reason: str) -> None:
    directory = commit(tmp_path / "step-100")
    damage(directory)
    verdict, said = look(directory)
    assert verdict == "Invalid"
    assert said.startswith(reason)


def test_the_allowance_for_clocks_bounds_how_much_younger_a_file_may_be(tmp_path: Path) -> None:
    directory = commit(tmp_path / "step-100")
    committed = (directory / "manifest.json").stat().st_mtime
    os.utime(directory / "a.bin", (committed + 1.5, committed + 1.5))
    assert look(directory, skew=2.0) == ("Valid", "")
    words = "a.bin changed after its commit (1.5 s later; clocks may be 1 s apart)"
    assert look(directory, skew=1.0) == ("Invalid", words)


def test_what_cannot_be_read_is_unknown_not_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = commit(tmp_path / "step-100")
    real = os.stat

    def stale(path: Any, *rest: Any, **more: Any) -> Any:
        if str(path).endswith("a.bin"):
            raise OSError(116, "Stale file handle", str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "stat", stale)
    verdict, reason = look(directory)
    assert verdict == "Unknown"
    assert "Stale file handle" in reason


def test_of_very_many_files_each_rank_looks_at_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = commit(tmp_path / "step-100", {f"f{i}": b"x" for i in range(6)})
    (directory / "f4").unlink()
    assert look(directory, share=0, of=3) == ("Invalid", "f4 is missing")  # few files: all ranks see all
    monkeypatch.setattr(examination, "ALL_FILES", 5)
    assert [look(directory, share=share, of=3)[0] for share in range(3)] == ["Valid", "Invalid", "Valid"]


def test_checksums_are_compared_over_the_share_asked_for(tmp_path: Path) -> None:
    directory = commit(tmp_path / "step-100", {"a": b"aaaa", "b": b"bbbb"})
    committed = (directory / "manifest.json").stat().st_mtime
    (directory / "b").write_bytes(b"bbbB")
    os.utime(directory / "b", (committed, committed))
    assert verify_checkpoint(str(directory), 0, 2) == ("Valid", "")
    verdict, reason = verify_checkpoint(str(directory), 1, 2)
    assert verdict == "Invalid"
    assert reason == f"b has crc32 {zlib.crc32(b'bbbB'):08x}, its manifest says {zlib.crc32(b'bbbb'):08x}"


def test_reading_stops_when_the_answer_is_no_longer_wanted(tmp_path: Path) -> None:
    directory = commit(tmp_path / "step-100")
    with pytest.raises(InterruptedCheckError):
        verify_checkpoint(str(directory), interrupted=lambda: True)


def test_a_small_manifest_takes_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    directory = commit(tmp_path / "step-100")
    tracemalloc.start()
    try:
        assert look(directory) == ("Valid", "")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # the most at once
    finally:
        tracemalloc.stop()


def test_a_manifest_too_large_to_be_one_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_format, "MAX_MANIFEST_BYTES", 64)
    assert look(commit(tmp_path / "step-100")) == ("Invalid", "manifest.json is too large")
