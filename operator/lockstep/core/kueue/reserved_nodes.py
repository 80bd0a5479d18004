"""From a reservation of Kueue's to nodes: exactly those it names, or ours to choose within what it names."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from lockstep.api.run_spec import PlacementSpec
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.topology_assignment import TopologyAssignment
from lockstep.core.model.kueue.workload import Admission, ConflictError, PodSetUpdate, merged
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.plural import plural
from lockstep.core.model.snapshot import NodeView
from lockstep.core.placement.node_fit import Requirement, summary
from lockstep.core.placement.node_pool import CandidateNodes
from lockstep.core.placement.placement import ClusterNodes, Placed, place
from lockstep.core.pods import pod_template

_NAMED = 5


class NotGivenError(Exception):
    """Why the nodes cannot be had, in words. ``taken``: nodes that other runs hold."""

    def __init__(self, message: str, taken: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.taken = taken


class NotNamedYetError(NotGivenError):
    """Kueue has yet to say which."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a reservation leaves to choose. ``update``: what flavors and admission checks want of the pods."""

    count: int
    topology: TopologyAssignment | None
    requirement: Requirement
    placement: PlacementSpec
    update: PodSetUpdate
    nodes: Mapping[str, NodeView]

    def place(self, cluster: ClusterNodes, reserved: NodeSet) -> tuple[tuple[str, ...], str]:
        """The gang's nodes in rank order, and their GPU type. ``reserved``: nodes that are kept for other runs.

        Raises NotGivenError.
        """
        if self.topology is None:
            free = replace(cluster, booked=cluster.booked | reserved)
            placed = self._placed(free, self.requirement, self.count, self.placement)
            return placed.nodes, placed.gpu_type
        if not self.topology.names_hosts:
            return self._of_one_kind(replace(cluster, booked=cluster.booked | reserved), self.topology)
        nodes = self._named(cluster, self._nodes_of(self.topology.hosts))
        return nodes, self._kind_of(cluster, nodes)

    def replacements(
        self, cluster: ClusterNodes, kept: Sequence[str], count: int, unhealthy: Collection[str] = ()
    ) -> tuple[str, ...]:
        """``count`` further nodes for a gang that keeps ``kept``; ``unhealthy`` are those for which Kueue seeks others.

        Raises NotGivenError.
        """
        if self.topology is None:
            placed = self._placed(cluster, self.requirement, len(kept) + count, self.placement, kept)
            return tuple(node for node in placed.nodes if node not in set(kept))
        kinds = self.placement.gpu_types
        alike = tuple(kind for kind in kinds if self._are_of(cluster, kept, kind)) or kinds
        if not self.topology.names_hosts:
            return self._within_domains(cluster, self.topology, kept, alike)
        hosts = [host for host in self.topology.hosts if host not in unhealthy]
        new = [node for node in self._nodes_of(hosts) if node not in set(kept)][:count]
        if len(new) < count:
            raise NotNamedYetError("Kueue has named no others yet")
        named = self._named(cluster, new)
        if alike and not any(self._are_of(cluster, named, kind) for kind in alike):
            raise NotGivenError(
                f"{_few(named)}, which Kueue names, {'is' if count == 1 else 'are'} not of the gang's GPU type "
                f"({', '.join(alike)}); requeue the run, and ask for one of spec.placement.gpuTypes"
            )
        return named

    def _nodes_of(self, hosts: Sequence[str]) -> tuple[str, ...]:
        """The names of the nodes that Kueue means, in the same order."""
        by_label = self._by_host(hosts)
        if len(set(hosts)) < len(hosts):
            twice = next(host for host in hosts if hosts.count(host) > 1)
            raise NotGivenError(
                f"Kueue puts two ranks on {twice}, and each has a node of its own here; "
                "ask for more than half a node, e.g. by gpusPerNode or resourcesPerNode.cpu"
            )
        missing = [host for host in hosts if host not in by_label]
        if missing:
            raise NotGivenError(f"there is no node with the host name {_few(missing)}")
        return tuple(by_label[host] for host in hosts)

    def _by_host(self, hosts: Sequence[str]) -> Mapping[str, str]:
        """Node names by host name, which are mostly the same."""
        views = [self.nodes.get(host) for host in hosts]
        if all(
            view is not None and view.labels.get(api_names.HOSTNAME_LEVEL, view.name) == view.name for view in views
        ):
            return {host: host for host in hosts}
        return {view.labels.get(api_names.HOSTNAME_LEVEL, name): name for name, view in self.nodes.items()}

    def _named(self, cluster: ClusterNodes, nodes: Sequence[str]) -> tuple[str, ...]:
        requirement = replace(self.requirement, named=frozenset(nodes))
        candidates = CandidateNodes.for_requirement(cluster.index, requirement, PlacementSpec())
        wanted = cluster.index.mask(nodes)
        taken = wanted & cluster.booked
        if taken:
            held = cluster.index.names(taken)
            raise NotGivenError(
                f"{_few(held)} of the nodes that Kueue names {'is' if len(held) == 1 else 'are'} held by others; "
                "give Kueue and the other queues nodes of their own",
                held,
            )
        unfit = wanted & ~candidates.able
        if unfit:
            refused = candidates.refused(cluster.booked, cluster.ending)
            why = summary(((refusal, nodes & wanted) for refusal, nodes in refused), candidates.names)
            raise NotGivenError(f"not all of the nodes that Kueue names can be used: {why}")
        return tuple(nodes)

    def _of_one_kind(self, cluster: ClusterNodes, topology: TopologyAssignment) -> tuple[tuple[str, ...], str]:
        """Nodes of each domain, all of the first GPU type of which there are enough."""
        *others, last = self.placement.gpu_types or ("",)
        for kind in others:
            with suppress(NotGivenError):
                return self._within_domains(cluster, topology, (), (kind,)), kind
        return self._within_domains(cluster, topology, (), (last,) if last else ()), last

    def _within_domains(
        self, cluster: ClusterNodes, topology: TopologyAssignment, kept: Sequence[str], kinds: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Nodes of each domain, as many as it is given and does not have in ``kept``."""
        counts: dict[tuple[str, ...], int] = {}
        for domain in topology.domains:
            counts[domain.values] = counts.get(domain.values, 0) + domain.count
        found: list[str] = []
        kind = PlacementSpec(gpu_types=kinds)
        for values, count in counts.items():
            labels = tuple(zip(topology.levels, values, strict=True))
            here = sum(self._lies_in(node, labels) for node in kept)
            if count <= here:
                continue
            requirement = replace(self.requirement, labels=(*self.requirement.labels, *labels))
            try:
                found += self._placed(cluster, requirement, count - here, kind).nodes
            except NotGivenError as problem:
                raise NotGivenError(f"{problem}; Kueue counts every node there that is not cordoned") from problem
        return tuple(found)

    def _lies_in(self, node: str, labels: Iterable[tuple[str, str]]) -> bool:
        view = self.nodes.get(node)
        return view is not None and all(view.labels.get(label) == value for label, value in labels)

    def _placed(
        self,
        cluster: ClusterNodes,
        requirement: Requirement,
        count: int,
        placement: PlacementSpec,
        kept: Collection[str] = (),
    ) -> Placed:
        placed = place(cluster, requirement, count, placement, kept)
        if isinstance(placed, Placed):
            return placed
        raise NotGivenError(f"the cluster has no nodes for it: {placed.message}")

    def _kind_of(self, cluster: ClusterNodes, nodes: Sequence[str]) -> str:
        """The GPU type that all of ``nodes`` are of; empty: any will do."""
        kinds = self.placement.gpu_types
        kind = next((kind for kind in kinds if self._are_of(cluster, nodes, kind)), "")
        if kinds and not kind:
            among = ", ".join(kinds)
            raise NotGivenError(f"its nodes are not all of one of spec.placement.gpuTypes ({among}); write one of them")
        return kind

    def _are_of(self, cluster: ClusterNodes, nodes: Sequence[str], gpu_type: str) -> bool:
        known = gpu_type in cluster.index.gpu_types
        return known and not cluster.index.mask(nodes) & ~cluster.index.of_gpu_type(gpu_type)


def given(
    admission: Admission,
    wanted: int,
    updates: Iterable[PodSetUpdate],
    requirement: Requirement,
    placement: PlacementSpec,
    nodes: Mapping[str, NodeView],
) -> Given:
    """What ``admission`` gives to a gang of ``wanted`` nodes. Raises NotGivenError when that makes no sense."""
    if admission.problem:
        raise NotGivenError(admission.problem)
    topology = admission.topology
    count = topology.count if topology is not None else admission.count
    if count != wanted:
        raise NotGivenError(f"for {plural(count, 'pod')} instead of {wanted}")
    try:
        update = merged(updates)
    except ConflictError as conflict:
        raise NotGivenError(str(conflict)) from conflict
    labels = (*requirement.labels, *update.node_selector.items())
    tolerations = (*requirement.tolerations, *pod_template.tolerations(update.tolerations))
    return Given(
        count, topology, replace(requirement, labels=labels, tolerations=tolerations), placement, update, nodes
    )


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
