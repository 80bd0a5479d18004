"""What a node is to runs, in one word: the first reason against it."""

from typing import Any

import pytest

from lockstep.core.failures.node_state import NODE_STATES, state_of
from lockstep.core.model.snapshot import NodeFailure
from support.world import node

NOW = 1_000_000.0
FAILED = tuple(NodeFailure(f"run-{number}", NOW - 60, "Hardware") for number in range(4))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "Ready"),
        ({"failures": FAILED, "suspect": "x"}, "Suspect"),
        ({"failures": FAILED[:1], "suspect": "x"}, "Ready"),
        ({"failures": FAILED}, "Ready"),
        ({"conditions": {"KernelDeadlock": "x"}, "failures": FAILED, "suspect": "x"}, "Unhealthy"),
        ({"unschedulable": True, "conditions": {"KernelDeadlock": "x"}}, "Cordoned"),
        ({"drain": "firmware", "unschedulable": True}, "Draining"),
        ({"ready": False, "drain": "firmware"}, "NotReady"),
        ({"deleting": True}, "NotReady"),
    ],
)
def test_the_first_reason_against_a_node_is_its_word(fields: dict[str, Any], word: str) -> None:
    assert state_of(node("n0", **fields), NOW) == word
    assert word in NODE_STATES
