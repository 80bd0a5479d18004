"""Evidence -> cause -> action: what ends an attempt, and with what the next one starts.

Restart the least: a process that ended is started again in the pod it was in; a pod lost on a usable
node comes back there; a lost node is replaced and everybody else stays. Quota and nodes are held.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.api.run_status import ExcludedNode, SlotLosses
from lockstep.core import assignment as slots
from lockstep.core.budget import adaptive_limit, backoff
from lockstep.core.conditions import without_condition
from lockstep.core.draft import Draft
from lockstep.core.evidence import FailedExit, Loss, LossKind, everyone_heard_since, failed_exits, losses
from lockstep.core.inventory import committed_step
from lockstep.core.lifecycle import Phase
from lockstep.core.stopping import begin_stop

MAX_EXCLUDED = 64
HOPELESS_EXITS = ("CommandNotFound", "CommandNotExecutable")
PYTHON_REMEDY = "the image has no python3, which Lockstep's worker needs; use an image with Python 3.8 or newer"
FAILED_LAUNCHES = ("PodFailed", "LaunchDeadline")
"""Reasons of losses before START for which the run may be as much to blame as the node."""
STOPPED_FROM_OUTSIDE = ("Fenced", "StoppedForRestart", "StoppedOnRequest")
"""Reasons of exits that are no failure of the program."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The earliest evidence. Everything later in the same attempt is a victim of it."""

    kind: str  # NodeLost, PodLost, ProcessExited, …
    slot: int
    node: str
    message: str
    at: float
    reason: str
    charged: bool  # counts against the no-progress limit
    exit_code: int | None = None


def recover(draft: Draft) -> None:
    """Answer losses and bad exits: end the running attempt, or mend the gang that is gathering."""
    lost = losses(draft)
    replaceable = _without_held_back(draft, lost)
    if draft.phase is Phase.RUNNING:
        failed = failed_exits(draft)
        if replaceable or failed:
            _end_attempt(draft, replaceable, failed)
    elif replaceable:
        _blame_earlier_loss(draft, replaceable)
        replace_before_start(draft, replaceable)


def replace_before_start(draft: Draft, lost: Sequence[Loss]) -> None:
    """As ``replace``, for a gang that gathers. What fails on node after node is not the nodes' fault."""
    without_python = next((loss for loss in lost if _lacks_python(loss.message)), None)
    if without_python is not None:
        begin_stop(draft, "PythonNotFound", PYTHON_REMEDY)
        return
    before = {entry.node for entry in draft.status.recovery.excluded_nodes}
    replace(draft, lost)
    recovery = draft.status.recovery
    given_up = {entry.node for entry in recovery.excluded_nodes} - before
    spoilt = [loss for loss in lost if loss.node in given_up and loss.reason in FAILED_LAUNCHES]
    if not spoilt:
        return
    streak = recovery.consecutive_no_progress + 1
    draft.update(recovery=recovery.model_copy(update={"consecutive_no_progress": streak}))
    if streak >= _allowed_without_progress(draft):
        begin_stop(
            draft, "LaunchFailed", f"{spoilt[0].message}; {streak} nodes were given up in a row, so it is the run"
        )


def replace(draft: Draft, lost: Sequence[Loss]) -> None:
    """Give every lost slot its next incarnation: on its node, or on one yet to be found."""
    vacate, stay = [], []
    exclude: list[ExcludedNode] = []
    counts = {entry.slot: entry for entry in draft.status.recovery.slot_losses}
    until = draft.stamp + draft.tunables.excluded_node_seconds
    for loss in lost:
        before = counts.pop(loss.slot, None)
        count = 1 + (before.count if before is not None and before.node == loss.node else 0)
        if loss.kind is LossKind.NODE:
            vacate.append(loss.slot)
        elif count > draft.tunables.slot_retries_on_node or loss.reason in (
            "NotScheduled",
            "NodeCheckFailed",
        ):
            vacate.append(loss.slot)
            exclude.append(ExcludedNode(node=loss.node, reason=loss.message[:256], until=until))
        else:
            stay.append(loss.slot)
            counts[loss.slot] = SlotLosses(slot=loss.slot, node=loss.node, count=count)
    assignment = draft.status.assignment
    if stay:
        assignment = slots.advanced(assignment, stay)
    if vacate:
        assignment = slots.vacated(assignment, vacate, draft.stamp)
        draft.admission_changed = True
    kept = {entry.node: entry for entry in draft.status.recovery.excluded_nodes}
    kept.update({entry.node: entry for entry in exclude})
    recovery = draft.status.recovery
    totals = draft.status.totals
    draft.update(
        assignment=assignment,
        recovery=recovery.model_copy(
            update={
                "slot_losses": tuple(sorted(counts.values(), key=lambda entry: entry.slot))[:MAX_EXCLUDED],
                "excluded_nodes": tuple(kept.values())[-MAX_EXCLUDED:],
            }
        ),
        totals=totals.model_copy(
            update={
                "pods_replaced": totals.pods_replaced + len(stay),
                "nodes_replaced": totals.nodes_replaced + len(vacate),
            }
        ),
    )
    for loss in lost:
        draft.event(
            loss.kind.value,
            f"rank {draft.rank(loss.slot)}: {loss.message}; "
            + ("looking for another node" if loss.slot in vacate else f"starting it again on {loss.node}"),
            action="ReplaceNode" if loss.slot in vacate else "ReplacePod",
            warning=True,
            node=loss.node if loss.slot in vacate else "",
        )


def _without_held_back(draft: Draft, lost: list[Loss]) -> list[Loss]:
    """While the cluster itself looks broken no node is replaced: what seems lost may all come back."""
    held = draft.snapshot.leadership.disruption
    if not held:
        draft.status = without_condition(draft.status, "ClusterDisruption")
    if not held or not any(loss.kind is LossKind.NODE for loss in lost):
        return lost
    draft.condition("ClusterDisruption", True, "BreakerOpen", f"no node is replaced: {held}")
    return [loss for loss in lost if loss.kind is not LossKind.NODE]


def _end_attempt(draft: Draft, lost: list[Loss], failed: list[FailedExit]) -> None:
    cause = _first_cause(draft, lost, failed)
    saved = committed_step(draft.snapshot, draft.status)
    progressed = saved > draft.status.recovery.best_step
    streak = 0 if progressed else draft.status.recovery.consecutive_no_progress + cause.charged
    hopeless = _reason_to_stop(draft, cause, streak)
    # Peers of a node that just died exit with errors too: hear everybody before a verdict that is final.
    exited = hopeless is not None and cause.kind == "ProcessExited"
    if exited and not everyone_heard_since(draft, cause.at, but=cause.slot):
        draft.wake(draft.now + draft.heartbeat)
        return
    _write_history(draft, cause, hopeless, lost)
    draft.update(
        recovery=draft.status.recovery.model_copy(
            update={
                "consecutive_no_progress": streak,
                "best_step": max(draft.status.recovery.best_step, saved),
            }
        )
    )
    if hopeless is not None:
        begin_stop(draft, hopeless[0], hopeless[1])
        return
    wait = 0.0
    if cause.charged and not progressed:
        tunables = draft.tunables
        wait = backoff(streak, tunables.backoff_base, tunables.backoff_max, draft.run.uid)
    number = draft.status.attempt + 1
    totals = draft.status.totals
    in_place = totals.restarts_in_place + (not lost)
    draft.update(
        attempt=number,
        totals=totals.model_copy(update={"restarts": totals.restarts + 1, "restarts_in_place": in_place}),
        recovery=draft.status.recovery.model_copy(update={"not_before": draft.stamp + wait if wait else None}),
    )
    if lost:
        replace(draft, lost)
    else:
        draft.event(
            "RestartingInPlace",
            f"{cause.message}; all ranks start again where they are as attempt {number}"
            + (f" in {wait:.0f} s" if wait else ""),
            action="RestartInPlace",
            warning=True,
        )
    if draft.spec.checkpoint is None:
        draft.event(
            "NoCheckpoint",
            "the run names no checkpoint tier, so the next attempt starts at step 0; "
            "add checkpoint: {shared: {claimName: …}}",
            action="Restart",
            warning=True,
        )


def _first_cause(draft: Draft, lost: list[Loss], failed: list[FailedExit]) -> Cause:
    # A lost node's last sign of life precedes its peers' deaths, but only just: prefer the loss over
    # exits, which a loss explains and which cannot explain a loss.
    if lost:
        loss = min(lost, key=lambda found: (found.kind is not LossKind.NODE, found.at, found.slot))
        charged = loss.kind is LossKind.POD and loss.reason == "PodFailed"
        return Cause(loss.kind.value, loss.slot, loss.node, loss.message, loss.at, loss.reason, charged)
    first = failed[0]
    how = f"signal {first.exit.signal}" if first.exit.signal else f"exit code {first.exit.code}"
    message = f"rank {draft.rank(first.slot)} on {first.node} ended with {how}"
    if first.exit.reason not in ("", "Error", "Signal"):
        message += f" ({first.exit.reason})"
    last_line = first.exit.stderr_tail.strip().rsplit("\n", 1)[-1][:200]
    if last_line:
        message += f": {last_line}"
    reason = first.exit.reason
    code = 128 + first.exit.signal if first.exit.signal else first.exit.code
    charged = reason not in STOPPED_FROM_OUTSIDE
    return Cause("ProcessExited", first.slot, first.node, message, first.exit.at, reason, charged, code)


def _reason_to_stop(draft: Draft, cause: Cause, streak: int) -> tuple[str, str] | None:
    spec = draft.spec
    if cause.reason in HOPELESS_EXITS:
        return cause.reason, f"{cause.message}; check spec.command and the image"
    if cause.kind == "PodLost" and _lacks_python(cause.message):
        return "PythonNotFound", PYTHON_REMEDY
    if spec.checkpoint is None and cause.kind == "ProcessExited" and cause.charged:
        return (
            "ProcessFailed",
            f"{cause.message}; without spec.checkpoint a failing program is not started again",
        )
    cap = spec.recovery.max_restarts
    if cap is not None and draft.status.totals.restarts >= cap:
        return "MaxRestarts", f"{cause.message}; recovery.maxRestarts is {cap}"
    limit, allowed = spec.recovery.no_progress_limit, _allowed_without_progress(draft)
    if streak >= allowed:
        return "NoProgress", (
            f"{cause.message}; {streak} attempts in a row ended without a new checkpoint "
            f"(recovery.noProgressLimit is {limit}{'' if isinstance(limit, int) else f', here {allowed}'})"
        )
    return None


def _allowed_without_progress(draft: Draft) -> int:
    limit = draft.spec.recovery.no_progress_limit
    return limit if isinstance(limit, int) else adaptive_limit(len(draft.status.assignment.nodes))


def _lacks_python(message: str) -> bool:
    return "python3" in message and "not found" in message


def _write_history(draft: Draft, cause: Cause, hopeless: tuple[str, str] | None, lost: list[Loss]) -> None:
    action = "Stop" if hopeless else ("Replace" if lost else "RestartInPlace")
    step = max((r.progress.step for r in draft.snapshot.reports.values() if r.progress), default=None)
    draft.amend_attempt(
        draft.status.attempt,
        ended_at=draft.stamp,
        cause=cause.kind,
        message=cause.message[:512],
        rank=draft.rank(cause.slot),
        node=cause.node,
        exit_code=cause.exit_code,
        action=action,
        last_step=step,
        charged=cause.charged,
    )


def _blame_earlier_loss(draft: Draft, lost: Sequence[Loss]) -> None:
    """A node whose silence is established only now, but began before the attempt's end, was its cause."""
    ended = draft.attempt_entry(draft.status.attempt - 1)
    if ended is None or ended.ended_at is None or ended.cause != "ProcessExited":
        return
    beat = draft.heartbeat
    earlier = [loss for loss in lost if loss.kind is LossKind.NODE and loss.at <= ended.ended_at + beat]
    if not earlier:
        return
    first = min(earlier, key=lambda loss: (loss.at, loss.slot))
    draft.amend_attempt(
        ended.number,
        cause=first.kind.value,
        message=f"{first.message}; then {ended.message}"[:512],
        rank=draft.rank(first.slot),
        node=first.node,
        action="Replace",
        charged=False,
    )
    recovery = draft.status.recovery
    if ended.charged and recovery.consecutive_no_progress:
        draft.update(
            recovery=recovery.model_copy(
                update={
                    "consecutive_no_progress": recovery.consecutive_no_progress - 1,
                    "not_before": None,
                }
            )
        )
