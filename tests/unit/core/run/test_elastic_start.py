"""The size at which a gang starts, again or from the save of another run, by how many nodes saved."""

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from support.elastic_gangs import running, save, world
from support.values import not_none
from support.world import World, node, spec


def test_an_elastic_run_that_saved_nothing_starts_with_what_there_is() -> None:
    w = running(world(3), 4, elastic={"min": 2})
    assert len(w.children("llama")) == 3
    assert w.status("llama").recovery.shrunk_at is not None


def requeued(w: World) -> World:
    """As after a preemption: it gives its nodes back, and may have nodes again."""
    view = w.runs["llama"]
    assert view.spec is not None
    w.apply("llama", changed(view.spec, suspend=True))
    w.pass_time(60, step=5)
    assert w.status("llama").state == "Suspended"
    w.apply("llama", view.spec)
    return w


def smaller(saved_as: str = "Manifest", **fields: object) -> World:
    """A gang that began with three nodes of four, and saved."""
    w = running(world(3, saved_as=saved_as), 4, elastic={"min": 2}, **fields)
    save(w)
    return requeued(w)


def test_a_gang_of_all_its_nodes_that_cannot_load_what_fewer_saved_goes_on_as_they_did() -> None:
    w = smaller()
    w.nodes["n9"] = node("n9")
    w.pass_time(60, step=2)
    status = w.status("llama")
    assert len(w.children("llama")) == 3, status
    start = not_none(not_none(status.start).resume)
    assert start.step >= 10
    assert (status.resolved.nodes, len(list(filter(None, status.assignment.nodes)))) == (3, 3), "the fourth is free"
    assert len([pod for pod in w.pods.values() if not pod.is_terminal]) == 3
    assert "cannot grow to 4 nodes" in not_none(find(status, "AtFullSize")).message


def test_spares_that_were_asked_for_stay_when_a_gang_goes_on_as_fewer_did() -> None:
    w = smaller(spareNodes=1)
    w.nodes |= {name: node(name) for name in ("n8", "n9")}
    w.pass_time(60, step=2)
    status = w.status("llama")
    assert (len(w.children("llama")), status.spares) == (3, "1/1"), status
    assert len(list(filter(None, status.assignment.nodes))) == 4


def test_who_saved_with_fewer_nodes_starts_with_as_many_again() -> None:
    w = smaller()
    w.pass_time(60, step=2)
    assert len(w.children("llama")) == 3, w.status("llama")
    assert not_none(not_none(w.status("llama").start).resume).step >= 10


def test_what_every_size_can_load_is_gone_on_from_with_all_nodes() -> None:
    w = smaller("TorchDCP")
    w.nodes["n9"] = node("n9")
    w.pass_time(60, step=2)
    assert len(w.children("llama")) == 4


@pytest.mark.parametrize(("elastic", "nodes"), [({"min": 4}, 4), (None, 4), ({"min": 2, "multipleOf": 2}, 4)])
def test_a_size_that_the_spec_does_not_allow_is_not_gone_on_with(elastic: dict[str, int] | None, nodes: int) -> None:
    w = smaller()
    w.apply("llama", spec(nodes, elastic=elastic))
    w.nodes["n9"] = node("n9")
    w.pass_time(120, step=5)
    status = w.status("llama")
    assert (status.state, status.reason) == ("Failed", "NoValidCheckpoint")


def elsewhere(step: int, nodes: int, saved_as: str = "Manifest") -> CheckpointReport:
    return CheckpointReport(
        tier="shared",
        step=step,
        path=f"/shared-checkpoints/ns/pretrain/uid-pretrain/a1/step-{step}",
        verdict=Verdict.VALID,
        format=saved_as,
        attempt=1,
        world=nodes,
        run_uid="uid-pretrain",
        committed_at=1.0,
    )


STARTS_THERE = {"shared": {"claimName": "lustre"}, "start": {"path": "ns/pretrain/uid-pretrain"}}


def starting(nodes: int, *rows: CheckpointReport) -> World:
    """An elastic gang of four that is to start from what another run saved, with so many nodes free."""
    w = world(nodes, saved_as="Manifest")
    w.foreign = rows
    w.roll_out("llama", spec(4, elastic={"min": 2}, checkpoint=STARTS_THERE))
    w.pass_time(10)
    return w


def test_no_gang_is_made_smaller_to_start_from_an_older_save_than_the_newest() -> None:
    w = starting(4, elsewhere(1000, 16), elsewhere(200, 3))
    w.pass_time(300, step=10)
    status = w.status("llama")
    assert (status.state, status.reason, status.resolved.nodes) == ("Failed", "NoStartCheckpoint", 4)


def test_a_run_that_starts_from_anothers_save_waits_for_all_its_nodes() -> None:
    w = starting(3, elsewhere(500, 4))
    assert w.status("llama").state == "Pending"
    w.nodes["n9"] = node("n9")
    w.pass_time(30, step=2)
    assert len(w.children("llama")) == 4
    assert w.starts["uid-llama", 1].resume_step == 500


@pytest.mark.parametrize(
    ("rows", "ranks", "words"),
    [
        ((elsewhere(500, 4),), 4, "step 500 was saved by 4 nodes and cannot be loaded by 3"),
        ((elsewhere(500, 4), elsewhere(400, 3)), 4, "step 500 was saved by 4 nodes and cannot be loaded by 3"),
        ((elsewhere(500, 4, "TorchDCP"),), 3, "cannot grow to 4 nodes: no checkpoint is valid yet"),
    ],
)
def test_a_gang_that_has_saved_nothing_shrinks_only_as_far_as_what_it_starts_from_allows(
    rows: tuple[CheckpointReport, ...], ranks: int, words: str
) -> None:
    w = starting(4, *rows)
    assert len(w.children("llama")) == 4
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    status = w.status("llama")
    assert (slots.world(status.assignment), status.state) == (ranks, "Running" if ranks == 3 else "Recovering")
    assert words in not_none(find(status, "AtFullSize")).message
