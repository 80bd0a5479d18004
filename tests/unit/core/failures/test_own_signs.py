"""Which signs of a node may explain its end."""

import pytest

from lockstep.core.failures.own_signs import own_signs
from support.step_gang import STEPS, found, gang
from support.world import World


def resumed(steps: int) -> World:
    """A gang whose second attempt has loaded a checkpoint, and made so many steps since."""
    w = gang(**STEPS)
    w.exit_child("one", 0, 1)
    w.settle()
    assert w.status("one").attempt == 2
    w.show("one", 0, "Checkpoint:Corrupt", "Checkpoint:Unreadable", "CUDA:Error")
    if steps:
        w.train("one", steps)
    w.work()
    return w


@pytest.mark.parametrize(
    ("steps", "left"), [(0, ["Checkpoint:Corrupt", "Checkpoint:Unreadable", "CUDA:Error"]), (5, ["CUDA:Error"])]
)
def test_what_could_not_be_read_at_the_start_counts_until_a_step_was_made(steps: int, left: list[str]) -> None:
    assert sorted(sign.kind for sign in own_signs(resumed(steps).plan("one"), 0)) == sorted(left)


def test_whoever_has_not_come_has_none() -> None:
    assert own_signs(gang(**STEPS).plan("one"), 3) == ()


@pytest.mark.parametrize("steps", [0, 5])
def test_a_step_let_fail_long_before_is_no_reason_where_the_checkpoint_could_not_be_read(steps: int) -> None:
    w = resumed(steps)
    w.worker("one", 0).signs = w.worker("one", 0).signs[:1]  # type: ignore[union-attr]
    w.now += 100.0
    w.work()
    w.end_step("one", 2, code=1, ago=60.0)
    w.exit_child("one", 0, 1)
    assert ((2, ": python of step 1") in found(w)) is bool(steps)
