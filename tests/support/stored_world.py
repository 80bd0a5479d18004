"""A store with its queue and clock, and what the API server would say to it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import ForeignPod, Unread, Versioned, parse_node, parse_unread
from lockstep.core.model.snapshot import Leadership, PodView
from support.manual_clock import ManualClock
from support.stored_runs import pod as a_pod

LEADER = Leadership(since=0.0)


KEY = "run/team/llama"


class World:
    """A store with its queue and clock, and shorthand for what the API server would say."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = WorkQueue(self.clock)
        self.store = Store(self.queue, self.clock)

    async def due(self) -> set[str]:
        """Keys that are due within the next two seconds, taken off the queue."""
        self.queue.wake_at("last", self.clock.now() + 2)
        await self.clock.advance(2)
        keys = set()
        while (key := await self.queue.get()) != "last":
            keys.add(key)
            self.queue.done(key)
        self.queue.done("last")
        return keys


HOLDING = {"attempt": 1, "assignment": {"nodes": ["gpu-1", "gpu-2"], "incarnations": [1, 1]}}


def pod(
    uid: str = "p1", *, run_uid: str = "u1", node: str = "gpu-1", version: int = 20, **changes: Any
) -> Versioned[PodView | ForeignPod]:
    view = a_pod(name=f"llama-{uid}", uid=uid, run_uid=run_uid, node=node, **changes)
    return Versioned(uid, version, view)


def foreign(uid: str, node: str = "gpu-1", version: int = 5, terminal: bool = False, **requests: int) -> Any:
    return Versioned(uid, version, ForeignPod(node, {**requests, "pods": 1}, terminal))


def node(name: str, uid: str = "n1", version: int = 3, *, ready: str = "True") -> Any:
    raw = {
        "metadata": {"name": name, "uid": uid, "resourceVersion": str(version)},
        "status": {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return parse_node(orjson.dumps(raw))


def unread(*raws: Mapping[str, Any]) -> list[Versioned[Unread]]:
    """As they come in a list or by a watch."""
    return [parse_unread(msgspec.Raw(orjson.dumps(raw))) for raw in raws]
