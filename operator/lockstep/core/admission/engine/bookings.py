"""Nodes and quota while one cycle assigns them: what fits when, and what is reserved already."""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf, nextafter

from lockstep.core.admission.engine.calendar import Calendar
from lockstep.core.admission.engine.cycle_result import Foreseen, JobStart, Reservation
from lockstep.core.admission.engine.jobs import NO_LIMIT, OVERDUE, Asker, Choose, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.quota import QuotaBook, QuotaRefusal, QuotaRules
from lockstep.core.model.node_set import EMPTY, NodeSet

_HOLDERS_LOOKED_AT = 256


class Bookings:
    """Claims whose owner is one of ``askers`` are held for it, and so is the quota; all others forbid their nodes.

    What is given to a job is gone for those that come later. The jobs and their options must outlive the bookings.
    """

    def __init__(
        self,
        now: float,
        askers: Sequence[Asker],
        running: Sequence[RunningJob],
        free: NodeSet,
        claims: Sequence[NodeClaim],
        quota: QuotaRules,
    ) -> None:
        self.now = now
        self.changes = self.releases = 0
        """How often something was booked or released, and how often released."""
        self._instant = nextafter(now, inf)
        self._calendar = Calendar(now, free, ((run.ends, run.nodes) for run in running), claims)
        self._quota = QuotaBook(quota, now, running)
        owners = {claim.owner for claim in claims}
        holders = {asker.uid: asker.wanted for asker in askers if asker.uid in owners} if owners else {}
        self._held: dict[str, NodeSet] = {}
        self._cleared: dict[str, float] = {}  # when the last of its victims is gone
        for claim in claims:
            if claim.owner in holders:
                self._held[claim.owner] = self._held.get(claim.owner, EMPTY) | claim.nodes
        for run in running if holders else ():
            if run.yields_to in holders:
                self._cleared[run.yields_to] = max(self._cleared.get(run.yields_to, now), run.ends)
        for uid, nodes in self._held.items():
            for option in _covering(holders[uid], nodes):
                self._take_held(holders[uid], option, inf)
                break
        self._windows = [claim for claim in claims if claim.owner not in holders]
        self._but_for_windows = Calendar(now, self._calendar.free(now, self._instant), (), self._windows)
        self._holders = sorted(
            (run.ends if run.ends > now else now + OVERDUE, run.uid or run.left_by, run.nodes) for run in running
        )
        self._promised: list[NodeClaim] = []
        # From here on starts rest on runs without a limit.
        self._assumed = min((run.ends for run in running if not run.limited), default=inf)
        self._unfit: dict[tuple[Choose, int], NodeSet] = {}
        self._with_nodes: dict[tuple[int, float], Sequence[Option]] = {}
        self._idle: dict[int, bool] = {}  # by identity of an option: enough nodes for it are free at this moment

    def holds_for(self, uid: str) -> bool:
        """Nodes are held for that job."""
        return uid in self._held

    def release_held(self, job: Job) -> None:
        """What is held for ``job`` is free again, for it to take."""
        if job.uid in self._held:
            self._calendar = self._calendar.without(job.uid)
            self._quota.release(job.uid)
            self._forget()
            self.changes += 1
            self.releases += 1

    def is_held(self, job: Job) -> bool:
        """Some nodes are held for ``job``, or were."""
        return job.uid in self._held

    def start(self, job: Job, allowed: Sequence[Option]) -> JobStart | None:
        """Book what ``job`` can have now: its first option, whole rather than cut short, cut rather than smaller.

        Nothing is held for it any more, and the quotas allow no other options than ``allowed``.
        """
        shortest, longest = job.lengths(self.now)
        if longest < shortest:
            return None
        having = self._having_nodes(job.options, self.now + shortest)
        if not having:
            return None
        options = [option for option in having if option in allowed]
        for option, may_be_cut in _ways(options, shortest < longest) if options else ():
            found = self._longest(job, option, self.now, shortest if may_be_cut else longest, longest)
            if found is not None:
                until, nodes = found
                self._book(job, option, nodes, self.now, until)
                self._but_for_windows.claim(NodeClaim(self.now, until, nodes, job.uid))
                return JobStart(job.uid, option, nodes, until)
        return None

    def keep(self, job: Job) -> Reservation | None:
        """What is held for ``job`` stays so if it can be placed there, and it starts when these nodes are free.

        Until then nobody gets them, nor the quota, for however short a time: they may come free sooner than expected.
        """
        nodes = self._held.get(job.uid, EMPTY)
        for option in _covering(job, nodes) if nodes else ():
            after = self._cleared.get(job.uid, self.now)
            reservation = self._reservation(job, replace(option, eligible=nodes), after)
            if reservation is not None:
                reservation = replace(reservation, option=option)
                self._claim(job, nodes, self.now, reservation.until)
                self._take_held(job, option, reservation.until)
                return reservation
        return None

    def foresee(self, job: Job, foreseen: Foreseen) -> Reservation:
        """From when ``job`` may send those away who hold its nodes, nobody else has them or the quota."""
        until = foreseen.start + job.lengths(foreseen.start)[0]
        for victim in foreseen.victims:
            self._quota.end(victim, foreseen.at)
        self._book(job, foreseen.option, foreseen.nodes, foreseen.at, until)
        self._promised.append(NodeClaim(foreseen.at, until, foreseen.nodes, job.uid))
        return Reservation(foreseen.start, until, foreseen.option, foreseen.nodes)

    def reserve(self, job: Job, after: float) -> Reservation | None:
        """Book the earliest start from ``after`` on, and there the longest time; None: there will be none."""
        best: Reservation | None = None
        for option in job.options:
            found = None if option.fallback else self._reservation(job, option, after)
            if found is not None and (best is None or found.start < best.start):
                best = found
        if best is not None:
            self._book(job, best.option, best.nodes, best.start, best.until)
            self._promised.append(NodeClaim(best.start, best.until, best.nodes, job.uid))
        return best

    def could_ever_start(self, job: Job) -> bool:
        """False: no nodes or no quota for it, whoever ends."""
        return any(
            not option.fallback
            and self._quota.could_ever_fit(job.queue, option.gpu_type, option.count)
            and self._calendar.count_at_last(option.eligible) >= option.count
            and not self._is_unfit(option, self._calendar.at_last & option.eligible)
            for option in job.options
        )

    def allowed(self, queue: str, options: Sequence[Option]) -> tuple[Sequence[Option], QuotaRefusal | None]:
        """Those of ``options`` that the quotas let start now; if no full size is among them, why not the first of them
        that they would ever let start, or else the first."""
        if len(options) == 1:  # of most
            refusal = self._quota.refusal(queue, options[0].gpu_type, options[0].count)
            return ((), refusal) if refusal is not None else (options, None)
        allowed: list[Option] = []
        told, whole, ever = None, False, False
        for option in options:
            refusal = self._quota.refusal(queue, option.gpu_type, option.count)
            if refusal is None:
                allowed.append(option)
                whole = whole or not option.fallback
            elif not (ever or option.fallback):
                ever = refusal.most >= option.count
                told = refusal if ever else told or refusal
        return allowed, None if whole else told

    def misses_deadline(self, job: Job) -> bool:
        """It could start at some time, were it not for its deadline."""
        if job.latest_start is None or job.latest_start < self.now:
            return job.latest_start is not None
        patient = replace(job, latest_end=None)
        return any(self._reservation(patient, option, self.now) for option in job.options if not option.fallback)

    def has_nodes_now(self, options: Sequence[Option]) -> bool:
        """Enough nodes for one of them are free at this moment, however short a time."""
        known = self._idle
        for option in options:
            found = known.get(id(option))
            if found is None:
                found = known[id(option)] = self._are_idle(option)
            if found:
                return True
        return False

    def are_shut_out(self, options: Sequence[Option], shortest: float) -> bool:
        """Too few nodes are free for any of them to start now and last so long, and no window is to blame for it."""
        if self._having_nodes(options, self.now + shortest):
            return False
        return not (self._windows and self.has_nodes_now(options))

    def window(self, job: Job, options: Sequence[Option]) -> str:
        """The owner of the first claim that ``job`` would overrun, if it is claims alone that forbid to start now."""
        end = self.now + job.lengths(self.now)[0]
        counts = self._but_for_windows.count_from_now
        if not self._windows or any(counts(end, option.eligible) >= option.count for option in options):
            return ""
        usable = self._usable_now(options)
        before = [
            claim for claim in self._windows if self.now < claim.end and claim.start < end and claim.nodes & usable
        ]
        return min(before, key=lambda claim: claim.start).owner if before else ""

    def blockers(self, job: Job, reservation: Reservation, most: int) -> tuple[str, ...]:
        """Who holds the nodes of ``reservation`` until then: for each node its last holder, the latest first."""
        left, found = reservation.nodes, []
        end = bisect_right(self._holders, reservation.start, key=lambda holder: holder[0])
        for _, uid, nodes in reversed(self._holders[max(0, end - _HOLDERS_LOOKED_AT) : end]):
            if nodes & left:
                left &= ~nodes
                if uid and uid != job.uid:
                    found.append(uid)
            if not left or len(found) == most:
                break
        return tuple(dict.fromkeys(found))

    def promised(self, job: Job, options: Sequence[Option], most: int) -> tuple[str, ...]:
        """For whom the nodes are reserved that ``job`` could have now."""
        end, usable = self.now + job.lengths(self.now)[0], self._usable_now(options)
        found: list[str] = []
        for claim in self._promised:
            if len(found) == most:
                break
            if claim.start < end and claim.owner != job.uid and claim.nodes & usable:
                found.append(claim.owner)
        return tuple(found)

    def _having_nodes(self, options: Sequence[Option], end: float) -> Sequence[Option]:
        """Those of ``options`` for which mere numbers of nodes do not forbid to start now and to last until ``end``.

        Queues ask for the same: it is found once, by the identity of ``options``, until something is booked.
        """
        key = id(options), end
        found = self._with_nodes.get(key)
        if found is None:
            counts = self._calendar.count_from_now
            found = [option for option in options if counts(end, option.eligible) >= option.count]
            self._with_nodes[key] = found
        return found

    def _are_idle(self, option: Option) -> bool:
        if self._calendar.count_from_now(self._instant, option.eligible) < option.count:
            return False
        return not self._is_unfit(option, self._calendar.free(self.now, self._instant) & option.eligible)

    def _forget(self) -> None:
        """Something was booked or released."""
        self._with_nodes.clear()
        self._idle.clear()

    def _usable_now(self, options: Sequence[Option]) -> NodeSet:
        eligible = EMPTY
        for option in options:
            eligible |= option.eligible
        return eligible & self._calendar.free(self.now, self._instant)

    def _reservation(self, job: Job, option: Option, after: float) -> Reservation | None:
        shortest = job.lengths(after)[0]
        latest = inf if job.latest_start is None else job.latest_start
        start = after
        while True:  # nodes and quota move the start in turn until both agree
            allowed = self._quota.earliest(job.queue, option.gpu_type, option.count, shortest, start)
            if allowed is None or allowed > latest:
                return None
            choose = partial(self._choose, option)
            found = self._calendar.earliest(
                option.eligible, option.count, shortest, allowed, latest, choose, strict=option.strict
            )
            if found is None:
                return None
            start, nodes = found
            if self._quota.fits(job.queue, option.gpu_type, option.count, start, start + shortest):
                break
        until = start + shortest
        if job.min_duration is not None:
            longest = self._longest(job, option, start, *job.lengths(start))
            assert longest is not None
            until, nodes = longest
        return Reservation(start, until, option, nodes, known=start < self._assumed)

    def _longest(
        self, job: Job, option: Option, start: float, shortest: float, longest: float
    ) -> tuple[float, NodeSet] | None:
        """(end, nodes) of the longest time that ``option`` can have from ``start`` on."""
        nodes = self._fit(job, option, start, start + longest)
        if nodes is not None:
            return start + longest, nodes
        nodes = self._fit(job, option, start, start + shortest) if shortest < longest else None
        if nodes is None:
            return None
        # More time never makes it easier, and only changes of claims and of usage make it harder.
        until, before = start + shortest, start + longest
        ends = {
            *self._calendar.changes(until, before),
            *self._quota.changes(job.queue, option.gpu_type, until, before),
        }
        left = sorted(ends)
        while left:
            middle = len(left) // 2
            found = self._fit(job, option, start, left[middle])
            if found is None:
                left = left[:middle]
            else:
                until, nodes, left = left[middle], found, left[middle + 1 :]
        return until, nodes

    def _fit(self, job: Job, option: Option, start: float, end: float) -> NodeSet | None:
        if start <= self.now and self._calendar.count_from_now(end, option.eligible) < option.count:
            return None
        if not self._quota.fits(job.queue, option.gpu_type, option.count, start, end):
            return None
        usable = self._calendar.free(start, end) & option.eligible
        return self._choose(option, usable) if usable.bit_count() >= option.count else None

    def _choose(self, option: Option, usable: NodeSet) -> NodeSet | None:
        """Nodes for ``option``. Raises ValueError for a choice that would book a node twice."""
        if self._is_unfit(option, usable):
            return None
        nodes = option.choose(usable)
        if nodes is None:
            self._unfit[option.choose, option.count] = usable
            self._idle.clear()
        elif nodes & usable != nodes or nodes.bit_count() != option.count:
            raise ValueError(f"of {usable:#x} not {option.count} nodes but {nodes:#x} were chosen")
        return nodes

    def _is_unfit(self, option: Option, usable: NodeSet) -> bool:
        unfit = self._unfit.get((option.choose, option.count))
        return unfit is not None and usable & unfit == usable

    def _take_held(self, job: Job, option: Option, until: float) -> None:
        """Take for ``job`` the quota that is held for it. Whoever it preempts has it for one more instant."""
        start = self.now + OVERDUE if job.uid in self._cleared else self.now
        self._quota.charge(job.uid, job.queue, option.gpu_type, option.count, start, until)

    def _book(self, job: Job, option: Option, nodes: NodeSet, start: float, until: float) -> None:
        self._claim(job, nodes, start, until)
        self._quota.charge(job.uid, job.queue, option.gpu_type, option.count, start, until)

    def _claim(self, job: Job, nodes: NodeSet, start: float, until: float) -> None:
        self.changes += 1
        self._forget()
        self._calendar.claim(NodeClaim(start, until, nodes, job.uid))
        insort(self._holders, (until, job.uid, nodes))
        if job.duration >= NO_LIMIT:
            self._assumed = min(self._assumed, until)


def _covering(job: Job, nodes: NodeSet) -> Iterator[Option]:
    """Full sizes of ``job`` that are as many as ``nodes`` and could have them."""
    for option in job.options:
        if nodes and not option.fallback and not nodes & ~option.eligible and nodes.bit_count() == option.count:
            yield option


def _ways(options: Sequence[Option], may_be_cut: bool) -> Iterator[tuple[Option, bool]]:
    """(option, whether it is cut), the most wanted first."""
    for fallback in (False, True):
        for cut in (False, True) if may_be_cut else (False,):
            for option in options:
                if option.fallback is fallback:
                    yield option, cut
