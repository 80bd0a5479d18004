"""Ranks that stand at the same place are one line."""

import json

import pytest

from lockstep.core.failures.stack_groups import MAX_GROUPS, StackGroup, grouped, stacks_config_map
from support.world import world_with_gang


@pytest.mark.parametrize(
    ("texts", "groups"),
    [
        ({}, []),
        ({0: "a", 1: "a"}, [(0, 1)]),
        ({0: "a", 1: "b", 2: "b"}, [(1, 2), (0,)]),
        ({2: "a", 1: "b"}, [(1,), (2,)]),
        ({0: "at 0x7f12 pid 1234", 1: "at 0x9ab pid 567"}, [(0, 1)]),
        ({0: "line 12", 1: "line 13"}, [(0,), (1,)]),
    ],
)
def test_the_largest_group_comes_first_and_addresses_set_nobody_apart(
    texts: dict[int, str], groups: list[tuple[int, ...]]
) -> None:
    assert [group.ranks for group in grouped(texts)] == groups


@pytest.mark.parametrize(
    ("text", "innermost", "is_stopped"),
    [
        ("python in recv\nmore", "python in recv", False),
        ("", "an unknown place", False),
        ("x" * 200, "x" * 160, False),
        ("python [stopped by SIGSTOP]", "python [stopped by SIGSTOP]", True),
    ],
)
def test_where_a_group_stands_is_said_in_a_line(text: str, innermost: str, is_stopped: bool) -> None:
    group = StackGroup((0,), text)
    assert (group.innermost, group.is_stopped) == (innermost, is_stopped)


def test_the_stacks_are_kept_for_people_up_to_a_bound() -> None:
    run = world_with_gang(1).runs["one"]
    groups = [StackGroup((rank,), f"at {rank}") for rank in range(MAX_GROUPS + 1)]
    body = stacks_config_map(run, 3, "a3-Step-10", groups).body
    rows = json.loads(body["data"]["stacks.json"])
    assert body["data"]["request"] == "a3-Step-10"
    assert (len(rows), rows[1]) == (MAX_GROUPS, {"ranks": "1", "stacks": "at 1"})
