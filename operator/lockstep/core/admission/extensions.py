"""Changed time limits of running gangs: admission cycles grant them, as they grant nodes.

Others are promised starts by when those with nodes end. So a shorter limit counts for others once it is written into
status, and a longer one holds once it is: as far as the run overruns no maintenance window by it, and delays nobody who
is promised a start. What is left of the wish is tried again in each cycle.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.api.base.times import to_rfc3339
from lockstep.core.admission.cache.entry import Entry
from lockstep.core.admission.cache.maintenance_windows import OWNER
from lockstep.core.admission.cache.pending_reasons import listed
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.cycle_result import Reservation
from lockstep.core.admission.engine.jobs import RunningJob
from lockstep.core.admission.engine.quota import QuotaBook, QuotaRules
from lockstep.core.admission.engine_adapter import ends_by, running_of
from lockstep.core.admission.queueing.holds import queue_spec
from lockstep.core.model.admission_record import record_limit
from lockstep.core.model.limits import limit_allowed
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.plan import Event
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.run_queue import queue_of

WORTH_A_WRITE = 60
"""Seconds by which a limit grows at least, as long as not all of the wish can be granted."""
_MOST_TRIED = 4  # by rescheduling all pending runs, in one cycle

Reserved = Mapping[str, Reservation]


@dataclass(frozen=True, slots=True)
class Promises:
    """What pending runs are to have, by UID, as the cycle found it for the ``running`` gangs.

    ``kept``: nodes from which others are being preempted already. ``again`` finds what they would have were these the
    holders.
    """

    running: Sequence[RunningJob]
    reserved: Reserved
    kept: NodeSet
    rules: QuotaRules
    again: Callable[[Sequence[RunningJob]], Reserved]

    def were_it_to_end(self, uid: str, ends: float) -> Sequence[RunningJob]:
        """Those who hold nodes, that one until then."""
        return [replace(held, ends=ends) if held.uid == uid else held for held in self.running]

    def delayed_by(self, running: Sequence[RunningJob]) -> str:
        """The UID of somebody who would start later were these the holders; empty: nobody would."""
        after = self.again(running) if self.reserved else {}
        for uid, kept in self.reserved.items():
            then = after.get(uid)
            if kept.known and (then is None or not then.known or then.start > kept.start):
                return uid
        return ""


def grant_limits(rows: Iterable[RunRow], cycle: CycleState, promises: Promises | None) -> bool:
    """Write the limits that hold from now on. ``promises`` None: they are about to change, and nothing grows.

    True: more is to be tried.
    """
    left, tried = False, 0
    for row in rows:
        entry, known = row.entry, row.run.status.admission
        if entry.status is not row.run.status or entry.status.stop is not None or entry.status.preemption is not None:
            continue  # something else was decided of it, or it goes
        granted, wanted = known.time_limit, _allowed(entry, cycle)
        if _seconds(wanted) <= _seconds(granted):
            is_news = granted is None or known.asked_limit != (entry.spec.time_limit or "")
            _write(entry, wanted if is_news else granted, _beyond_queue(entry, cycle))
        elif promises is None or tried == _MOST_TRIED:
            left = True
        else:
            limit, why = _longest(entry, wanted, cycle, promises)
            if why and _seconds(limit) - _seconds(granted) < WORTH_A_WRITE:
                _write(entry, granted, why)
                continue
            tried += 1
            longer = promises.were_it_to_end(row.uid, ends_by(row.run, limit, cycle.now))
            if late := promises.delayed_by(longer):
                _write(entry, granted, _promised(entry, late, cycle))
                continue
            promises, why = replace(promises, running=longer), why or _beyond_queue(entry, cycle)
            _report_extension(entry, limit, why)
            _write(entry, limit, why)
    return left


def _allowed(entry: Entry, cycle: CycleState) -> int | None:
    return limit_allowed(entry.spec, queue_spec(cycle.snapshot, queue_of(entry.view)).limits)


def _seconds(limit: int | None) -> float:
    return inf if limit is None else limit


def _write(entry: Entry, limit: int | None, why: str) -> None:
    known, asked = entry.status.admission, entry.spec.time_limit or ""
    if (known.time_limit, known.asked_limit, known.limited_by) != (limit, asked, why):
        entry.status = record_limit(entry.status, limit, asked, why)


def _longest(entry: Entry, wanted: int | None, cycle: CycleState, promises: Promises) -> tuple[int | None, str]:
    """(seconds of the longest limit that breaks nothing, what is in the way of a longer one)."""
    run, now = entry.run, cycle.now
    ends, until = running_of(run, cycle, now).ends, ends_by(run, wanted, now)
    asked, why, nodes = until, "", cycle.held(run)
    for claim in cycle.windows:
        if claim.nodes & nodes and claim.end > ends and claim.start < until:
            until = max(ends, claim.start)
            name, begins = claim.owner.removeprefix(OWNER), to_rfc3339(claim.begins)
            why = f"it would overrun the maintenance window {name}, which begins at {begins}"
    if nodes & promises.kept:
        until, why = ends, "others make room on its nodes"
    for uid, kept in promises.reserved.items():
        if kept.known and kept.nodes & nodes and kept.until > ends and kept.start < until:
            until, why = max(ends, kept.start), _promised(entry, uid, cycle)
    within = _within_quota(run.uid, ends, until, cycle, promises)
    if within < until:
        until, why = within, "the quota that it uses is promised to others"
    if until >= asked:
        return wanted, ""
    since = ends_by(run, 0, now)
    return int(until - since), why


def _within_quota(uid: str, ends: float, until: float, cycle: CycleState, promises: Promises) -> float:
    """Up to when the run may go on beyond its end beside those who are promised what it uses of the quotas."""
    held = next((running for running in promises.running if running.uid == uid), None)
    if held is None or not promises.reserved:
        return until
    book = QuotaBook(promises.rules, cycle.now, promises.running)
    for other, kept in promises.reserved.items():
        if kept.known:
            option, queue = kept.option, cycle.run_index.rows[other].queue
            book.charge(other, queue, option.gpu_type, option.count, kept.start, kept.until)
    moments = [*book.changes(held.queue, held.gpu_type, ends, until), until]
    fits = ends
    for moment in moments:
        if not book.fits(held.queue, held.gpu_type, held.count, ends, moment):
            break
        fits = moment
    return fits


def _beyond_queue(entry: Entry, cycle: CycleState) -> str:
    """In words, that its queue does not allow what it asks for; empty: it does, or has given it less anyway."""
    queue = queue_of(entry.view)
    longest = queue_spec(cycle.snapshot, queue).limits.max_time_limit
    asked = entry.spec.time_limit
    if longest is None or asked is None or parse_duration(asked) <= parse_duration(longest):
        return ""
    return f"queue {queue} allows at most {longest}"


def _promised(entry: Entry, uid: str, cycle: CycleState) -> str:
    return f"others are promised a start that it would delay: {listed((uid,), cycle.names_for(entry))}"


def _report_extension(entry: Entry, limit: int | None, why: str) -> None:
    words = f"its time limit is {format_duration(limit)} now" if limit is not None else "it has no time limit any more"
    words += f", not yet all of the {entry.spec.time_limit or 'time'} it asks for: {why}" if why else ""
    entry.events.append(Event("Normal", EventReason.TIME_LIMIT_EXTENDED, ActionWord.ADMIT, words))
