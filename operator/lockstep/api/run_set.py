"""TrainingRunSet: many like runs that differ in an index, as a job array of Slurm."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from lockstep.api.base import indices, names
from lockstep.api.base.schema import Changeable, Duration, MapList, ObjectName, Rule, SpecModel, StatusModel, Timestamp
from lockstep.api.queue import LabelValue
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import Condition
from lockstep.slurm.environment import MOST_JOB_ID

OnUnsatisfiable = Literal["Hold", "Cancel"]
CancelScope = Literal["Waiting", "All"]

INDEX_VARIABLE = "$(LOCKSTEP_ARRAY_INDEX)"
_RANGES = Field(max_length=65_536)
_WELL_FORMED = f"self.matches('{indices.PATTERN}')"


def _checked(text: str) -> str:
    indices.parse_indices(text)
    return text


def _checked_if_any(text: str) -> str:
    return _checked(text) if text else text


def _free_of_ours(words: str) -> Rule:
    return Rule(
        f"self.all(key, !key.startsWith('{names.GROUP}/'))",
        f"{words} of {names.GROUP}/ are Lockstep's to set; leave them out",
    )


class RunMetadata(SpecModel):
    """Labels and annotations of every run of a set."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=32), _free_of_ours("labels")] = Field(
        default_factory=dict
    )
    """Labels; lockstep.dev/set and lockstep.dev/index are added."""
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32), _free_of_ours("annotations")
    ] = Field(default_factory=dict)
    """Annotations; lockstep.dev/user of the set is added."""


class RunTemplate(SpecModel):
    """What every run of a set is made from. $(LOCKSTEP_ARRAY_INDEX) becomes the index wherever it stands."""

    metadata: RunMetadata = RunMetadata()
    """Labels and annotations."""
    spec: TrainingRunSpec
    """The spec of a TrainingRun. A change counts for runs that are made from then on."""

    cross_field_rules: ClassVar = (
        Rule(
            "!self.spec.suspend && !self.spec.cancel",
            "is the set's to say; write spec.suspend or spec.cancel",
            field=".spec",
        ),
        Rule(
            "!has(self.spec.checkpoint) || self.spec.checkpoint.layout != 'Shared' || "
            "!has(self.spec.checkpoint.shared.path) || "
            f"self.spec.checkpoint.shared.path.contains('{INDEX_VARIABLE}')",
            f"with layout Shared no two runs may save in one directory; put {INDEX_VARIABLE} into shared.path, "
            "or leave the path out",
            field=".spec.checkpoint",
        ),
    )


class StopOnFailure(SpecModel):
    """When a set gives up, and what it gives up."""

    failures: Annotated[int, Field(ge=1, le=indices.MAX_COUNT)] = 1
    """So many indices have failed."""
    cancel: CancelScope = "Waiting"
    """Waiting: whoever never had nodes is cancelled, the others go on to their end, also after they were requeued or
    suspended. All: these are cancelled too, after a save."""


class TrainingRunSetSpec(SpecModel):
    """Many like runs that differ in an index: a job array."""

    indices: Annotated[
        str,
        Field(min_length=1, max_length=800),
        Rule(_WELL_FORMED, indices.REMEDY),
        Rule(
            f"!{_WELL_FORMED} || self.split(',').all(p, !p.contains('-') || "
            "int(p.split('-')[0]) <= int(p.split('-')[1].split(':')[0]))",
            indices.RANGE_REMEDY,
        ),
        # Of one range alone: the sum over many would cost more than the API server grants. The operator counts all.
        Rule(
            "!self.matches('^[0-9]{1,5}-[0-9]{1,5}(:[1-9][0-9]{0,4})?$') || "
            "(int(self.split('-')[1].split(':')[0]) - int(self.split('-')[0])) / "
            f"(self.contains(':') ? int(self.split(':')[1]) : 1) < {indices.MAX_COUNT}",
            indices.COUNT_REMEDY,
        ),
        Rule("self == oldSelf", "never changes after creation; create another set"),
        AfterValidator(_checked),
    ]
    """The indices, as in Slurm: 0-99, 0-99:2 or 1,3,7-9; at most 10,000 of 0 to 99,999. Never changes."""
    max_running: Annotated[int, Field(ge=0, le=indices.MAX_COUNT)] | None = None
    """Most runs of the set that have nodes at the same time, the %8 of Slurm; no bound when left out. 0: nothing new
    starts, what trains goes on. May change at any time; a lower one stops nobody."""
    template: Annotated[RunTemplate, Changeable.ALWAYS]
    """What every run is made from."""
    after_corr: ObjectName | None = None
    """A TrainingRunSet of the same namespace: an index starts only after the same index of that set has succeeded."""
    on_unsatisfiable: OnUnsatisfiable = "Hold"
    """What becomes of indices whose afterCorr can never be met any more. Hold: they wait, and the set says so. Cancel:
    they are cancelled."""
    stop_on_failure: StopOnFailure | None = None
    """Give up after failures; when left out, every index gets its run whatever becomes of the others."""
    suspend: bool = False
    """No more runs are made; those that wait are held, those that train save, give their nodes back and wait."""
    cancel: Annotated[
        bool,
        Rule("self || !oldSelf", "cancel is one-way: this set ends; create another one"),
    ] = False
    """End every run and keep the record. One-way."""
    cancel_indices: Annotated[
        str,
        Field(max_length=16_384),
        Rule(f"self == '' || {_WELL_FORMED}", indices.REMEDY),
        AfterValidator(_checked_if_any),
    ] = ""
    """Indices to cancel, written like `indices`. What has ended by then stays as it is."""
    ttl_after_finished: Duration | None = None
    """So long after its end the set is deleted, and with it its runs; never when left out."""


class SetStop(StatusModel):
    """The set has given up."""

    reason: str
    """StoppedOnFailure."""
    message: str = ""
    """What led to it, in a sentence."""
    time: Timestamp
    """When that was decided."""
    cancel: CancelScope = "Waiting"
    """Whom it cancels."""


class SetCounts(StatusModel):
    """How many indices there are of each kind; all but `total` add up to it."""

    total: int = 0
    """Indices of the set."""
    pending: int = 0
    """Those that have no nodes and have not ended, be there a run of them yet or not."""
    running: int = 0
    """Those whose run has nodes."""
    succeeded: int = 0
    """Those whose run succeeded."""
    failed: int = 0
    """Those whose run failed."""
    cancelled: int = 0
    """Those that were cancelled, or whose run was deleted before its end."""


class SetIndices(StatusModel):
    """Which indices, as ranges such as 0-41,45. Those that are named nowhere wait for a run."""

    active: Annotated[str, _RANGES] = ""
    """Those with a run that has not ended."""
    succeeded: Annotated[str, _RANGES] = ""
    """Those that succeeded."""
    failed: Annotated[str, _RANGES] = ""
    """Those that failed."""
    cancelled: Annotated[str, _RANGES] = ""
    """Those that were cancelled."""


class SetDependency(StatusModel):
    """Where the indices stand with afterCorr. What was once met stays met, what once failed stays failed."""

    name: str
    """The set that comes first."""
    met: Annotated[str, _RANGES] = ""
    """Indices without a run that may start."""
    never: Annotated[str, _RANGES] = ""
    """Indices without a run that never can."""


class SetRefusal(StatusModel):
    """Runs that the API server does not take."""

    indices: Annotated[str, _RANGES] = ""
    """Those that were refused and have no run yet. The others go on."""
    last: int = 0
    """The index that was refused last."""
    message: str = ""
    """What the API server said of it."""
    tries: int = 0
    """How often runs were refused since one of these was taken; the wait grows with it."""
    retry_at: Timestamp
    """From when on the next of them is tried again."""


class TrainingRunSetStatus(StatusModel):
    """What is the case, as the operator last saw it. It outlives the runs."""

    observed_generation: int = 0
    """The generation of the spec this status is about."""
    conditions: Annotated[tuple[Condition, ...], MapList("type"), Field(max_length=8)] = ()
    """Accepted, Progressing, Suspended, Finished (every index has an outcome) and Succeeded (all succeeded)."""
    state: str = ""
    """One word for people, made from the rest; programs read the conditions."""
    reason: str = ""
    """The reason behind `state`."""
    job_id: Annotated[int, Field(ge=1, le=MOST_JOB_ID)] | None = None
    """The array's number among the cluster's batch jobs, SLURM_ARRAY_JOB_ID; only with launcher.type: Slurm."""
    done: str = ""
    """Indices with an outcome, of all, e.g. 41/100."""
    counts: SetCounts = SetCounts()
    """How many."""
    indices: SetIndices = SetIndices()
    """Which."""
    dependency: SetDependency | None = None
    """Where the indices stand with afterCorr."""
    refusal: SetRefusal | None = None
    """Runs that the API server does not take."""
    stop: SetStop | None = None
    """The set has given up; written before anything is cancelled for it."""

    def dump(self) -> dict[str, Any]:
        """Return the JSON form. A 0 is written too: people look at it."""
        return self.model_dump(mode="json", exclude_none=True)
