"""What a run's podTemplate may not say: what Lockstep decides, what is said twice, and what reaches into the node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.quantities import parse_quantity
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.kueue import api_names as words
from lockstep.core.model.problems import Problem, lockstep_mounts, reserved_variable
from lockstep.core.pods.pod_policy import AllowedPowers, power_problems
from lockstep.core.pods.pod_template import MERGE_KEYS

_TEMPLATE = "spec.podTemplate"
_POD = f"{_TEMPLATE}.spec"

# Field of the pod's spec -> why not here. A gang would break, or the value would stand in two places.
_NEVER_IN_POD = {
    "restartPolicy": "Lockstep restarts ranks itself; leave it out",
    "nodeName": "Lockstep chooses the nodes; use spec.placement.nodes",
    "hostNetwork": "use spec.network",
    "hostPID": "the worker ends every process it sees before a start; leave it out",
    "shareProcessNamespace": "the worker ends every process it sees before a start; leave it out",
    "priorityClassName": "leave it out: gang pods carry Lockstep's own class",
    "priority": "leave it out: gang pods carry Lockstep's own class",
    "preemptionPolicy": "leave it out: gang pods never preempt",
    "activeDeadlineSeconds": "it would kill one rank of the gang; leave it out",
    "schedulingGroup": "Lockstep makes the gang's PodGroup, if its configuration asks for one; leave it out",
    "schedulingGates": "Lockstep admits the gang as a whole; use spec.suspend to hold it",
    "topologySpreadConstraints": "use spec.placement.topology",
    "resources": "use spec.resourcesPerNode",
}
_NEVER_IN_TRAINER = {
    "image": "use spec.image",
    "command": "use spec.command, and spec.entrypoint for what comes before it",
    "args": "use spec.command",
    "resources": "use spec.resourcesPerNode or spec.gpusPerNode",
    "restartPolicy": "Lockstep restarts ranks itself; leave it out",
}
_CONTAINER_LISTS = ("containers", "initContainers")
_LISTS_IN_POD = (*_CONTAINER_LISTS, "volumes", "tolerations", "imagePullSecrets")
_LISTS_IN_CONTAINER = ("env", "envFrom", "volumeMounts", "ports")
_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
_OWN_ANNOTATIONS = frozenset(
    {"cluster-autoscaler.kubernetes.io/safe-to-evict", "kubectl.kubernetes.io/default-container"}
)


def template_problems(spec: TrainingRunSpec, grant: AllowedPowers) -> Iterator[Problem]:
    """Yield what is wrong with `spec.pod_template`; the API server's dry run checks the rest of its form."""
    template = spec.pod_template or {}
    for name in template.keys() - {"metadata", "spec"}:
        yield Problem(f"{_TEMPLATE}.{name}", "a pod template has metadata and spec; move it below one of them")
    metadata, pod = _object(template.get("metadata")), _object(template.get("spec"))
    if metadata is None or pod is None:
        yield Problem(_TEMPLATE, "metadata and spec are objects; write spec: {nodeSelector: {...}}, for example")
        return
    yield from _metadata(metadata)
    yield from _no_lists(pod, _LISTS_IN_POD, _POD)
    yield from _no_names(pod, _POD)
    yield from _set_elsewhere(spec, pod)
    yield from _volumes(spec, pod)
    for kind in _CONTAINER_LISTS:
        for index, container in enumerate(_objects(pod.get(kind))):
            path = f"{_POD}.{kind}[{index}]"
            yield from _no_lists(container, _LISTS_IN_CONTAINER, path)
            yield from _no_names(container, path)
            yield from _no_amounts(container, path)
            if kind == "containers" and container.get("name") == names.CONTAINER_NAME:
                yield from _trainer(spec, container, path)
            yield from _lockstep_volumes(container, path)
    yield from power_problems(metadata, pod, _TEMPLATE, grant)


def _metadata(metadata: Mapping[str, Any]) -> Iterator[Problem]:
    for name in sorted(metadata.keys() - {"labels", "annotations"}):
        yield Problem(f"{_TEMPLATE}.metadata.{name}", "Lockstep names its pods; only labels and annotations go here")
    for kind in ("labels", "annotations"):
        for key, value in (_object(metadata.get(kind)) or {}).items():
            if key.startswith(f"{names.GROUP}/") or key == names.MANAGED_BY_LABEL or key in _OWN_ANNOTATIONS:
                yield Problem(f"{_TEMPLATE}.metadata.{kind}[{key}]", "is Lockstep's own; choose another key")
            elif key == _DO_NOT_DISRUPT and value != "true":
                yield Problem(f"{_TEMPLATE}.metadata.{kind}[{key}]", "is true on every gang pod; leave it out")
            elif key.startswith(f"{words.GROUP}/"):
                # By them Kueue knows whose pod it is and whether to count it: not for anybody to copy.
                remedy = f"label the TrainingRun with {words.LABEL_QUEUE} instead"
                yield Problem(f"{_TEMPLATE}.metadata.{kind}[{key}]", f"is set by Lockstep where Kueue admits; {remedy}")


def _no_lists(owner: Mapping[str, Any], lists: tuple[str, ...], path: str) -> Iterator[Problem]:
    """Yield what should be a list of objects and is not: it would be lost in the merge, and no dry run see it."""
    for name in lists:
        value = owner.get(name)
        if value is not None and len(_objects(value)) != (len(value) if isinstance(value, list) else -1):
            yield Problem(f"{path}.{name}", "is a list of objects; write - in front of each")


def _no_names(owner: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield what items are merged or known by and is no text, or not there: no item could be found by it."""
    for name, key in (*MERGE_KEYS.items(), ("volumeMounts", "name")):
        for index, item in enumerate(_objects(owner.get(name))):
            value, field = item.get(key, ""), f"{path}.{name}[{index}].{key}"
            if not isinstance(value, str):
                yield Problem(field, "is text; write it without what is below it")
            elif not value:
                example = f"; {names.CONTAINER_NAME} is the training container" if name == "containers" else ""
                yield Problem(field, f"is missing{example or '; write it, or leave the whole item out'}")


def _no_amounts(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield requests and limits that are none: admission counts what runs beside the training."""
    resources = _object(container.get("resources")) or {}
    for kind in ("requests", "limits"):
        for name, amount in (_object(resources.get(kind)) or {}).items():
            try:
                parse_quantity(amount)
            except ValueError as error:
                yield Problem(f"{path}.resources.{kind}[{name}]", str(error))


def _set_elsewhere(spec: TrainingRunSpec, pod: Mapping[str, Any]) -> Iterator[Problem]:
    for name, why in _NEVER_IN_POD.items():
        if name in pod:
            yield Problem(f"{_POD}.{name}", why)
    if _object(pod.get("nodeSelector")) is None:
        yield Problem(f"{_POD}.nodeSelector", "is an object; write label: value")
    if "dnsPolicy" in pod and spec.network == "Host":
        yield Problem(f"{_POD}.dnsPolicy", "is ClusterFirstWithHostNet on the node's network; use dnsConfig")
    if "serviceAccountName" in pod and spec.service_account_name is not None:
        yield Problem(f"{_POD}.serviceAccountName", "is set in spec.serviceAccountName too; keep that one")
    pull_secrets = {secret.name for secret in spec.image_pull_secrets}
    yield from _twice(pod.get("imagePullSecrets"), "name", pull_secrets, f"{_POD}.imagePullSecrets", "imagePullSecrets")
    affinity = _object(pod.get("affinity")) or {}
    for name in ("podAffinity", "podAntiAffinity"):
        if name in affinity:
            yield Problem(f"{_POD}.affinity.{name}", "use spec.placement.topology; nodeAffinity may stay here")


def _volumes(spec: TrainingRunSpec, pod: Mapping[str, Any]) -> Iterator[Problem]:
    taken = {volume.name for volume in spec.volumes}
    yield from _twice(pod.get("volumes"), "name", taken, f"{_POD}.volumes", "volumes")
    for index, volume in enumerate(_objects(pod.get("volumes"))):
        path = f"{_POD}.volumes[{index}]"
        if str(volume.get("name", "")).startswith("lockstep-"):
            yield Problem(f"{path}.name", "names starting with lockstep- are Lockstep's; choose another")


def _trainer(spec: TrainingRunSpec, trainer: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name, why in _NEVER_IN_TRAINER.items():
        if name in trainer:
            yield Problem(f"{path}.{name}", why)
    if "workingDir" in trainer and spec.working_dir is not None:
        yield Problem(f"{path}.workingDir", "is set in spec.workingDir too; keep that one")
    yield from _twice(trainer.get("env"), "name", {variable.name for variable in spec.env}, f"{path}.env", "env")
    for index, variable in enumerate(_objects(trainer.get("env"))):
        if reserved_variable(str(variable.get("name", ""))):
            yield Problem(f"{path}.env[{index}]", f"{variable['name']} is set by Lockstep at every start; leave it out")
    mounts = lockstep_mounts(spec) | {volume.mount_path.rstrip("/") for volume in spec.volumes}
    for index, mount in enumerate(_objects(trainer.get("volumeMounts"))):
        if str(mount.get("mountPath", "")).rstrip("/") in mounts:
            yield Problem(f"{path}.volumeMounts[{index}].mountPath", "is mounted already; choose another path")


def _lockstep_volumes(container: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield mounts of what is not the run's alone: the storage for local checkpoints is every run's on the node."""
    for index, mount in enumerate(_objects(container.get("volumeMounts"))):
        if mount.get("name") == names.LOCAL_VOLUME:
            words = "is Lockstep's, and mounted into the training container alone; use a volume of your own"
            yield Problem(f"{path}.volumeMounts[{index}].name", words)


def _twice(items: Any, key: str, taken: Collection[str], path: str, elsewhere: str) -> Iterator[Problem]:
    """Yield the items that the spec names as well: a value in two places is an error, never a silent winner."""
    for index, item in enumerate(_objects(items)):
        if str(item.get(key)) in taken:
            yield Problem(f"{path}[{index}]", f"{item.get(key)} is set in spec.{elsewhere} too; keep that one")


def _object(value: Any) -> Mapping[str, Any] | None:
    """`value` as an object; absent and null are empty, anything else is none."""
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else None


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; the dry run refuses what is neither."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
