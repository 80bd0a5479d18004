"""Kueue's compressed topology assignments, as rank order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model.kueue.topology_assignment import Domain, TopologyAssignment, decode
from support.kueue_double import encode

BLOCK, RACK, HOST = "cloud/block", "cloud/rack", "kubernetes.io/hostname"
VALUES = st.text(alphabet="ab01-", min_size=1, max_size=8)


def test_the_examples_of_the_api_read_as_they_say() -> None:
    plain = {
        "levels": [BLOCK, RACK],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"roots": ["block-1", "block-1"]}, {"roots": ["rack-1", "rack-2"]}],
                "podCounts": [4, 2],
            }
        ],
    }
    shorter = {
        "levels": [BLOCK, RACK],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"universalValue": "block-1"}, {"prefix": "rack-", "roots": ["1", "2"]}],
                "podCounts": [4, 2],
            }
        ],
    }
    expected = TopologyAssignment((BLOCK, RACK), (Domain(("block-1", "rack-1"), 4), Domain(("block-1", "rack-2"), 2)))
    assert decode(plain) == decode(shorter) == expected
    assert not expected.names_hosts
    hosts = {
        "levels": [HOST],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"prefix": "block-1-rack-1-node-", "suffix": ".x", "roots": ["2", "1"]}],
                "universalPodCount": 1,
            },
            {
                "domainCount": 1,
                "valuesPerLevel": [{"universalValue": "block-1-rack-2-node-1"}],
                "universalPodCount": 1,
            },
        ],
    }
    found = decode(hosts)
    assert found.names_hosts
    assert found.hosts == ("block-1-rack-1-node-2.x", "block-1-rack-1-node-1.x", "block-1-rack-2-node-1")


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
    whole = {"domainCount": 1, "valuesPerLevel": [{"roots": ["a"]}], "universalPodCount": 1, **changes}
    return {"levels": [HOST], "slices": [{key: value for key, value in whole.items() if value is not None}]}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "no levels"),
        ({"levels": [HOST], "slices": ["x"]}, "slices[0] is no object"),
        (_slice(domainCount=0), "slices[0].domainCount is 0"),
        (_slice(domainCount=True), "slices[0].domainCount is True"),
        (_slice(domainCount=10**12), "not a number of domains"),
        (_slice(valuesPerLevel=[]), "valuesPerLevel has 0 entries for 1 levels"),
        (_slice(valuesPerLevel=[{}]), "valuesPerLevel[0] needs one of roots and universalValue"),
        (_slice(valuesPerLevel=[{"roots": ["a", "b"]}]), "roots has 2 entries for 1 domains"),
        (_slice(universalPodCount=None), "needs one of podCounts and universalPodCount"),
        (_slice(podCounts=[1]), "needs one of podCounts and universalPodCount"),
        (_slice(universalPodCount=None, podCounts=[1, 1]), "podCounts has 2 entries for 1 domains"),
        (_slice(universalPodCount=-1), "a number of pods that is none"),
        (_slice(universalPodCount="1"), "a number of pods that is none"),
        (_slice(universalPodCount=10**9), "more than 100000 pods"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(raw: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the words are what is tested
        decode(raw)
    assert words in str(refusal.value)
