"""The demo tells a run's life in the order it happened, each thing once."""

from __future__ import annotations

from typing import Any

import pytest

from demo.narration import placement_map, told
from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import Candidate, CheckpointStatus, RejectedCandidate
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import (
    AssignmentStatus,
    Condition,
    ProgressStatus,
    QueueStatus,
    StartRecord,
    TrainingRunStatus,
)

RACKS = {"n0": "r0", "n1": "r0", "n2": "r1"}
HELD = AssignmentStatus(nodes=("n0", "n1"), incarnations=(1, 1))
START = StartRecord(attempt=1, assignment_hash="a", master_address="10.0.0.1", master_port=29500)
SAVED = Candidate(tier="shared", step=20, path="/c/a1/step-20")


def status(**fields: Any) -> TrainingRunStatus:
    return TrainingRunStatus(**fields)


def condition(kind: str, value: str, message: str = "") -> Condition:
    return Condition(type=kind, status=value, reason="R", message=message, last_transition_time=0)


START_WORDS = "everybody is at the barrier: attempt {} starts on all ranks"
RUNNING = status(attempt=1, assignment=HELD, start=START)
LOST = AttemptStatus(number=1, ended_at=5, cause="NodeLost", message="n1 is silent", action="Replace", last_step=27)


@pytest.mark.parametrize(
    ("before", "now", "lines"),
    [
        (status(), status(), []),
        (
            status(),
            status(conditions=(condition("Accepted", "False", "spec.nodes: must be positive"),)),
            ["not accepted: spec.nodes: must be positive"],
        ),
        (
            status(),
            status(queue=QueueStatus(position=2, reason="Resources", message="2 nodes lack")),
            ["waits in the queue at position 2: 2 nodes lack"],
        ),
        (
            status(nodes_ready="0/2"),
            status(attempt=1, assignment=HELD, nodes_ready="0/2"),
            [
                "placement: whole nodes for the whole gang, decided and recorded before any pod is made",
                "    rank 0: n0 in r0 (incarnation 1)",
                "    rank 1: n1 in r0 (incarnation 1)",
                "barrier: 0/2 ready",
            ],
        ),
        (
            status(attempt=1, assignment=HELD),
            RUNNING,
            [
                f"{START_WORDS.format(1)} at step 0",
                "    rendezvous at 10.0.0.1:29500; no name was looked up",
            ],
        ),
        (RUNNING, changed(RUNNING, nodes_ready="2/2"), []),
        (
            RUNNING,
            changed(
                RUNNING,
                progress=ProgressStatus(step=21, total_steps=100, loss="2.5"),
                checkpoint=CheckpointStatus(latest=(SAVED,)),
            ),
            ["checkpoint of step 20 is valid on all ranks", "step 21/100, loss 2.5"],
        ),
        (
            changed(RUNNING, progress=ProgressStatus(step=21, loss="2.5")),
            changed(RUNNING, progress=ProgressStatus(step=29, loss="2.4")),
            [],
        ),
        (
            RUNNING,
            changed(
                RUNNING,
                attempt=2,
                attempts=(LOST,),
                assignment=AssignmentStatus(nodes=("n0", ""), incarnations=(1, 2), vacant=(1,)),
                nodes_ready="0/2",
            ),
            [
                "failure seen: attempt 1 ended after step 27 by NodeLost: n1 is silent -> Replace",
                "rank 1 gives up n1 and waits for another node; all others keep theirs",
                "barrier: 0/2 ready",
            ],
        ),
        (
            status(attempt=2, start=START, assignment=AssignmentStatus(nodes=("n0", ""), incarnations=(1, 2))),
            status(attempt=2, start=START, assignment=AssignmentStatus(nodes=("n0", "n2"), incarnations=(1, 2))),
            [
                "rank 1 gets n2; everybody else stays where they are",
                "    rank 0: n0 in r0 (incarnation 1)",
                "    rank 1: n2 in r1 (incarnation 2)",
            ],
        ),
        (
            status(attempt=2, start=START, assignment=HELD),
            status(
                attempt=2,
                assignment=HELD,
                start=changed(START, attempt=2, resume=SAVED),
                checkpoint=CheckpointStatus(
                    rejected=(RejectedCandidate(tier="shared", step=25, path="/c/a1/step-25", reason="no manifest"),)
                ),
            ),
            [
                "passed over: step 25 in /c/a1/step-25: no manifest",
                f"{START_WORDS.format(2)} from step 20, read and found whole (shared: /c/a1/step-20)",
                "    rendezvous at 10.0.0.1:29500; no name was looked up",
            ],
        ),
        (
            RUNNING,
            changed(
                RUNNING,
                state="Succeeded",
                conditions=(condition("Finished", "True"), condition("Succeeded", "True", "both ranks ended")),
            ),
            ["finished: Succeeded, both ranks ended"],
        ),
    ],
)
def test_what_changed_is_told(before: TrainingRunStatus, now: TrainingRunStatus, lines: list[str]) -> None:
    assert told(before, now, RACKS) == lines
    assert told(now, now, RACKS) == []


def test_a_cause_that_becomes_clear_later_is_told_again() -> None:
    guessed = changed(LOST, cause="Application", message="rank 0 ended with exit code 1")
    lines = told(status(attempts=(guessed,)), status(attempts=(LOST,)), RACKS)
    assert lines == ["the cause is now clear: attempt 1 ended after step 27 by NodeLost: n1 is silent -> Replace"]


def test_a_large_gang_is_mapped_by_rack() -> None:
    nodes = tuple(f"n{index}" for index in range(28))
    racks = {node: f"r{index // 4}" for index, node in enumerate(nodes)}
    large = status(assignment=AssignmentStatus(nodes=nodes, incarnations=(1,) * 28))
    assert placement_map(large, racks) == [
        "    ranks 0-3: r0, n0 to n3",
        "    ranks 4-7: r1, n4 to n7",
        "    ranks 8-11: r2, n8 to n11",
        "    ranks 12-15: r3, n12 to n15",
        "    … 2 more racks …",
        "    ranks 24-27: r6, n24 to n27",
    ]
