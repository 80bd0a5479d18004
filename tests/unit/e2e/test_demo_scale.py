"""What the demo of a large gang takes for a promise that was broken."""

from typing import Any

import pytest

from demo.scale import broken_promises
from harness.world import LeaseSeen
from lockstep.api.recovery_status import RecoveryStatus, Totals
from lockstep.api.run_status import Condition
from support.admission import run

SUCCEEDED = Condition(type="Succeeded", status="True", reason="AllRanksSucceeded", last_transition_time=0)
HELD = LeaseSeen("one", 3, 1)


@pytest.mark.parametrize(
    ("status", "released", "leases_lost", "words"),
    [
        ({}, 4096, 0, []),
        ({"conditions": ()}, 4096, 0, ["not Succeeded"]),
        ({"attempt": 2}, 4096, 0, ["2 attempts"]),
        ({}, 4095, 0, ["4095 ranks"]),
        ({"totals": Totals(nodes_replaced=1)}, 4096, 0, ["1 nodes and 0 pods were replaced"]),
        ({"totals": Totals(pods_replaced=2)}, 4096, 0, ["0 nodes and 2 pods were replaced"]),
        ({"recovery": RecoveryStatus(requeues=1)}, 4096, 0, ["gave its nodes back"]),
        ({}, 4096, 1, ["lost its lease"]),
    ],
)
def test_a_launch_is_as_promised_when_nothing_was_done_twice(
    status: dict[str, Any], released: int, leases_lost: int, words: list[str]
) -> None:
    ended = run("one", 2, status={"attempt": 1, "conditions": (SUCCEEDED,), **status})
    wrong = broken_promises(ended, {"attempts": {"1": {"released": released}}}, 4096, leases_lost)
    assert len(wrong) == len(words)
    assert all(word in sentence for word, sentence in zip(words, wrong, strict=True))


@pytest.mark.parametrize(
    ("later", "lost"),
    [(HELD, 0), (LeaseSeen("two", 4, 1), 1), (LeaseSeen("one", 5, 1), 1), (LeaseSeen("one", 3, 3), 2)],
)
def test_a_lease_is_lost_when_another_has_it_or_the_operator_began_anew(later: LeaseSeen, lost: int) -> None:
    assert HELD.lost_until(later) == lost
