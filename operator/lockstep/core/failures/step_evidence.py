"""What processes of steps tell of an attempt's end: those that a program of the gang started on the gang's nodes.

Alone they end nothing, as a script may let a command fail. Once the attempt ends badly they speak like a rank's own
process. A command that starts all of its ranks as steps (``mpirun``) is not believed when it says 0 although one of
them was killed, or a node is gone: some of them do.

That a node could not be reached for a step is the word of another node. It is evidence of the two together, and no more
than that: what either of them says of itself counts before it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest

from lockstep.core.failures.evidence import LossKind, losses
from lockstep.core.failures.own_signs import own_signs
from lockstep.core.failures.ranks import BY_MPIRUN, FailedExit, deciding_ranks, exit_in, failed_exits, was_terminated
from lockstep.core.failures.signs import OUT_OF_MEMORY, SIGN_LIVES, read_exit
from lockstep.core.failures.silence import everyone_heard_since
from lockstep.core.model.assignment import slot_of_rank
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.reasons import ExitReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import ExitReport, StepEnd, WorkerReport

NEAR = 30.0
"""Seconds before the first rank's own end in which a step's end may have brought it about, whatever else is known."""
MOST = 256
"""Ends of steps that are looked at closely."""
_End = tuple[float, int, int, StepEnd]
"""When, on which slot's node, by the word of which slot's, and what."""
_DOUBTED = frozenset({"MPI"})
"""Launchers whose command is not taken at its word."""
_DAEMONS = frozenset({"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"})
"""What mpirun starts on each node. Without it the ranks there go on, which mpirun may not notice."""
_MPI_ERR_UNKNOWN = 14
"""What Open MPI ends ranks with, mostly without a word of their own, when the connection to another is closed."""
_UNREACHED = "NodeUnreachable"
"""A step's end that is none: the node of ``node_rank`` could not be asked for it, or was lost while it ran."""
_NOBODY: frozenset[int] = frozenset()


def ends(state: RunState, leaving: frozenset[int]) -> list[FailedExit]:
    """Bad exits of the current attempt, those of steps among them, earliest first."""
    return with_steps(state, failed_exits(state, leaving), state.status.attempt)


def with_steps(state: RunState, own: list[FailedExit], attempt: int) -> list[FailedExit]:
    """The ranks' ``own`` exits of an attempt, and beside them the ends of steps that may have brought them about."""
    if not own:
        return _killed_in_vain(state, attempt) or _killed_daemons(state, attempt)
    counted = _near(state, own, attempt)
    if counted and _is_doubted(state):  # what the command ends with follows from its processes
        own = [replace(end, follows=_decides(state, end)) for end in own]
    unreached = _unreached(own, counted)
    if unreached is not None:  # who could not reach it ends for that
        own = [replace(end, follows=end.follows or _is_told_of(end, unreached)) for end in own]
    counted = [end for end in counted if end.told_by is None or end is unreached]
    return sorted([*own, *counted], key=lambda end: (end.exit.at, end.slot))


def _unreached(own: Sequence[FailedExit], counted: Sequence[FailedExit]) -> FailedExit | None:
    """The first node that could not be reached, of those that say nothing of themselves."""
    speak = {end.slot for end in (*own, *counted) if end.told_by is None}
    found = [end for end in counted if end.told_by is not None and end.slot not in speak]
    return min(found, key=lambda end: (end.exit.at, end.slot), default=None)


def _is_told_of(end: FailedExit, unreached: FailedExit) -> bool:
    return end.slot == unreached.told_by and end.exit.at >= unreached.exit.at


def has_succeeded(state: RunState, done: frozenset[int]) -> bool:
    """Every rank that decides has ended with code 0 (those are ``done``), and it may be believed."""
    if not done.issuperset(deciding_ranks(state)):
        return False
    if _is_doubted(state):
        return not ends(state, _NOBODY) and _is_borne_out(state)
    # A script may end with 0 after a node that was lost under one of its programs: Intel's mpirun says so itself.
    return not (_is_script(state) and _may_have_missed_a_node(state)) or _is_borne_out(state)


def success_in_words(state: RunState) -> str:
    """How the run came to its end."""
    deciding = len(deciding_ranks(state))
    all_do = deciding == state.world and deciding > 1
    return f"all {deciding} ranks ended with code 0" if all_do else "rank 0 ended with code 0"


def _is_borne_out(state: RunState) -> bool:
    """Nobody was lost, by the word of every node after the command's end."""
    slot = slot_of_rank(state.status.assignment, 0)
    report, pod = state.report(slot), state.pod(slot)
    if report is not None and exit_in(report, state.status.attempt) is not None:
        ended = report.since
    else:
        ended = (pod.ended_at or 0.0) if pod is not None else 0.0
    if not everyone_heard_since(state, ended, but=slot):
        state.wake(state.now + max(1.0, state.heartbeat / 4))
        return False
    return not any(_is_gone(state, loss.slot, loss.kind) for loss in losses(state, _NOBODY))


def _is_script(state: RunState) -> bool:
    return state.run.spec is not None and state.run.spec.launcher.type == "Slurm"


def _may_have_missed_a_node(state: RunState) -> bool:
    """One of its steps could not reach a node, or lost it; or a new leader has yet to hear whether."""
    if state.report(slot_of_rank(state.status.assignment, 0)) is None:
        return True
    return any(end.reason == _UNREACHED for *_, end in _of_steps(state, state.status.attempt))


def _is_gone(state: RunState, slot: int, kind: LossKind) -> bool:
    """Its processes have ended with its node or pod; of one that is only about to leave they have not."""
    pod = state.pod(slot)
    return state.rank(slot) >= 0 and (kind is LossKind.NODE or pod is None or pod.is_terminal)


def _killed_in_vain(state: RunState, attempt: int) -> list[FailedExit]:
    """Of a command that ended with code 0 all the same: what of its steps was killed by nobody's wish."""
    if not _is_doubted(state) or not _says_success(state, attempt):
        return []
    note = "the command ended with code 0 all the same"
    killed = _first(state, [each for each in _of_steps(state, attempt) if _was_killed(each[3])])
    return [replace(end, note=note) for end in killed]


def _killed_daemons(state: RunState, attempt: int) -> list[FailedExit]:
    """By nobody's wish, while the command goes on."""
    if not _is_doubted(state) or not state.trains:
        return []
    ends = _of_steps(state, attempt)
    return _first(state, [each for each in ends if _was_killed(each[3]) and each[3].program in _DAEMONS])


def _was_killed(end: StepEnd) -> bool:
    """By a signal, or what it ran in the place of was, as a shell says it."""
    return end.reason != _UNREACHED and (bool(end.signal) or (end.code or 0) > 128)


def _says_success(state: RunState, attempt: int) -> bool:
    exits = state.status.exits
    if exits.attempt == attempt and 0 in parse_ranges(exits.succeeded):
        return True
    report = state.report(slot_of_rank(state.status.assignment, 0))
    ended = report.exit if report is not None and report.attempt == attempt else None
    return ended is not None and ended.succeeded


def _is_doubted(state: RunState) -> bool:
    return state.run.spec is not None and state.run.spec.launcher.type in _DOUBTED


def _decides(state: RunState, end: FailedExit) -> bool:
    return state.rank(end.slot) in deciding_ranks(state)


def _near(state: RunState, own: Sequence[FailedExit], attempt: int) -> list[FailedExit]:
    """The ends of steps that may have brought about what the ranks' ``own`` processes ended with. An older one is more
    likely a command that was let fail, where something nearer says why."""
    began = min(end.exit.at for end in own)
    ends = [each for each in _of_steps(state, attempt) if each[0] >= began - SIGN_LIVES]
    near = _first(state, [each for each in ends if each[0] >= began - NEAR])
    older = _first(state, [each for each in ends if each[0] < began - NEAR])
    is_told_why = older and any(_says_why(state, end) for end in [*near, *own])
    return near if is_told_why else [*older, *near]


def _says_why(state: RunState, end: FailedExit) -> bool:
    reading = read_exit(end.exit, own_signs(state, end.slot))
    return not reading.symptom and not reading.bare


def _of_steps(state: RunState, attempt: int) -> Iterator[_End]:
    """Ends that nobody asked for. Once the attempt is over its nodes lose each other."""
    entry = state.attempt_entry(attempt)
    over = entry.seen_at + 1.0 if entry is not None and entry.seen_at is not None else math.inf  # in whole seconds
    for slot in state.ranked_slots():
        report = state.report(slot)
        if report is None or not report.step_ends or report.attempt != attempt or was_terminated(report):
            continue
        for end in report.step_ends:
            if end.asked or not (end.code or end.signal) or (end.node_rank or 0) >= state.world:
                continue
            where = slot if end.node_rank is None else slot_of_rank(state.status.assignment, end.node_rank)
            if end.reason == _UNREACHED and (where == slot or end.at >= over):
                continue
            if where == slot or _took_part(state, where, attempt):
                yield min(end.at, state.now), where, slot, end


def _took_part(state: RunState, slot: int, attempt: int) -> bool:
    """Whoever has the slot now was in the attempt."""
    report = state.report(slot)
    return attempt == state.status.attempt or (report is not None and report.attempt == attempt)


def _first(state: RunState, found: list[_End]) -> list[FailedExit]:
    """The earliest of them. When mpirun gives up, all of its processes are killed on all nodes."""
    return [_as_exit(state, *each) for each in nsmallest(MOST, found, key=lambda each: each[:2])]


def _as_exit(state: RunState, at: float, slot: int, told_by: int, end: StepEnd) -> FailedExit:
    if end.reason == _UNREACHED:
        lost = ExitReport(end.code or 0, end.signal or 0, at, _UNREACHED, end.stderr_tail)
        return FailedExit(slot, state.status.assignment.nodes[slot], lost, told_by=told_by)
    reason: str = ExitReason.SIGNAL if end.signal else ExitReason.ERROR
    if end.reason == OUT_OF_MEMORY:
        reason = OUT_OF_MEMORY
    exit_report = ExitReport(end.code or 0, end.signal or 0, at, reason, end.stderr_tail)
    # A daemon that nobody killed breaks off for what its processes, or its peers, did.
    broke_off = end.program in _DAEMONS and not _was_killed(end)
    follows = broke_off or (end.step == BY_MPIRUN and end.code == _MPI_ERR_UNKNOWN)
    return FailedExit(slot, state.status.assignment.nodes[slot], exit_report, f": {_named(end)}", follows=follows)


def _named(end: StepEnd) -> str:
    program = end.program or "a process"
    if end.step == BY_MPIRUN:
        return f"{program}, rank {end.task} of {end.step},"
    return f"{program} of {f'step {end.step}' if end.step else 'a step'}"


def failures(reports: Mapping[int, WorkerReport], ranks: Sequence[int], attempt: int) -> dict[int, str]:
    """By rank, what of its steps failed first in the attempt without having been asked to, in words. ``ranks``: of
    each slot; those of spares are negative."""
    found: dict[int, tuple[float, str]] = {}
    for slot, rank in enumerate(ranks):
        report = reports.get(slot)
        for end in report.step_ends if report is not None and report.attempt == attempt else ():
            where = rank if end.node_rank is None else end.node_rank
            if where in ranks and where >= 0 and not end.asked and (end.code or end.signal):
                words = f"{_named(end)} ended with {_outcome(end)}"
                if end.reason == _UNREACHED:
                    words = f"rank {rank} could not reach it for a step: {end.stderr_tail.strip()}"
                found[where] = min(found.get(where, (end.at, words)), (end.at, words))
    return {rank: words for rank, (_, words) in sorted(found.items())}


def _outcome(end: StepEnd) -> str:
    return f"signal {end.signal}" if end.signal else f"exit code {end.code}"
