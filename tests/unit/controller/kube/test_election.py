"""Leader election against a fake Lease API, on clocks that are moved by hand."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterator
from operator import itemgetter
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.base.times import to_rfc3339
from lockstep.controller.kube.election import Election, Epoch, LostLeadershipError
from lockstep.controller.kube.errors import ApiError, UnknownOutcome, UnreachableError
from lockstep.controller.runtime.resources import Resource
from support.examples import examples
from support.manual_clock import ManualClock


class FakeLeases:
    """One Lease with the API server's rules on versions, and the ways in which a request can go wrong."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.lease: dict[str, Any] | None = None
        self.versions = itertools.count(1)
        self.created = itertools.count(1767225600.0)  # no two of them in one second
        self.mishaps: Iterator[str] = itertools.repeat("")  # "", "unreachable", "hangs", "lost answer", "lands late"
        self.lands_after = 0.0  # seconds from when nobody waits for it any more
        self.late: list[tuple[float, Callable[[], bytes]]] = []  # when it lands, what is done then
        self.patience = 0.0  # of the last that renewed
        self.takes = 0.0  # seconds that every request takes
        self.renewals = 0

    def _stored(self, body: dict[str, Any], created: str) -> bytes:
        if body["spec"]["leaseTransitions"] >= 2**31:
            raise ApiError(400, "BadRequest", "json: cannot unmarshal number into Go struct field of type int32")
        version = str(next(self.versions))
        metadata = {**body["metadata"], "uid": created, "resourceVersion": version, "creationTimestamp": created}
        self.lease = {**body, "metadata": metadata}
        return orjson.dumps(self.lease)

    def edit(self, transitions: int) -> None:
        """Somebody writes another count."""
        if self.lease is not None:
            body = {**self.lease, "spec": {**self.lease["spec"], "leaseTransitions": transitions}}
            self._stored(body, self.lease["metadata"]["creationTimestamp"])

    async def _begin(self, within: float, late: Exception) -> str:
        if self.takes:
            await self.clock.sleep(min(self.takes, within))
        if self.takes > within:
            raise late
        mishap = next(self.mishaps)
        if mishap == "unreachable":
            raise UnreachableError("nobody there")
        if mishap == "hangs":
            await self.clock.sleep(within)
            raise late
        landed = sorted((each for each in self.late if each[0] <= self.clock.monotonic()), key=itemgetter(0))
        self.late = [each for each in self.late if each not in landed]
        for _, write in landed:
            with contextlib.suppress(ApiError):
                write()
        return mishap

    def _carry_out(self, mishap: str, write: Callable[[], bytes]) -> bytes:
        if mishap == "lands late":
            self.late.append((self.clock.monotonic() + self.lands_after, write))
            raise UnknownOutcome("no answer in time", 0)
        reply = write()
        if mishap:
            raise UnknownOutcome("no answer", 0)
        return reply

    async def get(self, resource: Resource, name: str, namespace: str = "", *, within: float = 0) -> bytes:
        await self._begin(within, UnreachableError("no answer in time"))
        if self.lease is None:
            raise ApiError(404, "NotFound", name)
        return orjson.dumps(self.lease)

    async def create(
        self,
        resource: Resource,
        body: dict[str, Any],
        namespace: str = "",
        *,
        guarded: bool = True,
        within: float = 0,
    ) -> bytes:
        mishap = await self._begin(within, UnknownOutcome("no answer in time", 0))

        def write() -> bytes:
            if self.lease is not None:
                raise ApiError(409, "AlreadyExists", "there is one")
            return self._stored(body, to_rfc3339(next(self.created)))

        return self._carry_out(mishap, write)

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: dict[str, Any],
        namespace: str = "",
        *,
        guarded: bool = True,
        within: float = 0,
    ) -> bytes:
        self.patience, self.renewals = within, self.renewals + 1
        mishap = await self._begin(within, UnknownOutcome("no answer in time", 0))

        def write() -> bytes:
            if self.lease is None:
                raise ApiError(404, "NotFound", name)
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified")
            return self._stored(body, self.lease["metadata"]["creationTimestamp"])

        return self._carry_out(mishap, write)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        resource_version: str | None = None,
        guarded: bool = True,
        within: float = 0,
    ) -> bytes | None:
        mishap = await self._begin(within, UnknownOutcome("no answer in time", 0))
        assert not guarded  # nobody leads
        if self.lease is None or self.lease["metadata"]["resourceVersion"] != resource_version:
            return None
        self.lease = None
        if mishap:
            raise UnknownOutcome("no answer", 0)
        return b"{}"


@pytest.fixture
def leases(clock: ManualClock) -> FakeLeases:
    return FakeLeases(clock)


def candidate(leases: FakeLeases, identity: str) -> Election:
    return Election(leases, leases.clock, namespace="system", name="operator", identity=identity)


async def test_the_first_candidate_creates_the_lease_and_leads(leases: FakeLeases) -> None:
    first = candidate(leases, "a")
    assert not first.is_leading()
    with pytest.raises(LostLeadershipError):
        first.check()
    assert await first.try_acquire()
    assert first.is_leading()
    assert first.epoch == (1767225600, 0)
    first.check()


async def test_what_is_left_of_the_lease_is_counted_from_before_the_renewal_was_sent(
    leases: FakeLeases, clock: ManualClock
) -> None:
    leader = candidate(leases, "a")
    assert leader.seconds_left() < 0
    assert await leader.try_acquire()
    await clock.advance(4)
    assert leader.seconds_left() == pytest.approx(6)
    assert await leader.try_renew()
    assert leader.seconds_left() == pytest.approx(10)


async def test_a_second_candidate_waits_until_the_lease_has_stood_still_for_its_whole_duration(
    leases: FakeLeases, clock: ManualClock
) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    assert not await second.try_acquire()
    await clock.advance(9.9)
    assert not await second.try_acquire()
    await clock.advance(0.2)
    assert await second.try_acquire()
    assert not first.is_leading()
    assert second.epoch > first.epoch


async def test_a_renewal_seen_starts_the_wait_anew(leases: FakeLeases, clock: ManualClock) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    await second.try_acquire()
    await clock.advance(7)
    assert await first.try_renew()
    assert not await second.try_acquire()
    await clock.advance(7)
    assert not await second.try_acquire()
    assert first.epoch == (1767225600, 0)


async def test_a_leader_that_cannot_renew_stops_before_anybody_else_may_start(
    leases: FakeLeases, clock: ManualClock
) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    leases.mishaps = itertools.repeat("unreachable")
    holding = asyncio.ensure_future(leader.hold())
    await clock.advance(7.9)
    assert leader.is_leading()
    await clock.advance(0.7)
    with pytest.raises(LostLeadershipError, match="in time"):
        await holding
    assert not leader.is_leading()


async def test_a_leader_rides_out_a_short_outage(leases: FakeLeases, clock: ManualClock) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    holding = asyncio.ensure_future(leader.hold())
    await clock.advance(2.9)
    leases.mishaps = itertools.repeat("unreachable")
    await clock.advance(4)
    leases.mishaps = itertools.repeat("")
    await clock.advance(60)
    assert leader.is_leading()
    holding.cancel()


async def test_a_leader_whose_renewal_was_answered_to_nobody_goes_on(leases: FakeLeases, clock: ManualClock) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    await clock.advance(3)
    leases.mishaps = itertools.chain(["lost answer"], itertools.repeat(""))
    assert await leader.try_renew()
    assert leader.seconds_left() == pytest.approx(10)
    assert leader.epoch == (1767225600, 0)


async def test_a_renewal_that_was_not_answered_counts_from_when_it_was_sent_and_not_from_when_it_is_found(
    leases: FakeLeases, clock: ManualClock
) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    await clock.advance(3)
    leases.mishaps = itertools.chain(["lost answer", "unreachable"], itertools.repeat(""))
    assert not await leader.try_renew()
    await clock.advance(2)
    assert await leader.try_renew()  # refused, as it names the version before; then read
    assert leader.seconds_left() == pytest.approx(8)


async def test_a_renewal_waits_longer_for_its_answer_the_more_of_the_lease_is_left(
    leases: FakeLeases, clock: ManualClock
) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    for moment, patience in ((1.0, 3.5), (3.0, 2.5), (6.0, 2.0)):
        await clock.advance(moment)
        assert await leader.try_renew()
        assert leases.patience == pytest.approx(patience)


async def test_a_leader_keeps_its_lease_though_the_answer_to_every_other_renewal_is_lost(
    leases: FakeLeases, clock: ManualClock
) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    leases.mishaps = itertools.cycle(["lost answer", ""])
    holding = asyncio.ensure_future(leader.hold())
    await clock.advance(120)
    assert leader.is_leading()
    assert leader.epoch == (1767225600, 0)
    holding.cancel()


@pytest.mark.parametrize(
    ("takes", "kept"), [(0.0, True), (1.0, True), (2.5, True), (3.5, True), (9.0, True), (11.0, False)]
)
async def test_a_lease_is_won_and_kept_whose_every_request_takes_long(
    leases: FakeLeases, clock: ManualClock, takes: float, kept: bool
) -> None:
    leases.takes = takes
    a = candidate(leases, "a")

    async def lead() -> None:
        await a.acquire()
        await a.hold()

    leading = asyncio.ensure_future(lead())
    await clock.advance(2 * takes if takes <= 2 else 60)
    for _ in range(600):
        assert a.is_leading() is kept
        await clock.advance(0.5)
    assert leases.renewals <= 360 / 3 + 1, "a slow server is not asked more often than any other"
    leading.cancel()


async def test_a_leader_learns_that_another_took_the_lease(leases: FakeLeases, clock: ManualClock) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    await second.try_acquire()
    await clock.advance(11)
    await second.try_acquire()
    with pytest.raises(LostLeadershipError, match="b holds"):
        await first.try_renew()
    assert not first.is_leading()


async def test_a_leader_whose_lease_was_deleted_stops_at_once(leases: FakeLeases) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    leases.lease = None
    with pytest.raises(LostLeadershipError, match="deleted"):
        await leader.try_renew()
    assert not leader.is_leading()


async def test_a_candidate_that_saw_a_holder_does_not_trust_a_deleted_lease(
    leases: FakeLeases, clock: ManualClock
) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    await second.try_acquire()
    leases.lease = None
    await clock.advance(5)
    assert not await second.try_acquire()
    await clock.advance(5.1)
    assert await second.try_acquire()
    assert not first.is_leading()


async def test_a_released_lease_is_taken_at_once_at_a_higher_epoch(leases: FakeLeases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    await second.try_acquire()
    await first.release()
    assert not first.is_leading()
    assert await second.try_acquire()
    assert second.epoch > first.epoch


@pytest.mark.parametrize(("holder", "left"), [("a", ""), ("b", "b")])
async def test_a_lease_is_released_although_a_renewal_that_was_broken_off_went_through(
    leases: FakeLeases, holder: str, left: str
) -> None:
    leader = candidate(leases, "a")
    await leader.try_acquire()
    assert leases.lease is not None
    leases.lease["spec"]["holderIdentity"] = holder
    leases.edit(0)
    await leader.release()
    assert not leader.is_leading()
    assert leases.lease["spec"]["holderIdentity"] == left


async def test_a_lease_taken_without_hearing_the_answer_is_ours(leases: FakeLeases) -> None:
    leader = candidate(leases, "a")
    leases.mishaps = itertools.chain(["", "lost answer"], itertools.repeat(""))
    assert not await leader.try_acquire()
    assert not leader.is_leading()
    assert await leader.try_acquire()
    assert leader.epoch == (1767225600, 0)


async def test_a_lease_whose_count_was_edited_to_the_last_number_there_is_can_be_taken(
    leases: FakeLeases, clock: ManualClock
) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    leases.edit(2**31 - 1)
    assert not await first.try_renew()  # it is another version
    assert await first.try_renew()
    edited = first.epoch
    await first.release()
    assert not await second.try_acquire()
    assert leases.lease is None
    assert not await second.try_acquire()  # its last holder may not know yet
    await clock.advance(10)
    assert await second.try_acquire()
    assert second.epoch > edited


async def test_acquire_returns_once_the_lease_is_ours(leases: FakeLeases, clock: ManualClock) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    acquiring = asyncio.ensure_future(second.acquire())
    await clock.advance(9)
    assert not acquiring.done()
    await clock.advance(5)
    await acquiring
    assert second.is_leading()


async def test_a_candidate_whose_connection_is_dead_tries_another_soon(leases: FakeLeases, clock: ManualClock) -> None:
    """The machine that the leader ran on may have had the API server as well that the candidate was connected to."""
    first, second = candidate(leases, "a"), candidate(leases, "b")
    await first.try_acquire()
    acquiring = asyncio.ensure_future(second.acquire())
    await clock.advance(9)
    leases.mishaps = itertools.chain(["hangs"], itertools.repeat(""))
    for _ in range(28):
        await clock.advance(0.25)
    assert acquiring.done()
    assert second.is_leading()


async def carried_out(clock: ManualClock, request: Coroutine[Any, Any, object]) -> None:
    """However long that takes."""
    task = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    while not task.done():
        await clock.advance(0.25)
    task.result()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["act", "act", "act", "time", "time", "slow", "release", "restart", "edit"]),
        st.integers(0, 2),
        st.sampled_from(["", "", "", "unreachable", "lost answer", "lands late"]),
        st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0, 10.0]),
    ),
    min_size=10,
    max_size=80,
)


@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_two_never_lead_at_the_same_time_and_epochs_only_grow(
    steps: list[tuple[str, int, str, float]],
) -> None:
    async def play() -> None:
        clock = ManualClock()
        leases = FakeLeases(clock)
        names = itertools.count()
        candidates = [candidate(leases, str(next(names))) for _ in range(3)]
        last: tuple[Epoch, str] = ((0, -1), "")
        for step, number, mishap, seconds in steps:
            who = candidates[number]
            leases.mishaps = itertools.chain([mishap], itertools.repeat(""))
            leases.lands_after = seconds
            if step == "time":
                await clock.advance(seconds)
            elif step == "slow":
                leases.takes = seconds - 0.5
            elif step == "restart":  # a new process: nothing is remembered, and nothing was released
                candidates[number] = candidate(leases, str(next(names)))
            elif step == "edit":
                leases.edit(2**31 - 1)
            elif step == "release":
                await carried_out(clock, who.release())
            elif who.is_leading():
                try:
                    await carried_out(clock, who.try_renew())
                except LostLeadershipError:
                    candidates[number] = candidate(leases, str(next(names)))
            else:
                await carried_out(clock, who.try_acquire())
            leaders = [one for one in candidates if one.is_leading()]
            assert len(leaders) <= 1
            for leader in leaders:
                current = leader.epoch, leader.identity
                assert current == last or current[0] > last[0]
                last = current

    asyncio.run(play())
