"""Conditions of a node on which nothing can train."""

import pytest

from lockstep.core.placement.node_conditions import HARDWARE_CONDITIONS, bad_conditions
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
