"""Which pods a rank's log comes from, and which lines of them."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.cli import runs
from lockstep.cli.errors import CliError
from lockstep.cli.views import logs
from lockstep.cli.views.logs import Wanted
from support import sample_runs as sample

LOG = [
    b"lockstep: not ready: /dev/shm is full\n",
    b"lockstep: attempt=1 rank=2 node=gpu-3 resume=none world=4 master=10.0.0.1:20001 start\n",
    b"step 1\n",
    b"lockstep: attempt=1 node=gpu-3 end code=1 reason=Error after=9.0s\n",
    b"lockstep: attempt=12 rank=2 node=gpu-3 resume=300 world=4 master=10.0.0.1:20002 start\n",
    b"step 301\n",
]


def view(**changes: Any) -> Any:
    return runs.view(sample.running(**changes))


def test_a_rank_is_read_from_its_current_incarnation() -> None:
    assert logs.pod_names(view(), 2, Wanted()) == ["llama-c83fa-2-2"]


def test_an_attempt_is_sought_in_the_pod_before_too() -> None:
    assert logs.pod_names(view(), 2, Wanted(attempt=1)) == ["llama-c83fa-2-1", "llama-c83fa-2-2"]
    assert logs.pod_names(view(), 0, Wanted(attempt=1)) == ["llama-c83fa-0-1"]


def test_an_attempt_is_cut_out_at_the_markers_of_the_worker() -> None:
    assert list(logs.of_attempt(iter(LOG), 1)) == LOG[1:4]
    assert list(logs.of_attempt(iter(LOG), 12)) == LOG[4:]
    assert list(logs.of_attempt(iter(LOG), 2)) == []


def test_markers_are_found_behind_timestamps() -> None:
    stamped = [b"2026-12-01T00:00:00.123456789Z " + line for line in LOG]
    assert list(logs.of_attempt(iter(stamped), 12)) == stamped[4:]


@pytest.mark.parametrize(("ranks", "chosen"), [("", [0, 1, 2, 3]), ("2", [2]), ("0-1,3", [0, 1, 3])])
def test_ranks_are_named_in_ranges(ranks: str, chosen: list[int]) -> None:
    assert logs.chosen_ranks(view(), ranks) == chosen


@pytest.mark.parametrize(("ranks", "words"), [("4", "has ranks 0-3, not 4"), ("x", "is no set of ranks")])
def test_ranks_that_there_are_not_are_refused(ranks: str, words: str) -> None:
    with pytest.raises(CliError, match=words):
        logs.chosen_ranks(view(), ranks)


def test_a_large_gang_asks_which_ranks_are_meant() -> None:
    nodes = [f"gpu-{n}" for n in range(512)]
    large = view(assignment={"nodes": nodes, "incarnations": [1] * 512})
    with pytest.raises(CliError, match="has 512 ranks; name those to show"):
        logs.chosen_ranks(large, "")


def test_a_suspended_gang_still_has_its_ranks() -> None:
    released = view(assignment={"incarnations": [1, 1, 2, 1]})
    assert logs.chosen_ranks(released, "") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("launcher", "ranks", "told"), [("MPI", "1-2", True), ("MPI", "0,2", False), ("Torchrun", "1", False)]
)
def test_whoever_asks_for_ranks_that_stand_by_is_told_where_the_output_is(
    launcher: str, ranks: str, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = sample.running()
    raw["spec"] |= {"launcher": {"type": launcher}}
    cluster: Any = None
    monkeypatch.setattr(runs, "fetch", lambda cluster, name: raw)
    monkeypatch.setattr(runs, "whole", lambda cluster, view: view)
    monkeypatch.setattr(logs, "rank_lines", lambda cluster, run, rank, wanted: iter(()))
    logs.show(cluster, "llama", ranks, Wanted())
    assert ("the command is on rank 0" in capsys.readouterr().err) is told
