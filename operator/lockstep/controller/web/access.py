"""Who looks at the page and what they may see: the cluster's own tokens, and its own rights.

Nothing of this is decided here. A TokenReview says who it is, SubjectAccessReviews say what they may read; both are
remembered for a minute at most.
"""

import asyncio
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from lockstep.api.base import names
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.web.memo import Memo
from lockstep.controller.web.strangers import Strangers
from lockstep.controller.workers.trust import MAX_TOKEN, Post, ReviewUnavailableError, UnauthenticatedError

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AUDIENCE = "lockstep-web"
"""A token for this audience alone opens the page and nothing else."""
GRANTED_SECONDS = 60.0
REFUSED_SECONDS = 30.0
REVIEW_SECONDS = 10.0
"""For one review to be answered."""
CONCURRENT_REVIEWS = 8
MOST_TOKENS = 1024
"""Of people who are signed in."""
MOST_REFUSED = 1024
MOST_RIGHTS = 16_384
MOST_NAMESPACES = 256
"""Namespaces that one who may not read all of them is asked about, in the order of their names."""

_AWAY = "the API server cannot say now what this token may see"
_NO_RIGHT = "the operator may not ask what this token may see; install its chart with web.enabled: true"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody as the API server knows them."""

    name: str
    key: str
    """The same for the same name, UID, groups and extra alone."""
    user: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sight:
    """What one viewer may see."""

    everywhere: bool
    namespaces: frozenset[str]
    """Where they may get TrainingRuns, of those that have any."""
    nodes: bool
    """They may list nodes."""
    queues: bool
    """They may list TrainingQueues."""
    all_arrays: bool = False
    arrays: frozenset[str] = frozenset()
    """Where they may get TrainingRunSets, of the namespaces that have any."""

    def sees_arrays(self, namespace: str) -> bool:
        """Arrays of this namespace are shown."""
        return self.all_arrays or namespace in self.arrays

    def sees(self, namespace: str) -> bool:
        """Runs of this namespace are shown."""
        return self.everywhere or namespace in self.namespaces


class Door:
    """Tells who comes and what they may see. ``post`` asks the API server."""

    def __init__(self, post: Post, clock: Clock) -> None:
        self._post = post
        self._slots = asyncio.Semaphore(CONCURRENT_REVIEWS)
        self._viewers: Memo[Viewer] = Memo(clock, most=MOST_TOKENS, seconds=lambda _: GRANTED_SECONDS)
        # Apart from those, so that tokens which anybody can make up take no place of a reader's.
        self._refused: Memo[str] = Memo(clock, most=MOST_REFUSED, seconds=lambda _: REFUSED_SECONDS)
        self._rights: Memo[bool] = Memo(
            clock, most=MOST_RIGHTS, seconds=lambda granted: GRANTED_SECONDS if granted else REFUSED_SECONDS
        )
        self._strangers = Strangers(clock)

    async def viewer(self, token: str, address: str) -> Viewer:
        """Whose token it is, that came on a connection from ``address``.

        Raises UnauthenticatedError, ReviewUnavailableError and TooManyStrangersError.
        """
        if not token:
            raise UnauthenticatedError("no token; sign in with one of the cluster's")
        if len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise UnauthenticatedError("this is no token of a cluster")
        key = hashlib.sha256(token.encode()).digest()
        refused = self._refused.fresh(key)
        if refused is not None:
            raise UnauthenticatedError(refused)
        # Who was let in once is no stranger, and what is being reviewed for somebody costs no second review.
        if self._viewers.last(key) is not None or self._viewers.is_asked(key):
            return await self._viewers.answer(key, lambda: self._whose(key, token))
        sender = self._strangers.begin(address)
        return await self._viewers.answer(key, lambda: self._strangers_own(key, token, sender))

    async def sight(self, viewer: Viewer, of_runs: Collection[str], of_arrays: Collection[str] = ()) -> Sight:
        """What they may see, given the namespaces that have runs, and arrays. Raises ReviewUnavailableError."""
        (everywhere, seen), (all_arrays, arrays), nodes, queues = await asyncio.gather(
            self._where(viewer, names.RUNS, of_runs),
            self._where(viewer, names.RUN_SETS, of_arrays),
            self.may(viewer, "list", "nodes", group=""),
            self.may(viewer, "list", names.QUEUES),
        )
        return Sight(everywhere, seen, nodes, queues, all_arrays, arrays)

    async def sees(self, viewer: Viewer, namespace: str, resource: str = names.RUNS) -> bool:
        """They may get objects of ``resource`` there. Raises ReviewUnavailableError."""
        return await self.may(viewer, "get", resource, namespace)

    async def _where(self, viewer: Viewer, resource: str, namespaces: Collection[str]) -> tuple[bool, frozenset[str]]:
        """Whether they may get its objects everywhere, and else in which of these."""
        if not namespaces and resource != names.RUNS:
            return False, frozenset()
        if await self.may(viewer, "get", resource):
            return True, frozenset()
        asked = sorted(namespaces)[:MOST_NAMESPACES]
        granted = await asyncio.gather(*(self.sees(viewer, namespace, resource) for namespace in asked))
        return False, frozenset(namespace for namespace, yes in zip(asked, granted, strict=True) if yes)

    async def may(
        self,
        viewer: Viewer,
        verb: str,
        resource: str,
        namespace: str = "",
        *,
        group: str = names.GROUP,
        subresource: str = "",
    ) -> bool:
        """They have this right; without ``namespace`` in the whole cluster. Raises ReviewUnavailableError."""
        attributes = {"group": group, "resource": resource, "verb": verb, "namespace": namespace}
        if subresource:
            attributes["subresource"] = subresource
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**viewer.user, "resourceAttributes": attributes},
        }

        async def ask() -> bool:
            status = (await self._ask(ACCESS_REVIEWS, review)).get("status") or {}
            return status.get("allowed") is True and not status.get("denied")

        return await self._rights.answer((viewer.key, verb, group, resource, subresource, namespace), ask)

    async def _strangers_own(self, key: bytes, token: str, sender: str) -> Viewer:
        try:
            async with self._strangers.slots:
                return await self._whose(key, token)
        finally:
            self._strangers.end(sender)

    async def _whose(self, key: bytes, token: str) -> Viewer:
        found = await self._review(token)
        if isinstance(found, str):
            self._viewers.forget(key)
            self._refused.keep(key, found)
            raise UnauthenticatedError(found)
        return found

    async def _review(self, token: str) -> Viewer | str:
        """Whose token it is, or why nobody's."""
        for audiences in ([AUDIENCE], []):  # of this page, else of the API server itself
            spec: dict[str, Any] = {"token": token} | ({"audiences": audiences} if audiences else {})
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
            status = (await self._ask(TOKEN_REVIEWS, review)).get("status") or {}
            # A server that does not know audiences answers without them: what it says is then of its own tokens.
            meant = not audiences or AUDIENCE in (status.get("audiences") or ())
            if status.get("authenticated") is True and meant:
                return _viewer(status.get("user") or {})
        return "the API server does not accept the token"

    async def _ask(self, path: str, review: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            async with self._slots, asyncio.timeout(REVIEW_SECONDS):
                return await self._post(path, review)
        except ApiError as error:
            if error.status == 403:
                raise ReviewUnavailableError(_NO_RIGHT) from error
            raise ReviewUnavailableError(_AWAY) from error
        except Exception as error:
            raise ReviewUnavailableError(_AWAY) from error


def _viewer(user: Mapping[str, Any]) -> Viewer | str:
    """``user`` of a TokenReview as a SubjectAccessReview wants it."""
    name = str(user.get("username") or "")
    if not name:
        return "the API server does not say whose token it is"
    groups: Sequence[str] = sorted(map(str, user.get("groups") or ()))
    extra = {str(key): list(values) for key, values in sorted((user.get("extra") or {}).items())}
    asked = {"user": name, "uid": str(user.get("uid") or ""), "groups": groups, "extra": extra}
    key = hashlib.sha256(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return Viewer(name, key, asked)
