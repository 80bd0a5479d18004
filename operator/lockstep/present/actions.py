"""What may be done to a run at a moment, how that is written, and what it would cost, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lockstep.api.base import names
from lockstep.core.checkpoints.saves import is_awaited
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.run.way_back import (
    begins,
    begun_at,
    has_unknown,
    newest_trusted,
    on_disks_alone,
    passed_over,
    retry_of,
)
from lockstep.present.amounts import ago, duration, plural
from lockstep.present.runs import current_phase, nodes_held, queue_of

_NAMED = 3


class Deed(StrEnum):
    """As the page and its addresses call them."""

    CHECKPOINT = "checkpoint"
    SUSPEND = "suspend"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Stakes:
    """What status does not say. ``listens``: a process asks for saves; None: not known. ``step_seconds`` and
    ``block_seconds``: of a step and a save; 0: not measured. ``waiting``: who waits for nodes of it, as far as whoever
    asks may know; ``step``: the newest one that was heard of; None: of none. ``now``: 0: no ages are told."""

    step: int | None = None
    listens: bool | None = None
    step_seconds: float = 0.0
    block_seconds: float = 0.0
    waiting: Sequence[str] = ()
    now: float = 0.0


def open_to(run: RunView) -> tuple[Deed, ...]:
    """What makes sense now."""
    phase, spec = current_phase(run), run.spec
    suspends = spec is not None and spec.suspend
    if phase is Phase.FINISHED and spec is not None and not run.spec_error and not is_test_only(run):
        return (Deed.RETRY,)
    if phase is Phase.FINISHED or (spec is not None and spec.cancel):
        return ()
    saves = phase is Phase.RUNNING and spec is not None and spec.checkpoint is not None and not suspends
    found = (Deed.CHECKPOINT,) if saves else ()
    if not suspends:
        found = (*found, Deed.SUSPEND)
    elif not run.set_says:  # else its set has it suspended, whatever is said of the run alone
        found = (*found, Deed.RESUME)
    return (*found, Deed.CANCEL)


def patch(action: Deed, run: RunView, request: str) -> dict[str, Any]:
    """A merge patch that hits this run and no later one of its name; of a retry none, which makes another run.
    ``request``: never used before."""
    body: dict[str, Any] = {"metadata": {"uid": run.uid}}
    match action:
        case Deed.CANCEL:
            body["spec"] = {"cancel": True}
        case Deed.SUSPEND | Deed.RESUME:
            body["spec"] = {"suspend": action is Deed.SUSPEND}
        case Deed.CHECKPOINT:
            body["metadata"]["annotations"] = {names.ANNOTATION_CHECKPOINT_REQUEST: request}
    return body


DONE: Mapping[Deed, str] = {
    Deed.CHECKPOINT: "asked to save",
    Deed.SUSPEND: "suspended",
    Deed.RESUME: "resumed",
    Deed.CANCEL: "cancelled",
}
"""Of those that are a patch."""


def costs(action: Deed, run: RunView, stakes: Stakes) -> Iterator[str]:
    """What is lost, who takes the nodes, and whether there is a way back."""
    nodes = nodes_held(run)
    match action:
        case Deed.CHECKPOINT:
            stops = f" for about {_seconds(stakes.block_seconds)}" if stakes.block_seconds else ""
            yield f"All ranks save at the same step; training stops{stops} and goes on."
            if stakes.listens is False:
                yield "No process of it asks for saves, so nothing may come of it: docs/stopping.md says how."
        case Deed.RESUME:
            wanted = run.spec.nodes if run.spec is not None else 0
            yield f"It queues in {queue_of(run)} for {plural(wanted, 'node')}, and goes on from {_newest_words(run)}."
            yield from _on_other_nodes(run)
        case Deed.SUSPEND:
            yield from _loses(run, stakes, "to be repeated when it goes on", LOCAL, SHARED)
            yield from _on_other_nodes(run)
            yield from _gives_back(nodes, stakes)
            yield "It gets no nodes until it is resumed; then it queues for them again."
        case Deed.CANCEL:
            yield from _loses(run, stakes, "lost", SHARED)
            yield from _gives_back(nodes, stakes)
            yield f"A cancelled run never goes on. {_what_stays(run)}{_way_back(run)}"


def _loses(run: RunView, stakes: Stakes, fate: str, *tiers: str) -> Iterator[str]:
    """Its steps since the newest checkpoint that counts, one in ``tiers``, and whether it saves before it stops."""
    phase = current_phase(run)
    trains = phase in (Phase.RUNNING, Phase.LAUNCHING, Phase.RECOVERING, Phase.STOPPING)
    reached = max(stakes.step or 0, run.status.progress.step) if trains else newest_trusted(run, LOCAL, SHARED) or 0
    saved, wrong = newest_trusted(run, *tiers), passed_over(run.status, *tiers)
    since = saved if saved is not None else begun_at(run)
    steps = max(0, reached - (since or 0))
    took = f" (about {duration(steps * stakes.step_seconds)})" if steps and stakes.step_seconds else ""
    verb = "is" if steps == 1 else "are"
    why = "it has none in a shared tier" if run.status.checkpoint.latest else "no checkpoint of it is known"
    if trains and stakes.step is None and run.status.progress.time is None and _has_begun(run, phase):
        what = f"what it did since {_last_kept(run, stakes.now, why, fate, *tiers)}; it has reported no step"
    elif not steps:
        what = f"no step is {fate}"
    elif saved is None and wrong is not None:
        what = f"its steps since the newest checkpoint before step {wrong.step}, or its start, are {fate}"
    elif since is None:
        what = f"all {plural(steps, 'step')} of it{took} {verb} {fate}, as {why}"
    else:
        what = f"{plural(steps, 'step')} since step {since}{took} {verb} {fate}"
    if not trains:
        yield f"It trains on no node now{':' if steps else ', so'} {what}."
        return
    stop = run.status.stop
    if stop is not None and stop.save and is_awaited(run.status, stop.save):
        yield f"It is stopping already ({stop.reason}), and its save is still awaited. Where that fails, {what}."
        return
    saves = phase is Phase.RUNNING and run.spec is not None and run.spec.checkpoint is not None
    if saves and stakes.listens is not False:
        yield f"All ranks are asked to save first. Where that fails, {what}."
    else:
        yield f"{'No process of it asks for saves' if saves else 'It does not save before it stops'}: {what}."


def _has_begun(run: RunView, phase: Phase) -> bool:
    """Something has run that may be lost: between two attempts what went before is lost already."""
    return phase in (Phase.RUNNING, Phase.STOPPING) or _started(run) is not None


def _started(run: RunView) -> float | None:
    """When the attempt began that goes on."""
    last = run.status.attempts[-1] if run.status.attempts else None
    goes_on = last is not None and last.number == run.status.attempt and last.ended_at is None
    return last.started_at if last is not None and goes_on else None


def _last_kept(run: RunView, now: float, why: str, fate: str, *tiers: str) -> str:
    """From when on, what becomes of it, and ``why``: of a run whose program tells no steps nothing can be counted."""
    saved, wrong = newest_trusted(run, *tiers), passed_over(run.status, *tiers)
    if saved is not None:
        return f"it saved step {saved} is {fate}"
    if wrong is not None:
        return f"the newest checkpoint before step {wrong.step}, or its start, is {fate}"
    started = _started(run)
    age = f" ({ago(started, now)})" if started is not None and now else ""
    if any(has_unknown(run.status, tier) for tier in tiers):
        return f"it started{age}, or last saved, is {fate}"
    return f"it started{age} is {fate}, as {why}"


def _gives_back(nodes: int, stakes: Stakes) -> Iterator[str]:
    if not nodes:
        return
    more = len(stakes.waiting) - _NAMED
    first = ", ".join(stakes.waiting[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    next_one = f", and {first} {'waits' if len(stakes.waiting) == 1 else 'wait'} for them" if first else ""
    yield f"It gives back {plural(nodes, 'node')}{next_one}."


def _newest_words(run: RunView) -> str:
    saved, begun, wrong = newest_trusted(run, LOCAL, SHARED), begun_at(run), passed_over(run.status, LOCAL, SHARED)
    if saved is not None:
        return f"step {saved}"
    if wrong is not None:
        return f"an older checkpoint than step {wrong.step}, which is passed over, or its start"
    if begun is not None:
        return f"step {begun} again, as no checkpoint of its own is known"
    start = run.spec.checkpoint.start if run.spec is not None and run.spec.checkpoint is not None else None
    origin = start and (start.run or start.path)
    return f"what it is to start from, {origin}" if origin else "step 0, as no checkpoint of it is known"


def _on_other_nodes(run: RunView) -> Iterator[str]:
    """Where it goes on if it gets others."""
    local, saved, wrong = on_disks_alone(run), newest_trusted(run, SHARED), passed_over(run.status)
    if local is not None:
        since = saved if saved is not None else begun_at(run)
        onward = f"goes on from step {since}" if since is not None else "has nothing to go on from"
        if saved is None and wrong is not None:
            onward = f"goes on from an older checkpoint than step {wrong.step}, which is passed over"
        yield f"Step {local} is on its nodes' own disks: on others it {onward}."


def _what_stays(run: RunView) -> str:
    checkpoint, local = run.spec and run.spec.checkpoint, on_disks_alone(run)
    if local is not None:
        return f"Step {local} is on its nodes' own disks, which no other run can start from."
    if not checkpoint:
        return "It has no checkpoints that another run could start from."
    if not (run.status.checkpoint.latest or run.status.checkpoint.previous_saves or has_unknown(run.status, SHARED)):
        return "It has saved nothing so far that another run could start from."
    if checkpoint.shared is None:
        return "Its checkpoints are on its nodes' own disks, which no other run can start from."
    return "Its checkpoints stay, and another run may start from them."


def _way_back(run: RunView) -> str:
    """What the page offers once it has ended, and the command for the same."""
    if run.spec is None or run.spec_error or is_test_only(run):
        return ""
    command = " ".join(filter(None, (retry_of(run), begins(run, run.status)[1])))
    return f" Retry ({command}) makes a new run of it."


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds)
