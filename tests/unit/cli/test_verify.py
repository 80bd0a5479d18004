"""`lockstep checkpoint verify`: the workers' verdict, as words and as an exit code."""

import os
import shutil
from pathlib import Path

import pytest

from lockstep.cli.main import main
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age


def verify(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "verify", *map(str, arguments)])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_a_whole_checkpoint_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = age(layouts.hugging_face(tmp_path / "checkpoint-100"))
    code, said = verify(capsys, path)
    assert code == 0
    assert said.startswith(f"Valid  {path} (HuggingFace, ")


def test_an_invalid_one_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = layouts.megatron(tmp_path / "iter_0000100")
    (path / "__1_0.distcp").unlink()
    assert verify(capsys, path) == (1, f"Invalid  {path} (Megatron, 200 bytes): __1_0.distcp is missing\n")


def test_what_cannot_be_read_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    path = layouts.dcp(tmp_path / "step-100")
    monkeypatch.setattr(os, "scandir", refused)
    assert verify(capsys, path) == (2, f"Unknown  {path} (Auto): Permission denied: {path}\n")


def test_checksums_are_compared_unless_told_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = layouts.megatron(tmp_path / "iter_0000100", integrity=True)
    (path / "__1_0.distcp").write_bytes(b"\7" * 100)
    age(path)
    assert verify(capsys, path, "--quick")[0] == 0
    code, said = verify(capsys, path)
    assert code == 1
    assert "__1_0.distcp has sha256" in said


def test_of_several_the_newest_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for attempt, step in ((1, 100), (1, 200), (2, 300)):
        layouts.dcp(tmp_path / f"a{attempt}" / f"step-{step}")
    (tmp_path / "a2/step-300/.metadata").unlink()
    code, said = verify(capsys, tmp_path)
    assert code == 1
    assert [line.split()[0] for line in said.splitlines()] == ["Invalid", "Valid", "Valid"]
    shutil.rmtree(tmp_path / "a2")
    assert verify(capsys, tmp_path / "a1")[0] == 0


def test_nothing_there_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(capsys, tmp_path) == (1, f"Invalid  {tmp_path}: there is no checkpoint\n")


def test_an_unknown_format_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(capsys, tmp_path, "--format", "Zarr")[0] == 2


def test_a_format_that_is_named_is_insisted_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = layouts.dcp(tmp_path / "step-100")
    assert verify(capsys, path, "--format", "HuggingFace")[0] == 1
