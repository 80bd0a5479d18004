"""``resumeBy: Pointer``: nobody starts before one rank has pointed the loader to the chosen step."""

import pytest

from lockstep.core.model.conditions import find
from lockstep.core.model.plan import DesiredPhase
from lockstep.core.model.snapshot import Lag
from support.values import not_none
from support.world import World, spec, world


def saved(form: str = "Megatron", **checkpoint: object) -> World:
    """A gang of three that has saved step 100 and lost a process."""
    w = world(3, format=form)
    w.roll_out("one", spec(3, checkpoint={"shared": {"claimName": "lustre"}, **checkpoint}))
    assert not w.pointed_at, "nothing is resumed from at first"
    w.train("one", 100)
    w.tell_of_save("one", 100)
    return w


def crash(w: World) -> None:
    w.end_child("one", 1, 1)


@pytest.mark.parametrize(
    ("form", "checkpoint", "points"),
    [
        ("Megatron", {}, True),
        ("DeepSpeed", {}, True),
        ("HuggingFace", {}, True),
        ("NeMo", {}, True),
        ("Megatron", {"resumeBy": "Env"}, False),
        ("Manifest", {}, False),
        ("TorchDCP", {}, False),
        ("TorchDCP", {"resumeBy": "Pointer"}, True),
    ],
)
def test_pointers_are_rewritten_for_loaders_that_look_for_themselves(
    form: str, checkpoint: dict[str, str], points: bool
) -> None:
    w = saved(form, **checkpoint)
    crash(w)
    assert w.status("one").totals.attempts == 2
    assert w.pointed_at == ([(0, "/shared", 100)] if points else [])


def test_nobody_starts_before_the_answer() -> None:
    w = saved()
    w.hung_at_pointers.add("n0")
    crash(w)
    orders = w.directives["uid-one"]
    assert orders.phase is DesiredPhase.PREPARE
    assert orders.point is not None
    assert (orders.point.slot, orders.point.path, orders.point.format) == (0, "/shared", "Auto")
    asked = not_none(w.status("one").checkpoint.pointing)
    assert (asked.attempt, asked.slot, asked.step) == (2, 0, 100)
    w.crash()
    w.settle()
    assert w.status("one").checkpoint.pointing == asked, "another leader asks the same rank"
    w.now += 5
    w.settle()
    condition = not_none(find(w.status("one"), "GangReady"))
    assert "rank 0 points the loader to step 100" in condition.message
    w.hung_at_pointers.clear()
    w.settle()
    assert w.status("one").totals.attempts == 2


def test_a_rank_that_does_not_answer_is_followed_by_the_next() -> None:
    w = saved()
    w.hung_at_pointers.add("n0")
    crash(w)
    w.pass_time(w.tunables.deadlines.probe + 2, step=10)
    assert w.status("one").totals.attempts == 2
    assert w.pointed_at == [(1, "/shared", 100)]
    asked = not_none(w.status("one").checkpoint.pointing)
    assert "no answer within 60 s" in asked.problem


def test_a_rank_has_longer_to_answer_where_everything_is_slow() -> None:
    w = saved()
    w.hung_at_pointers |= set(w.nodes)
    crash(w)
    w.lag = Lag(write=6.0)
    w.pass_time(w.tunables.deadlines.probe + 50, step=10)
    asked = not_none(w.status("one").checkpoint.pointing)
    assert (asked.slot, asked.asked) == (0, 1)
    w.pass_time(20, step=10)
    asked = not_none(w.status("one").checkpoint.pointing)
    assert (asked.slot, asked.asked) == (1, 2)
    assert "no answer within 120 s" in asked.problem


def test_after_three_refusals_the_run_stops_and_says_why() -> None:
    w = saved()
    w.pointer_problems = dict.fromkeys(w.nodes, "iter_0000200 is newer and cannot be judged: Input/output error")
    crash(w)
    w.pass_time(40, step=5)
    assert [slot for slot, _, _ in dict.fromkeys(w.pointed_at)] == [0, 1, 2]
    finished = not_none(find(w.status("one"), "Finished"))
    assert finished.reason == "PointerFailed"
    assert "iter_0000200 is newer and cannot be judged" in finished.message
    assert w.status("one").totals.attempts == 1
