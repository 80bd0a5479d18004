"""The record of a reservation: in status, or in a ConfigMap that status names."""

import pytest

from lockstep.api.preemption_status import ReservationStatus
from lockstep.core.model.reservation import RESERVATION_KEY, is_unread, lost, named, reservation_of, restored, spilled


def reservation(nodes: int) -> ReservationStatus:
    return reservation_of(tuple(f"node-{index:04}" for index in range(nodes)), ("uid-1", "uid-2"), 100.0, 400.0)


def test_a_small_one_stays_in_status() -> None:
    small = reservation(3)
    assert spilled(small, "ns", "llama", "uid-1") == (small, None)
    assert named(small) is small
    assert not is_unread(small)
    assert not is_unread(None)


def test_a_large_one_lies_in_a_config_map_and_reads_the_same() -> None:
    large, kept = spilled(reservation(2000), "ns", "llama", "uid-1")
    assert kept is not None
    assert kept.name == large.config_map
    in_status = named(large)
    assert (in_status.nodes, in_status.victims) == ((), ())
    assert is_unread(in_status)
    content = kept.body["data"][RESERVATION_KEY]
    assert restored(in_status, content) == large
    with pytest.raises(ValueError, match="does not hold the reservation"):
        restored(in_status, content.replace("uid-2", "uid-3"))


def test_one_whose_config_map_is_gone_names_nothing_any_more() -> None:
    large, _ = spilled(reservation(2000), "ns", "llama", "uid-1")
    gone = lost(large)
    assert (gone.config_map, gone.nodes, gone.victims) == ("", (), ())
    assert not is_unread(gone)


@pytest.mark.parametrize(("nodes", "same"), [(3, True), (4, False)])
def test_a_hash_tells_reservations_apart(nodes: int, same: bool) -> None:
    assert (reservation(nodes).hash == reservation(3).hash) is same
