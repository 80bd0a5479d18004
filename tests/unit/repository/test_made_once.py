"""Worlds that are made once for all tests are each test's own."""

from support.made_once import copy_of
from support.world import World, world_with_gang


def test_what_is_done_to_one_world_is_not_seen_in_the_next() -> None:
    first, untouched = world_with_gang(2, 3), copy_of(world_with_gang(2, 3))
    first.train("one", 5)
    first.cut_off_node("n1")
    first.end_child("one", 0, 1)
    first.pass_time(60, step=5)
    first.cordon("n2")
    assert first.status("one").attempt == 2
    assert world_with_gang(2, 3) == untouched


def test_each_way_to_make_one_has_its_own() -> None:
    def size(made: World) -> int:
        return len(made.status("one").assignment.nodes)

    assert (size(world_with_gang(2)), size(world_with_gang(3)), size(world_with_gang(2))) == (2, 3, 2)
