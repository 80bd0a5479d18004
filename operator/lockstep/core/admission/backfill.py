"""Who starts now, in one order over all queues, so that nobody who starts early delays those who were promised a time.

Jobs are looked at in order. One starts if its nodes and its quota are free for as long as it may run, in view of
all that was claimed before. If not, it gets the earliest start that holds as a claim, as long as its queue has
claims to give: one in EASY backfill, any number in conservative backfill. Whoever cannot start at any time, for lack of
nodes or because of a deadline, holds up nobody.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.core.admission.bookings import Bookings
from lockstep.core.admission.jobs import Claim, Job, Running
from lockstep.core.admission.outlook import Estimate, Foreseen, Outlook, Reservation, Start, Wait, WaitKind
from lockstep.core.admission.quota import QuotaRefusal, QuotaRules

BLOCKERS_NAMED = 8

_NOTHING: Mapping[str, Foreseen] = {}
_BEGIN_TIME = Wait("BeginTime")
_DEADLINE = Wait("DeadlineUnreachable")
_NO_NODES = Wait("Resources")


@dataclass(frozen=True, slots=True)
class BackfillPolicy:
    """How many promises are made, and how much one pass does."""

    reservations_per_queue: int | None = 1
    """None: conservative, as many as ``depth`` allows."""
    depth: int = 500
    """How many jobs a start is sought for, beside the first of each queue. Whether it can start now is asked of all."""
    admissions: int = 16
    """Most starts; the rest is looked at in a further pass."""
    overtaking: bool = True
    """False: nobody starts before one that waits in the same queue."""


@dataclass(slots=True)
class _Queue:
    """``promised``: who of this queue has a reservation. ``searched``: a start was sought for somebody."""

    promised: list[str] = field(default_factory=list)
    searched: bool = False
    behind: Wait | None = None

    def wait_behind(self) -> Wait:
        """What those say who wait for no more than the ones before them."""
        if self.behind is None:
            self.behind = Wait("Priority", blockers=tuple(self.promised[:BLOCKERS_NAMED]))
        return self.behind

    def promise(self, uid: str) -> None:
        self.promised.append(uid)
        self.behind = None


def backfill(
    now: float,
    jobs: Sequence[Job],
    running: Sequence[Running],
    free: int,
    claims: Sequence[Claim],
    quota: QuotaRules,
    policy: BackfillPolicy,
    foreseen: Mapping[str, Foreseen] = _NOTHING,
) -> Outlook:
    """Look at ``jobs`` in order.

    Claims whose owner is among them are held for it: unless it can start elsewhere now, it waits for just these nodes.
    All others are maintenance windows. Nodes that are expected back are part of ``free`` and claimed until then.
    ``foreseen``, by UID, is what jobs are promised that may send others away later: it binds those that come after.
    """
    bookings = Bookings(now, jobs, running, free, claims, quota)
    queues: dict[str, _Queue] = {}
    starts: list[Start] = []
    waits: dict[str, Wait] = {}
    failed: dict[Hashable, tuple[int, int, Wait]] = {}
    promised = {*foreseen, *(claim.owner for claim in claims)}
    overtaking = policy.overtaking
    searches, anybody_waits = 0, False
    for job in jobs:
        if len(starts) >= policy.admissions:
            return Outlook(tuple(starts), waits, cut=True)
        # Who is like somebody that got nothing gets nothing, and while nothing was booked for the very same reason.
        alike = job.group or job.alike
        before = failed.get(alike)
        if before is not None and before[0] == bookings.changes and overtaking and job.uid not in promised:
            waits[job.uid] = before[2]
            continue
        queue = queues.get(job.queue) or queues.setdefault(job.queue, _Queue())
        if job.not_before > now:
            waits[job.uid] = _BEGIN_TIME
            continue
        if queue.promised and not overtaking and not bookings.holds_for(job):
            waits[job.uid] = queue.wait_behind()
            continue
        if before is None or before[1] != bookings.releases or bookings.is_held(job):
            start = bookings.start(job)
            if start is not None:
                starts.append(replace(start, backfilled=True) if anybody_waits else start)
                continue
        reservation = kept_or_foreseen(bookings, job, foreseen)
        most = policy.reservations_per_queue
        may_reserve = most is None or len(queue.promised) < most
        sought = reservation is None and may_reserve and (searches < policy.depth or not queue.searched)
        if sought and bookings.could_ever_start(job):
            reservation = bookings.reserve(job, now)
            searches += 1
            queue.searched = True
        waits[job.uid] = wait = _why(bookings, job, reservation, queue, sought)
        if reservation is not None:
            queue.promise(job.uid)
            anybody_waits = True
        if not bookings.is_held(job):
            changes = bookings.changes if reservation is None else -1
            failed[alike] = changes, bookings.releases, wait
    return Outlook(tuple(starts), waits, cut=False)


def forecast(
    now: float,
    jobs: Sequence[Job],
    running: Sequence[Running],
    free: int,
    claims: Sequence[Claim],
    quota: QuotaRules,
    depth: int,
    foreseen: Mapping[str, Foreseen] = _NOTHING,
) -> Iterator[tuple[str, Estimate]]:
    """When the first ``depth`` jobs start if all use up their time, nobody else comes and each starts when it can.

    By UID, in order, each worked out when it is asked for.
    """
    bookings = Bookings(now, jobs, running, free, claims, quota)
    positions: dict[str, int] = {}
    for job in jobs[:depth]:
        position = positions[job.queue] = positions.get(job.queue, 0) + 1
        bookings.release_held(job)
        reservation = kept_or_foreseen(bookings, job, foreseen) or bookings.reserve(job, max(now, job.not_before))
        start = reservation.start if reservation is not None and reservation.known else None
        yield job.uid, Estimate(position, start)


def kept_or_foreseen(bookings: Bookings, job: Job, foreseen: Mapping[str, Foreseen]) -> Reservation | None:
    """What was promised to ``job`` before anybody was looked at."""
    reservation = bookings.keep(job)
    later = foreseen.get(job.uid) if foreseen and reservation is None else None
    return bookings.foresee(job, later) if later is not None else reservation


def _why(bookings: Bookings, job: Job, reservation: Reservation | None, queue: _Queue, sought: bool) -> Wait:
    """What to tell of ``job``, which cannot start now."""
    latest = job.latest_start
    hurried = latest is not None and (latest < bookings.now or (sought and reservation is None))
    if hurried and bookings.misses_deadline(job):
        return _DEADLINE
    options, refusal = bookings.allowed(job)
    if refusal is not None:
        return _limited(refusal, reservation, job.uid)
    if bookings.has_nodes_now(options):
        window = bookings.window(job, options)
        if window:
            return Wait("Window", reservation, window=window)
        if reservation is None and queue.promised:
            return queue.wait_behind()
        return Wait("Priority", reservation, bookings.promised(job, options, BLOCKERS_NAMED))
    if reservation is not None:
        return Wait("Resources", reservation, bookings.blockers(job, reservation, BLOCKERS_NAMED))
    return queue.wait_behind() if queue.promised else _NO_NODES


def _limited(refusal: QuotaRefusal, reservation: Reservation | None, uid: str) -> Wait:
    kind: WaitKind = "RunningRunsLimit" if refusal.bound == "Runs" else "Quota"
    blockers = tuple(holder for holder in refusal.holders[:BLOCKERS_NAMED] if holder != uid)
    return Wait(kind, reservation, blockers, refusal)
