"""Tells people what was done, through events.k8s.io/v1. Best effort: no decision ever waits for one."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.recent_events import RecentEvents
from lockstep.controller.runtime.resources import EVENTS
from lockstep.core.model import sanitise
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import RunView

_QUEUE_LENGTH = 10_000  # who is admitted in a burst has one each
_SERIES_SECONDS = 300.0  # a repeat within this time counts up the event there is
_SERIES_KEPT = 2000
_NOTE_MAX = 1024
_YIELDS, _YIELD_SECONDS = 5, 0.1  # an event waits half a second at most for those that go first
_SHED_AFTER = 60.0  # seconds that an event that is no Warning may have waited, where everything is overloaded
_NODE_EVENTS_NAMESPACE = "default"  # where Kubernetes itself puts events of cluster-scoped objects

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Message:
    namespace: str
    regarding: tuple[tuple[str, str], ...]  # of an ObjectReference
    related: tuple[tuple[str, str], ...]
    type: str
    reason: str
    action: str
    note: str


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    yields: bool  # to Warnings
    number: int
    at: float = field(compare=False)
    message: _Message = field(compare=False)


@dataclass(slots=True)
class _Series:
    name: str
    last: float
    count: int = 1


class EventRecorder:
    """Posts events one at a time, Warnings first, else in the order they came; drops the newest when too many wait.

    While ``busy()``, which whoever has more urgent writes sets, they are posted slowly, Warnings aside. While all is
    ``overloaded()``, those that are no Warning and have waited for long are dropped. Each says when it was meant,
    however late it is posted.
    ``instance`` names this process among the operator's replicas.
    """

    def __init__(self, kube: KubeClient, clock: Clock, instance: str) -> None:
        self._kube = kube
        self._clock = clock
        self._instance = instance
        self._queue: asyncio.PriorityQueue[_Waiting] = asyncio.PriorityQueue(_QUEUE_LENGTH)
        self._series: dict[_Message, _Series] = {}
        self._numbers = itertools.count()
        self._warnings = 0  # that wait
        self.busy: Callable[[], bool] = lambda: False
        self.overloaded: Callable[[], bool] = lambda: False
        self.dropped = 0
        self.recent = RecentEvents()

    def run_event(self, run: RunView, event: Event) -> None:
        """Say ``event`` of a run, and of the node it names too."""
        self.recent.keep(run.uid, event, self._clock.now())
        regarding = _reference(names.API_VERSION, names.RUN_KIND, run.name, run.uid, run.namespace)
        # The kubelet's convention, by which `kubectl describe node` finds events: a node's UID is its name.
        node = _reference("v1", "Node", event.node, event.node) if event.node else ()
        self._put(run.namespace, regarding, node, event)
        if node:
            self._put(_NODE_EVENTS_NAMESPACE, node, regarding, event)

    def run_set_event(self, run_set: RunSetView, event: Event) -> None:
        """Say ``event`` of an array."""
        place = names.API_VERSION, names.RUN_SET_KIND, run_set.name, run_set.uid, run_set.namespace
        self._put(run_set.namespace, _reference(*place), (), event)

    def warn(self, run: RunView, reason: EventReason, action: ActionWord, note: str) -> None:
        """Say a Warning of a run."""
        self.run_event(run, Event("Warning", reason, action, note))

    async def post_all(self) -> None:
        """Post what comes until cancelled."""
        while True:
            waiting = await self._queue.get()
            await self._let_others_go_first()
            message = waiting.message
            self._warnings -= message.type == "Warning"
            if waiting.yields and self._clock.now() - waiting.at > _SHED_AFTER and self.overloaded():
                self.dropped += 1
                continue
            try:
                await self._post(waiting.at, message)
            except Exception as error:  # one event's; whether the lease is lost its renewal says
                expected = isinstance(error, (KubeError, LostLeadershipError))
                _log.info("an event was not posted: %s (%s)", error, message.note, exc_info=not expected)

    async def _let_others_go_first(self) -> None:
        """An event costs the API server as much as an admission."""
        for _ in range(_YIELDS):
            if self._warnings or not self.busy():
                return
            await self._clock.sleep(_YIELD_SECONDS)

    def _put(
        self,
        namespace: str,
        regarding: tuple[tuple[str, str], ...],
        related: tuple[tuple[str, str], ...],
        event: Event,
    ) -> None:
        note = sanitise.line(event.note)
        note = note if len(note) <= _NOTE_MAX else f"{note[: _NOTE_MAX - 1]}…"
        message = _Message(namespace, regarding, related, event.type, str(event.reason), str(event.action), note)
        try:
            self._queue.put_nowait(_Waiting(event.type != "Warning", next(self._numbers), self._clock.now(), message))
        except asyncio.QueueFull:
            self.dropped += 1
        else:
            self._warnings += event.type == "Warning"

    async def _post(self, at: float, message: _Message) -> None:
        series = self._series.get(message)
        if series is not None and at - series.last < _SERIES_SECONDS:
            series.count += 1
            series.last = at
            update = {"series": {"count": series.count, "lastObservedTime": _micro_time(at)}}
            try:
                await self._kube.patch(EVENTS, series.name, update, message.namespace)
                return
            except ApiError as error:
                if error.status != 404:  # it expired on the server: begin anew
                    raise
        name = f"{dict(message.regarding)['name']}.{int(at * 1e6):x}{next(self._numbers):x}"
        self._series.pop(message, None)
        self._series[message] = _Series(name, at)
        while len(self._series) > _SERIES_KEPT:
            del self._series[next(iter(self._series))]
        await self._kube.create(EVENTS, self._body(name, at, message), message.namespace)

    def _body(self, name: str, at: float, message: _Message) -> dict[str, Any]:
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": message.namespace},
            "eventTime": _micro_time(at),
            "reportingController": names.CONTROLLER,
            "reportingInstance": self._instance,
            "regarding": dict(message.regarding),
            "type": message.type,
            "reason": message.reason,
            "action": message.action,
            "note": message.note,
        }
        if message.related:
            body["related"] = dict(message.related)
        return body


def _reference(api_version: str, kind: str, name: str, uid: str, namespace: str = "") -> tuple[tuple[str, str], ...]:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "namespace": namespace}
    return tuple((key, value) for key, value in reference.items() if value)


def _micro_time(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
