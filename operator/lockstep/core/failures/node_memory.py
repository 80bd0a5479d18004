"""What is remembered of a node across runs: on the Node itself, where every run and every person finds it.

Each run keeps the first failures of its own in status; from there they are carried to an annotation of the
node, again and again until it has them. A node on which ranks failed first twice within a day, of whatever
run, is suspect: other nodes are preferred, until the day is over or a person clears it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.core.failures.actions import ONE_DAY
from lockstep.core.failures.late_evidence import last_end
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.node_failures import MAX_FAILURES
from lockstep.core.model.plan import RememberFailure
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import NodeFailure, NodeView

SUSPECT_AFTER = 2
"""First failures within a day. By luck a node of 512 fails twice in a day once in a hundred days."""
ONE_HOUR = 3600.0
LEAST_MARKED, MARKED_SHARE = 2, 0.10
"""So many nodes, or this share of all, may become suspect within an hour: more is the cluster's trouble."""


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Annotations to set on a node (None removes one), and whether it carries the taint for suspects."""

    annotations: Mapping[str, str | None]
    tainted: bool


def suspicion(node: NodeView, now: float) -> str:
    """Why other nodes are preferred to ``node``; empty when they are not."""
    recent = _recent(node.failures, now)
    if len(recent) < SUSPECT_AFTER:
        return ""
    causes = "; ".join(f"{failure.cause} of {failure.run} at {to_rfc3339(failure.time)}" for failure in recent[-3:])
    return f"{len(recent)} ranks failed first here within a day: {causes}"


def to_remember(state: RunState) -> list[RememberFailure]:
    """First failures of this run that their nodes do not carry yet.

    While the gang gathers another rank may still turn out to have been first: until then nothing is written.
    """
    ended = last_end(state) if state.phase is Phase.RECOVERING else None
    unsettled = ended.seen_at if ended is not None else None
    wanted = []
    for failure in state.status.recovery.first_failures:
        node = state.snapshot.nodes.get(failure.node)
        if node is None or state.now - failure.time >= ONE_DAY or failure.time <= node.failures_cleared_at:
            continue
        entry = NodeFailure(state.run.key, failure.time, failure.cause)
        later = sum(1 for kept in _recent(node.failures, state.now) if kept.time >= failure.time)
        if failure.time == unsettled:
            continue
        if entry not in node.failures and later < MAX_FAILURES:  # else there is no room for it any more
            wanted.append(RememberFailure(node.name, node.uid, entry))
    return wanted


def marks_with(node: NodeView, failure: NodeFailure, others: Iterable[NodeView], taint: bool, now: float) -> NodeMarks:
    """What ``node`` is to carry once ``failure`` is remembered. ``others``: all nodes, for the bound on marks."""
    known = [kept for kept in node.failures if now - kept.time < ONE_DAY and kept != failure]
    failures = tuple(sorted((*known, failure), key=lambda kept: kept.time)[-MAX_FAILURES:])
    return _marks(node, failures, others, taint, now)


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
            newest = sorted(failure.time for failure in node.failures)[-SUSPECT_AFTER:]
            moments.append(newest[0] + ONE_DAY)
    return min(moments, default=None)


def _marks(
    node: NodeView, failures: Sequence[NodeFailure], others: Iterable[NodeView], taint: bool, now: float
) -> NodeMarks:
    rows = [{"run": kept.run, "time": to_rfc3339(kept.time), "cause": kept.cause} for kept in failures]
    why = ""
    if len(_recent(failures, now)) >= SUSPECT_AFTER and (node.suspect or _may_mark(others, now)):
        why = f"{len(failures)} first failures within a day, the last {failures[-1].cause} of {failures[-1].run}"
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


def _recent(failures: Iterable[NodeFailure], now: float) -> list[NodeFailure]:
    return [failure for failure in failures if now - failure.time < ONE_DAY]
