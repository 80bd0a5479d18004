"""Which racks a gang gets and how many nodes in each, on a cluster of a few racks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.api.run_spec import TopologyRule
from lockstep.core.model.node_set import EMPTY, NodeSet
from lockstep.core.placement import topology
from lockstep.core.placement.node_order import Numbering
from lockstep.core.placement.topology import arrange, attempts, fullest_domains
from support.examples import examples

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
                [("RACK", "Any", None)],
            ],
        ),
        ([rule("Any", "Required", "zone"), rule()], [[("RACK", "Pack", None)]]),
        ([rule("Any", "Preferred")], [[("RACK", "Any", None)]]),
        (
            [rule("Contiguous", "Preferred", "zone", 4), rule()],
            [
                [("ZONE", "Contiguous", 4), ("RACK", "Pack", None)],
                [("ZONE", "Pack", None), ("RACK", "Pack", None)],
                [("RACK", "Pack", None)],
            ],
        ),
    ],
)
def test_preferred_rules_are_relaxed_one_by_one_the_last_listed_first(
    rules: list[TopologyRule], expected: list[list[tuple[str, str, int | None]]]
) -> None:
    assert shapes(*rules) == expected


def chosen_in(
    numbering: Numbering, rules: Sequence[TopologyRule], usable: NodeSet, idle: NodeSet, obliged: NodeSet, count: int
) -> NodeSet | None:
    wishes = attempts(rules, LEVELS)
    trees = [numbering.tree([wish.label for wish in each]) for each in wishes]
    return arrange(trees, wishes, usable, idle, obliged, count)


def arranged(
    sizes: Mapping[str, int], count: int, *rules: TopologyRule, booked: Sequence[str] = (), kept: Sequence[str] = ()
) -> dict[str, int] | None:
    """Nodes taken by rack, of racks with so many nodes each: r1-0, r1-1, …"""
    names = [f"{rack}-{index}" for rack, size in sizes.items() for index in range(size)]
    labels = {name: {"RACK": name.partition("-")[0], "ZONE": "a"} for name in names}
    numbering = Numbering(labels, ("ZONE", "RACK"))
    everything, obliged = numbering.mask(names), numbering.mask(kept)
    usable = everything & ~numbering.mask(booked) & ~obliged
    chosen = chosen_in(numbering, rules, usable, everything & ~obliged, obliged, count)
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
    assert chosen_in(Numbering({"n1": {}}, ("ZONE", "RACK")), [], EMPTY, EMPTY, EMPTY, 0) == EMPTY


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


zones_of_racks = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3)
"""Free nodes, of four, in each rack."""


def in_zones(free: Sequence[Sequence[int]], count: int, *rules: TopologyRule) -> Counter[str] | None:
    """Nodes taken by rack, of racks with four nodes each: a0 is the first of the first zone."""
    racks = {
        f"{zone}{index}": room for zone, rooms in zip("abc", free, strict=False) for index, room in enumerate(rooms)
    }
    labels = {f"{rack}-{node}": {"ZONE": rack[0], "RACK": rack} for rack in racks for node in range(4)}
    numbering = Numbering(labels, ("ZONE", "RACK"))
    usable = numbering.mask(f"{rack}-{node}" for rack, room in racks.items() for node in range(room))
    chosen = chosen_in(numbering, rules, usable, numbering.mask(labels), EMPTY, count)
    return None if chosen is None else Counter(name[:2] for name in numbering.in_rank_order(chosen))


def can_be_met(required: TopologyRule, free: Sequence[Sequence[int]], count: int) -> bool:
    """By trying every share of every domain."""
    racks = required.level == "rack"
    rooms = [room for zone in free for room in zone] if racks else [sum(zone) for zone in free]
    ideals = [4 for zone in free for _ in zone] if racks else [4 * len(zone) for zone in free]
    most = required.max_nodes or count
    ideals = sorted((min(ideal, most) for ideal in ideals), reverse=True)
    idle_number = next((n for n in range(len(ideals) + 1) if sum(ideals[:n]) >= count), 0)

    def is_met(takes: Sequence[int]) -> bool:
        used = [index for index, take in enumerate(takes) if take]
        return (
            sum(takes) == count
            and (required.policy != "Pack" or len(used) <= idle_number)
            and (required.policy != "Contiguous" or used[-1] - used[0] < len(used))
        )

    return any(map(is_met, product(*(range(min(room, most) + 1) for room in rooms))))


def rules_on(level: str, mode: str) -> st.SearchStrategy[TopologyRule]:
    limits = {"Any": [None, 2, 4], "Pack": [None, None, 3], "Contiguous": [None, None, 3], "Spread": [1, 3]}
    policies = [(policy, most) for policy, several in limits.items() for most in several]
    return st.sampled_from(policies).map(lambda wish: rule(wish[0], mode, level, wish[1]))


@pytest.mark.parametrize(
    ("wider", "expected"),
    [
        (None, {"a0": 4, "b0": 4, "b1": 4, "b2": 4}),
        (rule("Pack", "Preferred", "zone"), {"a0": 4, "b0": 4, "b1": 4, "b2": 4}),
        (rule("Pack", "Required", "zone"), {"a0": 4, "b0": 4, "b1": 4, "b2": 4}),
        (rule("Contiguous", "Required", "zone"), {"a0": 4, "b0": 4, "b1": 4, "b2": 4}),
        (rule("Any", "Required", "zone", 12), {"a0": 4, "b0": 4, "b1": 4, "b2": 4}),
        (rule("Spread", "Required", "zone", 12), {"a0": 4, "a1": 1, "b0": 4, "b1": 4, "b2": 3}),
    ],
)
def test_zones_are_asked_for_no_more_than_lies_in_as_few_racks_as_can_be(
    wider: TopologyRule | None, expected: dict[str, int]
) -> None:
    """Of zone a's six free nodes five at most: on an idle cluster six lie in two racks."""
    assert in_zones([[4, 1, 1], [4, 4, 4]], 16, *([wider] if wider else []), rule()) == expected


@st.composite
def required_and_preferred(draw: st.DrawFn) -> tuple[TopologyRule, TopologyRule]:
    levels = draw(st.permutations(["rack", "zone"]))
    return draw(rules_on(levels[0], "Required")), draw(rules_on(levels[1], "Preferred"))


@example([[4], [3, 3, 3], [4]], 8, (rule(), rule("Contiguous", "Preferred", "zone")))
@example([[3, 4, 2], [4, 2]], 8, (rule(), rule("Pack", "Preferred", "zone")))
@settings(max_examples=examples(300))
@given(zones_of_racks, st.integers(1, 24), required_and_preferred())
def test_a_required_rule_is_met_wherever_it_can_be_whatever_is_preferred_on_another_level(
    free: list[list[int]], count: int, rules: tuple[TopologyRule, TopologyRule]
) -> None:
    found = in_zones(free, count, *rules)
    assert (found is not None) == can_be_met(rules[0], free, count)
    assert found is None or found.total() == count


@pytest.mark.parametrize("rack_rule", [rule("Contiguous"), rule("Contiguous", "Preferred"), rule()])
def test_the_work_grows_no_faster_than_the_zones_where_rules_on_two_levels_want_neighbours(
    rack_rule: TopologyRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[int] = []

    def counted(*args: Any, **more: Any) -> Iterator[dict[int, int]]:
        for takes in choices(*args, **more):
            shares.append(len(takes))
            yield takes

    choices = topology._choices
    monkeypatch.setattr(topology, "_choices", counted)

    def work(zones: int) -> int:
        shares.clear()
        labels = {f"{i}-{j}": {"ZONE": f"{i}", "RACK": f"{i}-{j // 4}"} for i in range(zones) for j in range(8)}
        numbering = Numbering(labels, ("ZONE", "RACK"))
        everything = numbering.mask(labels)
        usable = everything & ~numbering.mask(name for number, name in enumerate(labels) if number % 4 == 0)
        rules = [rule("Contiguous", "Preferred", "zone"), rack_rule]
        assert chosen_in(numbering, rules, usable, everything, EMPTY, 3 * zones + 1) is not None
        return sum(shares)

    assert work(400) <= 5 * work(100)
