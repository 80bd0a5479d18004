"""A gang on its way to the barrier."""

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
