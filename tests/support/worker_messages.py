"""What a worker sends, as bytes."""

import json
from typing import Any

RUN_UID = "7f1c2a34-0000-4000-8000-000000000001"


def sender(**changes: Any) -> dict[str, Any]:
    return {
        "protocol": 1,
        "runUid": RUN_UID,
        "slot": 0,
        "incarnation": 1,
        "podUid": "8a6b5c4d-0000-4000-8000-000000000002",
        **changes,
    }


def state(**changes: Any) -> dict[str, Any]:
    return {"phase": "Running", "attempt": 1, "wall": 1000.5, "mono": 10, **changes}


def report(**changes: Any) -> bytes:
    return json.dumps({**sender(), **state(), **changes}).encode()


def registration(**changes: Any) -> bytes:
    body = {
        **sender(),
        "namespace": "team",
        "run": "llama",
        "node": "gpu-1",
        "hostname": "gpu-1",
        "address": "10.0.0.1",
        "workerVersion": "0.7.2",
        "problem": "",
        "inventory": [],
        "report": state(),
        **changes,
    }
    return json.dumps(body).encode()


ANSWER = {"tier": "shared", "path": "/c", "verdict": "Valid"}
ROW = {"tier": "shared", "step": 300, "path": "/shared-checkpoints/x/a1/step-300", "verdict": "Valid"}
START = {
    "attempt": 2,
    "assignmentHash": "abc",
    "masterAddress": "10.0.0.1",
    "masterPort": 40123,
    "resume": {"tier": "shared", "step": 300, "path": "/c"},
    "members": [{"slots": "0-2", "incarnation": 1}, {"slots": "3", "incarnation": 2}],
}
