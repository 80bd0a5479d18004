"""The two counting problems of placement against brute force."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.placement.rack_choice import fewest, windows

rooms_lists = st.lists(st.integers(0, 6), min_size=1, max_size=7)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    rooms = draw(rooms_lists)
    musts = [draw(st.integers(0, room)) if draw(st.booleans()) else 0 for room in rooms]
    count = draw(st.integers(max(1, sum(musts)), max(1, sum(musts)) + 20))
    return rooms, musts, count


def _sets_that_do(rooms: list[int], musts: list[int], count: int) -> list[tuple[int, ...]]:
    forced = {index for index, must in enumerate(musts) if must}
    return [
        chosen
        for size in range(len(rooms) + 1)
        for chosen in combinations(range(len(rooms)), size)
        if forced <= set(chosen) and sum(rooms[index] for index in chosen) >= count
    ]


@given(problems())
def test_no_set_of_racks_is_smaller_or_leaves_less_unused(problem: tuple[list[int], list[int], int]) -> None:
    rooms, musts, count = problem
    found = next(fewest(rooms, musts, count), None)
    possible = _sets_that_do(rooms, musts, count)
    if not possible:
        assert found is None
        return
    assert found is not None
    assert tuple(found) in possible
    smallest = min(len(chosen) for chosen in possible)
    least = min(sum(rooms[i] for i in chosen) for chosen in possible if len(chosen) == smallest)
    assert (len(found), sum(rooms[i] for i in found)) == (smallest, least)


@given(problems())
def test_every_set_that_is_offered_would_do_and_has_the_same_size(
    problem: tuple[list[int], list[int], int],
) -> None:
    rooms, musts, count = problem
    possible = _sets_that_do(rooms, musts, count)
    offered = list(fewest(rooms, musts, count))
    assert all(tuple(chosen) in possible for chosen in offered)
    assert len({len(chosen) for chosen in offered}) <= 1


@given(problems())
def test_the_shortest_run_of_neighbouring_racks_is_found(problem: tuple[list[int], list[int], int]) -> None:
    rooms, musts, count = problem
    forced = {index for index, must in enumerate(musts) if must}
    possible = [
        (first, last)
        for first in range(len(rooms))
        for last in range(first, len(rooms))
        if all(rooms[first : last + 1])
        and sum(rooms[first : last + 1]) >= count
        and forced <= set(range(first, last + 1))
    ]
    found = windows(rooms, musts, count)
    assert set(found) <= set(possible)
    assert bool(found) == bool(possible)
    if possible:

        def cost(window: tuple[int, int]) -> tuple[int, int]:
            first, last = window
            return last - first, sum(rooms[first : last + 1])

        assert cost(found[0]) == min(map(cost, possible))


def test_large_racks_stay_whole_when_smaller_ones_do() -> None:
    assert next(fewest([8, 6, 4, 4], [0, 0, 0, 0], 10)) == [1, 2]


def test_a_rack_that_just_fits_is_taken_before_a_larger_one() -> None:
    assert next(fewest([8, 4, 5], [0, 0, 0], 4)) == [1]
