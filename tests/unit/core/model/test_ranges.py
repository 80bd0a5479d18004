"""Sets and orders of ranks as short text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model.ranges import (
    BEYOND,
    count_ranges,
    distinct_ranges,
    format_order,
    format_ranges,
    parse_order,
    parse_ranges,
    shown_ranges,
)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([5], "5"), ([0, 1], "0-1"), ([2, 0, 1, 5, 5], "0-2,5"), ([0, 2, 4], "0,2,4"), ([9, 10, 11], "9-11")],
)
def test_runs_of_numbers_are_folded(numbers: list[int], text: str) -> None:
    assert format_ranges(numbers) == text
    assert parse_ranges(text) == frozenset(numbers)


@pytest.mark.parametrize(("gang", "length"), [(40, 60), (600, 220), (16_384, 220)])
def test_what_people_are_shown_of_many_ranks_does_not_grow_with_the_gang(gang: int, length: int) -> None:
    scattered = range(0, gang, 2)
    shown = shown_ranges(scattered)
    assert len(shown) <= length
    first, _, more = shown.removesuffix(" more").partition(" and ")
    assert count_ranges(first) + int(more or 0) == len(scattered)
    assert bool(more) is (gang > 40)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([0, 1, 4, 2, 3], "0-1,4,2-3"), ([3, 2, 1], "3,2,1"), ([0, 1, 2], "0-2")],
)
def test_an_order_is_kept_and_its_ascending_runs_are_folded(numbers: list[int], text: str) -> None:
    assert format_order(numbers) == text
    assert parse_order(text) == tuple(numbers)


@pytest.mark.parametrize(("text", "count"), [("", 0), ("0-2,5", 4), ("5,5", 2), (f"0-{BEYOND - 1}", BEYOND)])
def test_numbers_are_counted_without_being_unfolded(text: str, count: int) -> None:
    assert count_ranges(text) == count


@pytest.mark.parametrize("text", ["x", "1-x", "-1", f"0-{BEYOND}", f"{BEYOND}", "9" * 5000, "7-3", "0,5-4"])
def test_what_is_no_ranges_of_ours_is_refused(text: str) -> None:
    for read in (parse_ranges, count_ranges, parse_order):
        with pytest.raises(ValueError, match=r"beyond|invalid|integer|ends before it begins"):
            read(text)


@given(st.lists(st.frozensets(st.integers(0, 60), max_size=20), max_size=4))
def test_several_texts_are_one_set_of_numbers_where_none_is_there_twice(sets: list[frozenset[int]]) -> None:
    together = set().union(*sets)
    texts = [format_ranges(each) for each in sets]
    if len(together) < sum(map(len, sets)):
        with pytest.raises(ValueError, match="is there twice"):
            distinct_ranges(texts)
    else:
        found = distinct_ranges(texts)
        assert [number for run in found for number in run] == sorted(together)
        assert found == distinct_ranges([format_ranges(together)])


def test_an_order_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="a number is there twice"):
        parse_order(f"0-{BEYOND - 1},0")


@given(st.lists(st.integers(0, 500), unique=True))
def test_what_is_written_reads_the_same(numbers: list[int]) -> None:
    assert parse_ranges(format_ranges(numbers)) == set(numbers)
    assert parse_order(format_order(numbers)) == tuple(numbers)
