"""One leader at a time, by a Lease that the operator itself creates.

A leader counts its lease from before the renewal was sent, on its own monotonic clock, and stops
acting ``margin`` before the end; a candidate counts from when it saw the last renewal, on its own.
No two clocks are ever compared, so the two can lead at the same time only if their rates differ by
more than the margin allows.

Its requests have connections of their own (``KubeClient``): a renewal waits behind no other request of ours. While the
API server is slow the lease is written for longer, and renewed sooner.
"""

import logging
import math
import random
from datetime import UTC, datetime
from typing import Any, Protocol

from lockstep.api.base import nesting
from lockstep.api.base.times import to_unix
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import LEASES, Resource

Epoch = tuple[int, int]
"""Creation of the Lease (Unix seconds), then its transitions: grows with every change of leader."""

_REQUEST_SECONDS = 2.0
_RETRY_RENEWAL_SECONDS = 0.5
_TURNS = 20.0
"""Times what its last request took for which a lease is written, where that is longer than usual."""
_LONGER = 3.0
"""Times its usual duration that a lease is written for at most."""
_MOST_TRANSITIONS = 2**31 - 1  # a count to this takes 600 years; somebody has written it

_log = logging.getLogger(__name__)


class LostLeadershipError(Exception):
    """Somebody else may be leading: this process must write nothing more."""


class LeaseApi(Protocol):
    """The part of the Kubernetes client that an election needs."""

    async def get(self, resource: Resource, name: str, namespace: str = "", *, within: float = ...) -> bytes:
        """Read an object."""

    async def create(
        self,
        resource: Resource,
        body: dict[str, Any],
        namespace: str = "",
        *,
        guarded: bool = ...,
        within: float = ...,
    ) -> bytes:
        """Create an object."""

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: dict[str, Any],
        namespace: str = "",
        *,
        guarded: bool = ...,
        within: float = ...,
    ) -> bytes:
        """Replace the version of an object that ``body`` names."""

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str | None = ...,
        guarded: bool = ...,
        within: float = ...,
    ) -> bytes | None:
        """Delete the version of an object that is named; None when it is another one by now."""


class Election:
    """One candidate. ``identity`` must be new for every process, or a restart would not count as a change.

    Times in seconds; those that are left out are parts of ``duration``, a whole number: of 10 s, 3, 2 and 2.
    """

    def __init__(
        self,
        api: LeaseApi,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration: float = 10.0,
        renew_every: float | None = None,
        retry_every: float | None = None,
        margin: float | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._duration = duration
        self._renew_every = 0.3 * duration if renew_every is None else renew_every
        self._retry_every = 0.2 * duration if retry_every is None else retry_every
        self._margin = 0.2 * duration if margin is None else margin
        self._took = 0.0  # seconds that the last request took, answered or not
        self._lease: dict[str, Any] | None = None  # as last read or written
        self._seen: tuple[str, str] = ("", "")  # UID and version of the lease as last observed
        self._rival_until = float("-inf")  # monotonic; before it the lease is not to be taken
        self._held_until = float("-inf")
        self._unanswered: dict[str, float] = {}  # renewTime of what was sent and not answered -> until when it holds
        self.epoch: Epoch = (0, 0)

    def is_leading(self) -> bool:
        """Nobody else can be leading now, nor within the margin."""
        return self._clock.monotonic() < self._held_until - self._margin

    def seconds_left(self) -> float:
        """Until the lease that is held runs out, if it is not renewed: nothing may take effect after that."""
        return self._held_until - self._clock.monotonic()

    def check(self) -> None:
        """Raise LostLeadershipError unless this process leads: to be called right before every write."""
        if not self.is_leading():
            raise LostLeadershipError("the lease has run out or was never held")

    async def acquire(self) -> None:
        """Return once this process leads."""
        while not await self.try_acquire():
            await self._clock.sleep(self._retry_every * random.uniform(0.8, 1.2))

    async def hold(self) -> None:
        """Keep the lease; raises LostLeadershipError when it is lost, and never returns."""
        while True:
            await self._clock.sleep(self._until_renewal())
            while not await self.try_renew():
                if self._clock.monotonic() >= self._held_until - self._margin:
                    raise LostLeadershipError("the lease could not be renewed in time")
                await self._clock.sleep(_RETRY_RENEWAL_SECONDS)

    def _until_renewal(self) -> float:
        """The slower the API server answers, the sooner it is asked: two more tries are to fit into what is left."""
        left = self._held_until - self._margin - self._clock.monotonic()
        return min(self._renew_every, max(0.0, (left - self._took) / 2))

    def _lasting(self) -> float:
        """Seconds for which a lease is written now: the slower the API server, the longer, or it could not be kept.

        It never ends sooner than the one that is held: whoever sees it before its answer comes counts from it.
        """
        slow = min(_LONGER * self._duration, _TURNS * self._took)
        return float(math.ceil(max(self._duration, slow, self.seconds_left())))

    def _patience(self) -> float:
        """An answer that is overdue may never come, as its connection is dead: the next try has twice as long."""
        return max(_REQUEST_SECONDS, min(self._duration, 2 * self._took))

    async def try_acquire(self) -> bool:
        """Look at the lease once and take it if it is free; True when this process leads."""
        begun = self._clock.monotonic()
        try:
            lease = await self._read()
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                # One that was there a moment ago may have a holder that does not know yet.
                return begun >= self._rival_until and await self._write(None)
            _log.warning("the lease cannot be read: %s", error)
            return False
        self._observe(lease)
        # A lease under our own name is ours already: the answer to our write was lost.
        if _holder(lease) not in ("", self.identity) and self._clock.monotonic() < self._rival_until:
            return False
        if (_spec(lease).get("leaseTransitions") or 0) >= _MOST_TRANSITIONS and _holder(lease) != self.identity:
            await self._delete(lease)
            return False
        return await self._write(lease)

    async def try_renew(self) -> bool:
        """Renew once; False when that failed for now. Raises LostLeadershipError when it is not ours."""
        if self._lease is None:
            raise LostLeadershipError("the lease was never held")
        left = self._held_until - self._margin - self._clock.monotonic()
        # A slow answer is one, and there is time for another try; but not where each takes as long as the last one did.
        patience = max(_REQUEST_SECONDS, left / 2, min(left, 2 * self._took))
        if await self._write(self._lease, patience):
            return True
        try:
            lease = await self._read(max(_REQUEST_SECONDS, self._held_until - self._margin - self._clock.monotonic()))
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                self._held_until = float("-inf")
                raise LostLeadershipError("the lease was deleted") from error
            return False
        if _holder(lease) != self.identity:
            self._held_until = float("-inf")
            raise LostLeadershipError(f"{_holder(lease) or 'nobody'} holds the lease")
        self._lease = lease
        until = self._unanswered.get(_spec(lease).get("renewTime") or "")
        if until is None:
            return False
        # It went through, and only the answer was slow or lost: whoever looks on counts from when that was stored.
        self._held_until = max(self._held_until, until)
        return True

    async def release(self) -> None:
        """Stop leading and let the next candidate in at once. Best effort."""
        held, self._held_until = self.is_leading(), float("-inf")
        if not held or self._lease is None:
            return
        try:
            try:
                await self._put(_freed(self._lease))
            except ApiError as error:
                if error.status != 409:
                    raise
                lease = await self._read(_REQUEST_SECONDS)  # a renewal that was broken off has gone through
                if _holder(lease) == self.identity:
                    await self._put(_freed(lease))
        except KubeError as error:
            _log.info("the lease was not released: %s", error)

    def _observe(self, lease: dict[str, Any]) -> None:
        """Count the holder's time anew whenever the lease has changed since we last looked."""
        seen = lease["metadata"]["uid"], lease["metadata"]["resourceVersion"]
        if seen != self._seen:
            self._seen = seen
            duration = float(_spec(lease).get("leaseDurationSeconds") or self._duration)
            self._rival_until = self._clock.monotonic() + duration

    async def _write(self, lease: dict[str, Any] | None, within: float | None = None) -> bool:
        """Take or renew ``lease`` (None: create it) at exactly that version; True when it is ours now."""
        begun, within = self._clock.monotonic(), self._patience() if within is None else within
        duration = self._lasting()
        before = {} if lease is None else _spec(lease)
        renewal = before.get("holderIdentity") == self.identity
        moment = datetime.fromtimestamp(self._clock.now(), tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(duration),
            "acquireTime": before.get("acquireTime", moment) if renewal else moment,
            "renewTime": moment,
            "leaseTransitions": (before.get("leaseTransitions") or 0) + (lease is not None and not renewal),
        }
        try:
            if lease is None:
                reply = await self._create(spec, within)
            else:
                reply = await self._put({**lease, "spec": spec}, within)
        except KubeError as error:
            if isinstance(error, UnknownOutcome):
                self._unanswered.setdefault(moment, begun + duration)
            _log.info("the lease was not written: %s", error)
            return False
        finally:
            self._took = self._clock.monotonic() - begun
        self._lease = nesting.loads(reply)
        metadata = self._lease["metadata"]
        epoch = int(to_unix(metadata["creationTimestamp"])), int(self._lease["spec"]["leaseTransitions"])
        self.epoch = epoch
        self._held_until = begun + duration
        self._unanswered.clear()
        return True

    async def _delete(self, lease: dict[str, Any]) -> None:
        """Have one made in its place, with an epoch that is higher for its creation: its count can grow no more."""
        metadata = lease["metadata"]
        _log.warning("the lease counts %d transitions and is replaced", _MOST_TRANSITIONS)
        try:
            await self._api.delete(
                LEASES,
                self._name,
                self._namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                guarded=False,
                within=_REQUEST_SECONDS,
            )
        except KubeError as error:
            _log.warning("the lease was not deleted: %s", error)

    async def _read(self, within: float | None = None) -> dict[str, Any]:
        begun, within = self._clock.monotonic(), self._patience() if within is None else within
        try:
            text = await self._api.get(LEASES, self._name, self._namespace, within=within)
        finally:
            self._took = self._clock.monotonic() - begun
        return dict(nesting.loads(text))

    async def _create(self, spec: dict[str, Any], within: float) -> bytes:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": spec,
        }
        return await self._api.create(LEASES, body, self._namespace, guarded=False, within=within)

    async def _put(self, body: dict[str, Any], within: float = _REQUEST_SECONDS) -> bytes:
        return await self._api.replace(LEASES, self._name, body, self._namespace, guarded=False, within=within)


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    return lease.get("spec") or {}


def _freed(lease: dict[str, Any]) -> dict[str, Any]:
    return {**lease, "spec": {**_spec(lease), "holderIdentity": ""}}


def _holder(lease: dict[str, Any]) -> str:
    return _spec(lease).get("holderIdentity") or ""
