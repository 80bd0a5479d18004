"""Which racks a gang gets and how many nodes in each, on a cluster of a few racks."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lockstep.api.run_spec import TopologyRule
from lockstep.core.model.node_set import EMPTY
from lockstep.core.placement.node_order import Numbering
from lockstep.core.placement.topology import arrange, attempts, fullest_domains

LEVELS = {"rack": "RACK", "zone": "ZONE"}


def rule(policy: str = "Pack", mode: str = "Required", level: str = "rack", most: int | None = None) -> TopologyRule:
    fields = {"level": level, "policy": policy, "mode": mode, **({"maxNodes": most} if most else {})}
    return TopologyRule.model_validate(fields)


def shapes(*rules: TopologyRule) -> list[list[tuple[str, str, int | None]]]:
    return [[(wish.label, wish.policy, wish.most) for wish in each] for each in attempts(rules, LEVELS)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], [[("RACK", "Pack", None)]]),
        ([rule()], [[("RACK", "Pack", None)]]),
        ([rule(), rule(level="zone")], [[("ZONE", "Pack", None), ("RACK", "Pack", None)]]),
        ([rule("Contiguous", "Required", most=2)], [[("RACK", "Contiguous", 2)]]),
        ([rule("Contiguous", "Preferred")], [[("RACK", "Contiguous", None)], [("RACK", "Pack", None)]]),
        ([rule("Spread", "Preferred", most=1)], [[("RACK", "Spread", 1)], [("RACK", "Spread", None)]]),
        ([rule("Pack", "Preferred")], [[("RACK", "Pack", None)]]),
        (
            [rule("Any", "Preferred", "zone", 4), rule("Any", "Preferred", "rack", 2)],
            [
                [("ZONE", "Any", 4), ("RACK", "Any", 2)],
                [("ZONE", "Any", 4), ("RACK", "Any", None)],
                [("ZONE", "Any", None), ("RACK", "Any", None)],
            ],
        ),
    ],
)
def test_preferred_rules_are_relaxed_one_by_one_the_last_listed_first(
    rules: list[TopologyRule], expected: list[list[tuple[str, str, int | None]]]
) -> None:
    assert shapes(*rules) == expected


def arranged(
    sizes: Mapping[str, int], count: int, *rules: TopologyRule, booked: Sequence[str] = (), kept: Sequence[str] = ()
) -> dict[str, int] | None:
    """Nodes taken by rack, of racks with so many nodes each: r1-0, r1-1, …"""
    names = [f"{rack}-{index}" for rack, size in sizes.items() for index in range(size)]
    labels = {name: {"RACK": name.partition("-")[0], "ZONE": "a"} for name in names}
    numbering = Numbering(labels, ("ZONE", "RACK"))
    wishes = attempts(rules, LEVELS)
    everything, obliged = numbering.mask(names), numbering.mask(kept)
    usable = everything & ~numbering.mask(booked) & ~obliged
    tree = numbering.tree([wish.label for wish in wishes[0]])
    chosen = arrange(tree, wishes, usable, everything & ~obliged, obliged, count)
    if chosen is None:
        return None
    found: dict[str, int] = {}
    for name in numbering.in_rank_order(chosen):
        found[name.partition("-")[0]] = found.get(name.partition("-")[0], 0) + 1
    return found


@pytest.mark.parametrize(
    ("sizes", "count", "rules", "more", "expected"),
    [
        ({"r1": 2}, 3, [], {}, None),
        ({"r1": 2, "r2": 3}, 3, [], {}, {"r2": 3}),
        ({"r1": 2, "r2": 3}, 4, [rule()], {}, {"r1": 2, "r2": 2}),
        # One rack would do on an idle cluster: who requires Pack waits for it.
        ({"r1": 3, "r2": 2}, 3, [rule()], {"booked": ["r1-0"]}, None),
        ({"r1": 3, "r2": 2}, 3, [rule(mode="Preferred")], {"booked": ["r1-0"]}, {"r1": 2, "r2": 1}),
        ({"r1": 2, "r2": 2}, 3, [rule(most=1)], {}, None),
        ({"r1": 2, "r2": 2}, 2, [rule(most=1)], {}, {"r1": 1, "r2": 1}),
        ({"r1": 2, "r2": 1, "r3": 2}, 4, [rule("Contiguous")], {"booked": ["r2-0"]}, None),
        ({"r1": 2, "r2": 1, "r3": 2}, 4, [rule("Contiguous")], {}, {"r1": 2, "r2": 1, "r3": 1}),
        ({"r1": 1, "r2": 4, "r3": 4}, 5, [rule("Spread", most=4)], {}, {"r1": 1, "r2": 2, "r3": 2}),
        ({"r1": 4, "r2": 3}, 2, [], {"kept": ["r2-0"]}, {"r2": 2}),
        ({"r1": 4, "r2": 3}, 2, [rule(most=1)], {"kept": ["r2-0", "r2-1"]}, None),
        ({"r1": 4}, 1, [], {"kept": ["r1-0", "r1-1"]}, None),
    ],
)
def test_a_gang_gets_racks_as_its_rules_want_them_or_none(
    sizes: dict[str, int], count: int, rules: list[TopologyRule], more: dict[str, Any], expected: dict[str, int] | None
) -> None:
    assert arranged(sizes, count, *rules, **more) == expected


def test_nothing_is_taken_for_nobody() -> None:
    tree = Numbering({"n1": {}}, ("ZONE", "RACK")).tree(["RACK"])
    assert arrange(tree, attempts([], LEVELS), EMPTY, EMPTY, EMPTY, 0) == EMPTY


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, ""),
        ({"r1": 6, "r2": 8}, "r2 8, r1 6"),
        ({"r10": 1, "r2": 1, "r1": 1}, "r1 1, r2 1, r10 1"),
        ({"r1": 1, "r2": 2, "r3": 3, "r4": 4, "r5": 5, "r6": 6}, "r6 6, r5 5, r4 4, r3 3 and 2 more"),
    ],
)
def test_the_roomiest_domains_are_named(counts: dict[str, int], words: str) -> None:
    assert fullest_domains(counts) == words
