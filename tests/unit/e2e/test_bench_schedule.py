"""The simulation of queues: the same jobs for every way, and the outcome that the literature leads one to expect."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.schedule import WAYS, Figures, main, played, simulate
from bench.traces import Arrival, Workload, shaped, synthetic
from lockstep.core.model import node_set

SHORT = Workload(jobs=100, nodes=64)
TRACES = [synthetic, shaped]

Trace = Callable[[Workload], list[Arrival]]


def figures(trace: Trace, workload: Workload, name: str) -> Figures:
    return simulate(trace(workload), workload.nodes, WAYS[name])


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", WAYS)
def test_the_same_seed_gives_the_same_figures(trace: Trace, name: str) -> None:
    assert figures(trace, SHORT, name) == figures(trace, SHORT, name)


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", WAYS)
def test_every_job_runs_for_its_runtime_after_it_came_on_nodes_that_nobody_else_has(trace: Trace, name: str) -> None:
    arrivals = trace(SHORT)
    stays = played(arrivals, SHORT.nodes, WAYS[name])
    for arrival, stay in zip(arrivals, stays, strict=True):
        assert stay.start >= arrival.at
        assert stay.end == stay.start + arrival.runtime
        assert stay.nodes.bit_count() == arrival.nodes
        assert stay.nodes & ~node_set.span(0, SHORT.nodes) == 0
    for number, stay in enumerate(stays):
        for other in stays[:number]:
            assert stay.nodes & other.nodes == 0 or stay.end <= other.start or other.end <= stay.start


@pytest.mark.parametrize("trace", TRACES)
def test_without_backfill_jobs_start_in_the_order_in_which_they_came(trace: Trace) -> None:
    starts = [stay.start for stay in played(trace(SHORT), SHORT.nodes, WAYS["fifo"])]
    assert starts == sorted(starts)


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_backfill_makes_jobs_wait_less_than_fifo_and_uses_more_of_the_cluster(trace: Trace, seed: int) -> None:
    workload = Workload(jobs=300, nodes=64, seed=seed)
    fifo = figures(trace, workload, "fifo")
    for name in ("easy", "conservative"):
        backfilled = figures(trace, workload, name)
        assert backfilled.mean_wait < fifo.mean_wait
        assert backfilled.mean_bounded_slowdown < fifo.mean_bounded_slowdown
        assert backfilled.utilisation > fifo.utilisation


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("name", WAYS)
def test_no_more_of_the_cluster_is_used_than_the_load_that_comes(trace: Trace, name: str) -> None:
    arrivals = trace(SHORT)
    came = sum(arrival.nodes * arrival.runtime for arrival in arrivals) / (SHORT.nodes * arrivals[-1].at)
    assert 0 < simulate(arrivals, SHORT.nodes, WAYS[name]).utilisation <= min(1.0, came)


def test_waits_slowdowns_and_utilisation_are_those_of_a_case_done_by_hand() -> None:
    """Of two nodes one is taken for 100 s, the second job wants both, the third one for 20 s."""
    arrivals = [Arrival(0, 1, 100, 100, 2), Arrival(10, 2, 50, 50, 1), Arrival(20, 1, 20, 20, 0)]
    assert simulate(arrivals, 2, WAYS["fifo"]) == Figures(
        (0 + 90 + 130) / 3, (1 + 140 / 50 + 150 / 20) / 3, (100 + 100 + 20) / (2 * 170)
    )
    assert simulate(arrivals, 2, WAYS["easy"]) == Figures((0 + 90 + 0) / 3, (1 + 140 / 50 + 1) / 3, 220 / 300)
    assert simulate(arrivals, 2, WAYS["conservative"]) == simulate(arrivals, 2, WAYS["easy"])
    assert simulate(arrivals, 2, WAYS["priority"]).mean_wait == (0 + 90 + 0) / 3


def test_jobs_shorter_than_the_bound_count_as_if_they_were_as_long() -> None:
    arrivals = [Arrival(0, 1, 100, 100, 0), Arrival(0, 1, 1, 1, 0)]
    assert simulate(arrivals, 1, WAYS["fifo"]).mean_bounded_slowdown == (1 + 101 / 10) / 2


SWF = "; MaxProcs: 2\n" + "".join(
    f"{number} {at} -1 {run} {taken} -1 -1 {taken} {limit} -1 1 -1 -1 -1 -1 -1 -1 -1\n"
    for number, at, run, taken, limit in [(1, 0, 100, 1, 100), (2, 10, 50, 2, 50), (3, 20, 20, 1, 20)]
)


def said_by(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["bench.schedule", *arguments])
    assert main() == 0
    said: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return said


@pytest.mark.slow
def test_the_last_line_shows_both_traces_and_is_the_same_for_the_same_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--jobs", "60", "--nodes", "32", "--load", "0.7", "--seed", "5")
    said = said_by(monkeypatch, capsys, *arguments)
    assert said == said_by(monkeypatch, capsys, *arguments)
    assert [*said] == ["bench", "jobs", "nodes", "load", "seed", "synthetic", "shaped"]
    workload = Workload(jobs=60, nodes=32, load=0.7, seed=5)
    for trace in TRACES:
        shown = said[trace.__name__]
        assert isinstance(shown, dict)
        assert [*shown] == ["offered_load", *WAYS]
        assert shown["easy"] == figures(trace, workload, "easy").shown()
    other = said_by(monkeypatch, capsys, *arguments[:-1], "6")
    assert other["synthetic"] != said["synthetic"]
    assert other["shaped"] != said["shaped"]


@pytest.mark.parametrize("name", ["log.swf", "log.swf.gz"])
def test_a_log_is_replayed_in_place_of_the_models(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / name
    log.write_bytes(gzip.compress(SWF.encode()) if name.endswith(".gz") else SWF.encode())
    said = said_by(monkeypatch, capsys, "--swf", str(log))
    assert [*said] == ["bench", "jobs", "nodes", "load", "seed", "swf"]
    assert (said["jobs"], said["nodes"], said["load"]) == (3, 2, None)
    shown = said["swf"]
    assert isinstance(shown, dict)
    assert shown["offered_load"] == 220 / (2 * 20)
    assert shown["fifo"]["mean_wait_s"] == round((0 + 90 + 130) / 3, 1)
    assert shown["easy"]["mean_wait_s"] == 30
    stretched = said_by(monkeypatch, capsys, "--swf", str(log), "--load", "0.5")["swf"]
    assert isinstance(stretched, dict)
    assert stretched["offered_load"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--swf", "/nowhere.swf"], "/nowhere.swf cannot be read"),
        (["--jobs", "0"], "'0' is no whole number of 1 or more"),
        (["--load", "nan"], "'nan' is no number above 0"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_is_wrong(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.schedule", *arguments])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert words in capsys.readouterr().err


def test_a_damaged_archive_is_refused_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = gzip.compress(SWF.encode())
    for damaged in (whole[:-12], whole[:12] + b"\xff" * 20 + whole[32:], SWF.encode()):
        log = tmp_path / "log.swf.gz"
        log.write_bytes(damaged)
        monkeypatch.setattr(sys, "argv", ["bench.schedule", "--swf", str(log)])
        with pytest.raises(SystemExit):
            main()
        assert "cannot be read" in capsys.readouterr().err
