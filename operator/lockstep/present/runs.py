"""What every list and page says of a run: state and reason, whose it is, nodes, time, pace, queue, ranks."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.api.base import names
from lockstep.api.base.durations import parse_duration
from lockstep.api.run_status import ProgressStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.reasons import ConditionType, ShownReason
from lockstep.core.model.snapshot import RunView
from lockstep.present.amounts import NONE, duration, local_time, plural
from lockstep.slurm import hostlist


def current_phase(run: RunView) -> Phase:
    """Where it is in its life."""
    return phase_of(run.status, suspended=run.spec is not None and run.spec.suspend)


def state_of(run: RunView) -> tuple[str, str]:
    """State and reason as shown to people."""
    if not run.status.state:
        return Phase.PENDING, ShownReason.NOT_SEEN_YET
    return run.status.state, run.status.reason


def nodes_of(run: RunView) -> str:
    """Nodes ready, of all."""
    wanted = run.spec.nodes if run.spec is not None else 0
    return run.status.nodes_ready or f"0/{wanted}"


def nodes_held(run: RunView) -> int:
    """How many it has, spares included; where status does not name them, as many as it is given."""
    assignment, resolved, spec = run.status.assignment, run.status.resolved, run.spec
    if assignment.nodes or not slots.is_held(assignment):
        return sum(map(bool, assignment.nodes))
    ranks, spares = (resolved.nodes or spec.nodes, spec.spare_nodes) if spec is not None else (resolved.nodes, 0)
    return ranks + spares - len(assignment.vacant)


def leaving_in_words(run: RunView, now: float) -> str:
    """That it has ended and its pods still hold nodes, and how long at most; empty: they hold none."""
    leaving = run.status.leaving
    if leaving is None:
        return ""
    left = duration(max(0.0, leaving.until - now))
    held = plural(leaving.nodes, "node")
    return f"it has ended, and its pods still hold {held}; they are deleted in {left} at the latest"


def queue_of(run: RunView) -> str:
    """The queue the run names."""
    return run.spec.queue if run.spec is not None else NONE


def ranked_nodes(run: RunView) -> list[tuple[int, str]]:
    """Rank and node of the gang, in rank order; nothing when no nodes are held."""
    assignment = run.status.assignment
    ranks = [(rank, slot) for slot, rank in enumerate(slots.slot_ranks(assignment)) if rank >= 0]
    return [(rank, assignment.nodes[slot]) for rank, slot in sorted(ranks)]


def user_of(annotations: Mapping[str, str]) -> str:
    """Who submitted it, as `lockstep submit` or sbatch has written it down; empty: nobody did, as with kubectl."""
    return annotations.get(names.ANNOTATION_USER, "")


def gpus_of(run: RunView) -> str:
    """GPUs of the whole gang; empty while that is open, as it takes all that its nodes will have."""
    resolved, spec = run.status.resolved, run.spec
    if resolved.generation and slots.is_held(run.status.assignment):
        return str(resolved.gpus_per_node * (resolved.nodes or (spec.nodes if spec is not None else 0)))
    return "" if spec is None or spec.gpus_per_node is None else str(spec.gpus_per_node * spec.nodes)


def nodelist(run: RunView) -> str:
    """The nodes in rank order, as Slurm writes them: ``gpu-[1-4,7]``; empty when none are held, or where status does
    not have them."""
    return hostlist.compress(node for _, node in ranked_nodes(run) if node)


def seconds_used(run: RunView, now: float) -> float | None:
    """For how long it has, or had, its nodes, as the time limit counts; None: it has none and had none lately."""
    since, held = run.status.last_admitted, float(run.status.held_seconds)
    if since is None:
        return held or None
    finished = find(run.status, ConditionType.FINISHED)
    ended = finished.last_transition_time if finished is not None and finished.status == "True" else now
    return held + max(0.0, ended - since)


def seconds_left(run: RunView, now: float) -> float | None:
    """Of its time limit: as granted, or as it asks for while it waits; None: it has none, or has ended."""
    status, spec = run.status, run.spec
    if is_true(status, ConditionType.FINISHED):
        return None
    limit: float | None = status.admission.time_limit if slots.is_held(status.assignment) else None
    if limit is None and spec is not None and spec.time_limit is not None:
        limit = parse_duration(spec.time_limit)
    return None if limit is None else max(0.0, limit - (seconds_used(run, now) or 0.0))


def pace(progress: ProgressStatus) -> str:
    """``1.5 s/step`` or ``2.4 steps/s``; empty: not known."""
    micros = progress.step_microseconds
    if not micros:
        return ""
    return f"{micros / 1e6:.3g} s/step" if micros >= 10**6 else f"{1e6 / micros:.3g} steps/s"


def early_end(run: RunView, now: float) -> str:
    """``at its pace ends in 40m (…)``, or when it is asked to save: whichever comes first of what may end a run sooner
    than its limit, on which others count. Empty: nothing is known to."""
    limit, pace_ends = run.status.time_limit, run.status.progress.expected_end
    asked = limit.save_at if limit is not None else None
    pace = completion(run, now)
    if limit is None or asked is None or asked <= now or (pace and pace_ends is not None and pace_ends <= asked):
        return f"at its pace ends {pace}" if pace else ""
    when = f"in {duration(asked - now)} ({local_time(asked)})"
    return f"is asked to save {when} and ends once it has, by {local_time(limit.over_at)} at the latest"


def completion(run: RunView, now: float) -> str:
    """``in 2h10m (2026-12-01T08:00:00), between 2h and 2h30m``: when its last step is done; empty: not known, or it
    does not train."""
    progress = run.status.progress
    at = progress.expected_end
    if current_phase(run) is not Phase.RUNNING or at is None or at <= now:
        return ""
    words = f"in {duration(at - now)} ({local_time(at)})"
    soonest, latest = progress.earliest_end, progress.latest_end
    if soonest is None or latest is None:
        return words
    between = duration(soonest - now), duration(latest - now)
    return words if between[0] == between[1] else f"{words}, between {between[0]} and {between[1]}"
