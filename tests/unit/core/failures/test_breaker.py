"""When losses are taken for the cluster's trouble, and for how long."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.failures.breaker import disruption, is_slow, slow_in_words
from lockstep.core.model.settings import Breaker
from lockstep.core.model.snapshot import ClusterSnapshot, Lag, Taint
from lockstep.core.model.tunables import Tunables
from support.world import spec, world

NOW = 1_000_000.0
LIMITS = Tunables()


def cluster(count: int = 20, *, down: dict[int, float] | None = None) -> ClusterSnapshot:
    """``down``: number of a node -> seconds since it turned NotReady."""
    w = world(count)
    for number, ago in (down or {}).items():
        w.nodes[f"n{number}"] = replace(w.nodes[f"n{number}"], ready=False, ready_changed_at=NOW - ago)
    return w.cluster_snapshot()


@pytest.mark.parametrize(
    ("down", "is_open"),
    [
        ({0: 10.0, 1: 20.0}, False),  # 10 % are not more than 10 %
        ({0: 10.0, 1: 20.0, 2: 30.0}, True),
        ({0: 10.0, 1: 20.0, 2: 200.0}, False),  # not together
        ({0: 1010.0, 1: 1020.0, 2: 1030.0}, True),  # long ago, together, and not back
        ({0: 4010.0, 1: 4020.0, 2: 4030.0}, False),  # for so long that they will not come back
    ],
)
def test_nodes_that_went_together_hold_replacements_back_while_they_are_away(
    down: dict[int, float], is_open: bool
) -> None:
    assert bool(disruption(cluster(down=down), LIMITS, NOW)) is is_open


def test_in_a_small_cluster_a_large_share_may_still_be_few_nodes() -> None:
    assert disruption(cluster(4, down={0: 10.0, 1: 20.0}), LIMITS, NOW) == ""
    assert disruption(cluster(4, down={0: 10.0, 1: 20.0, 2: 30.0}), LIMITS, NOW)


@pytest.mark.parametrize(("count", "is_open"), [(30, False), (29, True)])
def test_the_share_of_nodes_has_to_be_exceeded_and_not_only_reached(count: int, is_open: bool) -> None:
    assert bool(disruption(cluster(count, down={0: 10.0, 1: 20.0, 2: 30.0}), LIMITS, NOW)) is is_open


def test_nodes_declared_out_of_service_are_no_riddle() -> None:
    snapshot = cluster(down={0: 10.0, 1: 20.0, 2: 30.0})
    declared = replace(snapshot.nodes["n0"], taints=(Taint(names.TAINT_OUT_OF_SERVICE, "NoExecute"),))
    assert disruption(replace(snapshot, nodes={**snapshot.nodes, "n0": declared}), LIMITS, NOW) == ""


def test_one_node_and_one_run_are_told_as_one() -> None:
    strict = replace(LIMITS, breaker=Breaker(min_nodes=1, runs=1))
    words = disruption(cluster(1, down={0: 10.0}), strict, NOW)
    assert words.startswith("1 of 1 node turned NotReady within 120 s and did not come back (breaker: ")
    assert disruption(losing(1, ago=10.0, now_is="gone"), strict, NOW).startswith("1 run lost a node within 120 s")
    assert slow_in_words(1, 1, "no heartbeat", Lag()).startswith("1 of 1 rank ")


def losing(runs: int, *, ago: float, now_is: str) -> ClusterSnapshot:
    """Runs that lost one node each, and what it ``now_is``."""
    w = world(100)
    for i in range(runs):
        w.apply(f"run{i}", spec(1))
        seen = NOW - ago
        if now_is == "down":
            w.nodes[f"n{i}"] = replace(w.nodes[f"n{i}"], ready=False, ready_changed_at=NOW - 3000 * (i + 1))
        elif now_is == "back":
            w.nodes[f"n{i}"] = replace(w.nodes[f"n{i}"], ready_changed_at=seen + 1)
        elif now_is == "gone":
            del w.nodes[f"n{i}"]
        entry = AttemptStatus(number=1, cause="NodeLost", node=f"n{i}", ended_at=seen - 600, seen_at=seen)
        w.runs[f"run{i}"] = replace(w.runs[f"run{i}"], status=TrainingRunStatus(attempts=(entry,)))
    return w.cluster_snapshot()


@pytest.mark.parametrize(
    ("runs", "ago", "now_is", "is_open"),
    [
        (4, 10.0, "down", False),
        (5, 10.0, "gone", True),
        (5, 10.0, "back", True),
        (5, 10.0, "as it was", False),  # it was Ready all the while: only its worker was not heard
        (5, 500.0, "down", True),
        (5, 500.0, "gone", False),
        (5, 500.0, "back", False),
        (5, 3700.0, "down", False),  # for so long that the nodes will not come back
    ],
)
def test_runs_that_lose_nodes_together_hold_replacements_back(
    runs: int, ago: float, now_is: str, is_open: bool
) -> None:
    assert bool(disruption(losing(runs, ago=ago, now_is=now_is), LIMITS, NOW)) is is_open


def test_a_run_that_loses_node_after_node_is_one_run() -> None:
    snapshot = losing(1, ago=10.0, now_is="gone")
    (run,) = snapshot.runs
    (entry,) = run.status.attempts
    attempts = tuple(changed(entry, number=number) for number in range(1, 6))
    unlucky = replace(run, status=changed(run.status, attempts=attempts))
    assert disruption(replace(snapshot, runs=(unlucky,)), LIMITS, NOW) == ""


@pytest.mark.parametrize(
    ("late", "of", "slow"),
    [
        (1, 1, False),
        (2, 2, False),
        (2, 16, False),
        (3, 16, True),
        (3, 30, False),  # 10 % are not more than 10 %
        (4, 30, True),
        (3, 256, False),
        (8, 256, False),
        (9, 256, True),  # more than a handful
    ],
)
def test_many_of_a_gang_that_are_late_at_once_are_slow_and_a_few_are_late(late: int, of: int, slow: bool) -> None:
    assert is_slow(late, of, LIMITS.breaker) is slow


def test_what_is_late_together_is_told_with_its_figures() -> None:
    words = slow_in_words(190, 256, "no heartbeat", Lag(loop=3.25, write=2.0, placing=7.0))
    assert words.startswith("190 of 256 ranks are late together: no heartbeat; ")
    assert "3.2 s late" in words
    assert "2.0 s" in words
    assert "a pod kube-scheduler 7.0 s" in words
