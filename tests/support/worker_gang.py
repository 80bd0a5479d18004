"""Workers of one gang, as real processes, against a fake operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.fake_operator import FakeOperator
from harness.running_worker import RUN_UID, RunningWorker
from harness.step_gang import Authority

NODES = 2
STANDS_BY = json.dumps({"steps": True, "standsBy": True})


class Workers:
    """Workers of one gang, of which all but rank 0 stand by."""

    def __init__(self, directory: Path, operator: FakeOperator, command: list[str], **environ: str) -> None:
        self.operator = operator
        operator.ranks = {slot: slot for slot in range(NODES)}
        self.nodes: list[RunningWorker] = []
        for slot in range(NODES):
            (directory / f"w{slot}").mkdir()
            own = {
                "LOCKSTEP_SLOT": str(slot), "LOCKSTEP_HOST_IP": f"127.0.0.{slot + 1}",
                "LOCKSTEP_NODE_NAME": f"node-{slot}", "LOCKSTEP_POD_UID": f"pod-{slot}",
                "LOCKSTEP_LAUNCHER_OPTIONS": STANDS_BY,
            }  # fmt: skip
            self.nodes.append(RunningWorker(directory / f"w{slot}", operator, command, **{**own, **environ}))

    def state(self, slot: int, what: Callable[[dict[str, Any]], Any], since: int = 0) -> dict[str, Any]:
        return self.operator.wait_for(lambda state: state["slot"] == slot and what(state), since)

    def ready(self, attempt: int = 1) -> list[int]:
        """Their ports, at the barrier."""
        self.operator.desire("Prepare", attempt, world=NODES)
        states = [self.state(slot, lambda state: state["readyFor"] == attempt) for slot in range(NODES)]
        return [state["stepsPort"] for state in states]

    def start(self, attempt: int = 1, own: Mapping[int, Mapping[str, Any]] | None = None, **more: Any) -> list[int]:
        """``own``: what each slot is given beside its certificates."""
        ports = self.ready(attempt)
        authority = Authority()
        for slot in range(NODES):
            issued = authority.issue(f"lockstep://run/{RUN_UID}/attempt/{attempt}/slot/{slot}/incarnation/1")
            steps = {"ca": authority.certificate, "certificate": issued[0], "key": issued[1], "ports": ports}
            self.operator.given[slot] = {"steps": steps, **(own or {}).get(slot, {})}
        start = {
            "attempt": attempt, "assignmentHash": "abc", "masterAddress": "127.0.0.1", "masterPort": 40123,
            "resume": None, "members": [{"slots": "0-1", "incarnation": 1}],
        }  # fmt: skip
        nodelist = [f"127.0.0.{slot + 1}" for slot in range(NODES)]
        self.operator.desire("Run", attempt, world=NODES, start=start, nodelist=nodelist, **more)
        return ports

    def exited(self, slot: int, attempt: int = 1) -> dict[str, Any]:
        return self.state(slot, lambda state: state["phase"] == "Exited" and state["attempt"] == attempt)
