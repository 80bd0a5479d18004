"""What was lost, from what is seen. Only evidence counts; missing knowledge is none.

A node is lost when it is deleted or declared out of service, or when its worker's heartbeats are
silent AND (the node is NotReady OR the gang's steps have stopped). A gang whose steps advance is
never touched for NotReady alone, and right after a change of leader silence means nothing. Steps that
were never reported cannot be seen to stop; but a worker that fell silent before it was heard to begin
the attempt is what a gang without steps waits for. What many workers do not say at once is not held against
them for a while, and never the time in which this process did not listen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_status import Condition, ExitsStatus
from lockstep.core.failures.breaker import is_slow
from lockstep.core.failures.signs import is_refused_by_node
from lockstep.core.model.conditions import find
from lockstep.core.model.ranges import format_ranges, parse_ranges, shown_ranges
from lockstep.core.model.reasons import (
    AttemptCause,
    AttemptEnd,
    ConditionReason,
    ConditionType,
    ExitReason,
    LossReason,
)
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import NodeView, PodPhase, PodView
from lockstep.core.model.worker_report import ExitReport, WorkerPhase, WorkerReport
from lockstep.core.placement.node_fit import untolerated
from lockstep.core.pods import gang, pod_template
from lockstep.core.pods.launchers import launcher_of, may_join

TOLD_TO_LEAVE = "SIGTERM"
"""What a worker names as its problem once its pod is being ended."""
LONGEST_POLL = 15.0
"""Seconds that a worker may ask its poll to be held open."""
_USUAL_STEPS = 3
SLOW_TIMES = 5.0
"""Times its limit for which what many are late in together is waited for, until one gets further."""
_REJOINED_AFTER, _REJOINING_SILENCES = 60.0, 4
"""A worker waits for the answer to a poll that its old leader never gives, backs off, connects, and waits once more."""
_LATE = {
    LossReason.NODE_SILENT: "no heartbeat",
    LossReason.START_NOT_ACKNOWLEDGED: "START is not acknowledged",
}


_STOOD_BY = {"MPI": ", which stood by for steps,", "Ray": ", where Ray ran,"}
"""What a rank does that decides nothing, by launcher."""


class LossKind(StrEnum):
    """What is gone."""

    NODE = "NodeLost"
    POD = "PodLost"
    DRAINED = "Drained"  # somebody wants it empty
    LEFT = "NodeLeft"  # it is there, and the run does not want it any more


@dataclass(frozen=True, slots=True)
class Loss:
    """A slot whose pod or node is gone. ``at``: when it was last known good, or when it ended."""

    slot: int
    node: str
    kind: LossKind
    reason: LossReason | AttemptCause | AttemptEnd
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class FailedExit:
    """A process of the current attempt that ended badly on the node of a rank.

    ``what`` stands between rank and end where it was not the rank's own process, or none that was to end; ``note`` is
    what else is to be said of it. ``follows``: it ended because another did.
    """

    slot: int
    node: str
    exit: ExitReport
    what: str = ""
    note: str = ""
    follows: bool = False


def deciding_ranks(state: RunState) -> range:
    """The ranks whose ends are the run's. The others, where there are such, stand by until those have ended."""
    spec = state.run.spec
    return launcher_of(spec).deciding_ranks(state.world) if spec is not None else range(state.world)


def succeeded_ranks(state: RunState) -> frozenset[int]:
    """Ranks of the current attempt that decide and ended with code 0: those in status, those just reported, and those
    whose pods ended so while no operator listened: a worker leaves by itself only after its child, with its code."""
    exits = state.status.exits
    ranks = set(parse_ranges(exits.succeeded)) if exits.attempt == state.status.attempt else set()
    if state.trains:
        for slot in state.ranked_slots()[: len(deciding_ranks(state))]:
            report, pod = state.report(slot), state.pod(slot)
            exited = exit_in(report, state.status.attempt)
            left = pod is not None and pod.phase is PodPhase.SUCCEEDED and pod.exit_code == 0 and not pod.deleting
            if left or (exited is not None and exited.succeeded):
                ranks.add(state.rank(slot))
    return frozenset(ranks)


def record_of_ends(state: RunState, done: frozenset[int]) -> ExitsStatus:
    """What status keeps of the ranks that are ``done``. Who was first is found out once, while its worker is known."""
    attempt, known = state.status.attempt, state.status.exits
    first = known.first if known.attempt == attempt and known.succeeded else _first_to_end(state, done)
    return ExitsStatus(attempt=attempt, succeeded=format_ranges(done), first=first)


def _first_to_end(state: RunState, done: frozenset[int]) -> str:
    ends: list[tuple[float, int, str]] = []
    for slot in state.ranked_slots():
        rank, report, pod = state.rank(slot), state.report(slot), state.pod(slot)
        if rank not in done:
            continue
        exited = exit_in(report, state.status.attempt)
        if report is not None and exited is not None:
            after = f" (after step {report.progress.step})" if report.progress is not None else ""
            ends.append((exited.at, rank, after))
        elif pod is not None and pod.ended_at is not None:
            ends.append((pod.ended_at, rank, ""))
    if not ends:
        return ""
    at, rank, after = min(ends)
    return f"rank {rank} ended with code 0 at {to_rfc3339(min(at, state.now))}{after}"


def half_finished(state: RunState) -> str:
    """Which ranks have ended well while others go on, in words; empty where none has, or all have.

    So it is for a moment at every good end. Else the others mostly wait for what will not come any more.
    """
    exits = state.status.exits
    if exits.attempt != state.status.attempt or not exits.succeeded or not state.trains:
        return ""
    done = succeeded_ranks(state)
    left = len(deciding_ranks(state)) - len(done)
    if left <= 0:
        return ""
    words = exits.first or f"ranks {shown_ranges(done)} ended with code 0"
    if len(done) > 1 and exits.first:
        first = exits.first.replace(" ended with code 0", "", 1)
        words = f"{len(done)} ranks ({shown_ranges(done)}) ended with code 0, the first was {first}"
    return f"{words}; the other {f'{left} still run' if left > 1 else 'still runs'}"


def failed_exits(state: RunState, leaving: frozenset[int]) -> list[FailedExit]:
    """Bad exits of the current attempt, earliest first. ``leaving``: the slots that are waited with until a save."""
    found, deciding = [], deciding_ranks(state)
    for rank, slot in enumerate(state.ranked_slots()):
        report = state.report(slot)
        exited = exit_in(report, state.status.attempt)
        stood_by = rank not in deciding
        if report is None or exited is None or (exited.succeeded and not stood_by) or was_terminated(report):
            continue
        if leaving and exited.reason == ExitReason.STOPPED_ON_REQUEST:
            continue  # it has saved and ended as it was asked to, before the save of all ranks is settled
        what = _STOOD_BY.get(state.spec.launcher.type, "") if stood_by and state.run.spec is not None else ""
        found.append(FailedExit(slot, state.status.assignment.nodes[slot], exited, what))
    return sorted(found, key=lambda failed: (failed.exit.at, failed.slot))


@dataclass(frozen=True, slots=True)
class Seen:
    """What is lost, and what would be if not so much were silent together. In slot order."""

    lost: list[Loss]
    slow: list[Loss]


def losses(state: RunState, leaving: frozenset[int], *, over: bool = False) -> list[Loss]:
    """Slots that lost their pod or node, as ``look_for_losses`` sees them."""
    return look_for_losses(state, leaving, over=over).lost


def look_for_losses(state: RunState, leaving: frozenset[int], *, over: bool = False) -> Seen:
    """Slots that lost their pod or node. Ranks that already succeeded can lose nothing.

    ``leaving``: the slots that are waited with until a save. ``over``: the attempt is at its end, so that a pod which
    is known to be driven away is no longer waited with.
    """
    waited_with = frozenset() if over else leaving
    done = succeeded_ranks(state)
    nobody_is_left = bool(done) and done.issuperset(deciding_ranks(state))
    steps_stopped = nobody_is_left or _steps_have_stopped(state)
    start_due = _start_due(state, state.tunables.deadlines.start_acknowledged)
    start_overdue = start_due is not None and state.reached(start_due)
    registered_by = _registered_by(state) if steps_stopped else None
    found = []
    for slot in state.slot_range():
        if state.status.assignment.nodes[slot] and state.rank(slot) not in done:
            loss = _loss_of(state, slot, slot in waited_with, steps_stopped, registered_by, start_overdue, over)
            if loss is not None:
                found.append(loss)
    slow = _late_together(state, found, start_due)
    waited_for = {loss.slot for loss in slow}
    return Seen([loss for loss in found if loss.slot not in waited_for], slow)


def _late_together(state: RunState, found: Sequence[Loss], start_due: float | None) -> list[Loss]:
    """Of losses those of workers on Ready nodes that are silent, or have not begun the attempt, with so many others
    that all are slow rather than dead.

    For a bounded time: nodes that really died together turn NotReady, or are lost one by one after it.
    """
    late = [loss for loss in found if loss.reason in _LATE]
    limits, deadlines = state.tunables.breaker, state.tunables.deadlines
    together = len(late) + (0 if state.trains else _unheard(state))
    if not late or (not is_slow(together, state.world, limits) and _told_slow(state) is None):
        return []
    # A gang that gathers is as slow as it may be at the barrier.
    longest = limits.window if state.trains else max(limits.window, deadlines.registered + deadlines.ready)
    begins = (start_due or 0.0) + (SLOW_TIMES - 1.0) * deadlines.start_acknowledged

    def until(loss: Loss) -> float:
        if loss.reason is LossReason.START_NOT_ACKNOWLEDGED:
            return begins
        report = state.report(loss.slot)
        silent_at = _silent_at(state, report)
        told = _told_slow_since(state) if report is None else None
        return silent_at + longest if told is None else max(silent_at, min(silent_at, told) + longest)

    return [loss for loss in late if not state.reached(until(loss))]


def _unheard(state: RunState) -> int:
    """Ranks whose container has run for as long as a worker may be silent, and whose worker was not heard yet: in a
    launch they are late as well."""
    leads_since, unheard = state.snapshot.leadership.since, 0
    for slot in state.ranked_slots():
        pod, report = state.pod(slot), state.report(slot)
        if pod is not None and pod.started_at is not None and (report is None or report.pod_uid != pod.uid):
            unheard += state.now >= max(pod.started_at, leads_since) + state.silent_after
    return unheard


def _told_slow(state: RunState) -> Condition | None:
    """The few that are left of many, and those that come to them, are waited for as well."""
    told = find(state.run.status, ConditionType.CLUSTER_DISRUPTION)
    return told if told is not None and told.reason == ConditionReason.CLUSTER_SLOW else None


def _told_slow_since(state: RunState) -> float | None:
    """Since when the gang is told to be slow, where an earlier leader has begun to say so: it has waited meanwhile."""
    told = _told_slow(state)
    if told is None:
        return None
    return told.last_transition_time if told.last_transition_time < state.snapshot.leadership.since else None


def late_in_words(late: Sequence[Loss]) -> str:
    """What so many workers have not done in time."""
    return ", ".join(words for reason, words in _LATE.items() if any(loss.reason is reason for loss in late))


def is_silent(state: RunState, report: WorkerReport | None) -> bool:
    """No heartbeat for three intervals, and this process has led long enough to have heard one."""
    silent_at = _silent_at(state, report)
    if not state.passed(silent_at):
        return False
    # What was said while nobody listened may not have been read yet.
    return state.passed(min(state.lag.caught_up_at(state.silent_after), silent_at + state.silent_after))


def _silent_at(state: RunState, report: WorkerReport | None) -> float:
    """When a worker counts as silent if nothing more is heard; the time in which nobody listened does not count."""
    heard = state.snapshot.leadership.since
    if report is not None:
        heard = max(heard, _heard_at(state, report))
    return heard + state.silent_after + state.lag.deaf_since(heard)


def _slack(state: RunState) -> float:
    """How much longer a worker on a Ready node may be silent where everything is slow, itself perhaps too: in a launch
    by as much as all deadlines of it are later, in training by as long again."""
    return min(state.lag.allowance, state.silent_after) if state.trains else state.lag.allowance


def _heard_at(state: RunState, report: WorkerReport) -> float:
    """A worker at the barrier says nothing while its poll is open, and that may be longer than three heartbeats."""
    return min(state.now, report.received_at + LONGEST_POLL) if report.polling else report.received_at


def everyone_heard_since(state: RunState, moment: float, *, but: int) -> bool:
    """The worker of every rank other than that in slot ``but`` has reported after ``moment``.

    One that ended well has said all it had to say, and may have left since.
    """
    done = succeeded_ranks(state)
    return all(
        (report := state.report(slot)) is not None and report.received_at > moment
        for slot in state.ranked_slots()
        if slot != but and state.rank(slot) not in done and not is_to_join(state, slot)
    )


def why_closed(state: RunState, node: NodeView | None) -> str:
    """Why a pod of the run could not be made again on the node, in words that follow its name; empty: it could."""
    if node is None:
        return ""
    if node.deleting:
        return "is being deleted"
    if node.unschedulable or node.drain:
        return "is being drained" if node.drain else "is cordoned"
    if state.run.spec is None or all(taint.key in state.tunables.gang.gpu_taints for taint in node.taints):
        return ""  # asked of every slot in every look while a gang launches
    gpus = (state.status.resolved.gpu_resource,)
    ours = pod_template.tolerations(gang.tolerations(state.spec, state.tunables.gang, gpus))
    kueue = state.status.kueue
    theirs = pod_template.tolerations(each.dump() for each in kueue.tolerations) if kueue is not None else ()
    taint = untolerated(node, (*ours, *theirs))
    return f"has the taint {taint.key}:{taint.effect}" if taint is not None else ""


def took_part(state: RunState, slot: int) -> bool:
    """The pod of the slot is the one that was released by the last START."""
    return (slot, state.status.assignment.incarnations[slot]) in state.members


def goes_on_without(state: RunState, slot: int) -> bool:
    """The loss of the rank in ``slot`` ends no attempt."""
    return state.rank(slot) > 0 and may_join(state.run.spec)


def is_to_join(state: RunState, slot: int) -> bool:
    """The rank in ``slot`` was lost, and its new pod is no part of the attempt yet, which goes on without it."""
    return state.trains and goes_on_without(state, slot) and not took_part(state, slot)


def _loss_of(
    state: RunState,
    slot: int,
    waited_with: bool,
    steps_stopped: bool,
    registered_by: float | None,
    start_overdue: bool,
    over: bool,
) -> Loss | None:
    name = state.status.assignment.nodes[slot]
    node = state.snapshot.nodes.get(name)
    report = state.report(slot)
    heard = _last_known_good(state, slot, report)

    def lost(kind: LossKind, reason: LossReason, message: str) -> Loss:
        return Loss(slot, name, kind, reason, message, heard)

    def lost_pod(reason: LossReason, message: str) -> Loss:
        if node is not None and not node.ready:  # where nobody can run a new one
            return lost(LossKind.NODE, LossReason.NODE_NOT_READY, f"{message}, and the node is NotReady")
        if node is not None and (closed := why_closed(state, node)):
            return lost(LossKind.DRAINED, LossReason.NODE_CORDONED, f"{message}, and the node {closed}")
        return lost(LossKind.POD, reason, message)

    def late_to_register() -> bool:
        return registered_by is not None and state.reached(registered_by)

    if node is None:
        return lost(LossKind.NODE, LossReason.NODE_DELETED, f"node {name} was deleted")
    if any(taint.key == names.TAINT_OUT_OF_SERVICE for taint in node.taints):
        return lost(LossKind.NODE, LossReason.OUT_OF_SERVICE, f"node {name} was declared out of service")
    pod = state.pod(slot)
    if pod is not None and pod.is_terminal:
        return lost_pod(end_of(pod), pod_end(pod))
    if pod is not None and pod.deleting and not waited_with:
        return lost_pod(LossReason.POD_DELETED, f"pod {pod.name} was deleted by somebody else")
    # A spare has begun nothing, as one that is yet to join: its pod is simply made again.
    trains = state.trains and state.rank(slot) >= 0 and not is_to_join(state, slot)
    if pod is None and trains:
        return lost_pod(LossReason.POD_VANISHED, f"the pod of {state.title(slot)} on {name} is gone")
    if report is not None and was_terminated(report) and not waited_with:
        return lost_pod(LossReason.POD_TERMINATED, f"the pod of {state.title(slot)} on {name} was told to end")
    if pod is None:
        return None
    if not pod.bound and (closed := why_closed(state, node)):
        words = f"the pod of {state.title(slot)} cannot be scheduled: node {name} {closed}"
        return lost(LossKind.DRAINED, LossReason.NODE_CORDONED, words)
    if pod.disruption and over:
        return lost_pod(LossReason.POD_TERMINATED, f"the pod of {state.title(slot)} on {name} is about to be ended")
    if not is_silent(state, report):
        if trains and start_overdue and report is not None and report.attempt < state.status.attempt:
            words = f"the worker of rank {state.rank(slot)} on {name} did not start its program in time"
            return lost_pod(LossReason.START_NOT_ACKNOWLEDGED, words)
        return None
    quiet = "no heartbeat" if report is None else f"no heartbeat for {state.now - report.received_at:.0f} s"
    if not node.ready:
        return lost(LossKind.NODE, LossReason.NODE_NOT_READY, f"{quiet} from {name} and the node is NotReady")
    if not state.passed(_silent_at(state, report) + _slack(state)):
        return None
    # Past the barrier every rank was registered; a spare whose pod was made since has the deadlines of a launch.
    if steps_stopped and (report is not None or (took_part(state, slot) and late_to_register())):
        return lost(LossKind.NODE, LossReason.NODE_SILENT, f"{quiet} from {name} and the gang's steps have stopped")
    if trains and report is not None and report.attempt < state.status.attempt and _nobody_steps(state):
        return lost(
            LossKind.NODE, LossReason.NODE_SILENT, f"{quiet} from {name}, which never began the attempt: nobody steps"
        )
    return None


def _last_known_good(state: RunState, slot: int, report: WorkerReport | None) -> float:
    """Of one that a new leader never heard no more is known than that it was there at START."""
    if report is not None:
        return report.received_at
    start = state.status.start
    entry = state.attempt_entry(start.attempt) if start is not None else None
    if entry is None or entry.started_at is None:
        return state.now
    return entry.started_at if took_part(state, slot) else state.now


def was_terminated(report: WorkerReport) -> bool:
    """Its pod is being ended: what its process did after that is no word on the program."""
    told = report.problem == TOLD_TO_LEAVE or report.leaving_by > 0
    return told or (report.exit is not None and report.exit.reason == ExitReason.WORKER_TERMINATED)


def _nobody_steps(state: RunState) -> bool:
    """No rank has reported a step of the attempt in the time after which steps count as stopped."""
    reports = map(state.report, state.ranked_slots())
    if any(r is not None and r.progress is not None and r.attempt == state.status.attempt for r in reports):
        return False
    due = _start_due(state, state.tunables.steps_stopped_after)
    return due is not None and state.reached(due)


def _start_due(state: RunState, patience: float) -> float | None:
    """When the last rank should have begun the attempt: ``patience`` after START, and after each that began it later.

    A new leader inherits that. What it hears first is no news; and it gives those that it hears half of the time once
    more, or all of it where none of them was released before. None while somebody is not heard: nobody is released
    before all addresses are known.
    """
    if not state.trains:
        return None
    reports = [state.report(slot) for slot in state.ranked_slots() if not is_to_join(state, slot)]
    heard = [report for report in reports if report is not None]
    if len(heard) < len(reports):
        return None
    entry = state.attempt_entry(state.status.attempt)
    leads_since = state.snapshot.leadership.since
    released = entry.started_at if entry is not None and entry.started_at is not None else leads_since
    joined = state.status.start.joined_at if state.status.start is not None else None
    released = max([released, joined or 0.0, *(r.since for r in heard if r.since > r.registered_at)])
    complete = max([leads_since, *(report.registered_at for report in heard)])
    some_began = any(report.attempt >= state.status.attempt for report in heard)
    due = max(released + patience, complete + (patience / 2 if some_began else patience))
    return due + state.lag.allowance + state.lag.deaf_since(released)


def _registered_by(state: RunState) -> float | None:
    """When whoever took part in START is registered, as with a new leader each has to be again, and while some still
    do the others may be in the queue behind them. None: it may never have come up yet, and has deadlines of its own.
    """
    if not state.trains:
        return None
    since, reports = state.snapshot.leadership.since, map(state.report, state.ranked_slots())
    newest = max((report.registered_at for report in reports if report is not None), default=since)
    queue_moved = min(newest, since + state.tunables.breaker.longest)
    due = max(since + rejoins_within(state), queue_moved + _REJOINED_AFTER / 2)
    return due + state.lag.allowance + state.lag.deaf_since(since)


def rejoins_within(state: RunState) -> float:
    """Seconds in which a new leader has heard every worker that was there before it."""
    usual = max(_REJOINED_AFTER, _REJOINING_SILENCES * state.silent_after)
    return min(state.tunables.deadlines.registered, usual)


def _steps_have_stopped(state: RunState) -> bool:
    """Judged by the workers that are heard; where nothing is known the answer is no."""
    limit = state.silent_after
    heard = [
        report
        for slot in state.ranked_slots()
        if (report := state.report(slot)) is not None
        and state.now - (at := _heard_at(state, report)) <= limit + state.lag.deaf_since(at)
    ]
    if not heard:
        return False
    running = [report for report in heard if report.phase is WorkerPhase.RUNNING]
    if not running:
        return True
    steps = [r.progress for r in running if r.progress is not None and r.attempt == state.status.attempt]
    if not steps:
        return False  # nothing was reported yet, or they have not even ended the attempt before
    entry = state.attempt_entry(state.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else 0.0
    resumed = entry.resume_step if entry is not None and entry.resume_step is not None else 0
    last = max(max(progress.at for progress in steps), begun)
    # Start-up counts as part of the first steps: an early estimate errs towards patience.
    usual = (last - begun) / max(1, max(progress.step for progress in steps) - resumed)
    patience = max(state.tunables.steps_stopped_after, _USUAL_STEPS * usual)
    return state.passed(last + patience + state.lag.deaf_since(last))


def exit_in(report: WorkerReport | None, attempt: int) -> ExitReport | None:
    """How the process of ``attempt`` ended, if it did."""
    if report is None or report.phase is not WorkerPhase.EXITED or report.attempt != attempt:
        return None
    return report.exit


def end_of(pod: PodView) -> LossReason:
    """Of a terminal pod: whether it ended, or was never taken by its node."""
    return LossReason.NODE_REFUSED if is_refused_by_node(pod) else LossReason.POD_FAILED


def pod_end(pod: PodView) -> str:
    """How a terminal pod ended, in words."""
    code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
    why = ": ".join(filter(None, (pod.reason, pod.message)))
    return f"pod {pod.name} on {pod.node} ended{code}" + (f" ({why})" if why else "")
