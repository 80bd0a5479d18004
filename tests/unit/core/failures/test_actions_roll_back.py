"""How far a run goes back that diverged or could not load, and what is not loaded again."""

from dataclasses import replace

import pytest

from lockstep.core.failures.actions import Case, Verb, act
from lockstep.core.failures.causes import Cause
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import AttemptCause
from support.failure_cases import BACK, IN_PLACE, REPLACE, STOP, case, cause, failed_before


# (local 120 quarantined, shared 100 and 90 are left): NaN within ten steps of the load of a local checkpoint
@pytest.mark.parametrize(
    ("resumed", "step", "verb", "quarantined"),
    [
        (("local", Save(120, 1)), 123, BACK, ("local", Save(120, 1))),
        (("local", Save(120, 1)), 130, BACK, ("local", Save(120, 1))),
        (("local", Save(120, 1)), 131, BACK, None),
        (("shared", Save(120, 1)), 123, BACK, None),
    ],
)
def test_nan_soon_after_a_local_load_is_put_down_to_what_was_loaded(
    resumed: tuple[str, Save], step: int, verb: Verb, quarantined: tuple[str, Save] | None
) -> None:
    action = act(cause(AttemptCause.NAN, exited=False), case(resumed=resumed, step=step, valid_steps=(120, 100, 90)))
    assert (action.verb, action.quarantine) == (verb, quarantined)
    assert (action.ceiling is None) is (quarantined is not None)
    assert quarantined is None or "step 120 of attempt 1 (local) is not loaded again" in action.then


@pytest.mark.parametrize(("known", "is_charged"), [(15, False), (16, True)])
def test_checkpoints_that_cannot_be_loaded_count_once_no_more_of_them_can_be_remembered(
    known: int, is_charged: bool
) -> None:
    action = act(cause(AttemptCause.CORRUPT_CHECKPOINT), case(step=None, quarantined=known))
    assert (action.verb, action.charged) == (BACK, is_charged)


UNREADABLE = cause(AttemptCause.CORRUPT_CHECKPOINT, "Checkpoint:Unreadable", weak=True)
BEFORE = {"resumed": ("shared", Save(90, 1)), "step": None, "unmoved": True, "doubted": (("shared", Save(100, 1)),)}


@pytest.mark.parametrize(
    ("why", "known", "verb", "lifts", "charged"),
    [
        (UNREADABLE, case(step=None), BACK, False, False),
        (UNREADABLE, case(**BEFORE), IN_PLACE, True, True),
        (UNREADABLE, case(**BEFORE, first_failures=failed_before()), REPLACE, True, True),
        (UNREADABLE, case(**BEFORE, streak=2), STOP, True, True),
        (UNREADABLE, case(**{**BEFORE, "doubted": ()}), IN_PLACE, False, True),  # those are lifted already
        (UNREADABLE, case(**{**BEFORE, "step": 95}), IN_PLACE, False, True),
        (cause(AttemptCause.CORRUPT_CHECKPOINT), case(**BEFORE), BACK, False, False),  # its own file is named
    ],
)
def test_two_checkpoints_in_a_row_that_cannot_be_read_and_are_not_named_are_not_what_is_at_fault(
    why: Cause, known: Case, verb: Verb, lifts: bool, charged: bool
) -> None:
    action = act(why, known)
    assert (action.verb, action.charged) == (verb, charged)
    assert action.lift == (known.doubted if lifts else ())
    assert ("step 100 of attempt 1 may be loaded again" in action.then + action.message) is lifts
    assert (action.quarantine is not None) is (verb is BACK)


@pytest.mark.parametrize(("roll_backs", "ceiling"), [(0, 80), (1, 70), (2, 50)])
def test_each_roll_back_goes_twice_as_far_beyond_the_newest_valid_checkpoint(roll_backs: int, ceiling: int) -> None:
    known = case(step=97, diverged_step=95, valid_steps=(96, 95, 90, 80, 70, 60, 50, 40), roll_backs=roll_backs)
    assert act(cause(AttemptCause.NAN, exited=False), known).ceiling == ceiling


def test_a_roll_back_ends_at_the_oldest_checkpoint_and_at_the_beginning_without_any() -> None:
    assert act(cause(AttemptCause.NAN, exited=False), case(valid_steps=(90,), roll_backs=2)).ceiling == 90
    assert act(cause(AttemptCause.NAN, exited=False), case(valid_steps=(), step=None)).ceiling == 0


def test_it_is_said_when_there_is_nothing_older_to_go_back_to() -> None:
    only = case(valid_steps=(90,), step=91, diverged_step=91, resumed=("shared", Save(90)))
    assert "step 90 again, as nothing older is valid" in act(cause(AttemptCause.NAN, exited=False), only).then
    last = act(cause(AttemptCause.NAN, exited=False), replace(only, roll_backs=3))
    assert (last.reason, "nothing older than step 90 is valid" in last.message) == ("Diverged", True)


def test_a_checkpoint_after_which_training_diverges_alike_a_second_time_is_not_loaded_a_third_time() -> None:
    known = case(valid_steps=(90, 80), step=91, diverged_step=91, resumed=("shared", Save(90, 1)), roll_backs=1)
    assert act(cause(AttemptCause.NAN, exited=False), known).quarantine is None
    again = act(cause(AttemptCause.NAN, exited=False), replace(known, alike_before=1))
    assert (again.verb, again.quarantine) == (BACK, ("shared", Save(90, 1)))
    assert "diverged 2 times at the same place" in again.then


@pytest.mark.parametrize(("before", "tied", "verb"), [(1, (), BACK), (1, (0,), STOP), (2, (), STOP)])
def test_the_only_checkpoint_is_tried_on_another_machine_at_most_and_not_four_times(
    before: int, tied: tuple[int, ...], verb: Verb
) -> None:
    only = case(valid_steps=(90,), step=91, diverged_step=91, resumed=("shared", Save(90)), roll_backs=before)
    action = act(cause(AttemptCause.NAN, exited=False, tied=tied), replace(only, alike_before=before))
    assert action.verb is verb
    assert action.slots == ((1,) if verb is BACK else ())
    assert verb is BACK or (action.reason, "nothing older is valid" in action.message) == ("Diverged", True)


def test_a_roll_back_leaves_room_for_checkpoints_that_nobody_has_told_of_yet() -> None:
    for known in (case(valid_steps=(), diverged_step=95), case(valid_steps=(110, 100), diverged_step=95)):
        assert act(cause(AttemptCause.NAN, exited=False), known).ceiling == 94
