"""Who a worker is: its token is reviewed by the API server, then held against our own view of the pods.

The token says which pod speaks; our view says which slot and incarnation that pod is, and whether it
still counts. Both must agree with what the sender claims to be.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from lockstep.api.base import names, nesting
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.ratelimit import RateLimit, block
from lockstep.core.model.snapshot import PodView

log = logging.getLogger("lockstep.trust")

REVIEW_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
TRUSTED_SECONDS = 600.0
REFUSED_SECONDS = 5.0
OUTAGE_RETRY_SECONDS = 5.0
REVIEW_DEADLINE = 10.0
CONCURRENT_REVIEWS = 32
REVIEWS_PER_POD = 10.0
"""At once, for tokens that say they are one pod's and come from one address; in the long run one a second. A worker
needs one in ten minutes."""
MAX_CACHED = 65_536
MAX_TOKEN = 7168
"""Characters. A pod-bound token has about 1,200."""

Post = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Creates an object at a path of the API server and returns what it answered; raises when it could not."""
_Value = TypeVar("_Value")


class UnauthenticatedError(Exception):
    """The token proves nothing: 401."""


class ForbiddenError(Exception):
    """The token is good, but not for what its sender claims to be: 403."""


class PastIncarnationError(ForbiddenError):
    """The sender is who it says it is, and its slot has a newer incarnation: it may hear that it is to stop."""


class ReviewUnavailableError(Exception):
    """The API server cannot say now whether the token is good: 503."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """The pod that a token is bound to."""

    namespace: str
    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class SenderClaim:
    """What a sender says it is."""

    run_uid: str
    slot: int
    incarnation: int
    pod_uid: str


class GangView(Protocol):
    """The operator's own view of the cluster, as far as trust needs it."""

    def pod_by_uid(self, uid: str) -> PodView | None:
        """The gang pod with this UID."""
        ...

    def run_namespace(self, run_uid: str) -> str | None:
        """Namespace of the run, or None when no such run is known."""
        ...

    def incarnation(self, run_uid: str, slot: int) -> int | None:
        """The slot's incarnation in the run's assignment, or None when status does not say."""
        ...


class _PodClaim(msgspec.Struct):
    uid: str


class _KubernetesClaim(msgspec.Struct):
    pod: _PodClaim


class _TokenClaims(msgspec.Struct):
    exp: float
    aud: list[str]
    kubernetes: _KubernetesClaim = msgspec.field(name="kubernetes.io")


_claims = msgspec.json.Decoder(_TokenClaims)


@dataclass(slots=True)
class _Trusted:
    identity: PodIdentity
    fresh_until: float
    expires_at: float


class TokenReviews:
    """Tokens to identities. One review per token at a time, at most 32 in all, remembered for 10 minutes.

    A token known to be good outlives an outage of the API server, up to its own expiry: training
    must not lose its operator because something else is down.
    """

    def __init__(self, post: Post, gangs: GangView, clock: Clock, *, audience: str = names.TOKEN_AUDIENCE) -> None:
        self.outcomes: Counter[str] = Counter()
        """Reviews asked of the API server: Authenticated, Refused, Unavailable."""
        self._post = post
        self._gangs = gangs
        self._clock = clock
        self._audience = audience
        self._slots = asyncio.Semaphore(CONCURRENT_REVIEWS)
        self._pace = RateLimit(clock, per_second=1.0, burst=REVIEWS_PER_POD)
        self._trusted: dict[bytes, _Trusted] = {}
        self._refused: dict[bytes, tuple[float, str]] = {}
        self._reviewing: dict[bytes, asyncio.Task[PodIdentity]] = {}
        self._outage = False

    async def identity(self, token: str, address: str = "") -> PodIdentity:
        """The pod this token is bound to. ``address``: where the connection comes from.

        Raises UnauthenticatedError, ForbiddenError or ReviewUnavailableError.
        """
        if not token or len(token) > MAX_TOKEN:
            raise UnauthenticatedError("no bearer token" if not token else "the token is too long")
        now = self._clock.now()
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._trusted.get(key)
        if known is not None and now < known.fresh_until:
            return known.identity
        refused_until, why = self._refused.get(key, (0.0, ""))
        if now < refused_until:
            raise UnauthenticatedError(why)
        claims = self._plausible(token, now)
        task = self._reviewing.get(key)
        if task is None:
            # Forged tokens are all different: whoever knows a pod's UID could keep every review busy. The pod itself,
            # which connects from elsewhere, is not to wait for them.
            if known is None and self._pace.acquire(f"{claims.kubernetes.pod.uid} {block(address)}"):
                raise ReviewUnavailableError("too many tokens of this pod are new")
            expires_at = claims.exp
            task = asyncio.create_task(self._review(key, token, expires_at))
            self._reviewing[key] = task
            task.add_done_callback(lambda done: self._reviewed(key, done))
        # A sender that hangs up must not take the answer from the others that wait for it.
        return await asyncio.shield(task)

    def _plausible(self, token: str, now: float) -> _TokenClaims:
        """What the token says, by its own unproven word: enough to refuse, never enough to trust.

        Strangers are turned away here, so that they cannot spend the API server's time.
        """
        try:
            claims = nesting.decode(_claims, _base64url(token.split(".")[1]))
        except (ValueError, IndexError):
            raise UnauthenticatedError("not the service account token of a pod") from None
        if self._audience not in claims.aud:
            raise UnauthenticatedError(f"the token is not for the audience {self._audience}")
        if now >= claims.exp:
            raise UnauthenticatedError("the token has expired")
        if self._gangs.pod_by_uid(claims.kubernetes.pod.uid) is None:
            raise ForbiddenError("the token's pod is no pod of a gang")
        return claims

    async def _review(self, key: bytes, token: str, expires_at: float) -> PodIdentity:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        try:
            async with self._slots, asyncio.timeout(REVIEW_DEADLINE):
                answer = await self._post(REVIEW_PATH, review)
        except Exception as error:
            return self._during_outage(key, error)
        self._outage = False
        now = self._clock.now()
        try:
            identity = _reviewed_identity(answer, self._audience)
        except UnauthenticatedError as error:
            self.outcomes["Refused"] += 1
            self._trusted.pop(key, None)
            _remember(self._refused, key, (now + REFUSED_SECONDS, str(error)))
            raise
        self.outcomes["Authenticated"] += 1
        fresh_until = min(expires_at, now + TRUSTED_SECONDS)
        _remember(self._trusted, key, _Trusted(identity, fresh_until, expires_at))
        return identity

    def _during_outage(self, key: bytes, error: Exception) -> PodIdentity:
        self.outcomes["Unavailable"] += 1
        if not self._outage:  # once per outage, not once per worker
            self._outage = True
            log.warning("workers' tokens cannot be reviewed, known ones are trusted until they expire: %r", error)
        now = self._clock.now()
        known = self._trusted.get(key)
        if known is None or now >= known.expires_at:
            raise ReviewUnavailableError("the API server cannot review tokens now") from error
        known.fresh_until = min(known.expires_at, now + OUTAGE_RETRY_SECONDS)
        return known.identity

    def _reviewed(self, key: bytes, task: "asyncio.Task[PodIdentity]") -> None:
        self._reviewing.pop(key, None)
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits for it any more


def _base64url(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _reviewed_identity(answer: Mapping[str, Any], audience: str) -> PodIdentity:
    status = answer.get("status") or {}
    if not status.get("authenticated"):
        raise UnauthenticatedError("the API server does not accept the token")
    # A server that does not know audiences answers without them, and would accept any token.
    if audience not in (status.get("audiences") or ()):
        raise UnauthenticatedError(f"the token is not for the audience {audience}")
    user = status.get("user") or {}
    extra = user.get("extra") or {}
    prefix, _, account = str(user.get("username", "")).partition(":serviceaccount:")
    namespace = account.partition(":")[0]
    name = _only(extra, "authentication.kubernetes.io/pod-name")
    uid = _only(extra, "authentication.kubernetes.io/pod-uid")
    if prefix != "system" or not (namespace and name and uid):
        raise UnauthenticatedError("the token is not bound to a pod")
    return PodIdentity(namespace, name, uid)


def _only(extra: Mapping[str, Any], key: str) -> str:
    values = list(extra.get(key) or ())
    return str(values[0]) if len(values) == 1 else ""


def _remember(cache: dict[bytes, _Value], key: bytes, value: _Value) -> None:
    cache.pop(key, None)
    cache[key] = value
    if len(cache) > MAX_CACHED:
        del cache[next(iter(cache))]


def authorize(identity: PodIdentity, claim: SenderClaim, gangs: GangView) -> PodView:
    """The pod that may speak for the claimed slot and incarnation. Raises ForbiddenError in words, and of it
    PastIncarnationError where nothing else is wrong.

    A Terminating pod still speaks: its last words (a saved step, an exit) are wanted.
    """
    if claim.pod_uid != identity.pod_uid:
        raise ForbiddenError("the token is bound to another pod than the one claimed")
    pod = gangs.pod_by_uid(identity.pod_uid)
    if pod is None or (pod.namespace, pod.name) != (identity.namespace, identity.pod_name):
        raise ForbiddenError("the token's pod is no pod of a gang")
    if pod.is_terminal:
        raise ForbiddenError("the token's pod has ended")
    if (pod.run_uid, pod.owner_uid) != (claim.run_uid, claim.run_uid):
        raise ForbiddenError("the token's pod belongs to another run")
    if pod.slot != claim.slot:
        raise ForbiddenError(f"the token's pod is slot {pod.slot}")
    if pod.incarnation != claim.incarnation:
        raise ForbiddenError(f"the token's pod is incarnation {pod.incarnation} of its slot")
    # Labels and owner can be forged by whoever may create pods; a name in a namespace exists once.
    namespace = gangs.run_namespace(claim.run_uid)
    if namespace is not None and namespace != pod.namespace:
        raise ForbiddenError("the token's pod is in another namespace than its run")
    if pod.name != names.pod_name(pod.run, pod.run_uid, pod.slot, pod.incarnation):
        raise ForbiddenError("the token's pod does not have the name of its slot")
    current = gangs.incarnation(claim.run_uid, claim.slot)
    # A higher one than status knows is heard: that is how a status restored from a backup is noticed.
    if current is not None and claim.incarnation < current:
        raise PastIncarnationError(f"slot {claim.slot} is at incarnation {current}; {claim.incarnation} is over")
    return pod
