"""What the cluster has of Kueue: whether it is there at all, and its queues, flavors and topologies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lockstep.core.model.kueue.workload import PodSetUpdate, WorkloadView


class Presence(StrEnum):
    """Whether the API of Kueue is served, and used."""

    UNKNOWN = "Unknown"  # nobody has looked yet, or not everything has been listed: nothing may be concluded
    DISABLED = "Disabled"  # the operator is not to look, and lacks the rights
    ABSENT = "Absent"
    PRESENT = "Present"


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: what it wants of the pods, and the Topology it is placed by."""

    update: PodSetUpdate
    topology: str = ""


@dataclass(frozen=True, slots=True)
class Kueue:
    """Views into live state. ``workloads`` and ``local_queues`` by namespace and name.

    ``local_queues`` name their ClusterQueue, ``cluster_queues`` their flavors, ``topologies`` their levels, the widest
    first, ``classes`` (WorkloadPriorityClass) and ``pod_classes`` (PriorityClass) their value. ``refused`` says, in the
    API server's words, why the last write of a Workload was not taken.
    """

    presence: Presence = Presence.UNKNOWN
    workloads: Mapping[tuple[str, str], WorkloadView] = field(default_factory=dict)
    local_queues: Mapping[tuple[str, str], str] = field(default_factory=dict)
    cluster_queues: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)
    pod_classes: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def is_present(self) -> bool:
        """Kueue is there, and everything of it is known."""
        return self.presence is Presence.PRESENT

    def flavors_of(self, namespace: str, queue: str) -> list[Flavor]:
        """The flavors behind a LocalQueue, in the order of its ClusterQueue."""
        behind = self.cluster_queues.get(self.local_queues.get((namespace, queue), ""), ())
        return [self.flavors[name] for name in behind if name in self.flavors]

    def levels_of(self, namespace: str, queue: str) -> tuple[str, ...]:
        """Node labels by which the flavors behind a LocalQueue place pods; empty: they don't."""
        placing = (flavor.topology for flavor in self.flavors_of(namespace, queue) if flavor.topology)
        return self.topologies.get(next(placing, ""), ())


def parse_local_queue(raw: Mapping[str, Any]) -> str:
    """The ClusterQueue that a LocalQueue points to."""
    return str((raw.get("spec") or {}).get("clusterQueue") or "")


def parse_cluster_queue(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The flavors of a ClusterQueue, in its order."""
    groups = (raw.get("spec") or {}).get("resourceGroups") or ()
    return tuple(dict.fromkeys(str(each.get("name")) for group in groups for each in group.get("flavors") or ()))


def parse_flavor(raw: Mapping[str, Any]) -> Flavor:
    """A ResourceFlavor."""
    spec = raw.get("spec") or {}
    update = PodSetUpdate(
        source=f"ResourceFlavor {raw['metadata']['name']}",
        node_selector=dict(spec.get("nodeLabels") or {}),
        tolerations=tuple(spec.get("tolerations") or ()),
    )
    return Flavor(update, str(spec.get("topologyName") or ""))


def parse_topology(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The levels of a Topology."""
    return tuple(str(each.get("nodeLabel")) for each in (raw.get("spec") or {}).get("levels") or ())


def parse_class(raw: Mapping[str, Any]) -> int:
    """The value of a WorkloadPriorityClass."""
    return int(raw.get("value") or 0)
