"""Amounts of resources, and names in natural order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model.quantities import amount, in_words, quantity


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
