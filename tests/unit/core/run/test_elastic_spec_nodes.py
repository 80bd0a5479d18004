"""A running gang follows spec.nodes, up and down, where what it has saved allows it."""

from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from support.elastic_gangs import ranks, running, save, world
from support.values import not_none
from support.world import spec


def test_lowering_nodes_of_a_running_gang_saves_and_goes_on_with_fewer() -> None:
    w = running(world(4), 4)
    save(w)
    w.apply("llama", spec(2))
    w.pass_time(20, step=2)
    status = w.status("llama")
    assert (ranks(w), status.attempt) == ((0, 1), 2)
    assert status.assignment.nodes[2:] == ("", "")
    assert len(w.children("llama")) == 2
    assert status.start is not None
    assert status.start.resume is not None
    assert status.start.resume.step > 10, "it saved first"
    assert {pod.slot for pod in w.pods.values() if not pod.is_terminal} == {0, 1}


def test_raising_nodes_of_a_running_gang_starts_the_new_ones_first() -> None:
    w = running(world(6), 2, spareNodes=1)
    save(w)
    w.apply("llama", spec(4, spareNodes=1))
    w.pass_time(30, step=2)
    status = w.status("llama")
    assert (slots.world(status.assignment), status.attempt) == (4, 2)
    assert len(w.children("llama")) == 4
    assert status.spares == "1/1"


def test_a_gang_that_saves_for_one_size_only_is_not_resized() -> None:
    w = running(world(6, saved_as="Manifest"), 2)
    save(w)
    w.apply("llama", spec(4))
    w.pass_time(30, step=2)
    status = w.status("llama")
    assert (status.attempt, slots.world(status.assignment)) == (1, 2)
    condition = not_none(find(status, "AtFullSize"))
    assert "cannot grow to 4 nodes: step 10 was saved by 2 nodes" in condition.message


def test_what_another_run_has_saved_in_the_one_directory_is_nothing_to_take_along() -> None:
    tier = {"format": "TorchDCP", "shared": {"claimName": "lustre"}, "layout": "Shared", "start": {"mode": "Fresh"}}
    theirs = CheckpointReport(
        tier="shared",
        step=400,
        path="/shared-checkpoints/ns/llama/step-400",
        verdict=Verdict.VALID,
        run_uid="uid-given-up",
        committed_at=1.0,
    )
    w = world(4)
    w.foreign = (theirs,)
    running(w, 2, checkpoint=tier)
    w.apply("llama", spec(4, checkpoint=tier))
    w.pass_time(20)
    status = w.status("llama")
    assert (status.attempt, slots.world(status.assignment)) == (1, 2)
    assert "no checkpoint is valid yet" in not_none(find(status, "AtFullSize")).message
