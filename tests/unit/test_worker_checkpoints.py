"""What the worker says of checkpoint directories: table tests over real files."""

import json
import os
import pickle
import tracemalloc
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.checkpoints.resume import ResumeContext, ResumeKind, choose_resume
from lockstep.core.checkpoints.verdicts import RankView, merge_inventories
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase, WorkerReport
from lockstep.worker.checkpoints import inventory
from lockstep.worker.checkpoints.formats import InterruptedCheckError, examination, examine, verify_checkpoint
from lockstep.worker.checkpoints.formats import manifest as manifest_format
from lockstep.worker.checkpoints.formats.dcp import dcp_extents
from lockstep.worker.checkpoints.inventory import CommitWatch, survey
from lockstep.worker.checkpoints.tiers import ENOUGH_VALID, LOOKED_AT, NEWEST, passes_over, scan_tier
from lockstep.worker.child.launch import contract_environment
from lockstep.worker.limits import encoded
from lockstep.worker.node import preflight
from lockstep.worker.node.barrier import seen_in_words
from lockstep.worker.node.preflight import prepare
from lockstep.worker.settings import JSON, Settings, Tier, is_elsewhere
from lockstep.worker.start import Launch
from support import checkpoint_layouts as layouts

RUN_UID = "run-1"


def manifest(files: dict[str, bytes], **changed: Any) -> dict[str, Any]:
    listed = [{"name": n, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"} for n, data in files.items()]
    return {
        "format": "lockstep/1", "runUID": RUN_UID, "attempt": 1, "step": 100, "world": 2, "files": listed, **changed
    }  # fmt: skip


def commit(directory: Path, files: dict[str, bytes] | None = None, **changed: Any) -> Path:
    files = {"a.bin": b"aaaa", "sub/b.bin": b"bb"} if files is None else files
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(data)
    (directory / "manifest.json").write_text(json.dumps(manifest(files, **changed)))
    return directory


def step_of(root: Path, attempt: int, name: str) -> Path:
    return root / RUN_UID / f"a{attempt}" / name


def look(directory: Path, **how: Any) -> tuple[str, str]:
    finding = examine(str(directory), run_uid=RUN_UID, step=100, **how)
    assert finding is not None
    return finding.verdict, finding.reason


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


def test_the_scan_is_newest_first_over_all_attempts_and_knows_other_names(tmp_path: Path) -> None:
    commit(step_of(tmp_path, 1, "step-100"))
    commit(step_of(tmp_path, 2, "iter_0000100"), attempt=2)
    commit(step_of(tmp_path, 2, "200"), step=200)
    step_of(tmp_path, 3, "step-300").mkdir(parents=True)
    step_of(tmp_path, 3, "logs-7").mkdir()  # no checkpoint of ours, nor of torch
    (tmp_path / RUN_UID / "other").mkdir()
    rows = scan_tier("shared", str(tmp_path), RUN_UID)
    assert [(row["step"], row["attempt"], row["verdict"]) for row in rows] == [
        (300, 3, "Invalid"), (200, 2, "Valid"), (100, 2, "Valid"), (100, 1, "Valid"),
    ]  # fmt: skip


def test_the_scan_ends_when_enough_valid_ones_were_found(tmp_path: Path) -> None:
    for step in range(40):
        commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
    rows = scan_tier("shared", str(tmp_path), RUN_UID)
    assert [row["step"] for row in rows] == list(range(39, 39 - ENOUGH_VALID, -1))


@pytest.mark.parametrize(
    ("order", "older"),
    [
        ({"beyond": 20, "saves": []}, range(20, 12, -1)),
        ({"beyond": None, "saves": [["shared", step, 1] for step in range(24, 40)]}, range(23, 15, -1)),
        ({"beyond": 20, "saves": [["shared", 20, 0], ["local", 19, 1], ["shared", 18, 2]]}, range(19, 11, -1)),
        ({"beyond": None, "saves": [], "diverged": [[30, 1], [24, 1]]}, range(23, 15, -1)),
        ({"beyond": None, "saves": [], "diverged": [[24, 0]]}, ()),
        ({"beyond": 3, "saves": []}, range(3, -1, -1)),
        ({"beyond": 39, "saves": []}, ()),
        (None, ()),
    ],
)
def test_what_may_not_be_chosen_hides_nothing_older_that_may(
    tmp_path: Path, order: JSON | None, older: Sequence[int]
) -> None:
    for step in range(40):
        commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
    rows = scan_tier("shared", str(tmp_path), RUN_UID, may_not_be=passes_over(order))
    newest = range(39, 39 - ENOUGH_VALID, -1)
    assert [row["step"] for row in rows] == [*newest, *older]


def test_what_is_torn_beyond_a_ceiling_leaves_room_for_what_lies_below_it(tmp_path: Path) -> None:
    for step in range(60):
        directory = commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
        if step > 10:
            (directory / "manifest.json").unlink()
    rows = scan_tier("shared", str(tmp_path), RUN_UID, may_not_be=passes_over({"beyond": 10}))
    assert len(rows) <= NEWEST
    assert [row["step"] for row in rows if row["verdict"] == "Valid"] == list(range(10, 2, -1))


def test_no_directory_means_no_checkpoint_but_an_unreadable_one_means_not_knowing(tmp_path: Path) -> None:
    assert scan_tier("shared", str(tmp_path / "none"), RUN_UID) == []
    (tmp_path / RUN_UID).write_text("not a directory")
    with pytest.raises(NotADirectoryError):
        scan_tier("shared", str(tmp_path), RUN_UID)


@pytest.fixture
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making ready ends all other processes of the node: here that would be children of the tests."""
    monkeypatch.setattr(preflight, "end_other_processes", lambda: "")


def node(shared: Path, local: Path) -> Settings:
    return Settings(
        operator_url="https://10.0.0.1:1", namespace="team", run="hello", run_uid=RUN_UID, slot=0, incarnation=1,
        pod_uid="p", command=["x"], scratch=str(local.parent),
        tiers={
            "local": Tier("local", str(local), 1.0),
            "shared": Tier("shared", str(shared), 2.0),
        },
    )  # fmt: skip


def test_a_survey_makes_the_directories_to_save_in(tmp_path: Path) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    assert survey(node(shared, local), 3, 0, 2) == []
    assert (local / RUN_UID / "a3").is_dir()
    assert (shared / RUN_UID / "a3").is_dir()


@pytest.mark.usefixtures("no_sweep")
def test_what_a_node_sees_is_told_in_one_line_the_newest_first(tmp_path: Path) -> None:
    for step in range(1, 11):
        commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
    (step_of(tmp_path, 1, "step-10") / "manifest.json").unlink()
    told = seen_in_words(survey(node(tmp_path, tmp_path / "local"), 2, 0, 1))
    first = "shared a1/step-10 Invalid (no manifest.json: it was never committed); shared a1/step-9 Valid; "
    assert told.startswith(first)
    assert told.endswith("; shared a1/step-3 Valid; 1 older ones"), "no more than eight valid ones are looked for"


@pytest.mark.usefixtures("no_sweep")
def test_a_rank_that_cannot_see_the_shared_tier_says_so_and_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    commit(step_of(shared, 1, "step-100"))
    sees = prepare(node(shared, local), 2, 0, 2)
    real = os.scandir

    def stale(path: Any) -> Any:
        if str(path).startswith(str(shared)):
            raise OSError(116, "Stale file handle", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", stale)
    blind = prepare(node(shared, local), 2, 1, 2)
    for prepared in (sees, blind):
        assert prepared.problem == ""
        assert prepared.port is not None
        prepared.port.close()
    (row,) = blind.inventory
    assert (row["tier"], row["verdict"], row["path"]) == ("shared", "Unknown", str(shared / RUN_UID))
    assert row["reason"].startswith("Stale file handle")
    # What the operator makes of it: the checkpoint that the other rank found valid has to wait.
    reports = {
        rank: WorkerReport(
            slot=rank, incarnation=1, pod_uid="p", node=f"gpu-{rank}", phase=WorkerPhase.READY, received_at=0.0,
            inventory=tuple(msgspec.convert(row, CheckpointReport) for row in prepared.inventory),
        )
        for rank, prepared in enumerate((sees, blind))
    }  # fmt: skip
    candidates = merge_inventories(RankView(nodes=("gpu-0", "gpu-1"), reports=reports), RUN_UID)
    assert [(found.step, found.verdict) for found in candidates] == [(100, Verdict.UNKNOWN), (0, Verdict.UNKNOWN)]
    assert candidates[0].reason == "not seen by rank 1 on gpu-1"
    assert candidates[1].reason.endswith("(rank 1 on gpu-1)")
    decision = choose_resume(candidates, {}, ResumeContext(attempt=2, world=2, run_uid=RUN_UID, since=0.0), 1.0)
    assert decision.kind is ResumeKind.WAIT


@pytest.mark.usefixtures("no_sweep")
def test_a_node_whose_own_disk_cannot_be_read_cannot_train(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / RUN_UID).write_text("not a directory")
    prepared = prepare(node(tmp_path / "shared", local), 2, 0, 1)
    assert prepared.problem.startswith("preparing failed: Not a directory")
    assert prepared.port is None


@pytest.mark.usefixtures("no_sweep")
def test_a_tier_that_takes_no_writes_is_found_out_before_the_barrier(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / RUN_UID).mkdir(parents=True)
    (shared / RUN_UID / "a2").write_text("in the way")
    prepared = prepare(node(shared, tmp_path / "local"), 2, 0, 1)
    assert prepared.problem.startswith("preparing failed: File exists")


def test_in_the_local_tier_each_shard_is_a_row(tmp_path: Path) -> None:
    step = step_of(tmp_path, 1, "step-100")
    commit(step / "rank-0", rank=0)
    commit(step / "rank-3", rank=3)
    (step / "rank-3/a.bin").unlink()
    rows = scan_tier("local", str(tmp_path), RUN_UID)
    assert [(Path(row["path"]).name, row["verdict"]) for row in rows] == [("rank-0", "Valid"), ("rank-3", "Invalid")]


def test_whatever_lies_in_a_directory_the_inventory_is_one_that_the_operator_takes(tmp_path: Path) -> None:
    root = tmp_path / RUN_UID / "a1"
    commit(root / "step-100", attempt=1 << 40, world=1 << 40)
    commit(root / "\udcff-step-200", step=200)
    commit(root / "step-300", step=300, format="\ud800")
    old = commit(root / "step-400", step=400) / "manifest.json"
    os.utime(old, (-1000, -1000))
    vast = commit(root / "step-600", step=600) / "manifest.json"
    said = json.loads(vast.read_text())
    said["files"][0]["bytes"] = 10**30
    vast.write_text(json.dumps(said))
    (root / "0").mkdir()
    (root / "0" / f"iter_{10**20}_0_local.pt").write_bytes(b"")
    layouts.torch_file(root / "0" / "iter_0000500_99999999_local.pt")
    rows = scan_tier("local", str(tmp_path), RUN_UID)
    assert {row["step"] for row in rows} >= {100, 200, 300, 400, 500, 600}
    read = msgspec.json.decode(encoded({"rows": rows}), type=dict[str, list[CheckpointReport]])["rows"]
    assert len(read) == len(rows)


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


# torch's own classes, as far as their pickles go.


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


@dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: tuple[int, ...] | None = None
    index: int | None = None


@dataclass
class Metadata:
    state_dict_metadata: dict[str, Any]
    planner_data: Any = None
    storage_data: Any = None


def dcp_metadata(protocol: int = 4, **sizes: int) -> bytes:
    """Of files `__<name>.distcp`, each with two entries that together need so many bytes."""
    storage = {}
    for name, size in sizes.items():
        path = f"__{name}.distcp"
        storage[MetadataIndex(f"{name}.w", (0,), 0)] = _StorageInfo(path, 0, size // 2)
        storage[MetadataIndex(f"{name}.v", (5,), 1)] = _StorageInfo("".join(path), size // 2, size - size // 2)
    return pickle.dumps(Metadata({"model": "tensors"}, storage_data=storage), protocol)


def save_dcp(directory: Path, metadata: bytes, **sizes: int) -> Path:
    directory.mkdir(parents=True)
    for name, size in sizes.items():
        (directory / f"__{name}.distcp").write_bytes(b"x" * size)
    (directory / ".metadata").write_bytes(metadata)
    return directory


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_extents_are_read_off_the_metadata_without_unpickling(protocol: int) -> None:
    big = 5 << 32
    metadata = dcp_metadata(protocol, r0=1000, r1=big, r2=0)
    assert dcp_extents(metadata) == {"__r0.distcp": 1000, "__r1.distcp": big, "__r2.distcp": 0}


def test_metadata_that_would_run_code_is_never_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "boom"),)

    directory = save_dcp(tmp_path / "step-100", pickle.dumps(Bomb()), r0=10)
    look(directory)
    assert not (tmp_path / "boom").exists()


def test_a_complete_dcp_checkpoint_is_valid(tmp_path: Path) -> None:
    directory = save_dcp(tmp_path / "iter_0000100", dcp_metadata(r0=1000, r1=0), r0=1000, r1=0)
    finding = examine(str(directory), run_uid=RUN_UID, step=100)
    assert finding is not None
    assert (finding.verdict, finding.reason, finding.format, finding.bytes) == ("Valid", "", "TorchDCP", 1000)


def test_dcp_metadata_of_an_unknown_structure_leaves_the_cheap_test(tmp_path: Path) -> None:
    directory = save_dcp(tmp_path / "step-100", pickle.dumps({"new": "layout"}), r0=1000)
    verdict, reason = look(directory)
    assert verdict == "Valid"
    assert "sizes were not compared" in reason


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda d: (d / ".metadata").unlink(), "no .metadata: it was never committed"),
        (lambda d: (d / ".metadata.tmp").touch(), ".metadata.tmp is left over"),
        (lambda d: (d / "__r0.distcp").unlink(), "__r0.distcp is missing"),
        (lambda d: (d / "__r0.distcp").write_bytes(b"x"), "__r0.distcp has 1 bytes, its commit says at least 1000"),
        (lambda d: os.utime(d / "__r1.distcp", (4e9, 4e9)), "__r1.distcp changed after its commit"),
        (lambda d: (d / ".metadata").write_bytes(b"\0" * 100), ".metadata is not a whole pickle"),
        (lambda d: (d / ".metadata").write_bytes((d / ".metadata").read_bytes()[:-20]), ".metadata is not a whole"),
        (lambda d: [(d / f"__r{n}.distcp").unlink() for n in (0, 1)], "there is no .distcp file"),
    ],
)
def test_a_torn_dcp_checkpoint_is_invalid_with_the_reason(tmp_path: Path, damage: Any, reason: str) -> None:
    directory = save_dcp(tmp_path / "step-100", dcp_metadata(r0=1000, r1=8), r0=1000, r1=8)
    damage(directory)
    verdict, said = look(directory)
    assert verdict == "Invalid"
    assert said.startswith(reason)


@given(cut=st.integers(min_value=0, max_value=10_000))
def test_no_part_of_a_metadata_file_passes_for_the_whole(cut: int) -> None:
    whole = dcp_metadata(r0=1000, r1=2000)
    with pytest.raises(ValueError):  # noqa: PT011
        dcp_extents(whole[: cut % len(whole)])


@given(marker=st.binary(max_size=300), name=st.sampled_from(["manifest.json", ".metadata"]))
def test_no_bytes_in_a_commit_marker_make_a_verdict_impossible(
    tmp_path_factory: pytest.TempPathFactory, marker: bytes, name: str
) -> None:
    directory = tmp_path_factory.getbasetemp() / "step-100"
    directory.mkdir(exist_ok=True)
    for other in directory.iterdir():
        other.unlink()
    (directory / "__0_0.distcp").touch()
    (directory / name).write_bytes(marker)
    assert look(directory)[0] in ("Valid", "Invalid")


def one_directory(shared: Path, local: Path) -> Settings:
    """A run whose attempts all save in the same directory of the shared tier."""
    return replace(node(shared, local), fenced=True)


def test_with_one_directory_for_all_attempts_that_is_where_each_of_them_saves(tmp_path: Path) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    settings = one_directory(shared, local)
    commit(shared / "step-100")
    (row,) = survey(settings, 3, 0, 2)
    assert (row["verdict"], row["path"], row["attempt"]) == ("Valid", str(shared / "step-100"), 1)
    assert not (shared / RUN_UID).exists()
    environment = contract_environment(settings, Launch(3, 0, 2, "10.1.0.1", 40123, "", "", []))
    assert environment["LOCKSTEP_CHECKPOINT_DIR"] == str(shared)
    assert environment["LOCKSTEP_LOCAL_CHECKPOINT_DIR"] == str(local / RUN_UID / "a3")


def test_what_earlier_attempts_saved_in_the_one_directory_is_not_told_as_this_ones(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100")
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(2, 0, 2, "10.1.0.1", 40123, "", "", []))
    assert watch.poll()[:2] == ([], False)
    commit(shared / "step-200", step=200, attempt=2)
    (row,) = watch.poll().rows
    assert (row["step"], row["attempt"]) == (200, 2)
    again = commit(shared / "step-100", {"a.bin": b"anew"}, attempt=2)
    os.utime(again / "manifest.json", (2e9, 2e9))
    assert [row["step"] for row in watch.poll().rows] == [100], "saved again, over the older one"


def test_what_other_runs_saved_in_the_one_directory_is_told_as_theirs_and_hides_nothing_of_its_own(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100")
    for step in range(400, 450):
        commit(shared / f"step-{step}", step=step, runUID="other")
    rows = survey(one_directory(shared, tmp_path / "local"), 1, 0, 2)
    told = [(row["step"], row["verdict"], row["runUid"]) for row in rows]
    assert told == [*((step, "Valid", "other") for step in range(449, 441, -1)), (100, "Valid", RUN_UID)]


@pytest.mark.parametrize("others", [3, 50, LOOKED_AT + 3])
def test_while_it_trains_its_own_saves_are_seen_below_however_many_of_others(tmp_path: Path, others: int) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100", runUID="before")
    for step in range(400, 400 + others):
        commit(shared / f"step-{step}", step=step, runUID="given-up")
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(1, 0, 2, "10.1.0.1", 40123, "", "", []))
    layouts.safetensors_file(shared / "step-110" / "model.safetensors")
    assert watch.poll() == ([], True, []), "others that are further do not say that it has gone on"
    commit(shared / "step-110", step=110)
    assert [(row["step"], row["verdict"]) for row in watch.poll().rows] == [(110, "Valid")]
    highest = 399 + others
    os.utime(commit(shared / f"step-{highest}", step=highest) / "manifest.json", (2e9, 2e9))
    assert [(row["step"], row["verdict"]) for row in watch.poll(over=True).rows] == [(highest, "Valid")], (
        "over another's"
    )
    assert watch.poll(over=True).rows == []


def test_what_was_saved_over_among_very_many_of_others_is_seen_within_a_few_looks(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    for step in range(400, 400 + 3 * NEWEST):
        commit(shared / f"step-{step}", step=step, runUID="given-up")
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(1, 0, 2, "10.1.0.1", 40123, "", "", []))
    assert watch.poll().rows == []
    os.utime(commit(shared / "step-400", step=400) / "manifest.json", (2e9, 2e9))
    assert [row["step"] for _ in range(7) for row in watch.poll().rows] == [400]


def test_what_cannot_be_read_for_a_moment_was_not_saved_by_this_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-400", step=400)
    watch = CommitWatch(one_directory(shared, tmp_path / "local"), Launch(2, 0, 2, "10.1.0.1", 40123, "", "", []))
    with monkeypatch.context() as patched:
        patched.setattr(inventory, "commit_mark", lambda path: None)
        assert watch.poll().rows == []
    assert watch.poll() == ([], False, [])


def test_of_other_runs_saves_beyond_those_that_are_told_no_file_but_the_manifest_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    for step in range(400, 450):
        commit(shared / f"step-{step}", step=step, runUID="other")
    asked: set[str] = set()
    real = os.stat

    def stat(path: Any, *rest: Any, **more: Any) -> os.stat_result:
        asked.add(str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "stat", stat)
    rows = survey(one_directory(shared, tmp_path / "local"), 1, 0, 2)
    looked_into = {path.split("/")[-2] for path in asked if path.endswith("/a.bin")}
    assert looked_into == {f"step-{row['step']}" for row in rows} == {f"step-{step}" for step in range(442, 450)}


def test_what_the_run_to_go_on_from_saved_in_the_one_directory_is_found_below_however_many_of_others(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    commit(shared / "step-100", runUID="before")
    for step in range(400, 450):
        commit(shared / f"step-{step}", step=step, runUID="given-up")
    settings = replace(one_directory(shared, tmp_path / "local"), start_root=str(shared), start_run_uid="before")
    rows = [row for row in survey(settings, 1, 0, 2) if row["runUid"] != "given-up"]
    assert [(row["step"], row["verdict"], row["runUid"]) for row in rows] == [(100, "Valid", "before")]


def test_the_directory_to_start_from_is_listed_whether_it_holds_steps_or_attempts(tmp_path: Path) -> None:
    local, shared, theirs = tmp_path / "local", tmp_path / "shared", tmp_path / "shared" / "other"
    commit(theirs / "step-7", step=7, runUID="other")
    commit(theirs / "a2" / "step-9", step=9, runUID="other")
    settings = replace(node(shared, local), start_root=str(theirs), start_run_uid="other")
    rows = survey(settings, 1, 0, 2)
    assert [(row["step"], row["verdict"], row["runUid"]) for row in rows] == [
        (9, "Valid", "other"),
        (7, "Valid", "other"),
    ]
    assert all(row["tier"] == "shared" for row in rows)
    anybodys = survey(replace(settings, start_run_uid=""), 1, 0, 2)
    assert {row["verdict"] for row in anybodys} == {"Valid"}
    mixed_up = survey(replace(settings, start_run_uid="third"), 1, 0, 2)
    assert {row["verdict"] for row in mixed_up} == {"Invalid"}


def test_a_directory_to_start_from_that_cannot_be_listed_is_unknown(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    theirs = shared / "other"
    theirs.parent.mkdir()
    theirs.write_text("not a directory")
    (row,) = survey(replace(node(shared, tmp_path / "local"), start_root=str(theirs)), 1, 0, 2)
    assert (row["step"], row["verdict"]) == (0, "Unknown")


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


@pytest.mark.parametrize(
    ("path", "elsewhere"), [("/c/team/step-5", True), ("/c/team/other/step-5", True), ("/c/team/mine/step-5", False)]
)
def test_a_runs_own_one_directory_within_the_one_it_starts_from_is_its_own(path: str, elsewhere: bool) -> None:
    settings = Settings(
        "https://x", "ns", "one", "u", 0, 1, "pod", ("true",), tiers={"shared": Tier("shared", "/c/team/mine", 0.0)},
        start_root="/c/team", fenced=True,
    )  # fmt: skip
    assert is_elsewhere(settings, path) is elsewhere
