"""A run in one admission cycle: as it was seen, and what has been decided for it so far."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.queueing.order import Points
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import find, is_accepted_or_waits, is_true
from lockstep.core.model.plan import EnsureConfigMap, Event, StatusWrite
from lockstep.core.model.reasons import ConditionType, WaitReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.pods.pod_template import has_quantities, section

_NO_POINTS = Points(0, 0, 0, 0, 0)


@dataclass(slots=True)
class PendingReason:
    """Why a run got nothing, or not all it lacks. ``message`` may be long; ``blockers`` are UIDs.

    ``named``: those of them that it may hear of, by name; None: nobody has looked.
    """

    word: WaitReason | Literal[""]
    message: str
    blockers: tuple[str, ...] = ()
    start: float | None = None
    assumption: str = ""
    named: tuple[str, ...] | None = None


class Entry:
    """One run. ``position`` is its place in its queue."""

    __slots__ = ("_decided", "_status", "config_maps", "events", "nodes", "points", "position", "reason", "run")

    def __init__(self, run: RunView, status: TrainingRunStatus, decided: "list[Entry] | None" = None) -> None:
        """``decided`` is where the entry goes once anything is decided of its run."""
        self.run = run
        self._status = status
        self._decided = decided
        self.nodes: frozenset[str] = frozenset()
        self.events: list[Event] = []
        self.reason: PendingReason | None = None
        self.points = _NO_POINTS
        self.position = 0
        self.config_maps: tuple[EnsureConfigMap, ...] = ()

    @property
    def status(self) -> TrainingRunStatus:
        """As it is to be. Events, nodes and all else of a decision come with a change of it."""
        return self._status

    @status.setter
    def status(self, status: TrainingRunStatus) -> None:
        self._status = status
        if self._decided is not None:
            self._decided.append(self)

    @property
    def view(self) -> RunView:
        """The run as it will be."""
        return self.run if self.status is self.run.status else replace(self.run, status=self.status)

    @property
    def spec(self) -> TrainingRunSpec:
        """Runs without a valid spec have no part in a cycle."""
        assert self.run.spec is not None
        return self.run.spec

    def writes(self) -> Iterable[StatusWrite]:
        """The write that this entry needs, if any."""
        if self.status is self.run.status or (not self.nodes and self.status == self.run.status):
            return  # who gets nodes need not be compared
        run, status = self.run, self.status
        config_maps = self.config_maps
        if self.nodes:
            assignment, spill = slots.spilled(status.assignment, run.namespace, run.name, run.uid)
            status = slots.put(status, assignment)
            config_maps += (spill,) if spill is not None else ()
        yield StatusWrite(
            namespace=run.namespace,
            name=run.name,
            uid=run.uid,
            resource_version=run.resource_version,
            status=status,
            nodes=self.nodes,
            config_maps=config_maps,
            events=tuple(self.events),
        )


def lacks_nodes(run: RunView) -> bool:
    """The gang holds its place and waits for a node in some slot."""
    wanted = run.spec is not None and not (run.spec.cancel or run.spec.suspend or run.deleting or run.is_left_alone)
    goes = _is_ending(run) or run.status.preemption is not None
    return wanted and bool(run.status.assignment.nodes and run.status.assignment.vacant) and not goes


def is_pending(run: RunView) -> bool:
    """The run is accepted as it is now, or as it was (``is_unjudged``), wants nodes and has none."""
    if run.spec is None or run.spec.suspend or run.spec.cancel or run.deleting or _is_ending(run):
        return False
    if slots.is_held(run.status.assignment) or is_true(run.status, ConditionType.STATE_REGRESSION) or is_test_only(run):
        return False
    return _is_accepted(run) or is_unjudged(run)


def is_unjudged(run: RunView) -> bool:
    """The run was accepted before its spec was edited, and no verdict on that is there: it keeps its place for a while,
    and starts only with one. Of requests that nobody can read the verdict is known."""
    accepted = find(run.status, ConditionType.ACCEPTED)
    if accepted is None or run.spec is None or run.spec_error:
        return False
    if accepted.status != "True" or accepted.observed_generation == run.generation:
        return False
    return has_quantities(section(run.spec.pod_template, "spec"))


def is_asked(run: RunView) -> bool:
    """The run is accepted as it is now and asks when it would start, which is not answered yet."""
    if not is_test_only(run) or run.spec is None or run.spec.cancel or run.deleting or _is_ending(run):
        return False
    answer = run.status.test_only
    return (answer is None or answer.observed_generation != run.generation) and _is_accepted(run)


def _is_accepted(run: RunView) -> bool:
    if run.spec_error:
        return False  # whatever another release of the operator has thought of it
    accepted = find(run.status, ConditionType.ACCEPTED)
    if accepted is None or accepted.observed_generation != run.generation:
        return False
    return is_accepted_or_waits(run.status)


def holds_nodes(run: RunView) -> bool:
    """The run has nodes of its own, be it to end soon."""
    return slots.is_held(run.status.assignment) and not is_true(run.status, ConditionType.FINISHED)


def _is_ending(run: RunView) -> bool:
    return run.status.stop is not None or is_true(run.status, ConditionType.FINISHED)
