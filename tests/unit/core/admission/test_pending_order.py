"""Which pending runs a cycle looks for nodes for, in which order, and why each of the others is passed over."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.kueue_admission import KueueAdmission
from lockstep.core.admission.pending_order import sort_pending_runs
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import PodView, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, pod, run, world
from support.arrays import ended

FIRST, SECOND = run("first", at=-2.0), run("second", at=-1.0)


@pytest.mark.parametrize(
    ("runs", "queue", "pods", "in_order", "passed_over"),
    [
        ([SECOND, FIRST], {}, [], ["first", "second"], {}),
        ([FIRST, run("has", status=held("n0"))], {}, [], ["first"], {}),
        ([FIRST, SECOND], {"limits": {"maxPendingRuns": 1}}, [], ["first"], {"second": WaitReason.PENDING_RUNS_LIMIT}),
        ([FIRST, SECOND], {}, [pod(FIRST, 0, "n0")], ["second"], {"first": WaitReason.EARLIER_PODS}),
        ([FIRST, run("late", dependsOn=[{"name": "first"}])], {}, [], ["first"], {"late": WaitReason.DEPENDENCY}),
        (
            [run("one", at=-1.0, singleton="train"), run("two", singleton="train")],
            {},
            [],
            ["one"],
            {"two": WaitReason.SINGLETON},
        ),
        ([FIRST], {"stopPolicy": "Hold"}, [], [], {"first": WaitReason.QUEUE_HELD}),
    ],
)
def test_who_could_start_stands_in_order_and_whoever_is_held_back_says_why(
    runs: Sequence[RunView],
    queue: Mapping[str, Any],
    pods: Sequence[PodView],
    in_order: list[str],
    passed_over: dict[str, WaitReason],
) -> None:
    cycle = CycleState(world(runs, queues={"default": queue}, pods=pods), Tunables(), NOW, CycleMemory())
    pending = sort_pending_runs(cycle, KueueAdmission(cycle))
    assert [row.run.name for row in pending.in_order] == in_order
    reasons = {row.run.name: row.entry.reason for row in pending.held}
    assert {name: reason.word for name, reason in reasons.items() if reason is not None} == passed_over


@pytest.mark.parametrize(
    ("spec", "queue"), [({"notBefore": "2100-01-01T00:00:00Z"}, {}), ({}, {"stopPolicy": "Hold"}), ({}, {})]
)
def test_what_a_run_comes_after_is_remembered_whatever_else_holds_it(
    spec: Mapping[str, Any], queue: Mapping[str, Any]
) -> None:
    """The run before it may be deleted by the time that it is let go."""
    before = run("first", status=ended("Succeeded"))
    after = run("late", dependsOn=[{"name": "first", "condition": "Finished"}], **spec)
    cycle = CycleState(world([before, after], queues={"default": queue}), Tunables(), NOW, CycleMemory())
    sort_pending_runs(cycle, KueueAdmission(cycle))
    entry = cycle.entry_of(after.uid)
    assert entry is not None
    assert entry.status.admission.met == ("first Finished",)
    assert (entry.reason is None) is not bool(spec or queue)
