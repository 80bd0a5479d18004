"""Gangs that shrink rather than wait, grow back after a save, and follow spec.nodes; always as a new attempt."""

from dataclasses import replace

import pytest
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.core.model import assignment as slots
from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.conditions import find
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.snapshot import Lag
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import CheckpointReport, Verdict
from support.made_once import made_once
from support.values import not_none
from support.world import World, node, spec


def world(count: int, *, saved_as: str = "TorchDCP") -> World:
    w = World({f"n{i}": node(f"n{i}", rack=f"rack-{i // 4}") for i in range(count)}, format=saved_as, listens=True)
    w.leader_since = w.now
    return w


def running(w: World, nodes: int, **fields: object) -> World:
    w.roll_out("llama", spec(nodes, **fields))
    w.pass_time(4)
    assert len(w.children("llama")) == slots.world(w.status("llama").assignment), w.status("llama")
    return w


def save(w: World, steps: int = 10) -> None:
    w.train("llama", steps)
    w.settle()
    w.tell_of_save("llama", w.saved["uid-llama"][-1])
    w.pass_time(2)


def ranks(w: World) -> tuple[int, ...]:
    return tuple(slots.ranked_slots(w.status("llama").assignment))


@made_once
def shrunk(elastic: dict[str, object] | None = None, **fields: object) -> World:
    w = running(world(4), 4, elastic=elastic or {"min": 2}, **fields)
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(70, step=5)
    return w


def test_a_gang_whose_lost_node_cannot_be_replaced_goes_on_smaller() -> None:
    w = shrunk()
    status = w.status("llama")
    assert ranks(w) == (0, 2, 3)
    assert set(w.children("llama").values()) == {status.attempt}
    assert len(w.children("llama")) == 3
    assert status.start is not None
    assert status.start.resume is not None
    assert (status.start.resume.step, status.start.order) == (10, "0,2-3")
    assert (status.resolved.nodes, status.nodes_ready) == (3, "3/3")
    assert w.directives["uid-llama"].slot_ranks == (0, -1, 1, 2)
    condition = not_none(find(status, "AtFullSize"))
    assert (condition.status, condition.message) == ("False", "3 of 4 nodes train")
    assert status.queue.reason == ""


def test_it_waits_a_while_for_another_node_first() -> None:
    w = running(world(4), 4, elastic={"min": 2})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(40, step=5)
    assert slots.world(w.status("llama").assignment) == 4
    w.nodes["n9"] = node("n9")
    w.settle()
    assert len(w.children("llama")) == 4
    assert w.status("llama").attempt == 2


def for_an_hour(w: World) -> World:
    for _ in range(60):
        w.train("llama", 5)
        w.pass_time(60, step=20)
    save(w)
    return w


@pytest.mark.parametrize("waits", [10, 500])
def test_a_gang_that_goes_on_smaller_long_after_its_launch_keeps_the_pods_that_it_has(waits: int) -> None:
    w = for_an_hour(running(world(4), 4, elastic={"min": 2 if waits == 10 else 4}))
    w.lose_ranks("llama", 3)
    w.pass_time(waits, step=10)
    attempt = w.status("llama").attempt
    if waits == 500:  # longer than a worker may take to get ready
        w.apply("llama", spec(3, elastic={"min": 2}))
    w.pass_time(100, step=5)
    status = w.status("llama")
    assert set(w.children("llama").values()) == {attempt + 1}
    assert (len(w.children("llama")), status.totals.pods_replaced, status.recovery.slot_losses) == (3, 0, ())


def test_it_waits_longer_where_everything_is_slow() -> None:
    w = running(world(4), 4, elastic={"min": 2})
    save(w)
    w.lag = Lag(loop=6.0)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    assert slots.world(w.status("llama").assignment) == 4
    w.pass_time(30, step=5)
    assert slots.world(w.status("llama").assignment) == 3


def test_only_multiples_are_trained_with_and_who_is_left_out_waits_as_a_spare() -> None:
    w = shrunk({"min": 2, "multipleOf": 2})
    assert ranks(w) == (0, 2)
    assert w.warm("llama") == {3}
    attempt = w.status("llama").attempt
    w.lose_ranks("llama", 1)
    w.settle()
    assert ranks(w) == (0, 3), "and takes the place of the next one that is lost"
    assert w.status("llama").attempt == attempt + 1


def test_below_the_minimum_it_waits_and_gives_its_nodes_back_in_the_end() -> None:
    w = running(world(4), 4, elastic={"min": 4})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    condition = not_none(find(w.status("llama"), "AtFullSize"))
    assert (condition.reason, condition.message) == ("CannotResize", "3 nodes are left, and elastic.min is 4")
    w.pass_time(600, step=20)
    assert w.status("llama").state == "Pending"


def test_one_node_that_is_left_is_told_as_one() -> None:
    w = running(world(2), 2, elastic={"min": 2})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    assert not_none(find(w.status("llama"), "AtFullSize")).message == "1 node is left, and elastic.min is 2"


def test_a_checkpoint_that_a_single_node_cannot_load_is_told_in_the_singular() -> None:
    w = running(world(2, saved_as="Manifest"), 2, elastic={"min": 1})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    words = not_none(find(w.status("llama"), "AtFullSize")).message
    assert words.startswith("cannot go on with 1 node: ")


@pytest.mark.parametrize("older_is_of", [4, 3])
def test_a_newest_checkpoint_that_the_smaller_gang_cannot_load_keeps_it_waiting(older_is_of: int) -> None:
    w = running(world(4, saved_as="Manifest"), 4, elastic={"min": 2})
    save(w)
    w.saved_with["uid-llama", 10] = older_is_of
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(100, step=5)
    assert slots.world(w.status("llama").assignment) == 4
    condition = not_none(find(w.status("llama"), "AtFullSize"))
    assert "step 20 was saved by 4 nodes and cannot be loaded by 3" in condition.message
    w.nodes["n9"] = node("n9")
    w.settle()
    assert len(w.children("llama")) == 4


def test_it_grows_back_after_a_save_and_not_before_its_time() -> None:
    w = shrunk({"min": 2, "growAfter": "10m"})
    w.nodes["n9"] = node("n9", rack="rack-0")
    w.pass_time(300, step=30)
    assert "n9" not in w.status("llama").assignment.nodes, "nodes are not held for later"
    for _ in range(12):
        w.train("llama", 5)
        w.pass_time(30, step=10)
    status = w.status("llama")
    assert len(w.children("llama")) == 4, status
    assert status.resolved.nodes == 4
    assert find(status, "AtFullSize") is None
    resized = next(entry for entry in status.attempts if entry.cause == "Resized")
    assert (resized.rank, resized.charged, resized.action) == (None, False, "RestartInPlace")
    assert status.start is not None
    assert status.start.resume is not None
    assert status.checkpoint.save is not None
    assert status.start.resume.step >= status.checkpoint.save.needs_step
    assert status.recovery.shrunk_at is None


@pytest.mark.slow
def test_it_does_not_grow_into_a_maintenance_window_and_does_when_that_is_over() -> None:
    w = shrunk({"min": 2, "growAfter": "1m"})
    closed = MaintenanceWindow("firmware", w.now, 600.0, nodes=frozenset({"n9"}))
    w.tunables = replace(w.tunables, admission=AdmissionSettings(windows=(closed,)))
    w.nodes["n9"] = node("n9", rack="rack-0")

    def train(seconds: int) -> int:
        for _ in range(seconds // 30):
            w.train("llama", 5)
            w.pass_time(30, step=10)
        return len(w.children("llama"))

    assert train(540) == 3
    assert train(360) == 4


def test_a_run_that_waits_for_nodes_comes_before_growth() -> None:
    w = shrunk({"min": 2, "growAfter": "1m"})
    w.roll_out("other", spec(2))
    w.nodes["n9"] = node("n9")
    w.pass_time(200, step=20)
    assert "n9" not in w.status("llama").assignment.nodes
    w.nodes["n10"] = node("n10")
    w.settle()
    assert set(w.status("other").assignment.nodes) == {"n9", "n10"}


def test_it_takes_no_nodes_that_would_not_make_a_next_size() -> None:
    w = running(world(4), 4, elastic={"min": 2, "multipleOf": 2, "growAfter": "1m"})
    save(w)
    w.lose_ranks("llama", 1, 2)
    w.pass_time(70, step=5)
    assert ranks(w) == (0, 3)
    w.nodes["n9"] = node("n9")
    w.pass_time(200, step=20)
    assert "n9" not in w.status("llama").assignment.nodes
    w.nodes["n8"] = node("n8")
    for _ in range(4):
        w.train("llama", 5)
        w.pass_time(20, step=5)
    assert len(w.children("llama")) == 4


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


class WithOwnDisks(World):
    """What is on a node's own disk may say how many nodes saved it."""

    say_how_many = False

    def _rows(self, uid: str, steps: list[int], world: int, node: str) -> tuple[CheckpointReport, ...]:
        rows = super()._rows(uid, steps, world, node)
        has_shared = not_none(not_none(self.runs["llama"].spec).checkpoint).shared is not None
        disk = tuple(row for row in rows if row.tier == "local")
        disk = disk if self.say_how_many else tuple(structs.replace(row, world=0) for row in disk)
        # Every other save is on the disks alone.
        return tuple(row for row in rows if has_shared and row.tier == "shared" and row.step % 20) + disk


OWN_DISKS: dict[str, object] = {"local": {"storage": "nvme"}}


def with_own_disks(count: int) -> WithOwnDisks:
    tunables = Tunables(gang=GangSettings(local_storages={"nvme": "/nvme"}))
    return WithOwnDisks(world(count).nodes, tunables, format="TorchDCP", listens=True)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 3)])
def test_a_gang_whose_shards_do_not_say_of_how_many_they_are_is_not_resized(before: int, after: int) -> None:
    w = running(with_own_disks(6), before, checkpoint=OWN_DISKS)
    save(w)
    w.apply("llama", spec(after, checkpoint=OWN_DISKS))
    w.pass_time(30, step=2)
    status = w.status("llama")
    assert (status.attempt, slots.world(status.assignment)) == (1, before)
    words = "step 10 is in shards on the nodes' own disks, which do not say of how many nodes they are"
    assert words in not_none(find(status, "AtFullSize")).message


@pytest.mark.parametrize("say_how_many", [True, False])
def test_shards_that_a_lost_node_took_with_it_are_no_checkpoint_of_those_that_are_left(say_how_many: bool) -> None:
    w = with_own_disks(4)
    w.say_how_many = say_how_many
    running(w, 4, elastic={"min": 2}, checkpoint={**OWN_DISKS, "shared": {"claimName": "lustre"}})
    save(w)
    save(w)
    w.lose_ranks("llama", 3)
    w.pass_time(100, step=5)
    status = w.status("llama")
    assert slots.world(status.assignment) == 3
    assert not_none(not_none(status.start).resume).step == 10, "the newest in the shared tier"


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


def test_new_ranks_join_those_of_their_rack() -> None:
    w = World({f"n{i}": node(f"n{i}", rack=rack) for i, rack in enumerate("aabb")}, format="TorchDCP", listens=True)
    running(w, 4, elastic={"min": 2, "growAfter": "1m"})
    save(w)
    w.lose_ranks("llama", 1)
    w.pass_time(70, step=5)
    w.nodes["n9"] = node("n9", rack="a")
    for _ in range(6):
        w.train("llama", 5)
        w.pass_time(20, step=5)
    names = [w.status("llama").assignment.nodes[slot] for slot in ranks(w)]
    assert names == ["n0", "n9", "n2", "n3"]


@pytest.mark.parametrize("saves", [True, False])
def test_without_a_save_it_does_not_grow_unless_nobody_listens(saves: bool) -> None:
    w = shrunk({"min": 2, "growAfter": "1m"})
    w.saves_succeed = False
    w.listens = saves
    w.nodes["n9"] = node("n9")
    for _ in range(4):
        w.pass_time(30, step=10)
    assert len(w.children("llama")) == (3 if saves else 4)


def test_what_was_never_complete_keeps_nobody_waiting() -> None:
    w = running(world(4), 4, elastic={"min": 2})
    w.lose_ranks("llama", 1)
    w.pass_time(50, step=5)
    torn = CheckpointReport("shared", 5, "/shared/5", Verdict.INVALID, "it has no manifest", run_uid="uid-llama")
    for worker in w.workers.values():
        worker.inventory = (torn,)
    w.pass_time(30, step=5)
    assert len(w.children("llama")) == 3
    started = not_none(w.status("llama").start)
    assert started.resume is None


def test_it_grows_once_with_all_that_are_about_to_be_ready() -> None:
    w = running(world(6), 2)
    save(w)
    before = set(w.pods)
    w.apply("llama", spec(4, elastic={"min": 2}))
    w.reconcile("llama")
    w.admit()
    w.reconcile("llama")
    late = next(pod.node for name, pod in sorted(w.pods.items()) if name not in before)
    w.silent_nodes.add(late)  # its kubelet takes its time
    w.pass_time(10)
    assert w.status("llama").attempt == 1
    w.silent_nodes.discard(late)
    w.pass_time(20)
    assert (w.status("llama").attempt, len(w.children("llama"))) == (2, 4)


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
