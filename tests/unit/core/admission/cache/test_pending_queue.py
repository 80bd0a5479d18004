"""The queue of those who wait: everybody's place, and who is judged anew in a cycle."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_status import AdmissionStatus, QueueStatus
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.settings import Weights
from lockstep.core.model.snapshot import ClusterSnapshot, RefusedAdmission, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, run, world

SETTINGS = AdmissionSettings(Weights(priority_class=1000, age=100, fair_share=1000), max_age=1000.0)
SHARES = {("default", "team", ""): 0.5}


class Queue:
    """Cycle by cycle, with what each leaves to the next."""

    def __init__(self) -> None:
        self.memory = CycleMemory()

    def order(self, snapshot: ClusterSnapshot, now: float = NOW) -> Sequence[RunRow]:
        tunables = Tunables(admission=SETTINGS)
        run_index = self.memory.observe(snapshot, tunables, now)
        return self.memory.pending_queue.put_in_order(run_index, self.memory.rules, snapshot, tunables, now)

    def names(self, snapshot: ClusterSnapshot, now: float = NOW) -> list[str]:
        return [row.run.name for row in self.order(snapshot, now)]


def cluster(*runs: RunView, **more: Any) -> ClusterSnapshot:
    return world(runs, classes={"high": 10}, **more)


A, B, C = (run(name, at=at) for name, at in (("a", NOW), ("b", NOW - 1), ("c", NOW - 2)))
URGENT = run("urgent", at=NOW, priorityClassName="high")
REQUEUED = replace(A, status=changed(A.status, admission=AdmissionStatus(requeued_for="Preempted")))
RUNS = run("runs", status=held("n0"))


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ((), []),
        ((A, B, C), ["c", "b", "a"]),
        ((A, B, URGENT), ["urgent", "b", "a"]),
        ((REQUEUED, B), ["a", "b"]),
        ((REQUEUED, B, URGENT), ["urgent", "a", "b"]),
        ((A, RUNS, run("suspended", suspend=True)), ["a"]),
    ],
)
@pytest.mark.parametrize("before", [(), (A,), (B, A, C), (URGENT, RUNS)])
def test_those_who_wait_are_in_order_whoever_waited_before(
    before: tuple[RunView, ...], runs: tuple[RunView, ...], names: list[str]
) -> None:
    queue = Queue()
    queue.order(cluster(*before))
    assert queue.names(cluster(*runs)) == names
    assert queue.names(cluster(*runs)) == names


def test_a_share_that_falls_moves_its_runs_back() -> None:
    other = run("other", at=NOW, queue="q")
    snapshot = cluster(A, other, queues={"q": {}})
    queue = Queue()
    assert queue.names(snapshot) == ["a", "other"]
    assert queue.names(replace(snapshot, fair_shares=SHARES)) == ["other", "a"]
    assert queue.names(snapshot) == ["a", "other"]


def test_age_counts_as_it_comes_without_a_look_at_those_whose_points_last() -> None:
    """Each point of the class weighs more than all age; within it, a point of age comes each ten seconds."""
    queue, snapshot = Queue(), cluster(A)
    points = [queue.order(snapshot, NOW + after)[0].entry.points.age for after in (0, 9, 10, 35, 5000)]
    assert points == [0, 0, 1, 3, 100]


@pytest.mark.parametrize(
    ("view", "more", "held_for", "judged_at"),
    [
        (A, {}, None, NOW + 10),
        (run("a", at=NOW, notBefore=to_rfc3339(NOW + 5)), {}, "BeginTime", NOW + 5),
        (run("a", at=NOW, notBefore=to_rfc3339(NOW + 50)), {}, "BeginTime", NOW + 10),
        (replace(A, annotations={"lockstep.dev/paused": "true"}), {}, "Paused", NOW + 10),
        (A, {"queues": {"default": {"stopPolicy": "Hold"}}}, "QueueHeld", NOW + 10),
    ],
)
def test_what_holds_a_run_back_is_judged_again_when_it_ends_or_points_change(
    view: RunView, more: dict[str, Any], held_for: str | None, judged_at: float
) -> None:
    [row] = Queue().order(cluster(view, **more))
    assert (None if row.held is None else row.held.word) == held_for
    assert row.judge_at == pytest.approx(judged_at, abs=0.02)


def test_a_hold_ends_with_its_time_with_its_rule_and_with_its_refusal() -> None:
    queue, free = Queue(), cluster(A)
    refused = replace(free, refused={"uid-a": RefusedAdmission("quota", NOW + 5)})
    stopped = cluster(A, queues={"default": {"stopPolicy": "Hold"}})
    begins = cluster(run("a", at=NOW, notBefore=to_rfc3339(NOW + 5)))
    words = [
        None if (held := queue.order(snapshot, now)[0].held) is None else held.word
        for snapshot, now in (
            (free, NOW), (stopped, NOW), (free, NOW), (refused, NOW), (refused, NOW + 5), (refused, NOW + 5),
            (begins, NOW + 4), (begins, NOW + 5),
        )
    ]  # fmt: skip
    assert words == [None, "QueueHeld", None, "AdmissionRefused", None, None, "BeginTime", None]


@pytest.mark.parametrize(("told", "misled"), [(None, False), (0, False), (5, False), (6, True)])
def test_who_was_told_other_points_is_misled(told: int | None, misled: bool) -> None:
    heard = QueueStatus() if told is None else QueueStatus(updated=NOW, factors={"age": told, "fairShare": 1000})
    [row] = Queue().order(cluster(replace(A, status=changed(A.status, queue=heard))))
    assert row.misled is misled
