"""What viewers do to runs from the page: written by the API server, with their own token and no right of ours.

A request that changes something carries a header that no other site can have a browser send, and names the run by its
UID: neither a forged request nor one that comes late does anything.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta

from lockstep.api.base import names, nesting
from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.ratelimit import RateLimit
from lockstep.controller.runtime.resources import RUNS
from lockstep.controller.web import measured, refusal, retry
from lockstep.controller.web.access import Viewer
from lockstep.controller.web.refusal import RefusalError
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.worker_report import WorkerReport
from lockstep.present import actions
from lockstep.present.actions import Deed, Stakes
from lockstep.present.going_on import Beginning
from lockstep.present.runs import current_phase

log = logging.getLogger("lockstep.controller.web")

HEADER = "X-Lockstep-Deed"
"""Browsers ask first before they send it to another site, and get no consent."""
MOST_BODY = 1024
PER_SECOND, BURST = 0.5, 10.0
"""Of one viewer."""


class _Wanted(msgspec.Struct):
    uid: str
    name: str = ""
    """Of the run that a retry is to make."""
    step: Annotated[int, Meta(ge=0, lt=10**retry.MOST_DIGITS)] | None = None
    fresh: bool = False


_bodies = msgspec.json.Decoder(_Wanted)


def verb_of(run: RunView) -> str:
    """The right on runs that what makes sense for it takes."""
    return "create" if Deed.RETRY in actions.open_to(run) else "patch"


def offered(
    run: RunView,
    reports: Mapping[int, WorkerReport],
    waiting: Iterable[RunView],
    *,
    may: bool,
    next_name: str,
    begin: Beginning,
    now: float,
) -> list[dict[str, Any]]:
    """Each action that makes sense, with what it costs. ``waiting``: runs that the viewer may see; ``next_name``: of
    the run that a retry would make, and ``begin`` where it would."""
    if not may:
        return []
    if Deed.RETRY in actions.open_to(run):
        return [retry.offer(run, next_name, now, begin)]
    own = [each for each in reports.values() if each.attempt == run.status.attempt]
    steps = [each.progress.step for each in own if each.progress is not None]
    behind = [
        each
        for each in waiting
        if run.key in each.status.queue.blocked_by and current_phase(each) is Phase.PENDING and each.uid != run.uid
    ]
    stakes = Stakes(
        step=max(steps, default=None),
        listens=any(each.listens for each in own) if own else None,
        step_seconds=measured.measured(run, reports).get("stepSeconds", 0.0),
        block_seconds=max((each.timing.save_block for each in own), default=0.0),
        waiting=[each.key for each in sorted(behind, key=lambda each: (each.status.queue.position, each.key))],
        now=now,
    )
    return [{"action": each, "words": [*actions.costs(each, run, stakes)]} for each in actions.open_to(run)]


def hold_to_own_page(request: web.Request) -> None:
    """Turn away what another site may have had a browser send. Raises RefusalError."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.headers.get(HEADER) != "1" or site != "same-origin":
        raise RefusalError(403, f"only the page itself changes runs: it sends {HEADER}")


class Deeds:
    """Carries out actions. ``api``: the API server, by others' tokens. ``known``: the run of a namespace and name."""

    def __init__(self, api: CallerApi, clock: Clock, known: Callable[[str, str], RunView | None]) -> None:
        self._api = api
        self._clock = clock
        self._known = known
        self._pace = RateLimit(clock, per_second=PER_SECOND, burst=BURST)

    async def carry_out(self, request: web.Request, viewer: Viewer, run: RunView, token: str) -> dict[str, Any]:
        """Have it written; the answer. Raises RefusalError."""
        wait = self._pace.acquire(viewer.key)
        if wait:
            raise RefusalError(429, "too many changes at once", retry_after=wait)
        action = _action(request.match_info["action"])
        body = await request.content.read(MOST_BODY + 1)
        try:
            wanted = nesting.decode(_bodies, body) if len(body) <= MOST_BODY else None
        except msgspec.DecodeError:
            wanted = None
        if wanted is None:
            raise RefusalError(400, "the body names the run by its uid, and for a retry the new one")
        if wanted.uid != run.uid:
            raise _another(run)
        if action not in actions.open_to(run):
            raise RefusalError(409, f"{run.key} is {run.status.state or 'Pending'}: {action} has no meaning for it now")
        if action is Deed.RETRY:
            free = retry.free_name(run, self._known)
            begin = retry.beginning(wanted.step, wanted.fresh)
            return await retry.retry(self._api, viewer, run, token, wanted.name, free, self._clock.now(), begin)
        patch = actions.patch(action, run, uuid.uuid4().hex[:16])
        try:
            await self._api.patch(RUNS.path(run.namespace, run.name), patch, token)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 422 and "metadata.uid" in error.words:
                raise _another(run) from error  # since we saw it
            raise refusal.of_api(error, f"patch {names.RUNS}", "edit", run.namespace) from error
        # Of the token nothing is ever logged.
        log.info("asked for on the page", extra={"run": run.key, "action": str(action), "viewer": viewer.name})
        return {"message": f"{run.name} {actions.DONE[action]}"}


def _another(run: RunView) -> RefusalError:
    return RefusalError(409, f"{run.key} is another run now than the one that you looked at; look again")


def _action(word: str) -> Deed:
    try:
        return Deed(word)
    except ValueError as error:
        raise RefusalError(404, "there is no such action") from error
