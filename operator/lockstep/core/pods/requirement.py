"""What a run asks of its nodes, and what the spec left open once they are chosen."""

import json
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from lockstep.api.base import names
from lockstep.api.recovery_status import ExcludedNode
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus, ScaleUpStatus
from lockstep.core.model.accelerators import gpu_request, held_gpus, without_gpus
from lockstep.core.model.natural_order import natural_key
from lockstep.core.model.quantities import CPU, MEMORY, amount, amounts, quantity
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.spec_hash import hash_record
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.placement import ClusterNodes
from lockstep.core.pods import gang, pod_template

_OPEN_BY_DEFAULT = (CPU, MEMORY)
_GIBIBYTE, _MEBIBYTE = 2**30, 2**20
_NODES_NAMED = 4
_WISHED = {"nodes", "resources_per_node", "gpus_per_node", "gpu_resource", "placement", "pod_template"}


def requirement_of(
    run: RunView, queue_labels: Mapping[str, str], tunables: Tunables, now: float, *, held: bool
) -> Requirement:
    """The requirement of a pending run, or (``held``) of one that needs nodes like those it has."""
    assert run.spec is not None
    spec, resolved = run.spec, run.status.resolved
    template = pod_template.section(spec.pod_template, "spec")
    gpus = held_gpus(resolved) if held else gpu_request(spec, tunables.accelerators)
    asked = _resolved_amounts(resolved) if held else amounts(without_gpus(spec.resources_per_node, gpus))
    open_resources = tuple(resource for resource in _OPEN_BY_DEFAULT if resource not in asked)
    for resource, value in pod_template.companions_request(template, names.CONTAINER_NAME).items():
        if gpus.count and resource in gpus.resources:
            gpus = replace(gpus, count=gpus.count + value, resources=(resource,))
        else:
            asked[resource] = asked.get(resource, 0) + value
    for resource, value in pod_template.init_request(template).items():
        if gpus.count and resource in gpus.resources:
            gpus = replace(gpus, count=max(gpus.count, value), resources=(resource,))
        else:
            asked[resource] = max(asked.get(resource, 0), value)
    makes = gpus.resources if gpus.count != 0 else ()
    required_levels = (rule.level for rule in spec.placement.topology if rule.mode == "Required")
    return Requirement(
        resources=asked,
        open=open_resources,
        gpus=gpus,
        labels=(*queue_labels.items(), *pod_template.node_selector(template)),
        terms=pod_template.terms(template),
        tolerations=pod_template.tolerations(gang.tolerations(spec, tunables.gang, makes)),
        excluded=frozenset(spec.placement.exclude_nodes),
        named=frozenset(spec.placement.nodes),
        drain_taints=frozenset(tunables.drain_taints),
        avoided={entry.node: entry.reason for entry in avoided_nodes(run.status.recovery.excluded_nodes, now)},
        levels=tuple(tunables.topology_levels[level] for level in required_levels if level in tunables.topology_levels),
    )


def wish_of(spec: TrainingRunSpec) -> Hashable:
    """Equal for specs that ask the same of as many nodes, where nothing else tells the runs apart."""
    template = json.dumps(spec.pod_template, sort_keys=True) if spec.pod_template else ""
    gpus = spec.gpus_per_node, spec.gpu_resource
    return (spec.nodes, tuple(spec.resources_per_node.items()), gpus, spec.placement, template)


def is_as_wished(asked: ScaleUpStatus, run: RunView) -> bool:
    """What the run asked an autoscaler for is what its spec of now wants, as far as that tells."""
    if run.spec is None:
        return False
    return asked.generation == run.generation or asked.wish == wish_hash(run.spec)


def wish_hash(spec: TrainingRunSpec) -> str:
    """One word for ``wish_of``. The order of what a map holds, and what equals its default, count for nothing."""
    said = spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True, include=_WISHED)
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def avoided_nodes(entries: Iterable[ExcludedNode], now: float) -> list[ExcludedNode]:
    """Those nodes that recovery keeps a run off at ``now``."""
    return [entry for entry in entries if entry.until is None or entry.until > now]


def resolve(run: RunView, cluster: ClusterNodes, nodes: Collection[str], gpu_type: str) -> ResolvedStatus:
    """What the spec left open, for a gang on ``nodes``: the least that any of them has free.

    CPU is rounded down to whole cores, memory to whole GiB: whole cores can be pinned, and what is
    left keeps a late DaemonSet from pushing a rank out.
    """
    assert run.spec is not None
    spec = run.spec
    beside = pod_template.companions_request(pod_template.section(spec.pod_template, "spec"), names.CONTAINER_NAME)

    def left(resource: str) -> int:
        return min(cluster.free(node, resource) for node in nodes) - beside.get(resource, 0)

    gpus = gpu_request(spec, cluster.index.accelerators)
    asked = without_gpus(spec.resources_per_node, gpus)
    offered = (name for name in gpus.resources if all(cluster.free(node, name) >= (gpus.count or 1) for node in nodes))
    resource = next(offered, gpus.resource)
    count = max(0, left(resource)) if gpus.count is None else gpus.count
    cpu = asked.pop(CPU, None) or quantity(CPU, _rounded(left(CPU), 1000, 1))
    memory = asked.pop(MEMORY, None) or quantity(MEMORY, _rounded(left(MEMORY), _GIBIBYTE, _MEBIBYTE))
    return ResolvedStatus(
        generation=run.generation,
        spec_hash=hash_record(run.generation, spec),
        queue=spec.queue,
        start_root=run.status.resolved.start_root,
        start_run=run.status.resolved.start_run,
        start_run_uid=run.status.resolved.start_run_uid,
        gpu_type=gpu_type,
        gpus_per_node=count,
        gpu_resource=resource,
        cpu=cpu,
        memory=memory,
        resources=asked,
        unused_gpus=_unused(resource, count + beside.get(resource, 0), cluster, nodes),
        nodes=len(nodes),
        shared_path=gang.shared_path(run),
    )


def _resolved_amounts(resolved: ResolvedStatus) -> dict[str, int]:
    asked = amounts(resolved.resources)
    asked[CPU] = amount(CPU, resolved.cpu or "0")
    asked[MEMORY] = amount(MEMORY, resolved.memory or "0")
    return asked


def _unused(resource: str, count: int, cluster: ClusterNodes, nodes: Collection[str]) -> str:
    more = {node: free - count for node in nodes if (free := cluster.free(node, resource)) > count}
    if not more:
        return ""
    shown = sorted(more, key=natural_key)
    rest = f" and {len(shown) - _NODES_NAMED} more" if len(shown) > _NODES_NAMED else ""
    return f"{sum(more.values())} {resource} on {', '.join(shown[:_NODES_NAMED])}{rest}"


def _rounded(value: int, unit: int, smaller: int) -> int:
    step = unit if value >= unit else smaller
    return value // step * step
