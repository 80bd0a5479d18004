"""Snapshot for the planner of arrays, and its decisions as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.api.run_set import TrainingRunSetSpec, TrainingRunSetStatus
from lockstep.core.model.plan import Event
from lockstep.core.model.snapshot import RunView


@dataclass(frozen=True, slots=True)
class RunSetView:
    """A TrainingRunSet. ``spec`` is None when it does not parse; ``spec_error`` then says why. ``status`` is the empty
    one when it does not parse; ``status_error`` then says why."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: float
    spec: TrainingRunSetSpec | None
    status: TrainingRunSetStatus
    spec_error: str = ""
    status_error: str = ""
    deleting: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class RunSetSnapshot:
    """Everything ``decide_run_set`` reads.

    ``runs`` are the set's own, by index. ``departed`` are those that were seen to go, as they were seen last. Indices
    in ``taken`` have a run of their name that is not the set's. ``refused`` is what the API server said, by index, of
    runs that it would not take and that are not on record yet; ``fruitless`` is how often in a row it was asked for
    runs that were new to it, and took none. ``sets`` are all of the namespace, by name. ``job_id`` is a
    number that was taken for it and is in no status yet; 0: none was. ``namesake``: a run was called so before it, and
    has not ended.
    """

    run_set: RunSetView
    runs: Mapping[int, RunView] = field(default_factory=dict)
    departed: Mapping[int, RunView] = field(default_factory=dict)
    taken: frozenset[int] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)
    fruitless: int = 0
    sets: Mapping[str, RunSetView] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    job_id: int = 0
    namesake: bool = False


@dataclass(frozen=True, slots=True)
class CreateRun:
    """Create the run of one index; one that exists under the name is the same by construction, if the set owns it."""

    name: str
    index: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunSetPlan:
    """What is to be done for one set, in the order of the fields. Nothing after ``status`` may be done unless that
    write succeeded, or none was needed."""

    status: TrainingRunSetStatus | None = None  # None: unchanged
    events: tuple[Event, ...] = ()
    creates: tuple[CreateRun, ...] = ()  # in this order; who is refused leaves its place to the next
    room: int = 0  # so many of them may be made
    delete_set: bool = False  # its record has been kept for as long as was asked
    wake_at: float | None = None
    take_job_id: bool = False  # it waits for a number
