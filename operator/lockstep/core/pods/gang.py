"""The pods of one run: a function of its spec, what was resolved, and its assignment.

Rank, attempt, ports and the resume point are absent on purpose: they change while a pod lives, and the
worker gets them at START. One template is made per run; a slot's pod differs in name, labels, pin and
two variables, so that a pod costs a few small copies.
"""

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.core_shapes import Volume
from lockstep.api.base.schema import SpecModel
from lockstep.api.kueue_status import KueueStatus
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus, TrainingRunStatus
from lockstep.core.model.accelerators import gpu_request, without_gpus
from lockstep.core.model.gang_settings import GangSettings, time_variables
from lockstep.core.model.plan import EnsureConfigMap
from lockstep.core.model.predecessor import predecessor
from lockstep.core.model.quantities import MEMORY, amount, quantity
from lockstep.core.model.resolved_record import restore_resolved, template_part
from lockstep.core.model.save_signal import save_signal
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods import pod_template
from lockstep.core.pods.array_environment import array_environment
from lockstep.core.pods.launchers import command_of, worker_options
from lockstep.core.pods.pod_groups import joined

WORKER_FILE = "worker.pyz"
COMMAND = ("python3", "-I", "-B", f"{names.WORKER_MOUNT}/{WORKER_FILE}")
_EXISTS = "Exists"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ESCAPES = re.compile(r"\${2,}(?=\(LOCKSTEP_)")
_PLACEHOLDER = {"cpu": "1", "memory": "1Gi"}
"""What a dry run asks for where the spec leaves it open: namespaces with a quota refuse pods without."""
KEEP_NODE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations by which autoscalers leave a pod where it is."""
DRY_RUN_NODE = "no-node-yet"
"""What the pod of a dry run is pinned to: it is made like all others, so that what is checked is what is created."""


@dataclass(frozen=True, slots=True)
class GangTemplate:
    """What all pods of a run have in common. Bodies share their parts: they are for reading only."""

    run: str
    run_uid: str
    body: dict[str, Any]
    terms: tuple[dict[str, Any], ...]  # required node affinity of the user, of which one must hold

    @property
    def hash(self) -> str:
        """Of everything but the slot."""
        return sha256(json.dumps(self.body, sort_keys=True).encode()).hexdigest()[:16]

    def pod_body(self, slot: int, incarnation: int, node: str) -> dict[str, Any]:
        """The pod of ``slot``; without ``node`` it is pinned nowhere (to be looked at)."""
        metadata = {
            **self.body["metadata"],
            "name": names.pod_name(self.run, self.run_uid, slot, incarnation),
            "labels": {
                **self.body["metadata"]["labels"],
                names.LABEL_SLOT: str(slot),
                names.LABEL_INCARNATION: str(incarnation),
            },
        }
        spec = dict(self.body["spec"])
        trainer, *sidecars = spec["containers"]  # merging keeps ours first
        env = [
            {"name": "LOCKSTEP_SLOT", "value": str(slot)},
            {"name": "LOCKSTEP_INCARNATION", "value": str(incarnation)},
            *trainer["env"],
        ]
        spec["containers"] = [{**trainer, "env": env}, *sidecars]
        if node:
            spec["affinity"] = self._pinned(spec.get("affinity", {}), node)
        return {**self.body, "metadata": metadata, "spec": spec}

    def _pinned(self, affinity: Any, node: str) -> Any:
        # By affinity, never by spec.nodeName: kube-scheduler stays the last arbiter.
        if not _can_be_pinned(affinity):
            return affinity  # no pod is made of it: the dry run is of one that is pinned as well
        pin = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = [{**term, "matchFields": [pin, *term.get("matchFields", ())]} for term in self.terms or ({},)]
        required = {**pod_template.section(affinity, "nodeAffinity", _REQUIRED), "nodeSelectorTerms": terms}
        node_affinity = {**pod_template.section(affinity, "nodeAffinity"), _REQUIRED: required}
        return {**affinity, "nodeAffinity": node_affinity}


def template_for(run: RunView, status: TrainingRunStatus, tunables: Tunables) -> GangTemplate:
    """The template of an accepted run whose ``status.resolved`` is filled in."""
    assert run.spec is not None
    spec, resolved, settings = run.spec, status.resolved, tunables.gang
    theirs = spec.pod_template or {}
    metadata = pod_template.merged(_metadata(run, resolved, status.kueue), pod_template.section(theirs, "metadata"))
    pod_spec = _pod_spec(run, spec, resolved, settings, pod_template.section(theirs, "spec"))
    if status.kueue is not None:
        pod_spec = _as_reserved(pod_spec, status.kueue)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}
    return GangTemplate(
        run=run.name,
        run_uid=run.uid,
        body=joined(body, run, status),
        terms=tuple(dict(term) for term in pod_template.affinity_terms(pod_spec)),
    )


def pod_body(
    run: RunView, status: TrainingRunStatus, tunables: Tunables, slot: int, incarnation: int, node: str
) -> dict[str, Any]:
    """One pod. Who needs many makes the template once."""
    return template_for(run, status, tunables).pod_body(slot, incarnation, node)


def dry_run_body(run: RunView, tunables: Tunables, node: str = DRY_RUN_NODE) -> dict[str, Any]:
    """A pod made as those that the run will have, to be put to the API server before nodes are sought."""
    return pod_body(run, dry_run_status(run, tunables.accelerators), tunables, 0, 0, node)


def dry_run_status(run: RunView, known: Collection[str]) -> TrainingRunStatus:
    """The status with the resources that such a pod asks for, where ``known`` ones count as GPUs."""
    assert run.spec is not None
    gpus = gpu_request(run.spec, known)
    asked = without_gpus(run.spec.resources_per_node, gpus)
    resolved = ResolvedStatus(
        gpus_per_node=gpus.count or 0,
        gpu_resource=gpus.resource,
        cpu=asked.pop("cpu", _PLACEHOLDER["cpu"]),
        memory=asked.pop("memory", _PLACEHOLDER["memory"]),
        resources=asked,
    )
    return restore_resolved(run.status, resolved)


def worker_config_map(namespace: str, settings: GangSettings) -> EnsureConfigMap:
    """The worker program, immutable and named by content."""
    name = settings.worker_config_map
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.LABEL_WORKER_SOURCE: "true"},
        },
        "immutable": True,
        "binaryData": {WORKER_FILE: b64encode(settings.worker_archive).decode()},
    }
    return EnsureConfigMap(namespace, name, body, shared=True)


def ca_config_map(namespace: str, settings: GangSettings) -> EnsureConfigMap:
    """The authorities that workers trust, kept up to date in pods that run: one takes the place of another."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.CA_CONFIG_MAP,
            "namespace": namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        },
        "data": {names.CA_FILE: settings.ca_certificate},
    }
    return EnsureConfigMap(namespace, names.CA_CONFIG_MAP, body, changes=True, shared=True)


def tolerations(spec: TrainingRunSpec, settings: GangSettings, gpus: Iterable[str] = ()) -> list[dict[str, Any]]:
    """GPU taints, those of ``gpus`` too, and nodes that are not ready for as long as Lockstep likes: only it decides
    that one is lost."""
    ours: list[dict[str, Any]] = [
        {"key": key, "operator": _EXISTS, "effect": "NoExecute"}
        for key in (names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)
    ]
    ours += [{"key": key, "operator": _EXISTS} for key in dict.fromkeys((*settings.gpu_taints, *gpus))]
    template = pod_template.section(spec.pod_template, "spec")
    return [*ours, *map(dict, pod_template.items(template, "tolerations"))]


def shared_path(run: RunView) -> str:
    """The run's directory inside the claim of the shared tier; empty without one."""
    if run.spec is None or run.spec.checkpoint is None or run.spec.checkpoint.shared is None:
        return ""
    return run.spec.checkpoint.shared.path or run.key


def _can_be_pinned(affinity: Any) -> bool:
    """The required node affinity has the form that the API server asks for, as far as a pin is woven into it."""
    found = affinity
    for key in "nodeAffinity", _REQUIRED:
        if not isinstance(found, dict):
            return False
        if key not in found:
            return True
        found = found[key]
    terms = found.get("nodeSelectorTerms") if isinstance(found, dict) else None
    if not isinstance(terms, list) or not terms:
        return False
    return all(isinstance(term, dict) and isinstance(term.get("matchFields", []), list) for term in terms)


def _as_reserved(pod_spec: dict[str, Any], kueue: KueueStatus) -> dict[str, Any]:
    """With what flavors and admission checks of Kueue add to the pods."""
    known = pod_spec["tolerations"]
    more = [each for toleration in kueue.tolerations if (each := toleration.dump()) not in known]
    selector = {**pod_spec.get("nodeSelector", {}), **kueue.node_selector}
    return {**pod_spec, "tolerations": [*known, *more]} | ({"nodeSelector": selector} if selector else {})


def owner_reference(run: RunView) -> dict[str, Any]:
    """Of what goes with the run."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "name": run.name,
        "uid": run.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _metadata(run: RunView, resolved: ResolvedStatus, marks: KueueStatus | None) -> dict[str, Any]:
    open_in_spec = template_part(resolved)
    return {
        "namespace": run.namespace,
        "labels": {
            **(marks.labels if marks is not None else {}),
            names.MANAGED_BY_LABEL: names.MANAGED_BY,
            names.LABEL_RUN: run.name,
            names.LABEL_RUN_UID: run.uid,
        },
        "annotations": {
            **(marks.annotations if marks is not None else {}),
            **_consumed(resolved),
            **KEEP_NODE,
            "kubectl.kubernetes.io/default-container": names.CONTAINER_NAME,
            names.ANNOTATION_RESOLVED: json.dumps(open_in_spec.dump()),
        },
        "ownerReferences": [owner_reference(run)],
    }


def _consumed(resolved: ResolvedStatus) -> dict[str, str]:
    """What cluster-autoscaler reads of pods that are to have the nodes of a ProvisioningRequest."""
    if not resolved.provisioning_request:
        return {}
    return {
        "autoscaling.x-k8s.io/consume-provisioning-request": resolved.provisioning_request,
        "autoscaling.x-k8s.io/provisioning-class-name": resolved.provisioning_class,
    }


def _pod_spec(
    run: RunView,
    spec: TrainingRunSpec,
    resolved: ResolvedStatus,
    settings: GangSettings,
    theirs: pod_template.Object,
) -> dict[str, Any]:
    volumes, mounts = _volumes(run, spec, resolved, settings)
    ours: dict[str, Any] = {
        "restartPolicy": "Never",
        "priorityClassName": settings.priority_class,
        "containers": [_trainer(run, spec, resolved, settings, mounts)],
        "volumes": volumes,
    }
    if spec.network == "Host":
        ours |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    else:
        ours["affinity"] = _one_gang_pod_per_node()
    if spec.service_account_name is not None:
        ours["serviceAccountName"] = spec.service_account_name
    if spec.image_pull_secrets:
        ours["imagePullSecrets"] = [{"name": secret.name} for secret in spec.image_pull_secrets]
    usual: dict[str, Any] = {
        "terminationGracePeriodSeconds": settings.termination_grace,
        "enableServiceLinks": False,
    }
    if "serviceAccountName" not in ours and "serviceAccountName" not in theirs:
        usual["automountServiceAccountToken"] = False
    gpus = (resolved.gpu_resource,) if resolved.gpus_per_node else ()
    # The template's tolerations are among ours already.
    rest = {key: value for key, value in theirs.items() if key != "tolerations"}
    return {**usual, **pod_template.merged(ours, rest), "tolerations": tolerations(spec, settings, gpus)}


def _trainer(
    run: RunView,
    spec: TrainingRunSpec,
    resolved: ResolvedStatus,
    settings: GangSettings,
    mounts: list[dict[str, Any]],
) -> dict[str, Any]:
    amounts = _resources(resolved)
    trainer: dict[str, Any] = {
        "name": names.CONTAINER_NAME,
        "image": spec.image,
        "command": list(COMMAND),
        "args": ["--", *map(_escaped, command_of(spec))],
        "env": [*_environment(run, spec, resolved, settings), *map(_plain, spec.env)],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": mounts,
    }
    if spec.env_from:
        trainer["envFrom"] = [_plain(source) for source in spec.env_from]
    if spec.working_dir is not None:
        trainer["workingDir"] = spec.working_dir
    if spec.network == "Host":
        port = names.NODE_MUTEX_PORT
        trainer["ports"] = [{"name": "node-mutex", "containerPort": port, "hostPort": port, "protocol": "TCP"}]
    return trainer


def _escaped(argument: str) -> str:
    """``$$(LOCKSTEP_X)`` such that the kubelet, which halves dollars in front of a bracket, hands on what was typed.

    A lone ``$(LOCKSTEP_X)`` needs nothing: the kubelet leaves what it does not know to the worker.
    """
    return _ESCAPES.sub(lambda dollars: dollars[0] * 2, argument)


def _resources(resolved: ResolvedStatus) -> dict[str, str]:
    amounts = {"cpu": resolved.cpu, MEMORY: resolved.memory, **resolved.resources}
    if resolved.gpus_per_node:
        amounts[resolved.gpu_resource] = str(resolved.gpus_per_node)
    return {resource: value for resource, value in amounts.items() if value}


def _environment(
    run: RunView, spec: TrainingRunSpec, resolved: ResolvedStatus, settings: GangSettings
) -> list[dict[str, Any]]:
    checkpoint = spec.checkpoint
    path = shared_path(run)
    tiers: dict[str, Any] = {
        "format": checkpoint.named_format if checkpoint is not None else "Auto",
        "shared": f"{names.SHARED_CHECKPOINTS_MOUNT}/{path}" if path else "",
        "local": f"{names.LOCAL_CHECKPOINTS_MOUNT}/{run.key}" if checkpoint is not None and checkpoint.local else "",
        "runUid": run.uid,
    }
    if (signal := save_signal(spec)) is not None:
        tiers["signal"] = signal
    if checkpoint is not None and checkpoint.layout != "PerAttempt":
        tiers["layout"] = checkpoint.layout
    if resolved.start_root:
        in_place = "layout" in tiers and resolved.start_root == tiers["shared"]
        before = predecessor(run.status) if in_place else None
        uid = before.uid if before is not None else resolved.start_run_uid
        tiers["start"] = {"root": resolved.start_root, "runUid": uid}
        if checkpoint is not None and checkpoint.start.step is not None:
            tiers["start"]["step"] = checkpoint.start.step
        if checkpoint is not None and checkpoint.start.accept_copy:
            tiers["start"]["acceptCopy"] = True
    values = {
        "LOCKSTEP_OPERATOR_URL": settings.operator_url,
        "LOCKSTEP_NAMESPACE": run.namespace,
        "LOCKSTEP_RUN": run.name,
        "LOCKSTEP_RUN_UID": run.uid,
        "LOCKSTEP_LAUNCHER": spec.launcher.type,
        "LOCKSTEP_LAUNCHER_OPTIONS": json.dumps(worker_options(spec, resolved.gpus_per_node)),
        "LOCKSTEP_CHECKPOINT_CONFIG": json.dumps(tiers),
        "LOCKSTEP_GPUS": str(resolved.gpus_per_node),
        "LOCKSTEP_CHECK_GPUS": "1" if settings.check_gpus and resolved.gpu_resource == names.GPU_RESOURCE else "0",
        "LOCKSTEP_TERMINATION_GRACE": str(termination_grace(spec, settings)),
    }
    values |= time_variables(settings.shared_clock_skew, trusted=checkpoint is None or checkpoint.trust_times)
    if spec.preflight.min_disk is not None:
        values["LOCKSTEP_PREFLIGHT"] = json.dumps({"minDisk": amount("storage", spec.preflight.min_disk)})
    theirs = {variable.name for variable in spec.env}
    values |= {name: value for name, value in array_environment(run).items() if name not in theirs}
    host = spec.network == "Host"
    fields = {
        "LOCKSTEP_POD_UID": "metadata.uid",
        "LOCKSTEP_NODE_NAME": "spec.nodeName",
        "LOCKSTEP_HOST_IP" if host else "LOCKSTEP_POD_IP": "status.hostIP" if host else "status.podIP",
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def termination_grace(spec: TrainingRunSpec, settings: GangSettings) -> int:
    """Seconds between SIGTERM to a pod and SIGKILL."""
    own = own_grace(spec)
    return settings.termination_grace if own is None else own


def own_grace(spec: TrainingRunSpec) -> int | None:
    """The same, where the run says how many."""
    theirs = pod_template.section(spec.pod_template, "spec").get("terminationGracePeriodSeconds")
    return theirs if isinstance(theirs, int) else None


def _volumes(
    run: RunView, spec: TrainingRunSpec, resolved: ResolvedStatus, settings: GangSettings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The pod's volumes, and where the training container finds them."""
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []

    def mount(name: str, path: str, source: dict[str, Any], **how: bool | str) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path, **how})

    token = {"audience": names.TOKEN_AUDIENCE, "expirationSeconds": names.TOKEN_SECONDS, "path": "token"}
    mount("lockstep-worker", names.WORKER_MOUNT, {"configMap": {"name": settings.worker_config_map}}, readOnly=True)
    trusted = {"name": names.CA_CONFIG_MAP, "items": [{"key": names.CA_FILE, "path": names.CA_FILE}]}
    sources = [{"serviceAccountToken": token}, {"configMap": trusted}]  # both change while the pod runs
    mount("lockstep-token", names.TOKEN_MOUNT, {"projected": {"sources": sources}}, readOnly=True)
    mount("lockstep-scratch", names.WORKER_SCRATCH, {"emptyDir": {}})
    size = spec.shm_size or _half(resolved.memory)
    shm = {"medium": "Memory"} | ({"sizeLimit": size} if size else {})
    mount("lockstep-shm", "/dev/shm", {"emptyDir": shm})
    checkpoint = spec.checkpoint
    if checkpoint is not None and checkpoint.local is not None:
        directory = settings.local_storages.get(checkpoint.local.storage, "")  # unknown ones are not accepted
        source = {"hostPath": {"path": directory, "type": "DirectoryOrCreate"}}
        # Of a storage that all namespaces have on a node, the part of this one: it could read and remove the others'.
        mount(names.LOCAL_VOLUME, f"{names.LOCAL_CHECKPOINTS_MOUNT}/{run.namespace}", source, subPath=run.namespace)
    if checkpoint is not None and checkpoint.shared is not None:
        source = {"persistentVolumeClaim": {"claimName": checkpoint.shared.claim_name}}
        mount("lockstep-shared", names.SHARED_CHECKPOINTS_MOUNT, source)
    for volume in spec.volumes:
        mount(volume.name, volume.mount_path, _source(volume), **_how(volume))
    return volumes, mounts


def _source(volume: Volume) -> dict[str, Any]:
    plain = _plain(volume)
    return {key: value for key, value in plain.items() if key not in ("name", "mountPath", "subPath", "readOnly")}


def _how(volume: Volume) -> dict[str, Any]:
    how: dict[str, Any] = {"readOnly": True} if volume.read_only else {}
    return how | ({"subPath": volume.sub_path} if volume.sub_path is not None else {})


def _half(memory: str) -> str:
    """Empty: it is no quantity, in a status that somebody has edited; half of the node's then holds by itself."""
    try:
        return quantity(MEMORY, amount(MEMORY, memory) // 2)
    except ValueError:
        return ""


def _one_gang_pod_per_node() -> dict[str, Any]:
    """The node mutex of runs on the pod network, where a host port is not to be had."""
    term = {
        "labelSelector": {"matchExpressions": [{"key": names.LABEL_RUN_UID, "operator": _EXISTS}]},
        "namespaceSelector": {},
        "topologyKey": names.LABEL_HOSTNAME,
    }
    return {"podAntiAffinity": {_REQUIRED: [term]}}


def _plain(model: SpecModel) -> dict[str, Any]:
    """The JSON form as the user wrote it."""
    return model.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
