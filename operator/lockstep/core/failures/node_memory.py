"""What is remembered of a node across runs: on the Node itself, where every run and every person finds it.

Each run keeps the first failures of its own in status; from there they are carried to an annotation of the
node, again and again until it has them. A node on which ranks of two runs failed first within a day is suspect:
other nodes are preferred, until the day is over or a person clears it. One run alone makes no node suspect,
however often it fails there: it says so itself. Only nodes that bear the mark count, of which there is a bound.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.late_evidence import last_end
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.node_failures import MAX_FAILURES
from lockstep.core.model.plan import ForgiveFailures, RememberFailure
from lockstep.core.model.reasons import AttemptCause, ConditionType, StopReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import NodeFailure, NodeView

SUSPECT_AFTER = 2
"""Runs of which a rank failed first within a day. By luck a node of 512 fails twice in a day once in a hundred days."""
KEPT_OF_A_RUN = 2
"""First failures on one node: those of others are to have room beside them."""
ONE_HOUR = 3600.0
FORGIVEN_AGAIN = 60.0
"""Seconds after which a failure is forgiven once more that its node still carries."""
_OF_PROGRAMS = (AttemptCause.APPLICATION, AttemptCause.UNKNOWN)
"""Causes by which a node may be to blame, or the program."""
LEAST_MARKED, MARKED_SHARE = 2, 0.10
"""So many nodes, or this share of all, may become suspect within an hour: more is the cluster's trouble."""


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Annotations to set on a node (None removes one), and whether it carries the taint for suspects."""

    annotations: Mapping[str, str | None]
    tainted: bool


def suspicion(node: NodeView, now: float) -> str:
    """Why other nodes are preferred to ``node``; empty when they are not."""
    if not node.suspect:
        return ""
    last = _last_of_runs(node.failures, now)
    if len(last) < SUSPECT_AFTER:
        return ""
    causes = "; ".join(f"{failure.cause} of {failure.run} at {to_rfc3339(failure.time)}" for failure in last[-3:])
    return f"ranks of {len(last)} runs failed first here within a day: {causes}"


def to_forgive(state: RunState) -> list[ForgiveFailures]:
    """What nodes carry of this run though it was judged that its program is to blame, on whichever node."""
    if not _is_judged(state):
        return []
    wanted = []
    for node in state.snapshot.nodes.values():
        found = tuple(each for each in node.failures if _is_forgiven(each, state))
        if found:
            wanted.append(ForgiveFailures(node.name, node.uid, found))
    if wanted:
        state.wake(state.now + FORGIVEN_AGAIN)  # should one not be written
    return wanted


def _is_judged(state: RunState) -> bool:
    """It ends, or ended within a day, because it fails alike on any node."""
    stop, end = state.status.stop, find(state.status, ConditionType.FINISHED)
    if stop is not None:
        return stop.reason == StopReason.DETERMINISTIC
    is_over = end is not None and end.status == "True" and state.now - end.last_transition_time < ONE_DAY
    return is_over and end is not None and end.reason == StopReason.DETERMINISTIC


def _is_forgiven(failure: NodeFailure, state: RunState) -> bool:
    """It is of this run, not of an earlier one of its name, and of the kind that was judged: no machine's."""
    is_own = failure.run == state.run.key and failure.time >= state.run.created_at
    judged = state.status.attempts[-1].cause if state.status.attempts else ""
    is_machines = failure.cause in (AttemptCause.HARDWARE, AttemptCause.NODE_LOST)
    return is_own and not is_machines and failure.cause in (*_OF_PROGRAMS, judged)


def to_remember(state: RunState) -> list[RememberFailure]:
    """First failures of this run that their nodes do not carry yet.

    While the gang gathers another rank may still turn out to have been first: until then nothing is written.
    """
    ended = last_end(state) if state.phase is Phase.RECOVERING else None
    unsettled = ended.seen_at if ended is not None else None
    wanted, judged = [], _is_judged(state)
    for failure in state.status.recovery.first_failures:
        node = state.snapshot.nodes.get(failure.node)
        if node is None or state.now - failure.time >= ONE_DAY or failure.time <= node.failures_cleared_at:
            continue
        entry = NodeFailure(state.run.key, failure.time, failure.cause)
        if failure.time == unsettled or (judged and _is_forgiven(entry, state)):
            continue
        if entry not in node.failures and entry in _kept((entry, *_recent(node.failures, state.now))):
            wanted.append(RememberFailure(node.name, node.uid, entry))
    return wanted


def marks_with(node: NodeView, failure: NodeFailure, others: Iterable[NodeView], taint: bool, now: float) -> NodeMarks:
    """What ``node`` is to carry once ``failure`` is remembered. ``others``: all nodes, for the bound on marks."""
    known = [kept for kept in node.failures if now - kept.time < ONE_DAY and kept != failure]
    return _marks(node, _kept((failure, *known)), others, taint, now)


def marks_without(
    node: NodeView, forgiven: Collection[NodeFailure], others: Iterable[NodeView], taint: bool, now: float
) -> NodeMarks | None:
    """What ``node`` is to carry once those are ``forgiven``; None: it carries none of them."""
    kept = tuple(failure for failure in node.failures if failure not in forgiven)
    return None if len(kept) == len(node.failures) else _marks(node, _kept(_recent(kept, now)), others, taint, now)


def marks_now(node: NodeView, now: float) -> NodeMarks | None:
    """What a suspect node is to carry once its day is over; None while it is to stay as it is."""
    if not node.suspect or suspicion(node, now):
        return None
    failures = tuple(_recent(node.failures, now))
    return _marks(node, failures, (), False, now)


def forgiven_at(nodes: Iterable[NodeView]) -> float | None:
    """When the next suspect node is to be judged again (Unix seconds)."""
    moments = []
    for node in nodes:
        if node.suspect and node.failures:
            newest = sorted({failure.run: failure.time for failure in _by_time(node.failures)}.values())
            moments.append(newest[-SUSPECT_AFTER:][0] + ONE_DAY)
    return min(moments, default=None)


def _marks(
    node: NodeView, failures: Sequence[NodeFailure], others: Iterable[NodeView], taint: bool, now: float
) -> NodeMarks:
    rows = [{"run": kept.run, "time": to_rfc3339(kept.time), "cause": kept.cause} for kept in failures]
    why = ""
    last = _last_of_runs(failures, now)
    if len(last) >= SUSPECT_AFTER and (node.suspect or _may_mark(others, now)):
        why = f"first failures of {len(last)} runs within a day, the last {last[-1].cause} of {last[-1].run}"
    return NodeMarks(
        annotations={
            names.ANNOTATION_FIRST_FAILURES: json.dumps(rows) if rows else None,
            names.ANNOTATION_SUSPECT: why or None,
        },
        tainted=bool(why) and taint,
    )


def _may_mark(nodes: Iterable[NodeView], now: float) -> bool:
    everyone = list(nodes)
    marked = sum(1 for node in everyone if node.suspect and node.failures and now - node.failures[-1].time < ONE_HOUR)
    return marked < max(LEAST_MARKED, int(MARKED_SHARE * len(everyone)))


def _last_of_runs(failures: Iterable[NodeFailure], now: float) -> list[NodeFailure]:
    """The last failure of each run, earliest first."""
    return _by_time({failure.run: failure for failure in _by_time(_recent(failures, now))}.values())


def _kept(failures: Iterable[NodeFailure]) -> tuple[NodeFailure, ...]:
    """Those that there is room for, earliest first: the newest, of one run no more than ``KEPT_OF_A_RUN``."""
    kept: list[NodeFailure] = []
    for failure in reversed(_by_time(failures)):
        if len(kept) < MAX_FAILURES and sum(1 for each in kept if each.run == failure.run) < KEPT_OF_A_RUN:
            kept.append(failure)
    return tuple(reversed(kept))


def _by_time(failures: Iterable[NodeFailure]) -> list[NodeFailure]:
    return sorted(failures, key=lambda failure: failure.time)


def _recent(failures: Iterable[NodeFailure], now: float) -> list[NodeFailure]:
    return [failure for failure in failures if now - failure.time < ONE_DAY]
