"""What a run asks of its nodes, and what the spec left open once they are chosen."""

import json
from collections.abc import Collection, Hashable, Iterable, Mapping

from lockstep.api.base import names
from lockstep.api.recovery_status import ExcludedNode
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.model.quantities import CPU, MEMORY, amount, amounts, quantity
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_fit import Requirement
from lockstep.core.placement.placement import ClusterNodes
from lockstep.core.pods import gang, pod_template

_OPEN_BY_DEFAULT = (CPU, MEMORY)
_GIBIBYTE, _MEBIBYTE = 2**30, 2**20


def requirement_of(
    run: RunView, queue_labels: Mapping[str, str], tunables: Tunables, now: float, *, held: bool
) -> Requirement:
    """The requirement of a pending run, or (``held``) of one that needs nodes like those it has."""
    assert run.spec is not None
    spec, resolved = run.spec, run.status.resolved
    template = pod_template.section(spec.pod_template, "spec")
    asked = _resolved_amounts(resolved) if held else _asked_amounts(spec)
    open_resources = tuple(resource for resource in _OPEN_BY_DEFAULT if resource not in asked)
    for resource, value in pod_template.companions_request(template, names.CONTAINER_NAME).items():
        asked[resource] = asked.get(resource, 0) + value
    required_levels = (rule.level for rule in spec.placement.topology if rule.mode == "Required")
    return Requirement(
        resources=asked,
        open=open_resources,
        open_gpus=not held and _takes_all_gpus(spec),
        labels=(*queue_labels.items(), *pod_template.node_selector(template)),
        terms=pod_template.terms(template),
        tolerations=pod_template.tolerations(gang.tolerations(spec, tunables.gang)),
        excluded=frozenset(spec.placement.exclude_nodes),
        named=frozenset(spec.placement.nodes),
        drain_taints=frozenset(tunables.drain_taints),
        avoided={entry.node: entry.reason for entry in avoided_nodes(run.status.recovery.excluded_nodes, now)},
        levels=tuple(tunables.topology_levels[level] for level in required_levels if level in tunables.topology_levels),
    )


def wish_of(spec: TrainingRunSpec) -> Hashable:
    """Equal for specs that ask the same of as many nodes, where nothing else tells the runs apart."""
    template = json.dumps(spec.pod_template, sort_keys=True) if spec.pod_template else ""
    return (spec.nodes, tuple(spec.resources_per_node.items()), spec.gpus_per_node, spec.placement, template)


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

    asked = dict(spec.resources_per_node)
    gpus = spec.gpus_asked
    if gpus is None:
        gpus = left(names.GPU_RESOURCE) if _takes_all_gpus(spec) else 0
    asked.pop(names.GPU_RESOURCE, None)
    cpu = asked.pop(CPU, None) or quantity(CPU, _rounded(left(CPU), 1000, 1))
    memory = asked.pop(MEMORY, None) or quantity(MEMORY, _rounded(left(MEMORY), _GIBIBYTE, _MEBIBYTE))
    return ResolvedStatus(
        generation=run.generation,
        start_root=run.status.resolved.start_root,
        start_run=run.status.resolved.start_run,
        start_run_uid=run.status.resolved.start_run_uid,
        gpu_type=gpu_type,
        gpus_per_node=gpus,
        cpu=cpu,
        memory=memory,
        resources=asked,
        nodes=len(nodes),
        shared_path=gang.shared_path(run),
    )


def _asked_amounts(spec: TrainingRunSpec) -> dict[str, int]:
    asked = amounts(spec.resources_per_node)
    if spec.gpus_per_node is not None:
        asked[names.GPU_RESOURCE] = spec.gpus_per_node
    return asked


def _resolved_amounts(resolved: ResolvedStatus) -> dict[str, int]:
    asked = amounts(resolved.resources)
    asked[names.GPU_RESOURCE] = resolved.gpus_per_node
    asked[CPU] = amount(CPU, resolved.cpu or "0")
    asked[MEMORY] = amount(MEMORY, resolved.memory or "0")
    return asked


def _takes_all_gpus(spec: TrainingRunSpec) -> bool:
    """GPUs are left open, and no other maker's device is asked for."""
    return spec.gpus_asked is None and not any(name.endswith("/gpu") for name in spec.resources_per_node)


def _rounded(value: int, unit: int, smaller: int) -> int:
    step = unit if value >= unit else smaller
    return value // step * step
