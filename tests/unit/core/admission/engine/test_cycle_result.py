"""What a cycle comes to: who waits for what, in the order in which they were asked."""

import pytest

from lockstep.core.admission.engine.cycle_result import Reservation, Wait, Waits
from lockstep.core.admission.engine.jobs import Job, Option
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.model.reasons import WaitReason
from support.small_queues import CHOICES, EVERY

OPTION = Option("A", 2, EVERY, CHOICES["anywhere", 2])
NODES = NodeSet(0b11)
FIRST, THIRD = Wait(WaitReason.RESOURCES), Wait(WaitReason.PRIORITY, blockers=("a",))
JOBS = [Job(uid, "q", (OPTION,), 1.0) for uid in "abcd"]


@pytest.mark.parametrize(
    ("reservation", "start", "nodes"),
    [
        (None, None, EMPTY),
        (Reservation(5.0, 9.0, OPTION, NODES), 5.0, NODES),
        (Reservation(5.0, 9.0, OPTION, NODES, known=False), None, NODES),
    ],
)
def test_a_wait_names_its_start_if_anybody_can_know_it(
    reservation: Reservation | None, start: float | None, nodes: NodeSet
) -> None:
    wait = Wait(WaitReason.RESOURCES, reservation)
    assert (wait.start, wait.nodes) == (start, nodes)


@pytest.mark.parametrize(
    ("answers", "waiting"),
    [
        ([], {}),
        ([None, None, None, None], {}),
        ([FIRST, None, THIRD, None], {"a": FIRST, "c": THIRD}),
        ([FIRST, THIRD], {"a": FIRST, "b": THIRD}),
        ([FIRST, FIRST, FIRST, THIRD], {"a": FIRST, "b": FIRST, "c": FIRST, "d": THIRD}),
    ],
)
def test_who_starts_or_was_not_looked_at_does_not_wait(answers: list[Wait | None], waiting: dict[str, Wait]) -> None:
    waits = Waits(JOBS, answers)
    assert dict(waits) == waiting
    assert len(waits) == len(waiting)
    assert list(waits.in_order) == list(waiting.values())
    assert [job.uid for job in waits.waiting(JOBS)] == list(waiting)
