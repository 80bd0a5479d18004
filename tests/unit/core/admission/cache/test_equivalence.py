"""What some of those that wait ask for alike."""

import pytest

from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.cache.equivalence import EquivalenceClass, NodeRequest
from lockstep.core.admission.queueing.queue_rules import QueueRules

RULES = QueueRules(TrainingQueueSpec(), 0)


@pytest.mark.parametrize(
    ("duration", "least", "shortest"), [(10.0, None, 10.0), (10.0, 4.0, 4.0), (10.0, 10.0, 10.0), (10.0, 99.0, 10.0)]
)
def test_a_group_takes_no_less_than_the_time_it_may_be_cut_to(
    duration: float, least: float | None, shortest: float
) -> None:
    assert EquivalenceClass(NodeRequest(), RULES, True, duration, least, None).shortest == shortest


def test_two_groups_are_two_however_alike() -> None:
    wish = NodeRequest()
    one, other = (EquivalenceClass(wish, RULES, True, 10.0, None, None) for _ in range(2))
    assert len({one, other}) == 2
    assert NodeRequest() != wish
