"""The ranks of an attempt: which of them decide, took part or are yet to join, and how those ended that have."""

from dataclasses import dataclass

from lockstep.api.base.times import to_rfc3339
from lockstep.core.model.assignment import slot_of_rank
from lockstep.core.model.exits_record import record_exits
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.ranges import parse_ranges, shown_ranges
from lockstep.core.model.reasons import ExitReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.model.worker_report import ExitReport, PartlyEndedStep, WorkerPhase, WorkerReport
from lockstep.core.pods.launchers import launcher_of, may_join

TOLD_TO_LEAVE = "SIGTERM"
"""What a worker names as its problem once its pod is being ended."""
_STOOD_BY = {"MPI": ", which stood by for steps,", "Ray": ", where Ray ran,"}
"""What a rank does that decides nothing, by launcher."""
BY_MPIRUN = "MPI"
"""In the place of a step's name: mpirun has started the process, and the task is its rank."""


@dataclass(frozen=True, slots=True)
class FailedExit:
    """A process of the current attempt that ended badly on the node of a rank.

    ``what`` stands between rank and end where it was not the rank's own process, or none that was to end; ``note`` is
    what else is to be said of it. ``follows``: it ended because another did. ``told_by``: a process in that slot could
    not start it on the node of ``slot``, or lost it there.
    """

    slot: int
    node: str
    exit: ExitReport
    what: str = ""
    note: str = ""
    follows: bool = False
    told_by: int | None = None


def deciding_ranks(state: RunState) -> range:
    """The ranks whose ends are the run's. The others, where there are such, stand by until those have ended."""
    spec = state.run.spec
    return launcher_of(spec).deciding_ranks(state.world) if spec is not None else range(state.world)


def took_part(state: RunState, slot: int) -> bool:
    """The pod of the slot is the one that was released by the last START."""
    return (slot, state.status.assignment.incarnations[slot]) in state.members


def goes_on_without(state: RunState, slot: int) -> bool:
    """The loss of the rank in ``slot`` ends no attempt."""
    return state.rank(slot) > 0 and may_join(state.run.spec)


def is_to_join(state: RunState, slot: int) -> bool:
    """The rank in ``slot`` was lost, and its new pod is no part of the attempt yet, which goes on without it."""
    return state.trains and goes_on_without(state, slot) and not took_part(state, slot)


def slots_to_join(state: RunState) -> frozenset[int]:
    """Those of the ranks that are to join: of most launchers none may, and no slot is looked at."""
    if not state.trains or not may_join(state.run.spec):
        return frozenset()
    return frozenset(slot for slot in state.ranked_slots() if is_to_join(state, slot))


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


def record_ends(plan: PlanBuilder, done: frozenset[int]) -> None:
    """Keep in status which ranks are ``done``, and who was first, which is found out while its worker is known."""
    attempt, known = plan.status.attempt, plan.status.exits
    first = known.first if known.attempt == attempt and known.succeeded else _first_to_end(plan, done)
    plan.status = record_exits(plan.status, done, first)


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
        return _partly_ended_step(state)
    done = succeeded_ranks(state)
    left = len(deciding_ranks(state)) - len(done)
    if left <= 0:
        return _partly_ended_step(state)
    words = exits.first or f"ranks {shown_ranges(done)} ended with code 0"
    if len(done) > 1 and exits.first:
        first = exits.first.replace(" ended with code 0", "", 1)
        words = f"{len(done)} ranks ({shown_ranges(done)}) ended with code 0, the first was {first}"
    return f"{words}; the other {f'{left} still run' if left > 1 else 'still runs'}"


def _partly_ended_step(state: RunState) -> str:
    """The same of the tasks of a step, or of the ranks of mpirun: of that which has most left."""
    if not state.trains:
        return ""
    found: dict[str, list[tuple[int, PartlyEndedStep]]] = {}
    for slot in state.ranked_slots():
        report = state.report(slot)
        for each in report.partly_ended if report is not None and report.attempt == state.status.attempt else ():
            where = state.rank(slot) if each.node_rank is None else each.node_rank
            if 0 <= where < state.world:
                found.setdefault(each.step, []).append((where, each))
    if BY_MPIRUN in found:
        found[BY_MPIRUN] = _of_the_last_mpirun(found[BY_MPIRUN])
    counted = [(sum(each.left for _, each in step), name, step) for name, step in found.items()]
    partly = [entry for entry in counted if entry[0] and any(each.done for _, each in entry[2])]
    if not partly:
        return ""
    left, name, step = max(partly, key=lambda entry: entry[:2])
    where, first = min(((where, each) for where, each in step if each.done), key=lambda one: (one[1].at, one[0]))
    node = state.status.assignment.nodes[slot_of_rank(state.status.assignment, where)]
    many, whose = ("ranks", "MPI") if name == BY_MPIRUN else ("tasks", "a step")
    who = f"{many[:-1]} {first.task} of {whose} on {node}"
    at, done = to_rfc3339(min(first.at, state.now)), sum(each.done for _, each in step)
    words = f"{who} ended with code 0 at {at}"
    if done > 1:
        words = f"{done} {many} of {whose} ended with code 0, the first was {who} at {at}"
    return f"{words}; the other {f'{left} still run' if left > 1 else 'still runs'}"


def _of_the_last_mpirun(told: list[tuple[int, PartlyEndedStep]]) -> list[tuple[int, PartlyEndedStep]]:
    """Without what is told by nodes that those who run now were not started on."""
    begun = max((each.since for _, each in told if each.left), default=0.0)
    return [(where, each) for where, each in told if each.left or each.at >= begun]


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


def script_exit_code(state: RunState) -> int | None:
    """What the script of a batch job has ended with in the current attempt; None: not by itself, or there is none."""
    report = state.report(slot_of_rank(state.status.assignment, 0))
    exited = exit_in(report, state.status.attempt)
    if report is None or exited is None or exited.signal or was_terminated(report) or not has_job_id(state.run.spec):
        return None
    return exited.code


def was_terminated(report: WorkerReport) -> bool:
    """Its pod is being ended: what its process did after that is no word on the program."""
    told = report.problem == TOLD_TO_LEAVE or report.leaving_by > 0
    return told or (report.exit is not None and report.exit.reason == ExitReason.WORKER_TERMINATED)


def exit_in(report: WorkerReport | None, attempt: int) -> ExitReport | None:
    """How the process of ``attempt`` ended, if it did."""
    if report is None or report.phase is not WorkerPhase.EXITED or report.attempt != attempt:
        return None
    return report.exit
