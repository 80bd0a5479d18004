"""A gang on its way to the barrier."""

from lockstep.core.conditions import find
from lockstep.core.snapshot import CheckpointReport, Verdict
from support.world import World, node, spec


def test_a_worker_that_waits_at_the_barrier_is_heard_as_long_as_its_poll_is_open() -> None:
    w = World({name: node(name) for name in ("n0", "n1", "n2")})
    late = "n1"
    w.silent_nodes.add(late)
    w.apply("one", spec(2))
    w.settle()
    w.now += w.tunables.silent_after(2) + 4  # no report of the first since: it waits for the second
    w.reconcile("one")
    assert w.status("one").assignment.nodes == ("n0", "n1")
    w.silent_nodes.clear()
    w.settle()
    assert w.children("one") == {0: 1, 1: 1}


def blind(w: World, rank: int) -> None:
    """The rank's node has lost sight of the shared tier."""
    worker = w.worker("one", rank)
    assert worker is not None
    worker.inventory = (CheckpointReport("shared", 0, "/shared-checkpoints/ns/one", Verdict.UNKNOWN, "stale mount"),)


def at_the_barrier(w: World) -> None:
    """Up to Ready on all ranks, as long as the choice of a checkpoint waits."""
    for _ in range(8):
        w.reconcile("one")
        w.admit()
        w.kubelets()
        w.work()
        if w.worker("one", 1) is not None:
            blind(w, 1)
        w.work()


def test_a_node_that_cannot_look_into_the_shared_tier_is_replaced_not_the_run_ended() -> None:
    w = World({name: node(name) for name in ("n0", "n1", "n2")})
    w.apply("one", spec(2))
    at_the_barrier(w)
    w.now += w.tunables.deadlines.probe + 1
    w.work()
    w.reconcile("one")
    status = w.status("one")
    assert status.stop is None
    assert status.assignment.vacant == (1,)
    assert [entry.node for entry in status.recovery.excluded_nodes] == ["n1"]
    assert "stale mount" in status.recovery.excluded_nodes[0].reason
    w.settle()
    assert w.children("one") == {0: 1, 1: 1}


def test_what_a_complete_gang_waits_for_is_said() -> None:
    w = World({name: node(name) for name in ("n0", "n1", "n2")})
    w.apply("one", spec(2))
    at_the_barrier(w)
    w.now += 10
    w.work()
    w.reconcile("one")
    gathering = find(w.status("one"), "GangReady")
    assert gathering is not None
    assert "waits to learn more" in gathering.message
