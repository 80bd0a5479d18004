"""What the CRD's schema cannot refuse: rules that need the namespace, the operator's configuration or a closer look.

Every problem names the field and the remedy; together they are the message of Accepted=False.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from lockstep.api.base import names
from lockstep.api.base.durations import parse_duration
from lockstep.api.base.quantities import parse_quantity
from lockstep.api.run_spec import MOST_GPUS, TrainingRunSpec
from lockstep.core.model.accelerators import gpu_request
from lockstep.core.model.near_names import suggestion
from lockstep.core.model.plural import plural
from lockstep.core.model.problems import Problem, lockstep_mounts, reserved_variable
from lockstep.core.model.settings import PodPolicy
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.launchers import launcher_of
from lockstep.core.pods.log_pattern import plain_mistake
from lockstep.core.pods.named_objects import misnamed_problems
from lockstep.core.pods.plain_rules import plain_problems
from lockstep.core.pods.pod_policy import AllowedPowers, account_problems, archive_account_problems, host_path_problems
from lockstep.core.pods.template_rules import template_problems

_PLAIN_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What a spec is held against in the operator's configuration. None: not known here, so nothing is refused."""

    levels: Collection[str] | None = None
    gpu_types: Collection[str] | None = None
    storages: Collection[str] | None = None
    accelerators: Collection[str] | None = None
    pod_policy: PodPolicy | None = None

    @classmethod
    def from_tunables(cls, tunables: Tunables) -> Self:
        """The names that the operator was configured with."""
        return cls(
            tunables.topology_levels,
            tunables.gpu_types,
            tunables.gang.local_storages,
            tunables.accelerators,
            tunables.pod_policy,
        )


def validate(
    spec: TrainingRunSpec, namespace_labels: Mapping[str, str], known: KnownNames | None = None
) -> list[Problem]:
    """Return everything that is wrong with `spec`, in the order of its fields; nothing when it may run."""
    known = known or KnownNames()
    grant = AllowedPowers.for_namespace(known.pod_policy, namespace_labels)
    return [
        *_resources(spec, known.accelerators or (names.GPU_RESOURCE,)),
        *_environment(spec),
        *_volumes(spec, grant),
        *_working_directory(spec),
        *misnamed_problems(spec),
        *account_problems(spec.service_account_name, "spec.serviceAccountName", grant),
        *archive_account_problems(spec, grant),
        *_placement(spec),
        *_patterns(spec),
        *_limits(spec),
        *_unknown_names(spec, known),
        *_command(spec),
        *plain_problems(spec),
        *template_problems(spec, grant),
    ]


def _command(spec: TrainingRunSpec) -> Iterator[Problem]:
    if not spec.command and spec.launcher.type != "Slurm":
        yield Problem("spec.command", "names nothing to run; write it, e.g. [torchrun, train.py]")
        return
    if spec.command and not spec.command[0].strip():
        yield Problem("spec.command[0]", "is empty; write the program there, e.g. torchrun")
        return
    yield from launcher_of(spec).problems(spec)


def _resources(spec: TrainingRunSpec, accelerators: Collection[str]) -> Iterator[Problem]:
    wanted = gpu_request(spec, accelerators)
    if spec.gpus_per_node and wanted.resource in spec.resources_per_node:
        words = f"says the same thing as spec.resourcesPerNode[{wanted.resource}]; keep one of them"
        yield Problem("spec.gpusPerNode", words)
    for name, amount in spec.resources_per_node.items():
        field = f"spec.resourcesPerNode[{name}]"
        if "/" not in name and name not in _PLAIN_RESOURCES and not name.startswith("hugepages-"):
            remedy = names.GPU_RESOURCE if name in ("gpu", "gpus") else "cpu, memory or vendor/device"
            yield Problem(field, f"is no resource of Kubernetes; write {remedy}")
        elif "/" in name and parse_quantity(amount).denominator != 1:
            yield Problem(field, f"{amount} is not a whole number of devices; write e.g. 8")
        elif name in (*accelerators, wanted.resource) and parse_quantity(amount) > MOST_GPUS:
            yield Problem(field, f"{amount} are more GPUs than a node can have; write {MOST_GPUS} or less")
        elif name in ("cpu", "memory") and parse_quantity(amount) == 0:
            yield Problem(field, "is zero; leave it out for what is free on the gang's smallest node")


def _environment(spec: TrainingRunSpec) -> Iterator[Problem]:
    for index, variable in enumerate(spec.env):
        if reserved_variable(variable.name):
            yield Problem(f"spec.env[{index}]", f"{variable.name} is set by Lockstep at every start; leave it out")


def _volumes(spec: TrainingRunSpec, grant: AllowedPowers) -> Iterator[Problem]:
    mounts = Counter(volume.mount_path.rstrip("/") for volume in spec.volumes)
    taken = lockstep_mounts(spec)
    for index, volume in enumerate(spec.volumes):
        path = volume.mount_path.rstrip("/")
        if path in taken:
            yield Problem(f"spec.volumes[{index}].mountPath", f"{path} is mounted by Lockstep; choose another path")
        if mounts[path] > 1:
            mounts[path] = 0
            yield Problem(f"spec.volumes[{index}].mountPath", f"{path} is used twice; choose another path")
        if volume.host_path is not None:
            yield from host_path_problems(
                {"hostPath": {"path": volume.host_path.path}}, f"spec.volumes[{index}]", grant
            )


def _working_directory(spec: TrainingRunSpec) -> Iterator[Problem]:
    if spec.working_dir is not None and not spec.working_dir.startswith("/"):
        yield Problem("spec.workingDir", f"{spec.working_dir} is no absolute path; begin it with /")


def _patterns(spec: TrainingRunSpec) -> Iterator[Problem]:
    rules = spec.recovery.rules
    asked = {f"spec.recovery.rules[{index}].logPattern": rule.log_pattern for index, rule in enumerate(rules)}
    for field, pattern in [*asked.items(), ("spec.progress.pattern", spec.progress.pattern)]:
        if mistake := plain_mistake(pattern or ""):
            yield Problem(field, f"is no regular expression of Python's: {mistake}; escape what is meant as it stands")


def _limits(spec: TrainingRunSpec) -> Iterator[Problem]:
    least, limit = spec.min_time_limit, spec.time_limit
    if least is not None and limit is not None and parse_duration(least) > parse_duration(limit):
        words = f"{least} is longer than timeLimit, which is {limit}; shorten it, or lengthen timeLimit"
        yield Problem("spec.minTimeLimit", words)


def _placement(spec: TrainingRunSpec) -> Iterator[Problem]:
    named = spec.placement.nodes
    for field, nodes in (("nodes", named), ("excludeNodes", spec.placement.exclude_nodes)):
        odd = next((index for index, node in enumerate(nodes) if not _NODE.fullmatch(node)), None)
        if odd is not None:
            words = f"'{nodes[odd][:63]}' is no node's name; write each by its name (only --exclude takes ranges)"
            yield Problem(f"spec.placement.{field}[{odd}]", words)
    excluded = set(spec.placement.exclude_nodes)
    usable = [node for node in named if node not in excluded]
    if named and len(usable) < spec.nodes:
        yield Problem(
            "spec.placement.nodes",
            f"leaves {len(usable)} of {plural(spec.nodes, 'node')} after excludeNodes; name more or exclude fewer",
        )
    for index, rule in enumerate(spec.placement.topology):
        if rule.policy == "Any" and rule.mode == "Required" and rule.max_nodes is None:
            yield Problem(
                f"spec.placement.topology[{index}]",
                "policy Any asks for nothing that could be Required; choose Pack, Contiguous or Spread",
            )


def _unknown_names(spec: TrainingRunSpec, known: KnownNames) -> Iterator[Problem]:
    wanted: list[tuple[str, str, Collection[str] | None]] = [
        (f"spec.placement.topology[{index}].level", rule.level, known.levels)
        for index, rule in enumerate(spec.placement.topology)
    ]
    wanted += [
        (f"spec.placement.gpuTypes[{index}]", gpu_type, known.gpu_types)
        for index, gpu_type in enumerate(spec.placement.gpu_types)
    ]
    if spec.checkpoint is not None and spec.checkpoint.local is not None:
        wanted.append(("spec.checkpoint.local.storage", spec.checkpoint.local.storage, known.storages))
    if spec.gpu_resource is not None:
        wanted.append(("spec.gpuResource", spec.gpu_resource, known.accelerators))
    for field, name, choices in wanted:
        if choices is not None and name not in choices:
            meant, there = suggestion(name, sorted(choices)), ", ".join(sorted(choices))
            there = f"{meant}write one of {there}" if choices else "it names none"
            yield Problem(field, f"{name} is not in the operator's configuration; {there}")
