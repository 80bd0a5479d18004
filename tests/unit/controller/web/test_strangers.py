"""Unknown tokens are counted by the address that they come from."""

import pytest

from lockstep.controller.runtime.ratelimit import block
from lockstep.controller.web import strangers
from lockstep.controller.web.strangers import Strangers, TooManyStrangersError
from support.manual_clock import ManualClock


def spend(door: Strangers, address: str) -> int:
    """Ask as often as it is allowed; how often that was."""
    for taken in range(10_000):
        try:
            door.end(door.begin(address))
        except TooManyStrangersError:
            return taken
    raise AssertionError("there is no limit")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),  # one machine may have every address of its /64
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),  # what a socket of both families calls it
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "no address", True),
    ],
)
def test_senders_are_told_apart_by_what_one_machine_can_have(one: str, other: str, alike: bool) -> None:
    assert (block(one) == block(other)) is alike


async def test_one_address_has_a_burst_and_then_its_own_pace() -> None:
    clock = ManualClock()
    door = Strangers(clock)
    assert spend(door, "192.0.2.1") == strangers.EACH_BURST
    assert spend(door, "192.0.2.2") > 0
    await clock.advance(4)
    assert spend(door, "192.0.2.1") == 4 * strangers.EACH_PER_SECOND


async def test_addresses_that_come_seldom_have_turns_that_others_cannot_take() -> None:
    clock = ManualClock()
    door = Strangers(clock)
    for sender in range(100):
        spend(door, f"10.0.0.{sender}")
    for _ in range(30):
        await clock.advance(1)
        for sender in range(20):
            spend(door, f"10.0.0.{sender}")
    assert spend(door, "192.0.2.1") == strangers.FEW


@pytest.mark.slow
async def test_addresses_beyond_what_is_remembered_are_bounded_by_what_all_may() -> None:
    door = Strangers(ManualClock())
    taken = sum(spend(door, f"2001:db8:{sender >> 16:x}:{sender & 0xFFFF:x}::1") for sender in range(70_000))
    assert taken == strangers.ALL_BURST + strangers.SELDOM_BURST
    assert len(door) <= strangers.MOST_ADDRESSES


async def test_those_under_way_are_counted_until_they_end() -> None:
    door = Strangers(ManualClock())
    begun = [door.begin("192.0.2.1") for _ in range(strangers.MOST_PENDING_EACH)]
    with pytest.raises(TooManyStrangersError) as refused:
        door.begin("192.0.2.1")
    assert refused.value.seconds > 0
    door.end(begun.pop())
    door.begin("192.0.2.1")
