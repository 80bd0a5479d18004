"""The endpoint workers talk to: POST /v1/register and POST /v1/report.

Every request passes the same gates, cheapest first, before a byte of its body is looked at: leader,
token, pace. Then size, form, and whether the sender is who it says it is.
"""

import asyncio
import ipaddress
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.ratelimit import RateLimit, block
from lockstep.controller.workers import protocol
from lockstep.controller.workers.connections import Connections
from lockstep.controller.workers.orders import Orders, encode_reply
from lockstep.controller.workers.protocol import Epoch, Registration, Report, State
from lockstep.controller.workers.reports import ReportBook, SupersededError, UnregisteredError
from lockstep.controller.workers.step_certificates import StepCertificates, StepIdentity, WorkerOfAttempt
from lockstep.controller.workers.trust import (
    ForbiddenError,
    GangView,
    PastIncarnationError,
    PodIdentity,
    ReviewUnavailableError,
    SenderClaim,
    TokenReviews,
    UnauthenticatedError,
    authorize,
)
from lockstep.core.model.snapshot import PodView

log = logging.getLogger(__name__)

REGISTER = "/v1/register"
REPORT = "/v1/report"
REQUEST_SECONDS = 20.0
"""From the end of the headers until the body was read and its sender is known. Polls wait after that."""
RETRY_SECONDS = 2
BODIES_ROOM = 256 * 1024 * 1024
"""Bytes of bodies being received, of all senders together."""
BYTES_PER_REQUEST = 4096
"""Of a body: so many more count as one more request. What a worker says of itself is seldom longer."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _RefusalError(Exception):
    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.hangs_up = False


def _retry_later(status: int, code: str, message: str, seconds: float = RETRY_SECONDS) -> _RefusalError:
    return _RefusalError(status, code, message, Retry_After=str(max(1, round(seconds))))


class WorkerApi:
    """Listens to workers on behalf of the ReportBook.

    ``epoch`` is None while this process does not lead, or leads but has not yet listed runs and pods:
    workers are then asked to come back. ``heartbeat_seconds`` takes the number of workers of all runs. ``steps`` has
    the certificates by which the workers of one attempt know each other.
    """

    def __init__(
        self,
        *,
        reviews: TokenReviews,
        gangs: GangView,
        book: ReportBook,
        clock: Clock,
        epoch: Callable[[], Epoch | None],
        heartbeat_seconds: Callable[[int], float],
        steps: StepCertificates,
        fence_seconds: float = 60.0,
        bodies_room: int = BODIES_ROOM,
    ) -> None:
        self.answered: Counter[tuple[str, int]] = Counter()
        """Requests by endpoint and status code."""
        self.connections = Connections(clock, peers=block)
        """Of whoever serves the application: a reviewed token proves whose one is."""
        self._reviews = reviews
        self._gangs = gangs
        self._book = book
        self._clock = clock
        self._epoch = epoch
        self._heartbeat_seconds = heartbeat_seconds
        self._fence_seconds = fence_seconds
        self._steps = steps
        self._pace = RateLimit(clock)
        self.bodies_room = bodies_room
        """Bytes that may yet be received of bodies that are under way."""

    def application(self) -> web.Application:
        """To be served over TLS and nothing else."""
        app = web.Application(middlewares=[self._answer])
        app.router.add_post(REGISTER, self._register)
        app.router.add_post(REPORT, self._report)
        return app

    async def _register(self, request: web.Request) -> web.Response:
        async with _deadline():
            identity, body = await self._admit(request, protocol.REGISTER_LIMIT)
            registration = protocol.decode_registration(body)
            claim = _claim(registration)
            pod = self._owner(identity, claim)
        if pod is None:
            return await self._dismiss(claim, registration.report)
        if (registration.namespace, registration.run) != (pod.namespace, pod.run):
            raise ForbiddenError(f"the token's pod belongs to the run {pod.namespace}/{pod.run}")
        try:
            ipaddress.ip_address(registration.address)
        except ValueError:
            raise _RefusalError(400, "malformed", "address is not an IP address") from None
        if self._is_known(claim):
            self._book.register(claim, pod.node, registration)
        return await self._reply(claim, registration.report)

    async def _report(self, request: web.Request) -> web.Response:
        async with _deadline():
            identity, body = await self._admit(request, protocol.REPORT_LIMIT)
            report = protocol.decode_report(body)
            claim = _claim(report)
            is_past = self._owner(identity, claim) is None
        # Revisions are this leader's own: what was seen of another one's says nothing.
        wait = report.wait_seconds if report.epoch == self._epoch() else 0.0
        if is_past:
            return await self._dismiss(claim, report, report.seen, wait)
        if not self._is_known(claim):
            await self._clock.sleep(report.wait_seconds)
            return await self._reply(claim, report)
        self._book.report(claim, report)
        if wait > 0:
            with self._book.poll(claim):
                await self._book.news(claim.run_uid, report.seen, wait)
        return await self._reply(claim, report)

    def _owner(self, identity: PodIdentity, claim: SenderClaim) -> PodView | None:
        """The pod that speaks for its slot; None: it did, and another one does now. Raises ForbiddenError."""
        try:
            return authorize(identity, claim, self._gangs)
        except PastIncarnationError:
            return None

    async def _dismiss(self, claim: SenderClaim, said: State, seen: int = 0, wait: float = 0.0) -> web.Response:
        """Tell a worker to stop whose slot has a newer incarnation. Nothing that it says counts, but that its program
        has ended."""
        self._book.take_end(claim, said, lambda uid: self._gangs.pod_by_uid(uid) is not None)
        if wait > 0:
            await self._book.news(claim.run_uid, seen, wait)
        return await self._reply(claim, said, is_past=True)

    async def _admit(self, request: web.Request, limit: int) -> tuple[PodIdentity, bytes]:
        if self._epoch() is None:
            raise _not_leading()
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError("no bearer token")
        identity = await self._reviews.identity(token.strip(), request.remote or "")
        pod = identity.pod_uid
        if not self.connections.prove(request.remote or "", request.protocol, pod):
            raise _too_many_connections()
        wait = self._pace.acquire(pod)
        if wait:
            raise _retry_later(429, "too-many-requests", "this worker sends too many requests", wait)
        body = await self._read(request, limit)
        self._pace.charge(pod, len(body) / BYTES_PER_REQUEST)
        return identity, body

    async def _read(self, request: web.Request, limit: int) -> bytes:
        """The body, received against what there is room for."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise _RefusalError(400, "malformed", "compressed bodies are not taken")
        too_large = _RefusalError(413, "too-large", f"the body may have {limit} bytes")
        if (request.content_length or 0) > limit:
            raise too_large
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                body += chunk
                self.bodies_room -= len(chunk)
                if len(body) > limit:
                    raise too_large
                if self.bodies_room < 0:
                    raise _retry_later(503, "busy", "too many large requests at once")
        finally:
            self.bodies_room += len(body)
        return bytes(body)

    def _is_known(self, claim: SenderClaim) -> bool:
        """Of a run not in the store nothing is kept: it may have been deleted a moment ago."""
        return self._gangs.run_namespace(claim.run_uid) is not None

    async def _reply(self, claim: SenderClaim, said: State, *, is_past: bool = False) -> web.Response:
        orders, attempt = self._book.orders(claim.run_uid), said.attempt
        identity = None if is_past else await self._identity(claim, attempt, orders)
        epoch = self._epoch()
        if epoch is None:
            raise _not_leading()
        body = encode_reply(
            orders,
            slot=claim.slot,
            incarnation=claim.incarnation,
            attempt=attempt,
            epoch=epoch,
            now=self._clock.now(),
            heartbeat_seconds=self._heartbeat_seconds(self._book.worker_count()),
            fence_seconds=self._fence_seconds,
            identity=identity,
            asks=() if is_past else [ask.id for ask in said.asks],
            token="" if is_past else self._token(claim, attempt, orders),
            is_past=is_past,
        )
        return web.Response(body=body, content_type="application/json")

    async def _identity(self, claim: SenderClaim, attempt: int, orders: Orders | None) -> StepIdentity | None:
        """What it shows its peers, of the worker that the sender has proven to be."""
        if orders is None or not orders.is_to_get_steps(claim.slot, claim.incarnation, attempt):
            return None
        begun = orders.directive.attempt
        return await self._steps.issue(WorkerOfAttempt(claim.run_uid, begun, claim.slot, claim.incarnation))

    def _token(self, claim: SenderClaim, attempt: int, orders: Orders | None) -> str:
        """What it shares with the other workers of the attempt that it is to start; empty: nothing."""
        if orders is None or not orders.is_to_get_token(claim.slot, claim.incarnation, attempt):
            return ""
        return self._steps.token(claim.run_uid, orders.directive.attempt)

    @web.middleware
    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refusals become JSON, and everything is counted."""
        try:
            response = await handler(request)
        except Exception as error:
            refusal = _refusal(error)
            if refusal.status == 500:
                log.error("%s failed", request.path, exc_info=error)
            response = web.Response(
                status=refusal.status,
                body=json.dumps({"error": refusal.code, "message": str(refusal)}).encode(),
                content_type="application/json",
                headers=refusal.headers,
            )
            if refusal.hangs_up:
                response.force_close()
        endpoint = request.path if request.path in (REGISTER, REPORT) else "other"
        self.answered[endpoint, response.status] += 1
        return response


def _refusal(error: Exception) -> _RefusalError:
    match error:
        case _RefusalError():
            return error
        case UnauthenticatedError():
            return _RefusalError(401, "unauthenticated", str(error), WWW_Authenticate="Bearer")
        case ForbiddenError():
            return _RefusalError(403, "forbidden", str(error))
        case SupersededError():
            return _RefusalError(403, "superseded", str(error))
        case UnregisteredError():
            return _RefusalError(409, "unregistered", "register first")
        case protocol.UnspokenProtocolError():
            return _RefusalError(426, "protocol", str(error))
        case protocol.MalformedError():
            return _RefusalError(400, "malformed", str(error))
        case ReviewUnavailableError():
            return _retry_later(503, "unavailable", str(error))
        case TimeoutError():
            return _retry_later(503, "timeout", "the request took too long")
        case web.HTTPException():
            return _RefusalError(error.status, "http", error.reason)
        case _:
            return _RefusalError(500, "internal", "this is a defect of the operator; its log says more")


def _not_leading() -> _RefusalError:
    """The connection ends with it: behind a Service the next one may end at the leader."""
    refusal = _retry_later(503, "not-leading", "this replica does not lead; connect again in a moment")
    refusal.hangs_up = True
    return refusal


def _too_many_connections() -> _RefusalError:
    refusal = _retry_later(429, "too-many-connections", "this worker holds too many connections")
    refusal.hangs_up = True
    return refusal


def _deadline() -> asyncio.Timeout:
    return asyncio.timeout(REQUEST_SECONDS)


def _claim(body: Registration | Report) -> SenderClaim:
    return SenderClaim(body.run_uid, body.slot, body.incarnation, body.pod_uid)
