"""The few fields of Kubernetes objects that are ever decoded, in the shapes they have on the wire."""

from datetime import datetime

import msgspec
from msgspec import Struct

Requests = dict[str, str | int]


class Owner(Struct, frozen=True, rename="camel"):
    """An owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Struct, frozen=True, rename="camel"):
    """What is read of any object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[Owner] = []


class AnyObject(Struct, frozen=True):
    """An object of which only the metadata matters."""

    metadata: Metadata


class Identity(Struct, frozen=True, rename="camel"):
    """What tells one version of one object from all others."""

    uid: str
    resource_version: str
    namespace: str = ""


class Identified(Struct, frozen=True):
    """An object of which nothing is known but which it is."""

    metadata: Identity


class PriorityClass(Struct, frozen=True):
    """A PriorityClass."""

    metadata: Metadata
    value: int = 0


class ResourceRequirements(Struct, frozen=True):
    """What a container or a whole pod requests."""

    requests: Requests = {}


class Container(Struct, frozen=True, rename="camel"):
    """A container of a pod spec."""

    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class NodeRequirement(Struct, frozen=True):
    """One match on a field of a node."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeTerm(Struct, frozen=True, rename="camel"):
    """A node selector term; labels are not read."""

    match_fields: list[NodeRequirement] = []


class NodeTerms(Struct, frozen=True, rename="camel"):
    """Terms of which one must match."""

    node_selector_terms: list[NodeTerm] = []


class NodeAffinity(Struct, frozen=True):
    """Node affinity of a pod; only what is required."""

    required: NodeTerms | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct, frozen=True, rename="camel"):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None


class SchedulingGate(Struct, frozen=True):
    """What keeps a pod from being scheduled until somebody takes it off."""

    name: str = ""


class PodSpec(Struct, frozen=True, rename="camel"):
    """What is read of a pod spec."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Requests = {}
    resources: ResourceRequirements = ResourceRequirements()
    affinity: Affinity | None = None
    scheduling_gates: list[SchedulingGate] = []
    scheduler_name: str = ""
    priority: int = 0


class Waiting(Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerRunning(Struct, frozen=True, rename="camel"):
    """Since when a container runs."""

    started_at: datetime | None = None


class Terminated(Struct, frozen=True, rename="camel"):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Struct, frozen=True):
    """Exactly one of the three is set, or none before the kubelet spoke."""

    waiting: Waiting | None = None
    running: ContainerRunning | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True):
    """State of one container."""

    name: str = ""
    state: ContainerState = ContainerState()


class ObjectCondition(Struct, frozen=True, rename="camel"):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Struct, frozen=True, rename="camel"):
    """What is read of a pod status."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[ObjectCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Struct, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobStatus(Struct, frozen=True, rename="camel"):
    """What is read of a job's status."""

    start_time: datetime | None = None
    ready: int = 0
    conditions: list[ObjectCondition] = []


class JobContainer(Struct, frozen=True):
    """What is read of a container of a job's pods."""

    name: str = ""
    args: list[str] = []


class JobPodSpec(Struct, frozen=True):
    """What is read of the spec of a job's pods."""

    containers: list[JobContainer] = []


class JobTemplate(Struct, frozen=True):
    """What is read of the template of a job's pods."""

    spec: JobPodSpec = JobPodSpec()


class JobSpec(Struct, frozen=True):
    """What is read of a job's spec."""

    template: JobTemplate = JobTemplate()


class BatchJob(Struct, frozen=True):
    """A job."""

    metadata: Metadata
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class NodeTaint(Struct, frozen=True):
    """A taint."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Struct, frozen=True):
    """What is read of a node spec."""

    taints: list[NodeTaint] = []
    unschedulable: bool = False


class Address(Struct, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Struct, frozen=True):
    """What is read of a node status."""

    allocatable: Requests = {}
    capacity: Requests = {}
    conditions: list[ObjectCondition] = []
    addresses: list[Address] = []


class Node(Struct, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
