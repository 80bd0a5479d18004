"""Kueue's compressed topology assignments, as rank order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model.kueue.topology_assignment import Domain, TopologyAssignment, decode
from support.kueue_double import encode

BLOCK, RACK, HOST = "cloud/block", "cloud/rack", "kubernetes.io/hostname"
VALUES = st.text(alphabet="ab01-", min_size=1, max_size=8)


def test_what_kueue_writes_reads_as_it_says() -> None:
    """Seen of Kueue v0.20.0-devel, with two hosts of one slice."""
    written = {
        "levels": [HOST],
        "slices": [
            {
                "domainCount": 2,
                "podCounts": {"universal": 1},
                "valuesPerLevel": [{"individual": {"prefix": "tas-000", "roots": ["0", "1"]}}],
            }
        ],
    }
    found = decode(written)
    assert found.names_hosts
    assert found.hosts == ("tas-0000", "tas-0001")


def test_values_and_counts_are_said_for_each_domain_or_once_for_all() -> None:
    def assignment(*values: dict[str, Any]) -> dict[str, Any]:
        part = {"domainCount": 2, "valuesPerLevel": list(values), "podCounts": {"individual": [4, 2]}}
        return {"levels": [BLOCK, RACK], "slices": [part]}

    plain = assignment(
        {"individual": {"roots": ["block-1", "block-1"]}}, {"individual": {"roots": ["rack-1", "rack-2"]}}
    )
    shorter = assignment({"universal": "block-1"}, {"individual": {"prefix": "rack-", "roots": ["1", "2"]}})
    expected = TopologyAssignment((BLOCK, RACK), (Domain(("block-1", "rack-1"), 4), Domain(("block-1", "rack-2"), 2)))
    assert decode(plain) == decode(shorter) == expected
    assert not expected.names_hosts


def test_slices_follow_one_another_in_rank_order() -> None:
    individual = {"prefix": "block-1-rack-1-node-", "suffix": ".x", "roots": ["2", "1"]}
    first = {"domainCount": 2, "valuesPerLevel": [{"individual": individual}], "podCounts": {"universal": 1}}
    last = {"domainCount": 1, "valuesPerLevel": [{"universal": "node-1"}], "podCounts": {"universal": 1}}
    found = decode({"levels": [HOST], "slices": [first, last]})
    assert found.hosts == ("block-1-rack-1-node-2.x", "block-1-rack-1-node-1.x", "node-1")


@given(
    levels=st.integers(1, 3),
    slices=st.integers(1, 4),
    data=st.data(),
)
def test_what_is_encoded_however_compressed_is_decoded_in_the_same_order(
    levels: int, slices: int, data: st.DataObject
) -> None:
    domain = st.tuples(st.tuples(*[VALUES] * levels), st.integers(0, 5))
    domains = data.draw(st.lists(domain, min_size=1, max_size=12))
    labels = [f"level-{index}" for index in range(levels)]
    found = decode(encode(labels, domains, slices))
    assert [(each.values, each.count) for each in found.domains] == domains
    assert found.levels == tuple(labels)
    assert found.count == sum(count for _, count in domains)


def _slice(**changes: Any) -> dict[str, Any]:
    roots = {"individual": {"roots": ["a"]}}
    whole = {"domainCount": 1, "valuesPerLevel": [roots], "podCounts": {"universal": 1}, **changes}
    return {"levels": [HOST], "slices": [whole]}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "no levels"),
        ({"levels": [HOST], "slices": ["x"]}, "slices[0] is no object"),
        (_slice(domainCount=0), "slices[0].domainCount is 0"),
        (_slice(domainCount=True), "slices[0].domainCount is True"),
        (_slice(domainCount=10**12), "not a number of domains"),
        (_slice(valuesPerLevel=[]), "valuesPerLevel has 0 elements for 1 level"),
        (_slice(valuesPerLevel=["x"]), "valuesPerLevel[0] is no object"),
        (_slice(valuesPerLevel=[{}]), "valuesPerLevel[0] needs one of universal and individual"),
        (_slice(valuesPerLevel=[{"individual": ["a"]}]), "valuesPerLevel[0].individual is no object"),
        (_slice(valuesPerLevel=[{"individual": {"roots": ["a", "b"]}}]), "roots has 2 elements for 1 domain"),
        (_slice(podCounts=None), "podCounts is no object"),
        (_slice(podCounts={}), "podCounts needs one of universal and individual"),
        (_slice(podCounts={"universal": 1, "individual": [1]}), "podCounts needs one of universal and individual"),
        (_slice(podCounts={"individual": [1, 1]}), "podCounts.individual has 2 elements for 1 domain"),
        (_slice(podCounts={"universal": -1}), "a number of pods that is none"),
        (_slice(podCounts={"universal": "1"}), "a number of pods that is none"),
        (_slice(podCounts={"universal": 10**9}), "more than 100000 pods"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the words are what is tested
        decode(raw)
    assert words in str(refusal.value)
