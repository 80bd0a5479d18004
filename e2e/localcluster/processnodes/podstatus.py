"""The status of a pod from the states of its containers, as the kubelet computes it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

Json = dict[str, Any]


class Stage(StrEnum):
    """Where one container is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


@dataclass(frozen=True)
class ContainerState:
    """One container. Times are Unix seconds."""

    name: str
    image: str
    stage: Stage = Stage.WAITING
    reason: str = "ContainerCreating"
    message: str = ""
    exit_code: int = 0
    started_at: float = 0.0
    finished_at: float = 0.0
    restarts: int = 0
    last: "ContainerState | None" = None  # how the run before the last restart ended

    def ended(self, exit_code: int, now: float, message: str = "") -> "ContainerState":
        """The process ended with ``exit_code`` (128 + N after signal N)."""
        reason = "Completed" if exit_code == 0 else "Error"
        return replace(
            self, stage=Stage.TERMINATED, reason=reason, message=message, exit_code=exit_code, finished_at=now
        )

    def to_json(self, *, is_init: bool = False) -> Json:
        """As in containerStatuses; an init container counts as ready once it has succeeded."""
        running = self.stage is Stage.RUNNING
        succeeded = self.stage is Stage.TERMINATED and self.exit_code == 0
        last = {} if self.last is None else self.last._state()
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": "",
            "ready": succeeded if is_init else running,
            "started": running,
            "restartCount": self.restarts,
            "state": self._state(),
            "lastState": last,
        }

    def _state(self) -> Json:
        if self.stage is Stage.WAITING:
            waiting = {"reason": self.reason}
            return {"waiting": waiting | ({"message": self.message} if self.message else {})}
        if self.stage is Stage.RUNNING:
            return {"running": {"startedAt": rfc3339(self.started_at)}}
        terminated: Json = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": rfc3339(self.started_at or self.finished_at),
            "finishedAt": rfc3339(self.finished_at),
        }
        return {"terminated": terminated | ({"message": self.message} if self.message else {})}


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def restarts_after(policy: str, exit_code: int) -> bool:
    """Does a container that ended run again under this restartPolicy?"""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def phase_of(
    init: Sequence[ContainerState], containers: Sequence[ContainerState], policy: str, *, stopping: bool
) -> str:
    """Pending, Running, Succeeded or Failed."""

    def is_over(state: ContainerState) -> bool:
        return state.stage is Stage.TERMINATED and (stopping or not restarts_after(policy, state.exit_code))

    if any(is_over(state) and state.exit_code != 0 for state in init):
        return "Failed"
    if not all(state.stage is Stage.TERMINATED and state.exit_code == 0 for state in init):
        return "Pending"
    if all(is_over(state) for state in containers):
        return "Succeeded" if all(state.exit_code == 0 for state in containers) else "Failed"
    # A container that waits for its restart has run before: the pod stays Running.
    if all(state.stage is Stage.WAITING and state.last is None for state in containers):
        return "Pending"
    return "Running"


def pod_status(
    pod: Json,
    init: Sequence[ContainerState],
    containers: Sequence[ContainerState],
    *,
    address: str,
    started_at: float,
    now: float,
    stopping: bool = False,
    previous: Mapping[str, tuple[str, str]] | None = None,
) -> Json:
    """The whole ``status`` for a merge patch.

    ``previous`` maps condition types to ``(status, lastTransitionTime)`` as last written. The scheduler's
    PodScheduled and conditions of others are carried over from ``pod``.
    """
    phase = phase_of(init, containers, pod["spec"].get("restartPolicy", "Always"), stopping=stopping)
    initialized = all(state.stage is Stage.TERMINATED and state.exit_code == 0 for state in init)
    ready = all(state.stage is Stage.RUNNING for state in containers)
    why_not = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    wanted = {
        "PodReadyToStartContainers": (phase in ("Pending", "Running"), ""),
        "Initialized": (initialized, "ContainersNotInitialized"),
        "ContainersReady": (ready, why_not),
        "Ready": (ready, why_not),
    }
    conditions = [c for c in pod.get("status", {}).get("conditions") or () if c["type"] not in wanted]
    for kind, (holds, reason) in wanted.items():
        status = "True" if holds else "False"
        was = (previous or {}).get(kind)
        condition: Json = {
            "type": kind,
            "status": status,
            "lastTransitionTime": was[1] if was and was[0] == status else rfc3339(now),
        }
        if not holds and reason:
            condition["reason"] = reason
        conditions.append(condition)
    return {
        "phase": phase,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": rfc3339(started_at),
        "qosClass": pod.get("status", {}).get("qosClass"),
        "conditions": conditions,
        "initContainerStatuses": [state.to_json(is_init=True) for state in init] or None,
        "containerStatuses": [state.to_json() for state in containers],
    }


def lost_status(pod: Json, now: float) -> Json:
    """What a node that came back says of a pod whose processes did not survive."""
    message = "The container could not be located when the node came back"

    def lost(status: Json) -> Json:
        if "terminated" in (status.get("state") or {}):
            return status
        started = ((status.get("state") or {}).get("running") or {}).get("startedAt") or rfc3339(now)
        terminated = {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": message,
            "startedAt": started,
            "finishedAt": rfc3339(now),
        }
        return status | {"ready": False, "started": False, "state": {"terminated": terminated}}

    old = pod.get("status", {})
    changed = {"ContainersReady", "Ready"}
    conditions = [
        c | {"status": "False", "reason": "ContainersNotReady", "lastTransitionTime": rfc3339(now)}
        if c["type"] in changed
        else c
        for c in old.get("conditions") or ()
    ]
    return {
        "phase": "Failed",
        "reason": "NodeShutdown",
        "message": "The node went down with the pod on it",
        "conditions": conditions,
        "initContainerStatuses": [lost(s) for s in old.get("initContainerStatuses") or ()] or None,
        "containerStatuses": [lost(s) for s in old.get("containerStatuses") or ()],
    }
