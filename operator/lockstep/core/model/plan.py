"""Decisions as data. The executor does what a Plan says in the order of its fields: only a ``status`` may come later.

What workers are told of a Directive are msgspec structs: they go over the wire as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec import Struct

from lockstep.api.queue import TrainingQueueStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.kueue.writes import WorkloadWrite
from lockstep.core.model.named_objects import NamedObject
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import ActionWord, AnyReason, Recorded
from lockstep.core.model.snapshot import NodeFailure
from lockstep.core.model.start_record import CollectiveStart
from lockstep.slurm.environment import SlurmJob


@dataclass(frozen=True, slots=True)
class EnsureConfigMap:
    """Create an immutable ConfigMap; one that exists under the name is the same by construction, unless it changes."""

    namespace: str
    name: str
    body: Mapping[str, Any]
    optional: bool = False  # nothing rests on it: where it is refused the plan goes on
    changes: bool = False  # it is not immutable, and one that exists is brought up to date
    shared: bool = False  # by all gangs of the namespace: one that was there just now is not asked for again


@dataclass(frozen=True, slots=True)
class EnsurePodGroup:
    """Create the PodGroup that pods are about to name; one that exists and is the run's own is the same."""

    namespace: str
    name: str
    api_version: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePodGroup:
    """Delete a PodGroup of the run. It may be gone already, or never have been made."""

    namespace: str
    name: str
    api_version: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create one gang pod."""

    namespace: str
    name: str
    slot: int
    incarnation: int
    node: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePlaceholder:
    """Create a pod that holds a place for the gang; one of the run that exists under the name is the same."""

    namespace: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EnsureProvisioning:
    """Create a ProvisioningRequest and the PodTemplate that it names. Those of an earlier attempt are gone before."""

    namespace: str
    name: str
    template: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteProvisioning:
    """Delete the run's ProvisioningRequest, and the PodTemplate of the same name. Either may be gone already."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create a Job; one that exists under the name is the same work by construction."""

    namespace: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job with its UID as precondition. It is there until its pods are gone."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SubmitRun:
    """Create the run that a batch job submits; one that exists under the name is the same by construction, or in its
    way."""

    namespace: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefuseRun:
    """Delete a run that a batch job has submitted, as it was seen: refused, and without a number. Who asked is told why
    after that: the run would start once it is refused no more."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    why: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete one pod, with its UID as precondition. ``grace`` in seconds; None leaves the pod's own."""

    namespace: str
    name: str
    uid: str
    reason: str
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class RememberFailure:
    """Carry a first failure to its Node, so that other runs and people find it there."""

    node: str
    uid: str
    failure: NodeFailure


@dataclass(frozen=True, slots=True)
class ForgiveFailures:
    """Take failures off their Node that turned out to be the program's."""

    node: str
    uid: str
    failures: tuple[NodeFailure, ...]


class DesiredPhase(StrEnum):
    """What the workers of a run are to be doing. Never a one-shot command."""

    PREPARE = "Prepare"  # end older processes and stand at the barrier for ``attempt``
    RUN = "Run"
    STOP = "Stop"  # end the child gracefully, keep the pod
    COMPLETE = "Complete"  # leave, with the child's code


class VerifyRequest(Struct, frozen=True, rename="camel"):
    """Read the bytes of a checkpoint and compare its checksums; files are shared out over the ranks."""

    tier: str
    path: str
    step: int
    share: int = 0  # which of them, as one worker is told
    of: int = 1


class SaveRequest(Struct, frozen=True, rename="camel"):
    """A collective save: every rank saves at ``at_step`` (0: at the next opportunity). Answered once per id."""

    id: str
    at_step: int
    deadline: float  # unix seconds on the operator's clock
    reason: str = ""


class CadenceOrder(Struct, frozen=True, rename="camel"):
    """How often the program is to save by itself. 0: not known."""

    seconds: float = 0.0
    steps: int = 0
    shared_steps: int = 0
    from_step: int = 0  # until then the order before holds: ranks hear of a new one at different steps


@dataclass(frozen=True, slots=True)
class PointRequest:
    """Rewrite the pointer files of a directory to a step; carried out by the worker in ``slot`` alone."""

    path: str
    step: int
    format: str
    slot: int


class RetentionOrder(Struct, frozen=True, rename="camel"):
    """What earlier attempts saved on the nodes' own disks and the workers may remove: what is older than ``floor``, by
    step, then attempt, but for ``kept``; and what is in ``spent``."""

    floor: Save | None = None
    kept: tuple[Save, ...] = ()
    spent: tuple[Save, ...] = ()

    def lets_go(self, save: Save) -> bool:
        """The save may be removed, if an earlier attempt made it."""
        below = self.floor is not None and (save.step, save.attempt) < (self.floor.step, self.floor.attempt)
        return save in self.spent or (below and save not in self.kept)


class WarmUpRequest(Struct, frozen=True, rename="camel"):
    """An exchange between the nodes before user code starts. ``addresses`` by rank, ports in ``ports``."""

    id: str
    kind: str  # Ring or Pairwise
    addresses: tuple[str, ...]
    ports: tuple[int, ...]


class AskAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """To what a batch job asked for from inside."""

    id: str
    ok: bool
    words: str
    job_id: int | None = None


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """A batch job and its script, which is rank 0's alone. Patterns of files are as they were typed; empty: not said.
    ``words``: by rank all that mean the node, beside its address."""

    job: SlurmJob
    words: tuple[tuple[str, ...], ...]
    script: str
    arguments: tuple[str, ...] = ()
    output: str = ""
    error: str = ""
    input: str = ""
    append: bool = False
    directory: str = ""
    command: str = ""  # path of the script's file, as it was submitted


@dataclass(frozen=True, slots=True)
class PassOver:
    """Checkpoints that may not be chosen, for workers to list older ones beside them: those beyond a step, single ones
    by tier, step and attempt (0: not known), and what attempts up to one saved from a step on: step and attempt."""

    beyond: int | None = None
    saves: tuple[tuple[str, int, int], ...] = ()
    diverged: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Directive:
    """SetDesired: what every worker of the run is answered until the next one."""

    attempt: int
    phase: DesiredPhase
    incarnations: tuple[int, ...]  # by slot
    slot_ranks: tuple[int, ...]  # by slot; -1: a spare
    joining: frozenset[int] = frozenset()  # with RUN: slots of ranks that prepare for it, to join what goes on
    start: CollectiveStart | None = None  # with RUN
    nodelist: tuple[str, ...] = ()  # addresses by rank, with RUN
    step_ports: tuple[int, ...] = ()  # of the step servers by rank, with RUN; empty: the run has no steps
    step_nodes: tuple[str, ...] = ()  # what Kubernetes calls the nodes by rank, with ``step_ports``
    batch: BatchOrder | None = None  # with RUN; None: it is no batch job
    has_token: bool = False  # with RUN: its workers share a secret
    takes_steps: bool = False  # with PREPARE: its workers have to say at which port they take steps
    verify: VerifyRequest | None = None  # with PREPARE
    look_again: frozenset[int] = frozenset()  # with PREPARE: slots that take inventory once more (`lookAgain`)
    pass_over: PassOver | None = None  # with PREPARE, whenever inventory is taken
    stop_grace: int = 30
    save: SaveRequest | None = None  # with RUN
    stopping_at: float = 0.0  # with RUN: the gang will be stopped then at the latest, so should_stop() is true
    cadence: CadenceOrder | None = None  # with RUN
    watch: tuple[tuple[str, str], ...] = ()  # with RUN: (rule, pattern) to look for in stderr
    progress_pattern: str = ""  # with RUN: of the lines of its output that tell a step; empty: those that are known
    stacks: str = ""  # with RUN: id of a request for the stacks of all ranks
    point: PointRequest | None = None  # with PREPARE
    warm_up: WarmUpRequest | None = None  # with PREPARE
    jitter: float = 0.0  # with RUN: seconds over which the ranks spread their start
    retention: RetentionOrder | None = None  # with RUN
    asked: tuple[AskAnswer, ...] = ()  # to what programs of the current attempt asked for


@dataclass(frozen=True, slots=True)
class Event:
    """An events.k8s.io event, emitted after the status write that it tells of."""

    type: str  # Normal or Warning
    reason: AnyReason | Recorded
    action: ActionWord
    note: str
    node: str = ""  # also said on this Node


@dataclass(frozen=True, slots=True)
class DryRunPod:
    """Ask the API server whether it would take this pod (dryRun=All, fieldValidation=Strict), and for what it names.

    ``body`` None: it would, and only the names are asked for once more.
    """

    generation: int
    body: Mapping[str, Any] | None
    named: tuple[NamedObject, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done for one run, in the order of its fields.

    Nothing after ``status`` may be executed unless that write succeeded (or none was needed):
    whatever must last is in status before it is acted on. With ``pod_group_deletes`` nothing rests on it: all that it
    changes is that it forgets these, which have to be gone by then. It is written after them.
    """

    wake_at: float | None = None  # first, so that the run is reconciled again whatever becomes of the rest
    config_maps: tuple[EnsureConfigMap, ...] = ()
    status: TrainingRunStatus | None = None  # None: unchanged
    directive: Directive | None = None
    events: tuple[Event, ...] = ()
    dry_run: DryRunPod | None = None
    take_job_id: bool = False  # the run waits for a number, and is looked at again once it has one
    deletes: tuple[DeletePod, ...] = ()  # from here to ``node_failures`` all at the same time
    pod_group: EnsurePodGroup | None = None  # of the pods that are created, and before them
    creates: tuple[CreatePod, ...] = ()
    jobs: tuple[CreateJob, ...] = ()
    ended_jobs: tuple[DeleteJob, ...] = ()
    runs: tuple[SubmitRun, ...] = ()
    refused_runs: tuple[RefuseRun, ...] = ()
    placeholders: tuple[CreatePlaceholder, ...] = ()
    provisioning: EnsureProvisioning | DeleteProvisioning | None = None
    node_failures: tuple[RememberFailure | ForgiveFailures, ...] = ()  # nothing waits for these
    pod_group_deletes: tuple[DeletePodGroup, ...] = ()  # where one fails, status names them still and the rest is done
    delete_run: bool = False  # its record has been kept for as long as was asked
    workload: WorkloadWrite | None = None  # rests on the status and on the pods that are gone already
    admission_changed: bool = False  # an admission cycle follows, also when something above has failed


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """One run's status as the admission cycle wants it, with the nodes it books."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    status: TrainingRunStatus
    nodes: frozenset[str]
    config_maps: tuple[EnsureConfigMap, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueStatusWrite:
    """What a TrainingQueue is to say of itself."""

    name: str
    uid: str
    resource_version: str
    status: TrainingQueueStatus


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What one admission cycle decided. Writes touch different runs and may go out together."""

    writes: tuple[StatusWrite, ...] = ()
    wake_at: float | None = None
    queues: tuple[QueueStatusWrite, ...] = ()  # once the other writes are done: nothing rests on them
