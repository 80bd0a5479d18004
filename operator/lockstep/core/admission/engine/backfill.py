"""Backfill in one order over all queues: nobody who starts early delays a reservation.

Jobs are tried in order. One starts if its nodes and its quota are free for as long as it may run, in view of
all that was claimed before. If not, it gets the earliest start that holds as a claim, as long as its queue has
claims to give: one in EASY backfill, any number in conservative backfill. Whoever cannot start at any time, for lack of
nodes or because of a deadline, holds up nobody.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from lockstep.core.admission.engine.bookings import Bookings
from lockstep.core.admission.engine.cycle_result import (
    CycleResult,
    Estimate,
    Foreseen,
    JobStart,
    Reservation,
    Wait,
    WaitKind,
    Waits,
)
from lockstep.core.admission.engine.jobs import Asker, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.quota import QuotaRefusal, QuotaRules
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.reasons import WaitReason

BLOCKERS_NAMED = 8

_GROUP = attrgetter("group")
_NOTHING: Mapping[str, Foreseen] = {}
_BEGIN_TIME = Wait(WaitReason.BEGIN_TIME)
_DEADLINE = Wait(WaitReason.DEADLINE_UNREACHABLE)
_NO_NODES = Wait(WaitReason.RESOURCES)


@dataclass(frozen=True, slots=True)
class BackfillPolicy:
    """How many promises are made, and how much one cycle does."""

    reservations_per_queue: int | None = 1
    """None: conservative, as many as ``depth`` allows."""
    depth: int = 500
    """How many jobs a start is sought for, or nodes are kept for until they may start, beside the first of each queue.
    Whether they can start now is asked of all others."""
    admissions: int = 16
    """Most starts; the rest is left to a further cycle."""
    overtaking: bool = True
    """False: no job is backfilled before a pending one of the same queue."""


@dataclass(slots=True)
class _Queue:
    """``promised``: who of this queue has a reservation, ``most`` of them; ``full``: there may be no more.
    ``searched``: a start was sought for somebody."""

    most: int | None
    promised: list[str] = field(default_factory=list)
    full: bool = False
    searched: bool = False
    behind: Wait | None = None
    limited: list[tuple[QuotaRefusal, Wait]] = field(default_factory=list)

    def wait_behind(self) -> Wait:
        """The wait of jobs that are held up by nothing but those before them."""
        if self.behind is None:
            self.behind = Wait(WaitReason.PRIORITY, blockers=tuple(self.promised[:BLOCKERS_NAMED]))
        return self.behind

    def wait_for_quota(self, refusal: QuotaRefusal) -> Wait:
        """The wait of jobs with this quota ``refusal``: the same object, so that it is put into words once."""
        for known, wait in self.limited:
            if known is refusal:
                return wait
        wait = _limited(refusal, None, "")
        self.limited.append((refusal, wait))
        return wait

    def promise(self, uid: str) -> None:
        self.promised.append(uid)
        self.full = self.most is not None and len(self.promised) >= self.most
        self.behind = None


def backfill(
    now: float,
    askers: Sequence[Asker],
    running: Sequence[RunningJob],
    free: NodeSet,
    claims: Sequence[NodeClaim],
    quota: QuotaRules,
    policy: BackfillPolicy,
    foreseen: Mapping[str, Foreseen] = _NOTHING,
    groups: Sequence[object] | None = None,
) -> CycleResult:
    """Try ``askers`` in order. The waits of the result are in that order too.

    Claims whose owner is among them are held for it: unless it can start elsewhere now, it waits for just these nodes.
    All others are maintenance windows. Nodes that are expected back are part of ``free`` and claimed until then.
    ``foreseen``, by UID, is what jobs are promised that may preempt later: it binds those that come after.
    ``groups``: those of the ``askers``, for whom each of them has one, in the same order.
    """
    desk = _Desk(Bookings(now, askers, running, free, claims, quota), policy, foreseen)
    answers: list[Wait | None] = []
    # Who is like somebody that got nothing gets nothing, and while nothing is booked for the very same reason.
    heard: dict[Hashable, Wait] = {}
    cut = False
    promised = {*foreseen, *(claim.owner for claim in claims)}
    alike_by_place = _groups(askers, promised, [*map(_GROUP, askers)] if groups is None else [*groups])
    for asker, alike in zip(askers, alike_by_place, strict=True):
        wait = heard.get(alike)
        if wait is None:
            if len(desk.starts) >= policy.admissions:
                cut = True
                break
            changes = desk.bookings.changes
            wait = desk.ask(asker, alike)
            if desk.bookings.changes != changes:
                heard.clear()
            elif wait is not None:
                heard[alike] = wait
        answers.append(wait)
    return CycleResult(tuple(desk.starts), Waits(askers, answers), cut, desk.reserved)


def _groups(askers: Sequence[Asker], promised: Collection[str], groups: list[Any]) -> Sequence[Hashable]:
    """By place in the line, the same for those who are answered alike. Who has a promise is like nobody else."""
    if not all(groups):
        groups = [asker.group or asker.wanted.alike for asker in askers]
    for at, asker in enumerate(askers) if promised else ():
        if asker.uid in promised:
            groups[at] = asker.uid
    return groups


class _Desk:
    """Where those of the line are asked, one after the other."""

    def __init__(self, bookings: Bookings, policy: BackfillPolicy, foreseen: Mapping[str, Foreseen]) -> None:
        self.bookings = bookings
        self.starts: list[JobStart] = []
        self.reserved: dict[str, Reservation] = {}
        self._policy = policy
        self._foreseen = foreseen
        self._queues: dict[str, _Queue] = {}
        self._failed: dict[Hashable, int] = {}  # of how many releases it knew that could not start
        self._searches = 0

    def ask(self, asker: Asker, alike: Hashable) -> Wait | None:
        """Why it waits; None: it starts. Unless something is booked or released, all who are ``alike`` hear the same
        if they are asked next."""
        bookings, policy, terms = self.bookings, self._policy, asker.terms
        queue = self._queues.get(asker.queue)
        if queue is None:
            queue = self._queues[asker.queue] = _Queue(policy.reservations_per_queue)
        if terms.not_before > bookings.now:
            return _BEGIN_TIME
        if queue.promised and not policy.overtaking and not bookings.holds_for(asker.uid):
            return queue.wait_behind()
        may_be_promised = alike == asker.uid
        if may_be_promised:
            bookings.release_held(asker.wanted)
        sizes, refusal = bookings.allowed(asker.queue, terms.options)
        # Of nearly all: no promise is left for it, and mere numbers forbid to start.
        must_start_now = queue.full and not may_be_promised and terms.latest_end is None
        if must_start_now and (not sizes or bookings.are_shut_out(terms.options, terms.shortest)):
            return queue.wait_for_quota(refusal) if refusal is not None else queue.wait_behind()
        job = asker.wanted
        may_get_others = terms.may_start or (self._searches < policy.depth and not bookings.holds_for(job.uid))
        if sizes and may_get_others and self._failed.get(alike) != bookings.releases:
            start = bookings.start(job, sizes)
            if start is not None and not terms.may_start:
                self._searches += 1  # it is no start, of which there would be only so many
                kept = self.reserved[job.uid] = Reservation(bookings.now, start.until, start.option, start.nodes)
                return Wait(WaitReason.RESOURCES, kept)
            if start is not None:
                self.starts.append(replace(start, backfilled=True) if self.reserved else start)
                return None
            self._failed[alike] = bookings.releases
        reservation = kept_or_foreseen(bookings, job, self._foreseen) if may_be_promised else None
        may_reserve = queue.most is None or len(queue.promised) < queue.most
        sought = reservation is None and may_reserve and (self._searches < policy.depth or not queue.searched)
        if sought and bookings.could_ever_start(job):
            reservation = bookings.reserve(job, bookings.now)
            self._searches += 1
            queue.searched = True
        if reservation is None:
            return _why(bookings, job, sizes, refusal, None, queue, sought)
        wait = _why(bookings, job, *bookings.allowed(job.queue, job.options), reservation, queue, sought)
        queue.promise(job.uid)
        self.reserved[job.uid] = reservation
        return wait


def estimate_starts(
    now: float,
    askers: Sequence[Asker],
    running: Sequence[RunningJob],
    free: NodeSet,
    claims: Sequence[NodeClaim],
    quota: QuotaRules,
    depth: int,
    foreseen: Mapping[str, Foreseen] = _NOTHING,
) -> Iterator[tuple[str, Estimate]]:
    """When ``depth`` of ``askers`` start if all use up their time, nobody else comes and each starts when it can.

    By UID, in order, each worked out when it is asked for.
    """
    bookings = Bookings(now, askers, running, free, claims, quota)
    jobs = [asker.wanted for asker in askers[:depth]]  # as of now, however late each is worked out
    positions: dict[str, int] = {}
    for job in jobs:
        position = positions[job.queue] = positions.get(job.queue, 0) + 1
        bookings.release_held(job)
        reservation = kept_or_foreseen(bookings, job, foreseen) or bookings.reserve(job, max(now, job.not_before))
        start = reservation.start if reservation is not None and reservation.known else None
        yield job.uid, Estimate(position, start)


def kept_or_foreseen(bookings: Bookings, job: Job, foreseen: Mapping[str, Foreseen]) -> Reservation | None:
    """What was promised to ``job`` before any job was tried."""
    reservation = bookings.keep(job)
    later = foreseen.get(job.uid) if foreseen and reservation is None else None
    return bookings.foresee(job, later) if later is not None else reservation


def _why(
    bookings: Bookings,
    job: Job,
    sizes: Sequence[Option],
    refusal: QuotaRefusal | None,
    reservation: Reservation | None,
    queue: _Queue,
    sought: bool,
) -> Wait:
    """The wait of ``job``, which cannot start now. ``sizes`` and ``refusal``: what the quotas say of it."""
    latest = job.latest_start if job.latest_end is not None else None
    hurried = latest is not None and (latest < bookings.now or (sought and reservation is None))
    if hurried and bookings.misses_deadline(job):
        return _DEADLINE
    if refusal is not None:
        if reservation is None and job.uid not in refusal.holders:
            return queue.wait_for_quota(refusal)
        return _limited(refusal, reservation, job.uid)
    options = [option for option in sizes if not option.fallback]
    if bookings.has_nodes_now(options):
        window = bookings.window(job, options)
        if window:
            return Wait(WaitReason.WINDOW, reservation, window=window)
        if reservation is None and queue.promised:
            return queue.wait_behind()
        return Wait(WaitReason.PRIORITY, reservation, bookings.promised(job, options, BLOCKERS_NAMED))
    if reservation is not None:
        return Wait(WaitReason.RESOURCES, reservation, bookings.blockers(job, reservation, BLOCKERS_NAMED))
    return queue.wait_behind() if queue.promised else _NO_NODES


def _limited(refusal: QuotaRefusal, reservation: Reservation | None, uid: str) -> Wait:
    kind: WaitKind = WaitReason.RUNNING_RUNS_LIMIT if refusal.bound == "Runs" else WaitReason.QUOTA
    blockers = tuple(holder for holder in refusal.holders[:BLOCKERS_NAMED] if holder != uid)
    return Wait(kind, reservation, blockers, refusal)
