"""Which nodes a run leaves after a failure, and which it keeps."""

from dataclasses import replace

from lockstep.core.failures.actions import act
from lockstep.core.model.reasons import AttemptCause
from support.failure_cases import IN_PLACE, LINK, REPLACE, case, cause, failed_before


def test_only_what_the_evidence_points_at_leaves_its_node() -> None:
    assert act(cause(AttemptCause.HARDWARE), case()).slots == (1,)
    assert act(cause(AttemptCause.HANG, exited=False, slots=(3,)), case(first_failures=failed_before())).slots == (1, 3)
    assert act(cause(AttemptCause.APPLICATION), case()).slots == ()


def test_of_two_nodes_that_do_not_reach_each_other_the_one_that_is_named_leaves() -> None:
    assert act(LINK, case(first_failures=failed_before(), suspects=frozenset({"n0", "n1"}))).slots == (1,)


def test_a_suspect_that_failed_before_counts_although_another_comes_first() -> None:
    hang = cause(AttemptCause.HANG, exited=False, slots=(3,))
    known = case(first_failures=failed_before(node="n3"))
    assert act(hang, known).verb is IN_PLACE
    assert act(hang, replace(known, suspects=frozenset({"n3"}))).slots == (1, 3)


def test_a_node_lost_twice_in_a_day_is_not_taken_back() -> None:
    lost = cause(AttemptCause.NODE_LOST, exited=False, lost=True)
    assert act(lost, case(lost_slots=(1,))).slots == ()
    assert act(lost, case(lost_slots=(1,), first_failures=failed_before())).slots == (1,)


def test_no_further_node_is_excluded_than_the_limit_allows_and_it_is_said() -> None:
    enough = "2 nodes were excluded within an hour, and 2 are the most"
    kept = act(cause(AttemptCause.APPLICATION), case(first_failures=failed_before(), excluded_enough=enough))
    assert (kept.verb, kept.slots, kept.alert) == (IN_PLACE, (), enough)
    broken = act(cause(AttemptCause.HARDWARE), case(excluded_enough=enough))
    assert (broken.verb, broken.alert) == (REPLACE, enough)


def test_a_rank_that_alone_saw_nan_first_twice_gets_another_node() -> None:
    assert act(cause(AttemptCause.NAN, exited=False), case(roll_backs=0)).slots == ()
    assert act(cause(AttemptCause.NAN, exited=False), case(roll_backs=1)).slots == (1,)
    assert act(cause(AttemptCause.NAN, exited=False, tied=(0,)), case(roll_backs=1)).slots == ()
