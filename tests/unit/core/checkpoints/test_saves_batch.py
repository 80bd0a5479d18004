"""Batch scripts without any tier: the signal that they asked for, before their limit or when they are to go."""

from lockstep.api.base.changes import changed
from lockstep.core.model.reasons import StopReason
from support.asked_saves import save_of
from support.values import not_none
from support.world import World, spec, world


def batch(**fields: object) -> World:
    """A batch job that trains, on nodes without a tier."""
    script = {"script": "#!/bin/sh\nsrun x\n", **fields}
    w = world(2)
    made = spec(2, launcher={"type": "Slurm", "batch": script}, command=[], **LIMITED)
    w.roll_out("one", changed(made, checkpoint=None))
    return w


LIMITED = {"timeLimit": "1h", "onTimeLimit": {"leadTime": "2m"}}


def test_a_batch_script_that_wants_a_signal_before_its_limit_gets_it_without_any_tier() -> None:
    w = batch(signal="SIGUSR1")
    began = not_none(w.status("one").last_admitted)
    w.now = began + 3600 - 125
    w.settle()
    assert w.status("one").checkpoint.save is None
    w.now = began + 3600 - 115
    w.settle()
    assert save_of(w).outcome == ""
    assert not_none(w.directives["uid-one"].save).id == save_of(w).id
    stop = not_none(w.status("one").stop)
    assert (stop.reason, stop.save) == (StopReason.TIME_LIMIT, save_of(w).id)


def test_a_batch_script_that_wants_none_is_only_stopped() -> None:
    w = batch()
    w.now = not_none(w.status("one").last_admitted) + 3600 - 60
    w.settle()
    assert w.status("one").checkpoint.save is None
    assert w.status("one").reason == StopReason.TIME_LIMIT


def test_a_batch_script_that_is_to_go_gets_its_signal_as_long_before_as_it_asked_for() -> None:
    w = batch(signal="SIGTERM")
    w.apply("one", changed(not_none(w.runs["one"].spec), cancel=True))
    w.reconcile("one")
    assert not_none(save_of(w).deadline) == int(w.now) + 120
