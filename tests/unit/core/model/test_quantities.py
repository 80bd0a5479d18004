"""Amounts of resources, and names in natural order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model.quantities import amount, in_words, quantity, short_count, steps_in_short


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "180", 180_000),
        ("cpu", "500m", 500),
        ("cpu", "0.1", 100),
        ("cpu", "100u", 1),
        ("memory", "1800Gi", 1800 * 2**30),
        ("memory", "128974848", 128_974_848),
        ("memory", "129e6", 129_000_000),
        ("memory", "1.5Gi", 3 * 2**29),
        ("nvidia.com/gpu", "8", 8),
        ("hugepages-2Mi", "5Gi", 5 * 2**30),
        ("cpu", 0.5, 500),
        ("memory", 1e22, 2**63 - 1),
        ("cpu", "1e900", (2**63 - 1) * 1000),
        ("memory", "9" * 200 + "E", 2**63 - 1),
    ],
)
def test_quantities_are_read_exactly_and_as_large_as_the_api_server_does(
    resource: str, text: str, expected: int
) -> None:
    assert amount(resource, text) == expected
    assert in_words(resource, expected)


@pytest.mark.parametrize("nonsense", ["", "x", "1 Gi", "9" * 5000, None, True, [], {}, float("nan")])
def test_what_is_no_quantity_is_refused_with_the_right_form(nonsense: Any) -> None:
    with pytest.raises(ValueError, match="write a quantity as 8, 500m") as refused:
        amount("cpu", nonsense)
    assert len(str(refused.value)) < 200


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 2**62))
def test_what_is_written_reads_the_same(resource: str, value: int) -> None:
    assert amount(resource, quantity(resource, value)) == value


@pytest.mark.parametrize(
    ("resource", "value", "words"),
    [("cpu", 191_800, "191.8"), ("cpu", 8_000, "8"), ("memory", 3 * 2**39, "1.5Ti"), ("rdma/hca", 8, "8")],
)
def test_amounts_read_well(resource: str, value: int, words: str) -> None:
    assert in_words(resource, value) == words


@pytest.mark.parametrize(
    ("number", "short"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (1250, "1250"),
        (9999, "9999"),
        (10_000, "10k"),
        (12_345, "12.3k"),
        (120_000, "120k"),
        (999_950, "1M"),
        (3_000_001, "3M"),
        (3_400_000, "3.4M"),
        (9_999_999, "10M"),
        (34_000_000, "34M"),
        (2_000_000_000, "2G"),
    ],
)
def test_a_count_is_short_and_exact_below_ten_thousand(number: int, short: str) -> None:
    assert short_count(number) == short


@pytest.mark.parametrize(("step", "total", "words"), [(120, None, "120"), (12_345, 250_000, "12.3k/250k"), (1, 0, "1")])
def test_a_step_stands_before_how_many_there_are_to_be(step: int, total: int | None, words: str) -> None:
    assert steps_in_short(step, total) == words
