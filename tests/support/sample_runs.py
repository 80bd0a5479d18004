"""TrainingRuns as an API server would return them, at four moments of their lives."""

from __future__ import annotations

from typing import Any

from lockstep.api.base.times import to_rfc3339

NOW = 1_795_000_000.0
UID = "c83fa0af-f2a7-4606-a6c3-5f65ef8b9b71"
SPEC: dict[str, Any] = {
    "nodes": 4,
    "gpusPerNode": 8,
    "image": "pytorch/pytorch",
    "command": ["train.py", "--resume", "$(LOCKSTEP_RESUME_PATH)"],
    "launcher": {"type": "Torchrun"},
    "checkpoint": {"shared": {"claimName": "lustre"}},
}


def at(seconds_ago: float) -> str:
    """A moment, as the API server writes it."""
    return to_rfc3339(NOW - seconds_ago)


def run(name: str = "llama", *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A run with some fields of its spec changed."""
    return {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": UID,
            "generation": 1,
            "resourceVersion": "7",
            "creationTimestamp": at(7200),
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": SPEC | spec,
        "status": status or {},
    }


def condition(kind: str, value: str, reason: str, message: str = "", seconds_ago: float = 600) -> dict[str, Any]:
    """One entry of status.conditions."""
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(seconds_ago),
        "observedGeneration": 1,
    }


ACCEPTED = condition("Accepted", "True", "Accepted", "the spec is valid", 7195)


def pending(name: str = "llama", **queue: Any) -> dict[str, Any]:
    """Accepted, and waiting."""
    said: dict[str, Any] = {
        "position": 2,
        "reason": "Resources",
        "message": "needs 4 nodes, 1 fit: 3 booked by runs",
    } | queue
    waits = condition("Admitted", "False", said["reason"], said["message"], 7190)
    return run(
        name,
        status={
            "observedGeneration": 1,
            "state": "Pending",
            "reason": said["reason"],
            "nodesReady": "0/4",
            "queue": said,
            "conditions": [ACCEPTED, waits],
        },
    )


def running(**changes: Any) -> dict[str, Any]:
    """On its second attempt, after a node was lost, resumed past a torn checkpoint."""
    resume = {"tier": "shared", "step": 300, "path": f"/shared-checkpoints/{UID}/a1/step-300", "attempt": 1}
    torn = {"tier": "shared", "step": 350, "path": f"/shared-checkpoints/{UID}/a1/step-350"}
    status = {
        "observedGeneration": 1,
        "state": "Running",
        "reason": "StepsReported",
        "attempt": 2,
        "nodesReady": "4/4",
        "resolved": {"generation": 1, "gpusPerNode": 8, "cpu": "190", "memory": "1900Gi", "nodes": 4},
        "assignment": {
            "revision": 3,
            "hash": "0123456789abcdef",
            "nodes": ["gpu-1", "gpu-2", "gpu-10", "gpu-11"],
            "incarnations": [1, 1, 2, 1],
        },
        "start": {
            "attempt": 2,
            "assignmentHash": "0123456789abcdef",
            "masterAddress": "10.0.0.1",
            "masterPort": 20001,
            "resume": resume,
        },
        "progress": {"step": 412, "totalSteps": 1000, "loss": "2.31", "time": at(5), "summary": "412/1000"},
        "checkpoint": {
            "resume": resume,
            "latest": [{"tier": "shared", "step": 400, "path": f"/shared-checkpoints/{UID}/a2/step-400"}],
            "rejected": [torn | {"reason": "manifest.json is absent: the save did not finish"}],
        },
        "attempts": [
            {
                "number": 1,
                "startedAt": at(6000),
                "endedAt": at(660),
                "cause": "NodeLost",
                "message": "no heartbeat for 12 s from gpu-3 and the node is NotReady",
                "rank": 2,
                "node": "gpu-3",
                "action": "Replace",
                "lastStep": 361,
            },
            {"number": 2, "startedAt": at(600), "resumeStep": 300},
        ],
        "totals": {"attempts": 2, "restarts": 1, "nodesReplaced": 1},
        "conditions": [
            ACCEPTED,
            condition("Admitted", "True", "Admitted", "4 nodes are held", 7000),
            condition("GangReady", "True", "Started", "attempt 2 started on all ranks"),
            condition("Progressing", "True", "StepsReported"),
            condition("Finished", "False", "NotFinished", "", 7195),
            condition("Succeeded", "Unknown", "NotFinished", "", 7195),
        ],
    }
    return run(status=status | changes)


def recovering() -> dict[str, Any]:
    """Between two attempts of which the first was the program's own fault."""
    raw = running(
        state="Recovering",
        reason="Application",
        attempt=3,
        nodesReady="3/4",
        recovery={
            "consecutiveNoProgress": 1,
            "notBefore": to_rfc3339(NOW + 20),
            "excludedNodes": [{"node": "gpu-7", "reason": "its worker has not registered", "until": at(-3600)}],
        },
    )
    raw["status"]["attempts"][1] |= {
        "endedAt": at(30),
        "cause": "Application",
        "message": "rank 1 on gpu-2 ended with exit code 1",
        "rank": 1,
        "node": "gpu-2",
        "exitCode": 1,
        "action": "RestartInPlace",
        "lastStep": 412,
    }
    raw["status"]["conditions"][2] = condition(
        "GangReady", "False", "Gathering", "1 of 4 are missing; rank 1 on gpu-2: its worker is not ready", 30
    )
    return raw


def failed() -> dict[str, Any]:
    """Ended for good."""
    why = "rank 1 on gpu-2 ended with exit code 1; 3 attempts in a row ended without a new checkpoint"
    raw = running(state="Failed", reason="NoProgress")
    raw["status"]["attempts"][1] |= {
        "endedAt": at(60),
        "cause": "Application",
        "message": "rank 1 on gpu-2 ended with exit code 1",
        "rank": 1,
        "node": "gpu-2",
        "action": "Stop",
    }
    raw["status"]["conditions"] = [
        ACCEPTED,
        condition("Finished", "True", "NoProgress", why, 60),
        condition("Succeeded", "False", "NoProgress", why, 60),
    ]
    return raw
