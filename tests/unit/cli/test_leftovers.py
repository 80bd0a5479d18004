"""What runs that are gone have left on a node: found by UID, and removed only when all speaks for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from lockstep.api.base import names
from lockstep.cli.actions import leftovers
from lockstep.cli.actions.leftovers import show_or_remove
from lockstep.cli.client import Cluster
from lockstep.cli.errors import ApiServerError, CliError
from support.checkpoint_layouts import written

NOW, DAY = 1_800_000_000.0, 86_400.0
GONE, LIVES, HAS_PODS = (f"0d8f5f6e-1111-2222-3333-{number:012d}" for number in (1, 2, 3))
BOOT = "5e1f5b1c-boot"


class Api:
    """A cluster with one run, one pod of a run that is gone, and one node."""

    def __init__(self) -> None:
        self.forbids = ""
        self.boot_id = BOOT

    def list(self, path: str, **query: object) -> dict[str, Any]:
        resource = path.rpartition("/")[2]
        if resource == self.forbids:
            raise ApiServerError(403, f"{resource} is forbidden")
        if resource == "pods":
            assert query == {"labelSelector": names.LABEL_RUN_UID}
            return {"items": [{"metadata": {"labels": {names.LABEL_RUN_UID: HAS_PODS}}}]}
        if resource == "nodes":
            infos = [{}, {"nodeInfo": {"bootID": "other"}}, {"nodeInfo": {"bootID": self.boot_id}}]
            return {"items": [{"metadata": {"name": f"n{i}"}, "status": info} for i, info in enumerate(infos)]}
        assert path == f"/apis/{names.API_VERSION}/{names.RUNS}"
        return {"items": [{"metadata": {"uid": LIVES}}]}


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of three runs of the same name, of which one is gone; last written eight days ago."""
    monkeypatch.setattr(leftovers, "BOOT_ID", written(tmp_path / "boot_id", BOOT + "\n"))
    for uid in (GONE, LIVES, HAS_PODS):
        shard = written(tmp_path / "nvme/team/llama" / uid / "a1/step-100/rank-0/weights.bin", b"w" * 5000)
        os.utime(shard, (NOW - 8 * DAY, NOW - 8 * DAY))
    return tmp_path / "nvme"


def uids(storage: Path) -> list[str]:
    return sorted(path.name for path in storage.glob("*/*/*"))


def ask(storage: Path, api: Api | None = None, *, older_than: float = 7 * DAY, removes: bool = True) -> None:
    show_or_remove(cast(Cluster, api or Api()), str(storage), older_than=older_than, removes=removes, now=NOW)


def test_only_what_the_cluster_has_no_record_of_is_removed(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(storage)
    assert uids(storage) == sorted([LIVES, HAS_PODS])
    assert capsys.readouterr().out == "n2: 0.0 GiB of 1 run removed\n"


def test_it_is_shown_before_anything_is_removed(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(storage, removes=False)
    assert len(uids(storage)) == 3
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.split() == ["team/llama", GONE, "0.0", "GiB", "8d", "ago"]


def test_what_was_written_not_long_ago_stays(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(storage, older_than=9 * DAY)
    youngest = written(storage / "team/llama" / GONE / "a2/step-200/rank-0/weights.bin", b"w")
    os.utime(youngest, (NOW - DAY, NOW - DAY))
    new = storage / "team/new" / "0d8f5f6e-1111-2222-3333-000000000009"  # nothing is in it yet
    new.mkdir(parents=True)
    os.utime(new, (NOW - DAY, NOW - DAY))
    ask(storage)
    assert len(uids(storage)) == 4
    ask(storage, removes=False)
    assert "known to this cluster, or wrote it not long ago" in capsys.readouterr().err


def test_nothing_is_removed_on_the_word_of_another_cluster(storage: Path) -> None:
    other = Api()
    other.boot_id = "elsewhere"
    with pytest.raises(CliError, match="no node of that cluster"):
        ask(storage, other)
    assert len(uids(storage)) == 3
    ask(storage, other, removes=False)


@pytest.mark.parametrize("resource", ["pods", "nodes", names.RUNS])
def test_who_may_not_know_all_removes_nothing(storage: Path, resource: str) -> None:
    api = Api()
    api.forbids = resource
    with pytest.raises(CliError, match="forbidden"):
        ask(storage, api)
    assert len(uids(storage)) == 3


def test_what_is_called_otherwise_and_links_are_left_alone(storage: Path, tmp_path: Path) -> None:
    outside = written(tmp_path / "outside" / "a1" / "weights.bin", b"w")
    os.utime(outside, (NOW - 8 * DAY, NOW - 8 * DAY))
    (storage / "team/llama" / GONE / "a1" / "link").symlink_to(tmp_path / "outside")
    other = "0d8f5f6e-1111-2222-3333-00000000000a"
    (storage / "team/llama" / other).symlink_to(tmp_path / "outside")
    (storage / "team/linked").symlink_to(storage / "team/llama")
    for name in ("data", GONE.upper(), f"{GONE}-copy"):
        os.utime(written(storage / "team/llama" / name / "file", b"w"), (0, 0))
    ask(storage)
    assert outside.exists()
    left = [path.name for path in (storage / "team/llama").iterdir()]
    assert sorted(left) == sorted([LIVES, HAS_PODS, other, "data", GONE.upper(), f"{GONE}-copy"])


def test_a_removal_that_was_cut_off_is_finished(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", lambda path: None)
        ask(storage)
    assert uids(storage) == sorted([LIVES, HAS_PODS, f".{GONE}.removed"])
    ask(storage)
    assert uids(storage) == sorted([LIVES, HAS_PODS])


def test_what_cannot_be_removed_is_told_and_the_rest_goes(
    storage: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = "0d8f5f6e-1111-2222-3333-000000000000"
    (storage / "team/llama" / GONE).rename(storage / "team/llama" / second)
    os.utime(written(storage / "team/llama" / GONE / "a1/file", b"w"), (0, 0))
    real = Path.rename

    def refuses(path: Path, target: Path) -> Path:
        if path.name == second:
            raise OSError(1, "Operation not permitted", str(path))
        return real(path, target)

    monkeypatch.setattr(Path, "rename", refuses)
    ask(storage)
    assert uids(storage) == sorted([LIVES, HAS_PODS, second])
    said = capsys.readouterr()
    assert "Operation not permitted" in said.err
    assert "of 1 run removed" in said.out


def test_no_directory_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="is no directory"):
        ask(tmp_path / "nvme")
