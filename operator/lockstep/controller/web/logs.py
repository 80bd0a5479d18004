"""The log of one rank as it is written: the API server's answer to the viewer's own token, passed on within limits."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from lockstep.api.base import names
from lockstep.api.run_status import AssignmentStatus
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.ratelimit import RateLimit
from lockstep.controller.runtime.resources import PODS
from lockstep.controller.web import refusal
from lockstep.controller.web.access import Viewer
from lockstep.controller.web.refusal import RefusalError
from lockstep.core.model import assignment as slots
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport
from lockstep.present.runs import current_phase, state_of

TAIL_LINES = 1000
"""That were written before somebody looks."""
STREAMS_OF_ONE = 4
STREAMS_OF_NAMESPACE = 32
"""Of all who follow runs of one: whoever may make service accounts there is as many viewers as they like."""
STREAMS = 128
"""Of all viewers together."""
BYTES_PER_SECOND, BURST = 256 * 1024.0, 4 * 1024 * 1024.0
"""Of all streams of one viewer."""
LONGEST = 300.0
"""Seconds of one stream: then the page asks again, and the API server judges anew who may read it."""
AT_ONCE = 64 * 1024
TAKEN_WITHIN = 10.0


class Logs:
    """Streams that are open. ``api``: the API server, by others' tokens."""

    def __init__(self, api: CallerApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._open: Counter[str] = Counter()  # by viewer
        self._of_namespace: Counter[str] = Counter()
        self._pace = RateLimit(clock, per_second=BYTES_PER_SECOND, burst=BURST)

    def __len__(self) -> int:
        """Streams that are open."""
        return self._open.total()

    async def follow(
        self, request: web.Request, viewer: Viewer, run: RunView, token: str, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Pass the log on until it ends. Raises RefusalError as long as nothing was sent."""
        path = PODS.path(run.namespace, pod_of(run, rank_of(request, run)), "log")
        query = {"container": names.CONTAINER_NAME, "follow": "true", "tailLines": str(TAIL_LINES)}
        with self._counted(viewer.key, run.namespace):
            response = web.StreamResponse(headers={**headers, "Cache-Control": "no-store", "X-Accel-Buffering": "no"})
            response.content_type, response.charset = "text/plain", "utf-8"
            try:
                async with asyncio.timeout(LONGEST) as longest, self._api.stream(path, query, token) as log:
                    await _taken(response.prepare(request))
                    while chunk := await log.read(AT_ONCE):
                        await _taken(response.write(chunk))
                        self._pace.charge(viewer.key, len(chunk))
                        if owed := self._pace.debt(viewer.key):
                            await self._clock.sleep(owed)
            except (KubeError, TimeoutError, ConnectionError) as error:
                if not response.prepared:
                    raise _refused(error, run.namespace) from error
                if not longest.expired():  # it broke off somewhere, and is not to look like the log's end
                    _break_off(request)
                    return response
            try:
                await _taken(response.write_eof())
            except (TimeoutError, ConnectionError):
                _break_off(request)
        return response

    @contextmanager
    def _counted(self, viewer: str, namespace: str) -> Iterator[None]:
        if self._open[viewer] >= STREAMS_OF_ONE:
            words = f"you follow {STREAMS_OF_ONE} logs already; close one, or use lockstep logs -f"
            raise RefusalError(429, words, retry_after=10)
        if self._of_namespace[namespace] >= STREAMS_OF_NAMESPACE:
            words = f"too many logs of namespace {namespace} are followed here; use lockstep logs -f"
            raise RefusalError(429, words, retry_after=30)
        if len(self) >= STREAMS:
            raise RefusalError(429, "too many logs are followed here; use lockstep logs -f", retry_after=30)
        counted = (self._open, viewer), (self._of_namespace, namespace)
        for book, whose in counted:
            book[whose] += 1
        try:
            yield
        finally:
            for book, whose in counted:
                book[whose] -= 1
                if not book[whose]:
                    del book[whose]


def rank_of(request: web.Request, run: RunView) -> int:
    """The rank that is asked for. Raises RefusalError where the run has none such."""
    text = request.match_info["rank"]
    world = world_of(run)
    if not world:
        raise RefusalError(404, f"{run.name} has had no nodes yet, so there is no log to read")
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text) < world):
        raise RefusalError(404, f"{run.name} has ranks 0-{world - 1}")
    return int(text)


def world_of(run: RunView) -> int:
    """Its ranks, also after it gave its nodes back: pods that have ended keep their logs for a while."""
    assignment = _assignment(run)
    world = slots.world(assignment) or run.status.resolved.nodes or len(assignment.incarnations)
    slots_needed = len(assignment.nodes) if assignment.nodes else world
    return world if slots_needed <= len(assignment.incarnations) else 0


def _assignment(run: RunView) -> AssignmentStatus:
    return slots.bookable(run.status.assignment)  # somebody may have edited it by hand


def pod_of(run: RunView, rank: int) -> str:
    """The pod of the rank's current incarnation."""
    assignment = _assignment(run)
    slot = slots.slot_of_rank(assignment, rank)
    return names.pod_name(run.name, run.uid, slot, assignment.incarnations[slot])


def rank(run: RunView, number: int, reports: Mapping[int, WorkerReport], *, may_read: bool) -> dict[str, Any]:
    """What stands beside the log. ``stack`` tells as much as a log, and is for those who ``may_read`` it."""
    assignment = _assignment(run)
    slot = slots.slot_of_rank(assignment, number)
    report = reports.get(slot)
    state, reason = state_of(run)
    found: dict[str, Any] = {
        "namespace": run.namespace,
        "name": run.name,
        "rank": number,
        "world": world_of(run),
        "node": assignment.nodes[slot] if assignment.nodes else "",
        "pod": pod_of(run, number),
        "attempt": run.status.attempt,
        "state": state,
        "reason": reason,
        "phase": "" if report is None else str(report.phase),
        "step": report.progress.step if report is not None and report.progress is not None else None,
        "problem": "" if report is None else report.problem,
        "ended": _writes_no_more(run, report),
        "mayRead": may_read,
        "stack": "",
        # Stacks of these are kept, for whoever may get ConfigMaps.
        "hangs": [each.number for each in run.status.attempts if each.stacks],
    }
    if may_read and report is not None and report.stacks is not None:
        found["stack"] = report.stacks.text
    return found


def _writes_no_more(run: RunView, report: WorkerReport | None) -> bool:
    """Its log has an end then; before, a stream that ends has only broken off somewhere on its way."""
    if report is not None and report.phase is WorkerPhase.EXITED:
        return True
    return current_phase(run) is Phase.FINISHED or not _assignment(run).nodes


def _break_off(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _taken(sending: Any) -> None:
    """Whoever reads too slowly is not waited for: what is sent is in our memory until then."""
    async with asyncio.timeout(TAKEN_WITHIN):
        await sending


def _refused(error: Exception, namespace: str) -> RefusalError:
    match error:
        case ApiError(status=400):  # its container has not started
            return RefusalError(409, f"nothing is written yet: {error.words[: refusal.MOST_WORDS]}", retry_after=5)
        case ApiError(status=404):
            return RefusalError(404, "its pod is not there, and its log neither")
        case KubeError():
            return refusal.of_api(error, "get pods/log", "view", namespace)
        case _:
            return RefusalError(503, "the API server does not answer", retry_after=5)
