"""Nodes that turn NotReady again and again."""

from dataclasses import replace

from lockstep.controller.store.node_flaps import AGAIN, MOST_FLAPPING, WINDOW, NodeFlaps
from lockstep.core.model.snapshot import NodeView
from support.manual_clock import ManualClock

READY = NodeView("gpu-1", "u1", {}, {})
DOWN = replace(READY, ready=False)


def flap(flaps: NodeFlaps, name: str, times: int) -> None:
    for _ in range(times):
        flaps.observe(replace(DOWN, name=name), replace(READY, name=name))
        flaps.observe(replace(READY, name=name), replace(DOWN, name=name))


def test_only_the_turn_from_ready_to_not_ready_counts(clock: ManualClock) -> None:
    flaps = NodeFlaps(clock)
    for old, new in ((None, DOWN), (DOWN, DOWN), (DOWN, READY), (READY, replace(READY, unschedulable=True))):
        flaps.observe(old, new)
    assert flaps.losses == 0
    flaps.observe(READY, DOWN)
    flaps.observe(DOWN, None)
    assert flaps.losses == 1
    flaps.observe(READY, None)
    assert flaps.losses == 2


async def test_a_node_is_named_once_it_has_turned_again_within_the_hour(clock: ManualClock) -> None:
    flaps = NodeFlaps(clock)
    flap(flaps, "gpu-1", AGAIN - 1)
    assert flaps.recent() == {}
    flap(flaps, "gpu-1", 2)
    assert flaps.recent() == {"gpu-1": AGAIN + 1}
    await clock.advance(WINDOW + 1)
    assert flaps.recent() == {}


def test_when_everything_flaps_the_worst_are_named_and_no_more(clock: ManualClock) -> None:
    flaps = NodeFlaps(clock)
    for number in range(MOST_FLAPPING + 10):
        flap(flaps, f"gpu-{number}", AGAIN)
    flap(flaps, "gpu-70", 5)
    named = flaps.recent()
    assert len(named) == MOST_FLAPPING
    assert named["gpu-70"] == AGAIN + 5
