"""One admission pass over all runs: who gets nodes now, and what everybody else waits for.

Gangs that lost nodes come first. Then all who wait, in one order over all queues (``order``): whoever is held back
for a reason of its own (``holds``, ``dependencies``) blocks nobody; among the others ``backfill`` decides, on nodes and
quotas as they are and will be. Gangs grow by what nobody waits for. Nothing here acts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter

from lockstep.api.run_status import QueueStatus
from lockstep.core import assignment as slots
from lockstep.core import gang
from lockstep.core.admission.backfill import BackfillPolicy, backfill, forecast
from lockstep.core.admission.candidates import ENDING, job_of, others, quota_of, running_of, unsettled
from lockstep.core.admission.dependencies import Namespaces, judge
from lockstep.core.admission.entry import Entry, Reason, holds_nodes
from lockstep.core.admission.floor import Floor
from lockstep.core.admission.foretell import Standing
from lockstep.core.admission.holds import hold_of, hours_used_up, queue_spec
from lockstep.core.admission.jobs import NO_LIMIT, Claim, Job, Running
from lockstep.core.admission.kueue import KueueDesk
from lockstep.core.admission.memory import Memory, Row
from lockstep.core.admission.order import Order
from lockstep.core.admission.outlook import Foreseen, Outlook, Start, Wait
from lockstep.core.admission.preemptors import Preemptors, may_preempt
from lockstep.core.admission.queue_report import queue_writes
from lockstep.core.admission.quota import QuotaBook, QuotaRules
from lockstep.core.admission.reasons import (
    ASSUMPTION,
    names_of,
    preempts_later,
    reason_of,
    told,
    urgency,
    visible_names,
)
from lockstep.core.admission.refill import find_growth, find_spares, replace_lost_nodes
from lockstep.core.admission.reservations import Reservations
from lockstep.core.admission.settings import Backfill
from lockstep.core.admission.trials import Trials
from lockstep.core.admission.windows import window_claims
from lockstep.core.ground import Ground
from lockstep.core.placement import shortage
from lockstep.core.plan import ClusterPlan, Event
from lockstep.core.pod_groups import planned
from lockstep.core.requirement import avoided_nodes, resolve
from lockstep.core.snapshot import ClusterSnapshot
from lockstep.core.topology import fullest_domains
from lockstep.core.tunables import Tunables

_NODES_NAMED = 8
_FORECAST_LIVES = 30.0
_ANSWERS_PER_PASS = 8
_BLOCKING = ("Resources", "Quota", "Priority", "Window")

_Rest = tuple[Sequence[Running], int, Sequence[Claim], QuotaRules, BackfillPolicy]
"""What the engine is told beside the jobs."""


def admit(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: Memory | None = None) -> ClusterPlan:
    """Decide who gets nodes at ``now``. Deterministic; deciding again after the writes gives nobody anything, and soon
    writes nothing: only who waited while others were yet to start may be told another reason.

    The plan's ``wake_at`` is ``now`` when more runs are to be looked at than one pass takes. ``memory`` spares work
    that the pass before has done; it changes no decision but how fresh estimates are.
    """
    memory = memory if memory is not None else Memory()
    plan = _Pass(snapshot, tunables, now, memory).plan()
    queues, look_again = queue_writes(snapshot, memory.rows, plan.writes, tunables, now)
    times = [at for at in (plan.wake_at, look_again) if at is not None]
    return replace(plan, queues=queues, wake_at=min(times, default=None))


class _Pass:
    def __init__(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: Memory) -> None:
        self._snapshot = snapshot
        self._tunables = tunables
        self._settings = tunables.admission
        self._now = now
        self._memory = memory
        self._wake_at: float | None = None
        self._floor = Floor(snapshot, tunables, now, memory)
        self._rules = QuotaRules.of({name: quota_of(view) for name, view in snapshot.queues.items()})
        busy = {uid for uid, nodes in snapshot.in_flight.items() if nodes}
        rows = [row for row in self._floor.rows if row.run.uid not in busy] if busy else self._floor.rows
        self._rows = [row for row in rows if not row.trial]
        self._kueue = KueueDesk(self._floor)
        self._entries = [Entry(row.run, row.run.status) for row in self._rows]
        self._asked = [Entry(row.run, row.run.status) for row in rows if row.asked]
        self._holding = self._those(attrgetter("holds"))
        self._started: list[Entry] = []
        self._left: Sequence[tuple[Entry, Job]] = ()
        self._claims: Sequence[Claim] = ()
        self._awaited: Sequence[Running] = ()
        self._foreseen: Mapping[str, Foreseen] = {}
        self._cut = False
        self._keys = memory.keys

    def plan(self) -> ClusterPlan:
        """The steps, in order."""
        gangs = self._those(attrgetter("lacks"))
        waiting = self._in_order()
        self._reservations = Reservations(self._entries, waiting, self._floor)
        self._floor.reserved = self._reservations.nodes
        for entry in gangs:
            if entry.status.kueue is not None:
                self._kueue.replace_lost_nodes(entry)
            elif slots.lacking(entry.status.assignment):
                replace_lost_nodes(entry, self._floor)
        gangs = [entry for entry in gangs if entry.status.kueue is None]
        for grant in self._kueue.grants():
            self._give(grant.entry, grant.nodes, grant.gpu_type)
            grant.entry.events.append(Event("Normal", "Admitted", "Admit", self._map_in_words(grant.nodes)))
        nodes_awaited = self._admit(waiting)
        self._reservations.withdraw()
        for entry in (*gangs, *self._started) if not self._cut else ():  # once nobody is to start any more
            find_spares(entry, self._floor, self._quota)
        for entry in gangs:
            if not nodes_awaited:
                find_growth(entry, self._floor, self._quota)
        self._tell()
        entries = [*self._entries, *self._answered()]
        changed = [entry for entry in entries if entry.status is not entry.run.status]
        return ClusterPlan(tuple(write for entry in changed for write in entry.writes()), self._wake_at)

    def _those(self, rule: Callable[[Row], bool]) -> list[Entry]:
        return [entry for entry, row in zip(self._entries, self._rows, strict=True) if rule(row)]

    def _in_order(self) -> list[Entry]:
        """Who could start if there were nodes, the first first; the others are told what holds them back."""
        shares, rows = self._snapshot.fair_shares, []
        order = Order(self._settings, self._snapshot.priority_classes, len(self._snapshot.nodes), self._now)
        family: Namespaces | None = None
        for entry, row in zip(self._entries, self._rows, strict=True):
            if not row.pending:
                continue
            entry.points = row.points_at(self._now, self._memory.era, shares, order)
            entry.reason = self._hold(entry, row)
            if entry.reason is None and row.related:
                family = family or Namespaces(row.run for row in self._floor.rows if not row.trial)
                entry.reason = self._dependency(entry, family)
            if not self._kueue.takes(entry) and entry.reason is None:
                rows.append((row.order, entry))
        rows.sort(key=itemgetter(0))
        return self._within_pending_limits(self._within_widths([entry for _, entry in rows]))

    def _hold(self, entry: Entry, row: Row) -> Reason | None:
        era, hold = self._memory.era, row.hold
        if row.hold_era != era or (hold is not None and hold.until is not None and hold.until <= self._now):
            hold = hold_of(row.run, self._snapshot, self._tunables, self._now, has_live_pods=False)
            row.hold, row.hold_era = hold, era
        if hold is None and self._floor.has_live_pods(entry):
            hold = hold_of(row.run, self._snapshot, self._tunables, self._now, has_live_pods=True)
        if hold is None:
            return None
        if hold.until is not None:
            self._wake(hold.until)
        return Reason(hold.reason, hold.message, start=hold.until)

    def _dependency(self, entry: Entry, family: Namespaces) -> Reason | None:
        if entry.spec.depends_on:
            verdict = judge(entry.run, family)
            admission = entry.status.admission
            if (verdict.met, verdict.failed) != (admission.met, admission.failed):
                entry.remember(met=verdict.met, failed=verdict.failed)
            if verdict.message:
                never = bool(verdict.failed) or verdict.circle
                return Reason("DependencyNeverSatisfied" if never else "Dependency", verdict.message)
        ahead = family.ahead_of(entry.run)
        if ahead is None:
            return None
        return Reason("Singleton", f"{ahead.name} comes first: it has the same spec.singleton", (ahead.uid,))

    def _within_widths(self, waiting: Sequence[Entry]) -> Sequence[Entry]:
        """Of each set as many as its maxRunning lets have nodes beside those that do; the others are held back."""
        widths = self._snapshot.widths
        if not widths:
            return waiting
        busy, room = {uid for uid, nodes in self._snapshot.in_flight.items() if nodes}, dict(widths)
        for row in self._floor.rows:
            if row.run.set_uid in room and (row.holds or row.run.uid in busy):
                room[row.run.set_uid] -= 1
        for entry in waiting:
            run = entry.run
            if run.set_uid not in room:
                continue
            room[run.set_uid] -= 1
            if room[run.set_uid] < 0:
                words = f"maxRunning of its set {run.set_name} is {widths[run.set_uid]}"
                entry.reason = Reason("MaxRunning", words)
        return [entry for entry in waiting if entry.reason is None]

    def _within_pending_limits(self, waiting: Sequence[Entry]) -> list[Entry]:
        """Those that came first, as many as their queue lets wait; the others are held back."""
        if all(view.spec.limits.max_pending_runs is None for view in self._snapshot.queues.values()):
            return [*waiting]
        came = sorted(waiting, key=lambda entry: (entry.run.created_at, entry.run.key))
        counts: dict[str, int] = {}
        for entry in came:
            most = queue_spec(self._snapshot, entry.spec.queue).limits.max_pending_runs
            counts[entry.spec.queue] = counts.get(entry.spec.queue, 0) + 1
            if most is not None and counts[entry.spec.queue] > most:
                entry.reason = Reason("PendingRunsLimit", f"queue {entry.spec.queue} lets at most {most} runs wait")
        return [entry for entry in waiting if entry.reason is None]

    def _admit(self, waiting: Sequence[Entry]) -> bool:
        """Start whom the engine says; True when somebody waits for nodes."""
        self._claims = window_claims(self._settings.windows, self._floor.index, self._now)
        if not waiting:
            return False
        jobs = [self._job(entry) for entry in waiting]
        running, free, claims = self._reservations.expected(self._running()), self._free(), self._claims
        spoken_for = (*claims, *self._reservations.claims())
        outlook = backfill(self._now, jobs, running, free, spoken_for, self._rules, self._policy())
        by_uid = {entry.run.uid: (entry, job) for entry, job in zip(waiting, jobs, strict=True)}
        self._reservations.review(outlook)
        rest = (running, free, spoken_for, self._rules, self._policy())
        outlook = self._make_room(list(zip(waiting, jobs, strict=True)), outlook, rest)
        for start in outlook.starts:
            self._start(*by_uid[start.uid], start)
        self._set_aside(jobs, outlook)
        if outlook.cut:
            self._cut = True
            self._wake(self._now)
        left = [(entry, job) for entry, job in zip(waiting, jobs, strict=True) if entry.run.uid in outlook.waits]
        for entry, _ in by_uid.values():
            entry.considered = entry.run.uid in outlook.waits or bool(entry.nodes)
        self._left = left
        estimates = self._estimates([job for _, job in left], free, (*claims, *self._reservations.claims()))
        self._explain(left, outlook, estimates, claims)
        self._wake_for_claims(claims)
        return outlook.cut or any(outlook.waits[job.uid].kind in _BLOCKING for _, job in left)

    def _set_aside(self, jobs: Sequence[Job], outlook: Outlook) -> None:
        """What those are to have who wait is nobody's spare, and nobody grows by it."""
        promised = [(job, wait.reservation) for job in jobs if (wait := outlook.waits.get(job.uid)) is not None]
        self._awaited = [
            Running(job.uid, job.queue, kept.option.gpu_type, kept.nodes, kept.option.count, kept.until)
            for job, kept in promised
            if kept is not None
        ]
        for awaited in self._awaited:
            self._floor.reserved |= awaited.nodes

    def _job(self, entry: Entry) -> Job:
        row = self._memory.rows[entry.run.uid]
        if row.job is not None and row.job_era == self._memory.ground_era:
            return row.job
        return job_of(entry, self._floor, queue_spec(self._snapshot, entry.spec.queue))

    def _free(self) -> int:
        """Nodes that nobody has, as decided so far."""
        free = self._floor.index.everything & ~self._floor.cluster.booked
        for nodes in self._floor.returning.values():
            free &= ~nodes
        return free

    def _policy(self) -> BackfillPolicy:
        return BackfillPolicy(
            reservations_per_queue=None if self._settings.backfill is Backfill.CONSERVATIVE else 1,
            depth=self._settings.depth,
            admissions=self._settings.admissions,
            overtaking=self._settings.backfill is not Backfill.DISABLED,
        )

    def _answered(self) -> Sequence[Entry]:
        """Those who only asked when they would start, once it is known who starts before them."""
        asked = self._asked[:_ANSWERS_PER_PASS]
        if len(asked) < len(self._asked) or (asked and self._cut):
            self._wake(self._now)
        if not asked or self._cut:
            return ()
        claims = (*self._claims, *self._reservations.claims())
        standing = Standing(
            self._now, self._running(), self._free(), claims, self._rules, self._policy(), self._foreseen
        )
        trials = Trials(self._floor, self._left, standing, self._keys)
        for entry in asked:
            trials.answer(entry, self._shortage)
        return asked

    def _make_room(self, waiting: Sequence[tuple[Entry, Job]], outlook: Outlook, rest: _Rest) -> Outlook:
        """Tell those who are in the way of a reservation, and make a new one where somebody may: then whoever comes
        after it in the order starts in the next pass at the earliest, on what is left. Where somebody may later, look
        again at all of them, so that nobody who comes after it is in its way by then."""
        reservations, running = self._reservations, rest[0]
        if not reservations.nodes and not may_preempt(self._snapshot):
            return outlook
        reservations.tell(running, self._rules)
        preemptors = Preemptors(self._entries, self._floor, reservations, self._rules, running, self._claims)
        found = preemptors.first(waiting, outlook)
        for moment in (reservations.wake_at, preemptors.wake_at):
            if moment is not None:
                self._wake(moment)
        self._foreseen = preemptors.foreseen
        if found is None:
            jobs = [job for _, job in waiting]
            return backfill(self._now, jobs, *rest, self._foreseen) if self._foreseen else outlook
        reservations.make(found.entry, found.reservation)
        self._wake(self._now)
        return replace(outlook, starts=found.before)

    def _give(self, entry: Entry, chosen: Sequence[str], gpu_type: str, limit: float = NO_LIMIT) -> None:
        """The whole gang gets its nodes, from which all else of its attempt follows. ``limit``: seconds."""
        floor, spec, status = self._floor, entry.spec, entry.status
        incarnations = floor.seen_incarnations(entry)
        before = status.assignment.model_copy(update={"incarnations": incarnations})
        stamp = float(int(self._now))
        entry.status = status.model_copy(
            update={
                "attempt": status.attempt + 1,
                "assignment": slots.assigned(before, chosen, spares=spec.spare_nodes),
                "resolved": resolve(entry.run, floor.cluster, chosen, gpu_type).model_copy(
                    update={"pod_group": planned(entry.run, self._tunables.pod_groups, status.attempt + 1)}
                ),
                "last_admitted": stamp,
                "reservation": None,
                "recovery": status.recovery.model_copy(
                    update={"shrunk_at": stamp if len(chosen) < spec.nodes else None}
                ),
            }
        )
        template = gang.template_for(entry.run, entry.status, self._tunables)
        resolved = entry.status.resolved.model_copy(update={"template_hash": template.hash})
        entry.status = entry.status.model_copy(update={"resolved": resolved})
        entry.remember(
            since=_since(entry, stamp),
            requeued_for="",
            time_limit=None if limit >= NO_LIMIT else int(limit) + status.held_seconds,
            asked_limit=spec.time_limit or "",
            backfilled=False,
        )
        entry.reason = None
        self._started.append(entry)
        floor.book(entry, chosen)

    def _start(self, entry: Entry, job: Job, start: Start) -> None:
        """Give a run what the engine found for it."""
        spec, limit = entry.spec, start.until - self._now
        chosen = self._floor.index.names(start.nodes)
        self._give(entry, chosen, start.option.gpu_type, limit)
        entry.remember(backfilled=start.backfilled)
        words = self._map_in_words(chosen)
        if start.backfilled:
            words += "; ahead of runs before it in the order, which it does not delay"
        if limit < job.duration:
            words += f"; with a time limit of {int(limit)} s"
        entry.events.append(Event("Normal", "Admitted", "Admit", words))
        if self._tunables.pod_groups.lack:
            note = f"the gang starts without a PodGroup: {self._tunables.pod_groups.lack}"
            entry.events.append(Event("Normal", "WithoutPodGroup", "Admit", note))
        queue, used = queue_spec(self._snapshot, spec.queue), self._snapshot.gpu_hours.get(spec.queue, 0)
        if hours_used_up(queue, used):
            note = f"queue {spec.queue} used {used} GPU-hours in the last 24 hours, of {queue.limits.gpu_hours_per_day}"
            entry.events.append(Event("Warning", "GpuHoursLimit", "Admit", note))

    def _explain(
        self,
        left: Sequence[tuple[Entry, Job]],
        outlook: Outlook,
        estimates: Mapping[str, float],
        claims: Sequence[Claim],
    ) -> None:
        positions: dict[str, int] = {}
        said: dict[tuple[int, int, str], Reason] = {}  # runs that wait for the same are told the same
        each_its_own = bool(self._reservations.nodes)
        discreet = {name for name, view in self._snapshot.queues.items() if view.spec.visibility != "Full"}
        for entry, job in left:
            wait = outlook.waits[job.uid]
            entry.position = positions[job.queue] = positions.get(job.queue, 0) + 1
            namespace = entry.run.namespace if job.queue in discreet else ""
            alike = id(wait), id(job.options), namespace
            # Options are the same object only for runs that ask for the same; none at all are everybody's.
            reason = said.get(alike) if job.options and not each_its_own else None
            if reason is None:
                reason = said[alike] = self._reason(entry, job, wait, claims)
            if job.uid in estimates and reason.start is None and reason.word != "Placement":
                reason = replace(reason, start=estimates[job.uid], assumption=ASSUMPTION)
            entry.reason = reason
            if entry.status.recovery.excluded_nodes:
                for avoided in avoided_nodes(entry.status.recovery.excluded_nodes, self._now):
                    if avoided.until is not None:
                        self._wake(avoided.until)

    def _reason(self, entry: Entry, job: Job, wait: Wait, claims: Sequence[Claim]) -> Reason:
        lacking, hopeless = self._shortage(entry, job, wait)
        visible = visible_names(entry, queue_spec(self._snapshot, entry.spec.queue), self._keys)
        reason = self._reservations.reason(job.uid, visible) or reason_of(entry, job, wait, lacking, visible, claims)
        if job.uid in self._foreseen:
            reason = preempts_later(reason, self._foreseen[job.uid], visible)
        reason.named = names_of(reason.blockers, visible)
        if hopeless:
            reason.word = "Placement"
        return reason

    def _shortage(self, entry: Entry, job: Job, wait: Wait) -> tuple[str, bool]:
        """In words what nodes lack, and whether an idle and healthy cluster would lack them too."""
        if wait.kind != "Resources":
            return "", False
        requirement = self._floor.requirements(entry)[-1]
        ground = Ground.of(self._floor.index, requirement, entry.spec.placement)
        cluster = self._floor.cluster
        count = min((option.count for option in job.options), default=entry.spec.nodes)
        hopeless = ground.is_hopeless(entry.spec.nodes) and ground.is_hopeless(count)
        return shortage(ground, entry.spec.nodes, 0, cluster.booked, cluster.ending), hopeless

    def _estimates(self, jobs: Sequence[Job], free: int, claims: Sequence[Claim]) -> Mapping[str, float]:
        """When those who wait start, as far as anybody can say. Worked out now and then."""
        memory = self._memory
        if memory.forecast_at is None or self._now - memory.forecast_at >= _FORECAST_LIVES:
            left = free & ~self._floor.cluster.booked
            found = forecast(
                self._now, jobs, self._running(), left, claims, self._rules, self._settings.depth, self._foreseen
            )
            memory.estimates = {uid: each.start for uid, each in found.items() if each.start is not None}
            memory.forecast_at = self._now
        if jobs:
            self._wake(memory.forecast_at + max(_FORECAST_LIVES, self._settings.told_every))
        return memory.estimates

    def _running(self) -> list[Running]:
        """Who holds nodes, as decided so far."""
        known = [
            running_of(entry.view, self._floor, queue_spec(self._snapshot, entry.spec.queue), self._now)
            for entry in (*self._holding, *self._started)
            if holds_nodes(entry.view)
        ]
        known += unsettled(self._floor, self._now)
        return [*known, *others(self._floor, known, self._now)]

    def _quota(self) -> QuotaBook:
        used = (*self._running(), *self._awaited) if self._snapshot.queues else ()
        return QuotaBook(self._rules, self._now, used)

    def _tell(self) -> None:
        """Status of those who wait: new reasons first, then who has not heard for longest."""
        due: list[tuple[float, float, int, Entry]] = []
        for number, (entry, row) in enumerate(zip(self._entries, self._rows, strict=True)):
            reason = entry.reason
            if row.over or not entry.considered:
                continue
            if reason is None or not reason.word:
                if entry.status.queue.reason:
                    self._say(entry, QueueStatus())
                continue
            at = urgency(entry, reason, self._named(entry, reason), self._settings, self._now)
            if at is not None and at > self._now:
                self._wake(at)
            elif at is not None:
                due.append((at, row.run.created_at, number, entry))
        due.sort()
        if len(due) > self._settings.told_per_pass:
            self._wake(self._now + 1.0)
        for *_, entry in due[: self._settings.told_per_pass]:
            assert entry.reason is not None
            self._say(entry, told(entry, self._named(entry, entry.reason), self._now))

    def _named(self, entry: Entry, reason: Reason) -> tuple[str, ...]:
        """The runs in the way, as far as this one may hear of them."""
        if reason.named is None:
            queue = queue_spec(self._snapshot, entry.spec.queue)
            reason.named = names_of(reason.blockers, visible_names(entry, queue, self._keys)) if reason.blockers else ()
        return reason.named

    def _say(self, entry: Entry, words: QueueStatus) -> None:
        entry.status = entry.status.model_copy(update={"queue": words})
        if entry.reason is None:
            return
        admission = entry.status.admission
        if admission.since is None and entry.position:
            entry.remember(since=_since(entry, float(int(self._now))))
        if entry.reason.start is not None and admission.first_estimate is None:
            entry.remember(first_estimate=float(int(entry.reason.start)))

    def _wake_for_claims(self, claims: Iterable[Claim]) -> None:
        """A window that ends frees its nodes, with nobody to tell."""
        ends = [claim.end for claim in claims if claim.start <= self._now]
        if ends:
            self._wake(min(ends))
        if self._floor.cluster.ending:
            self._wake(self._now + ENDING)

    def _map_in_words(self, chosen: Sequence[str]) -> str:
        words = f"{len(chosen)} node{'' if len(chosen) == 1 else 's'}, rank 0 on {chosen[0]}"
        for level, label in self._tunables.topology_levels.items():
            counts: dict[str, int] = {}
            for name in chosen:
                value = self._snapshot.nodes[name].labels.get(label)
                if value is not None:
                    counts[value] = counts.get(value, 0) + 1
            if lying := fullest_domains(counts, shown=_NODES_NAMED):
                return f"{words}; nodes by {level}: {lying}"
        return words

    def _wake(self, at: float) -> None:
        self._wake_at = at if self._wake_at is None else min(self._wake_at, at)


def _since(entry: Entry, stamp: float) -> float:
    """Since when it waits for nothing but its turn: since it was made, gave its nodes back, or was let go."""
    known = entry.status.admission.since
    if known is not None:
        return known
    held = bool(entry.status.attempt or entry.run.status.queue.reason)
    return stamp if held else float(int(entry.run.created_at))
