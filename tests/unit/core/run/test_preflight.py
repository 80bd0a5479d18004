"""What is checked of a complete gang before user code starts: clocks, and the network between the nodes."""

import pytest

from lockstep.core.model.plan import DesiredPhase
from lockstep.core.model.snapshot import Lag
from support.world import spec, world

RING = {"warmUp": "Ring"}


def test_a_node_whose_clock_is_far_off_is_replaced_and_named() -> None:
    w = world(5)
    w.clock_skews["n1"] = -95.0
    w.roll_out("one", spec(3))
    status = w.status("one")
    assert [entry.node for entry in status.recovery.excluded_nodes] == ["n1"]
    assert "the clock of n1 is 95 s behind those of the gang" in status.recovery.excluded_nodes[0].reason
    assert "n1" not in status.assignment.nodes
    assert len(w.children("one")) == 3


@pytest.mark.parametrize(("by", "replaced"), [(-95.0, False), (-135.0, True), (95.0, True)])
def test_reports_that_are_long_on_their_way_are_no_clock_that_is_behind(by: float, replaced: bool) -> None:
    w = world(5)
    w.lag = Lag(write=10.0)
    w.clock_skews["n1"] = by
    w.roll_out("one", spec(3))
    assert ("n1" not in w.status("one").assignment.nodes) is replaced


@pytest.mark.parametrize("skews", [(60.0, 60.0, 60.0), (0.0, 29.0, -29.0 + 29.0), (500.0, 510.0, 490.0)])
def test_clocks_that_agree_are_no_nodes_fault_even_where_the_operators_is_wrong(skews: tuple[float, ...]) -> None:
    w = world(3)
    w.clock_skews = dict(zip(w.nodes, skews, strict=True))
    w.roll_out("one", spec(3))
    assert len(w.children("one")) == 3


@pytest.mark.parametrize(("wrong", "by"), [("n0", 100.0), ("n1", 100.0), ("n0", -100.0), ("n1", -100.0)])
def test_of_two_nodes_that_disagree_the_one_far_from_the_operators_clock_is_replaced(wrong: str, by: float) -> None:
    w = world(3)
    w.clock_skews[wrong] = by
    w.roll_out("one", spec(2))
    assert sorted(w.status("one").assignment.nodes) == sorted({"n0", "n1", "n2"} - {wrong})
    assert [entry.node for entry in w.status("one").recovery.excluded_nodes] == [wrong]


def test_the_nodes_exchange_data_once_for_each_set_of_them() -> None:
    w = world(5)
    w.roll_out("one", spec(3, preflight=RING))
    warmed = w.status("one").recovery.warmed
    assert warmed == w.status("one").assignment.hash
    assert {worker.warmed is not None for worker in w.workers.values()} == {True}
    w.end_child("one", 1, 1)
    assert len(w.children("one")) == 3
    assert all(worker.warmed is None for worker in w.workers.values()), "the same nodes again"
    w.fail_node("n2")
    w.pass_time(20)
    assert len(w.children("one")) == 3
    assert w.status("one").recovery.warmed == w.status("one").assignment.hash != warmed


def test_addresses_and_ports_are_those_reported_at_the_barrier() -> None:
    w = world(5)
    w.hung_at_warm_up = set(w.nodes)
    w.roll_out("one", spec(3, preflight=RING))
    orders = w.directives["uid-one"]
    assert orders.phase is DesiredPhase.PREPARE
    assert orders.warm_up is not None
    assert (orders.warm_up.kind, orders.warm_up.ports) == ("Ring", (40_000, 40_001, 40_002))
    assert len(orders.warm_up.addresses) == 3


def test_the_node_that_two_peers_fail_with_is_swapped_and_the_others_stay() -> None:
    w = world(5)
    w.deaf_to = {"n0": "n1", "n2": "n1", "n1": "n2"}
    w.roll_out("one", spec(3, preflight=RING))
    status = w.status("one")
    assert [entry.node for entry in status.recovery.excluded_nodes] == ["n1"]
    assert (
        "the exchange of the other nodes with n1 failed: rank 1 does not answer"
        in status.recovery.excluded_nodes[0].reason
    )
    assert (status.assignment.nodes[0], status.assignment.nodes[2]) == ("n0", "n2")
    assert status.assignment.incarnations == (1, 2, 1)


def test_a_single_complaint_is_said_and_the_gang_starts() -> None:
    w = world(5)
    w.deaf_to = {"n0": "n1"}
    w.apply("one", spec(3, preflight=RING))
    events = []
    for _ in range(12):
        w.kubelets()
        w.work()
        w.admit()
        events += w.reconcile("one").events
    assert len(w.children("one")) == 3
    assert [event.note for event in events if event.reason == "WarmUpFailed"] == [
        "the warm-up of rank 0 on n0 failed: rank 1 does not answer; no single node is to blame, so the gang starts"
    ]


def test_an_exchange_that_does_not_end_holds_nobody_up_for_longer_than_its_deadline() -> None:
    w = world(5)
    w.hung_at_warm_up.add("n1")
    w.roll_out("one", spec(3, preflight=RING))
    assert w.children("one") == {}
    w.pass_time(w.tunables.deadlines.warm_up + 1, step=10)
    assert len(w.children("one")) == 3


def test_ranks_are_told_over_how_long_to_spread_their_start() -> None:
    w = world(5)
    w.roll_out("one", spec(3, preflight={"startJitter": "45s"}))
    assert w.directives["uid-one"].jitter == 45.0
    w.roll_out("two", spec(2))
    assert w.directives["uid-two"].jitter == 0.0
