"""The few fields of Kubernetes objects that are ever decoded, in the shapes they have on the wire."""

from datetime import datetime

import msgspec
from msgspec import Struct

Requests = dict[str, str | int]


class Owner(Struct):
    """An owner reference."""

    uid: str = ""
    controller: bool = False


class ObjectMeta(Struct, rename="camel"):
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


class AnyObject(Struct):
    """An object of which only the metadata matters."""

    metadata: ObjectMeta


class ResourceRequirements(Struct):
    """What a container or a whole pod requests."""

    requests: Requests = {}


class Container(Struct, rename="camel"):
    """A container of a pod spec."""

    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class NodeRequirement(Struct):
    """One match on a field of a node."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeTerm(Struct, rename="camel"):
    """A node selector term; labels are not read."""

    match_fields: list[NodeRequirement] = []


class NodeTerms(Struct, rename="camel"):
    """Terms of which one must match."""

    node_selector_terms: list[NodeTerm] = []


class NodeAffinity(Struct):
    """Node affinity of a pod; only what is required."""

    required: NodeTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, rename="camel"):
    """Affinity of a pod."""

    node_affinity: NodeAffinity | None = None


class PodSpec(Struct, rename="camel"):
    """What is read of a pod spec."""

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Requests = {}
    resources: ResourceRequirements = ResourceRequirements()
    affinity: Affinity | None = None


class Waiting(Struct):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(Struct, rename="camel"):
    """Since when a container runs."""

    started_at: datetime | None = None


class Terminated(Struct, rename="camel"):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None


class ContainerState(Struct):
    """Exactly one of the three is set, or none before the kubelet spoke."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct):
    """State of one container."""

    name: str = ""
    state: ContainerState = ContainerState()


class Condition(Struct, rename="camel"):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Struct, rename="camel"):
    """What is read of a pod status."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Struct):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Struct):
    """A taint."""

    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Struct):
    """What is read of a node spec."""

    taints: list[Taint] = []
    unschedulable: bool = False


class Address(Struct):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Struct):
    """What is read of a node status."""

    allocatable: Requests = {}
    conditions: list[Condition] = []
    addresses: list[Address] = []


class Node(Struct):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
