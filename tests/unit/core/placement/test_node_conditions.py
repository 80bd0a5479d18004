"""Conditions of a node on which nothing can train."""

import pytest

from lockstep.core.model.snapshot import Taint
from lockstep.core.placement.node_conditions import HARDWARE_CONDITIONS, bad_conditions, is_refused_by_us_alone
from support.world import node


@pytest.mark.parametrize(
    ("conditions", "bad"),
    [
        ([], ()),
        (["FrequentKubeletRestart", "Fancy"], ()),
        (["XidCriticalError", "Fancy"], ("XidCriticalError",)),
        (["XidCriticalError", "DiskBadBlock"], ("DiskBadBlock", "XidCriticalError")),
        (HARDWARE_CONDITIONS, tuple(sorted(HARDWARE_CONDITIONS))),
    ],
)
def test_only_conditions_on_which_nothing_can_train_are_faults(conditions: list[str], bad: tuple[str, ...]) -> None:
    assert bad_conditions(node("n0", conditions=dict.fromkeys(conditions, "why"))) == bad


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"unschedulable": True}, False),
        ({"ready": False}, False),
        ({"taints": (Taint("other", "NoSchedule"),)}, False),
        ({"conditions": {"Fancy": "why"}}, False),
        ({"conditions": {"XidCriticalError": "Xid 79"}}, True),
        ({"drain": "firmware"}, True),
        ({"taints": (Taint("leave", "PreferNoSchedule"),)}, True),
    ],
)
def test_what_only_gangs_go_by_is_told_from_what_everybody_sees(changes: dict[str, object], refused: bool) -> None:
    assert is_refused_by_us_alone(node("n0", **changes), ("leave",)) == refused
