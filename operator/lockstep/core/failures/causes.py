"""All evidence of an attempt's end in one form, and which of it is the cause.

The earliest evidence is the cause, on the operator's clock. What could not have been brought about by a peer
(a lost node or pod, a fault of the machine) explains every process that ended near it; a process that only
complains of its peers is no cause while one of them has another reason. Ends too close to be told apart by
clocks are said to be tied. What Lockstep itself ended is never a cause of anything.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lockstep.core.failures.evidence import Loss, LossKind
from lockstep.core.failures.own_signs import own_signs
from lockstep.core.failures.ranks import FailedExit, slots_to_join
from lockstep.core.failures.signs import (
    SIGN_LIVES,
    UNHEALTHY_DEVICE,
    Reading,
    is_hardware,
    read_exit,
    read_pod,
    shell_code,
)
from lockstep.core.model.reasons import AttemptCause, ExitReason, LossReason
from lockstep.core.model.run_state import RunState
from lockstep.core.model.worker_report import WorkerReport
from lockstep.core.placement.node_conditions import bad_conditions

CASCADE_SECONDS = 30.0
"""An end so long after another may still be its explanation: a node's last heartbeat, a core dump written."""
TIED_SECONDS = 0.1
"""Clocks are corrected by the fastest heartbeat of a minute, which leaves about so much."""
TORN_DOWN_SECONDS = 0.5
"""A container's end is dated once all of it is torn down; by then its peers may have noticed."""
LEAVING_SECONDS = 2.0
"""An evicted pod is reported, or at its end, up to so long after its program began to fail its peers."""
NOT_GATHERED = "lockstep: not all nodes have joined Ray"
"""What rank 0 says last where Ray has not come to all its nodes, so that the program was never started."""
STDERR_KEPT = 1000
"""Characters of it in the history."""
EVICTED = frozenset({AttemptCause.DISRUPTION, AttemptCause.LIMIT_EXCEEDED})
"""Somebody ended the pod, and not its program."""
NEVER_ALONE = frozenset({AttemptCause.STRAGGLER, AttemptCause.LOSS_SPIKE})
"""Detected while training goes on: they explain no process that ended."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something seen that speaks of the end of an attempt.

    ``kind`` is a class word (an ``AttemptCause``) or, from a detector, what it detects: Hang, NaN,
    LossSpike, Straggler. ``at`` is Unix seconds on the operator's clock. ``root`` is what failures that look
    alike share, without rank, node or step. ``tied`` are slots that may as well have been first; ``slots`` are
    those that it speaks of together (the suspects of a hang), when they are more than ``slot``. ``sole_witness``: no
    other slot would have reported it, so that nothing sets ``slot`` apart.
    """

    kind: str
    slot: int
    node: str
    at: float
    message: str
    root: str
    tied: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    sole_witness: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """What ended an attempt: its evidence, how that reads, and whom it took along.

    ``reason`` is the word of the loss or of the exit, ``stderr`` the end of what it wrote there. ``lost``: the slot's
    pod or node is gone; ``exited``: it is the end of a process. ``victims`` are the other slots that have ended by
    now. ``condition`` is the node condition that gave it away. ``dated``: its pod says when it ended, in whole
    seconds rounded down, and how far its node's clock is off is known.
    """

    evidence: Evidence
    reading: Reading
    reason: str = ""
    exit_code: int | None = None
    stderr: str = ""
    lost: bool = False
    exited: bool = False
    victims: tuple[int, ...] = ()
    condition: str = ""
    dated: bool = False

    @property
    def kind(self) -> AttemptCause:
        """Its class."""
        return self.reading.kind

    @property
    def slot(self) -> int:
        """The slot that it began in."""
        return self.evidence.slot

    @property
    def node(self) -> str:
        """Its node."""
        return self.evidence.node

    @property
    def at(self) -> float:
        """When, on the operator's clock."""
        return self.evidence.at

    @property
    def is_unprompted(self) -> bool:
        """No peer can have brought it about."""
        return self.lost or (self.kind is AttemptCause.HARDWARE and not self.reading.weak)

    def explains_end_at(self, moment: float) -> bool:
        """It is not known to have begun only after a process ended at ``moment``."""
        return self.at <= moment + (LEAVING_SECONDS if self.kind in EVICTED else TORN_DOWN_SECONDS)

    @property
    def suspects(self) -> tuple[int, ...]:
        """The slots that leave their nodes, should these be to blame: of two that may be, the likelier one."""
        return (self.slot,) if self.reading.link else tuple(sorted({self.slot, *self.evidence.slots}))

    @property
    def points_at_node(self) -> bool:
        """The node may be to blame: it was first, alone, and for a reason that a node can have."""
        reading = self.reading
        blameless = reading.symptom or reading.by_nature or reading.passing or bool(self.evidence.tied)
        return not blameless and (reading.on_node or reading.weak or self.kind in _MAYBE_THE_NODE)


_SUREST = (AttemptCause.NODE_LOST, AttemptCause.DISRUPTION, AttemptCause.LIMIT_EXCEEDED, AttemptCause.HARDWARE)
"""What says why a slot was lost, before what only says that it was."""
_MAYBE_THE_NODE = frozenset(
    {AttemptCause.APPLICATION, AttemptCause.HARDWARE, AttemptCause.HANG, AttemptCause.NODE_LOST, AttemptCause.UNKNOWN}
)


def collected(
    state: RunState, lost: Sequence[Loss], failed: Sequence[FailedExit], detected: Iterable[Evidence]
) -> list[Cause]:
    """Everything that speaks of an end of the current attempt. Empty: it goes on."""
    found = [_of_loss(state, loss) for loss in lost] + [_of_exit(state, end) for end in failed]
    ended = bool(found)
    found += [_of_detection(evidence) for evidence in detected if not (ended and evidence.kind in NEVER_ALONE)]
    if not found:
        return []
    began = min(cause.at for cause in found)
    faults = [*_faults_of_machines(state), *_lacking_devices(state, began)]
    return found + [fault for fault in faults if fault.condition or fault.at >= began - SIGN_LIVES]


def first_cause(found: Sequence[Cause], tied_seconds: float = TIED_SECONDS) -> Cause:
    """The cause among all that was ``found`` (not empty), with its ties and victims.

    Of ends within ``tied_seconds`` of each other nobody can tell which was first. A program that asks not to be
    started again is obeyed, whatever else is found.
    """
    asked = min((c for c in found if c.kind is AttemptCause.DELIBERATE), key=lambda c: (c.at, c.slot), default=None)
    if asked is not None:
        ended = {cause.slot for cause in found if cause.lost or cause.exited}
        return replace(asked, victims=tuple(sorted(ended - {asked.slot})))
    began = min(cause.at for cause in found)
    near = [cause for cause in found if cause.at <= began + CASCADE_SECONDS]
    own_end = min((cause.at for cause in near if cause.exited and not cause.reading.symptom), default=math.inf)
    unprompted = [c for c in near if c.is_unprompted and (not c.dated or c.explains_end_at(own_end))]
    if unprompted:
        order = {kind: place for place, kind in enumerate(_SUREST)}
        first = min(unprompted, key=lambda c: (order.get(c.kind, len(order)), c.at, c.slot))
        tied: tuple[int, ...] = ()
    else:
        own = [cause for cause in near if not cause.reading.symptom] or near
        earliest = min(own, key=lambda c: (c.at, c.slot))
        level = [c for c in own if c.exited and c.at - earliest.at <= tied_seconds]
        # Of those that may each have been first, one that says why is believed before one that only ended.
        first = min(level, key=lambda c: (c.reading.bare, c.at, c.slot)) if earliest.exited else earliest
        alike = {c.slot for c in level} - {first.slot}
        tied = tuple(sorted(alike)) if first.exited else first.evidence.tied
    ended = {cause.slot for cause in found if cause.lost or cause.exited}
    victims = tuple(sorted(ended - {first.slot, *tied}))
    return replace(first, evidence=replace(first.evidence, tied=tied), victims=victims)


def _of_loss(state: RunState, loss: Loss) -> Cause:
    pod = state.pod(loss.slot)
    at, exit_code, dated = loss.at, None, False
    if loss.kind is LossKind.NODE:
        reading = Reading(AttemptCause.NODE_LOST, loss.reason)
    elif pod is not None and pod.is_terminal:
        reading = read_pod(pod)
        if loss.kind is LossKind.DRAINED and reading.kind is AttemptCause.UNKNOWN:
            reading = Reading(AttemptCause.DISRUPTION, loss.reason)
        exit_code = pod.exit_code
        if pod.ended_at is not None:
            report = state.report(loss.slot)
            at, dated = min(state.now, pod.ended_at - _skew(report)), report is not None
    elif loss.reason == LossReason.START_NOT_ACKNOWLEDGED:
        reading = Reading(AttemptCause.UNKNOWN, loss.reason, on_node=True)
    else:
        disrupted = pod.disruption if pod is not None else ""
        reading = Reading(
            AttemptCause.DISRUPTION, disrupted or loss.reason, f"disrupted: {disrupted}" if disrupted else ""
        )
    words = f"{loss.message} ({reading.words})" if reading.words else loss.message
    evidence = Evidence(reading.kind, loss.slot, loss.node, at, words, reading.root)
    return Cause(evidence, reading, loss.reason, exit_code, lost=True, dated=dated)


def _of_exit(state: RunState, end: FailedExit) -> Cause:
    if end.told_by is not None:
        return _of_link(state, end, end.told_by)
    reading = read_exit(end.exit, own_signs(state, end.slot))
    reading = replace(reading, symptom=True) if end.follows else reading
    if _has_lacked_a_node(state, end):
        reading = Reading(AttemptCause.DISRUPTION, "NotGathered", "a node was lost before Ray had all")
    how = f"signal {end.exit.signal}" if end.exit.signal else f"exit code {end.exit.code}"
    words = f"rank {state.rank(end.slot)} on {end.node}{end.what} ended with {how}"
    if end.exit.reason not in ("", ExitReason.ERROR, ExitReason.SIGNAL):
        words += f" ({end.exit.reason})"
    last_line = end.exit.stderr_tail.strip().rsplit("\n", 1)[-1][:200]
    if reading.words:
        words += f": {reading.words[:200]}"
    if last_line and last_line not in words and not (reading.words and reading.words in last_line):
        words += f": {last_line}"
    if end.note:
        words += f"; {end.note}"
    evidence = Evidence(reading.kind, end.slot, end.node, end.exit.at, words, reading.root)
    last_words = end.exit.stderr_tail.strip()[-STDERR_KEPT:]
    return Cause(evidence, reading, end.exit.reason, shell_code(end.exit), last_words, exited=True)


def _has_lacked_a_node(state: RunState, end: FailedExit) -> bool:
    """Ray has waited for a node that was lost meanwhile, or for what came in its place, and not begun without."""
    if not end.exit.stderr_tail.rstrip().endswith(NOT_GATHERED) or state.rank(end.slot) != 0:
        return False
    start = state.status.start
    return bool(slots_to_join(state)) or (start is not None and start.joins > 0)


def _of_link(state: RunState, end: FailedExit, told_by: int) -> Cause:
    """Of two nodes, one of which says that it could not reach the other: the one is named that was first to fail more
    often, else the other."""
    nodes = state.status.assignment.nodes
    why = end.exit.stderr_tail.strip()[:200] or "nobody says why"
    words = (
        f"rank {state.rank(told_by)} on {nodes[told_by]} could not reach rank {state.rank(end.slot)} on {end.node} for "
        f"a step: {why}; which of the two nodes is at fault, or the network between them, is not known"
    )
    reading = Reading(AttemptCause.UNKNOWN, end.exit.reason, link=True, waits=True)
    failed = Counter(one.node for one in state.status.recovery.first_failures)
    likelier = max(end.slot, told_by, key=lambda slot: failed[nodes[slot]])
    both = tuple(sorted((end.slot, told_by)))
    evidence = Evidence(reading.kind, likelier, nodes[likelier], end.exit.at, words, reading.root, slots=both)
    return Cause(evidence, reading, end.exit.reason, exited=True)


def _of_detection(evidence: Evidence) -> Cause:
    kind = next((kind for kind in AttemptCause if kind == evidence.kind), AttemptCause.UNKNOWN)
    return Cause(evidence, Reading(kind, evidence.root), evidence.kind)


def _faults_of_machines(state: RunState) -> list[Cause]:
    """What the nodes of the gang and the logs of its ranks tell of the machines, since the attempt began."""
    entry = state.attempt_entry(state.status.attempt)
    begun = entry.started_at if entry is not None and entry.started_at is not None else state.now
    found = []
    for slot in state.slot_range():
        if state.rank(slot) < 0:
            continue  # a spare
        name = state.status.assignment.nodes[slot]
        node, report = state.snapshot.nodes.get(name), state.report(slot)
        sign = next(filter(is_hardware, own_signs(state, slot)), None)
        if report is not None and sign is not None and report.attempt == state.status.attempt:
            words = f"rank {state.rank(slot)} on {name} logged {sign.kind}: {sign.text}"
            found.append(_fault(Evidence(AttemptCause.HARDWARE, slot, name, sign.at, words, sign.kind)))
        if node is None or not node.conditions or node.conditions_changed_at < begun:
            continue
        condition = next(iter(bad_conditions(node)), "")
        if condition:
            words = (
                f"node {name} of rank {state.rank(slot)} has the condition {condition}: {node.conditions[condition]}"
            )
            seen = Evidence(AttemptCause.HARDWARE, slot, name, node.conditions_changed_at, words, condition)
            found.append(_fault(seen, condition))
    return found


def _lacking_devices(state: RunState, began: float) -> list[Cause]:
    """Nodes of the gang that offer fewer GPUs than its pod there was given: their device plugin found some unhealthy.

    When is not known, so it counts from the end that it may explain. None at all is no evidence: so it is for a while
    whenever a kubelet or a device plugin starts again.
    """
    gpus, found = state.status.resolved.gpus_per_node, []
    for slot in state.slot_range():
        name = state.status.assignment.nodes[slot]
        node = state.snapshot.nodes.get(name)
        if node is None or state.rank(slot) < 0:
            continue
        left = node.allocatable.get(state.status.resolved.gpu_resource, 0)
        if 0 < left < gpus:
            words = f"node {name} of rank {state.rank(slot)} has {left} healthy GPUs left of {gpus}"
            seen = Evidence(AttemptCause.HARDWARE, slot, name, began, words, UNHEALTHY_DEVICE)
            found.append(_fault(seen, UNHEALTHY_DEVICE))
    return found


def _fault(evidence: Evidence, condition: str = "") -> Cause:
    return Cause(
        evidence,
        Reading(AttemptCause.HARDWARE, evidence.root, on_node=True),
        AttemptCause.HARDWARE,
        condition=condition,
    )


def _skew(report: WorkerReport | None) -> float:
    return report.clock_skew if report is not None else 0.0
