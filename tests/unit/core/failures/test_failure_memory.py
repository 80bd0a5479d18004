"""What a run remembers of nodes that failed it, and for how long."""

import math
from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import ExcludedNode, FirstFailure, NodeRefusalsStatus, RecoveryStatus, SlotLosses
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.failure_memory import (
    ONE_HOUR,
    exclude,
    excluded_enough,
    first_failures_on,
    forget_earlier_refusals,
    lost_pods,
    readmit_mended,
)
from lockstep.core.failures.signs import UNHEALTHY_DEVICE
from support.world import GPU, World, node, spec, world_with_gang

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("failures", "count"),
    [
        ((), 0),
        ((("n1", 0.0),), 1),
        ((("n1", 0.0), ("n1", ONE_DAY - 1)), 2),
        ((("n1", ONE_DAY),), 0),
        ((("n2", 0.0),), 0),
    ],
)
def test_failures_of_a_node_count_for_a_day(failures: tuple[tuple[str, float], ...], count: int) -> None:
    recovery = RecoveryStatus(
        first_failures=tuple(FirstFailure(node=name, time=NOW - ago, cause="Hang") for name, ago in failures)
    )
    assert first_failures_on(recovery, "n1", NOW) == count


@pytest.mark.parametrize(
    ("slot", "name", "ago", "count"),
    [(1, "n1", 0.0, 2), (1, "n1", ONE_DAY, 0), (1, "n1", None, 2), (0, "n1", 0.0, 0), (1, "n2", 0.0, 0)],
)
def test_lost_pods_are_those_of_the_slot_on_this_node(slot: int, name: str, ago: float | None, count: int) -> None:
    entry = SlotLosses(slot=1, node="n1", count=2, time=None if ago is None else NOW - ago)
    assert lost_pods(RecoveryStatus(slot_losses=(entry,)), slot, name, NOW) == count


@pytest.mark.parametrize(
    ("nodes", "excluded", "ago", "more", "enough"),
    [
        (2, 1, 0.0, 1, False),
        (2, 2, 0.0, 1, True),
        (2, 2, ONE_HOUR, 1, False),
        (2, 1, 0.0, 2, True),
        (30, 2, 0.0, 1, False),
        (30, 3, 0.0, 1, True),
    ],
)
def test_two_nodes_or_a_tenth_of_all_may_be_excluded_within_an_hour(
    nodes: int, excluded: int, ago: float, more: int, enough: bool
) -> None:
    w = world_with_gang(2, nodes=nodes)
    w.now -= ago
    plan = w.plan("one")
    for number in range(excluded):
        exclude(plan, f"n{number}", "bad", 1e6)
    w.amend("one", recovery=plan.status.recovery)
    w.now = plan.stamp + ago
    assert bool(excluded_enough(w.plan("one"), more)) is enough


def test_nodes_too_small_for_the_gang_are_not_counted() -> None:
    w = World({f"n{i}": node(f"n{i}", allocatable=GPU if i < 2 else {**GPU, "nvidia.com/gpu": 1}) for i in range(40)})
    w.roll_out("one", spec(2))
    plan = w.plan("one")
    for name in ("n0", "n1"):
        exclude(plan, name, "bad", 1e6)
    assert excluded_enough(plan)


@pytest.mark.parametrize(("seconds", "lasts"), [(60.0, 60.0), (math.inf, None)])
def test_a_node_is_excluded_for_so_long_or_for_good(seconds: float, lasts: float | None) -> None:
    plan = world_with_gang(2).plan("one")
    exclude(plan, "n1", "x" * 300, seconds)
    exclude(plan, "n1", "again", seconds)
    (entry,) = plan.status.recovery.excluded_nodes
    assert (entry.reason, entry.until) == ("again", None if lasts is None else plan.stamp + lasts)


@pytest.mark.parametrize(
    ("condition", "node_has", "gpus", "ready", "readmitted"),
    [
        ("BadDisk", {}, 8, True, True),
        ("BadDisk", {"BadDisk": "x"}, 8, True, False),
        ("BadDisk", {}, 8, False, False),
        ("", {}, 8, True, False),
        (UNHEALTHY_DEVICE, {}, 8, True, True),
        (UNHEALTHY_DEVICE, {}, 7, True, False),
    ],
)
def test_a_node_excluded_for_a_condition_comes_back_without_it(
    condition: str, node_has: dict[str, str], gpus: int, ready: bool, readmitted: bool
) -> None:
    w = world_with_gang(2)
    plan = w.plan("one")
    exclude(plan, "n1", "bad", 1e6, condition)
    w.amend("one", recovery=plan.status.recovery)
    allocatable = {**GPU, "nvidia.com/gpu": gpus}
    w.nodes["n1"] = replace(w.nodes["n1"], conditions=node_has, allocatable=allocatable, ready=ready)
    plan = w.plan("one")
    readmit_mended(plan)
    assert (not plan.status.recovery.excluded_nodes) is readmitted
    assert plan.admission_changed is readmitted


@pytest.mark.parametrize(("refused", "waits", "kept"), [(1, True, 4), (1, False, 4), (0, False, 4), (0, True, 3)])
def test_what_another_spec_was_refused_for_is_forgotten_and_nothing_else(refused: int, waits: bool, kept: int) -> None:
    w = world_with_gang(1)
    shortly = w.tunables.excluded_shortly_seconds
    excluded = [("n1", shortly), ("n2", shortly), ("n3", ONE_DAY), ("n4", None)]
    refusals = NodeRefusalsStatus(nodes=("n1", "n3", "n4"), message="OutOfcpu", waits=waits, generation=refused)
    recovery = changed(
        w.status("one").recovery,
        refusals=refusals,
        not_before=w.now + 900,
        excluded_nodes=tuple(
            ExcludedNode(node=name, reason="x", since=w.now, until=None if lasts is None else w.now + lasts)
            for name, lasts in excluded
        ),
    )
    w.amend("one", recovery=recovery)
    plan = w.plan("one")
    forget_earlier_refusals(plan)
    found = plan.status.recovery
    assert len(found.excluded_nodes) == kept
    assert (found.refusals is None, found.not_before is None) == ((True, True) if kept == 3 else (False, False))
