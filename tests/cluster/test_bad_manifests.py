"""What users get wrong, and the words they get back: each names the field and says what to write instead."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from localcluster.api import MERGE_PATCH, Request
from localcluster.cluster import LocalCluster
from localcluster.errors import ApiError

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

GOOD: dict[str, Any] = {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"]}
ABSENT = object()


def spec(**changes: Any) -> dict[str, Any]:
    """A good spec with some fields changed; ABSENT takes one away."""
    return {name: value for name, value in (deepcopy(GOOD) | changes).items() if value is not ABSENT}


def env(**variable: Any) -> dict[str, Any]:
    return spec(env=[{"name": "A"} | variable])


def saving(**changes: Any) -> dict[str, Any]:
    return spec(checkpoint={"shared": {"claimName": "lustre"}} | changes)


def volume(**changes: Any) -> dict[str, Any]:
    return spec(volumes=[{"name": "data", "mountPath": "/data", "emptyDir": {}} | changes])


def topology(**rule: Any) -> dict[str, Any]:
    return spec(placement={"topology": [{"level": "rack"} | rule]})


BATCH: dict[str, Any] = {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun hostname\n"}}
# what is wrong -> the spec, the field that the refusal names, and what it says about it
BAD_SPECS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no nodes": (spec(nodes=ABSENT), "spec.nodes", "Required value"),
    "zero nodes": (spec(nodes=0), "spec.nodes", "greater than or equal to 1"),
    "nodes as a word": (spec(nodes="two"), "spec.nodes", "must be of type integer"),
    "more nodes than Lockstep runs": (spec(nodes=20_000), "spec.nodes", "less than or equal to 16384"),
    "no image": (spec(image=ABSENT), "spec.image", "Required value"),
    "an empty image": (spec(image=""), "spec.image", "at least 1 chars"),
    "no command": (spec(command=ABSENT), "spec.command", "write what is to run"),
    "an empty command": (spec(command=[]), "spec.command", "write what is to run"),
    "a command as one string": (spec(command="torchrun train.py"), "spec.command", "must be of type array"),
    "a misspelt field": (spec(gpuPerNode=8), "spec.gpuPerNode", "unknown field"),
    "a misspelt field deep inside": (
        spec(checkpoint={"shared": {"claim": "lustre"}}),
        "spec.checkpoint.shared.claim",
        "unknown field",
    ),
    "GPUs said twice": (
        spec(gpusPerNode=8, resourcesPerNode={"nvidia.com/gpu": 4}),
        "spec.gpusPerNode",
        "keep one of them",
    ),
    "GPUs said twice, of a make that is named": (
        spec(gpusPerNode=8, gpuResource="amd.com/gpu", resourcesPerNode={"amd.com/gpu": 4}),
        "spec.gpusPerNode",
        "keep one of them",
    ),
    "a make of GPUs that is no resource": (
        spec(gpuResource="amd"),
        "spec.gpuResource",
        "write a resource that the operator counts as GPUs",
    ),
    "an interval that is no duration": (
        saving(cadence={"interval": "often"}),
        "spec.checkpoint.cadence.interval",
        "write Adaptive, Disabled or a duration as 90s",
    ),
    "the priority of the cluster's own pods": (
        spec(priorityClassName="system-node-critical"),
        "spec.priorityClassName",
        "name another PriorityClass",
    ),
    "a time limit without a unit": (spec(timeLimit="3600"), "spec.timeLimit", "write a duration as 90s"),
    "an archive on no known store": (
        saving(archive={"uri": "ftp://golden/llama"}),
        "spec.checkpoint.archive.uri",
        "write the store as s3://bucket/prefix",
    ),
    "an archive of nothing": (
        spec(checkpoint={"local": {"storage": "nvme"}, "archive": {"uri": "s3://golden/llama"}}),
        "spec.checkpoint.archive",
        "name one: shared",
    ),
    "one directory for all on nobody's disk": (
        spec(checkpoint={"local": {"storage": "nvme"}, "layout": "Shared"}),
        "spec.checkpoint.layout",
        "needs the shared tier",
    ),
    "a start from a run and from a path": (
        saving(start={"run": "base", "path": "team/base"}),
        "spec.checkpoint.start.path",
        "not both",
    ),
    "a start from a step of nothing": (
        saving(start={"step": 10}),
        "spec.checkpoint.start.step",
        "name that run or path",
    ),
    "a start from a path that climbs": (
        saving(start={"path": "team/../other"}),
        "spec.checkpoint.start.path",
        "write a path relative to the claim",
    ),
    "a fresh start from another run": (
        saving(start={"run": "base", "mode": "Fresh"}),
        "spec.checkpoint.start.mode",
        "leave run and path out",
    ),
    "a pattern of the steps without a step": (
        spec(progress={"pattern": r"at (?P<loss>\d+)"}),
        "spec.progress.pattern",
        "names no group for the step; write it (?P<step>[0-9]+)",
    ),
    "a rule that fits nothing": (
        spec(recovery={"rules": [{"name": "a", "action": "Stop"}]}),
        "spec.recovery.rules[0]",
        "name exitCodes, a logPattern or a nodeCondition",
    ),
    "two rules of one name": (
        spec(recovery={"rules": [{"name": "a", "exitCodes": [1], "action": "Stop"}] * 2}),
        "spec.recovery.rules[1]",
        "Duplicate value",
    ),
    "a gang that shrinks to more than it has": (
        spec(elastic={"min": 9}),
        "spec.elastic.min",
        "lower it or raise spec.nodes",
    ),
    "a gang that shrinks to no multiple": (
        spec(nodes=4, elastic={"min": 3, "multipleOf": 2}),
        "spec.elastic.multipleOf",
        "multiples of it",
    ),
    "spares without a barrier to wait at": (
        spec(worker="Disabled", spareNodes=1),
        "spec.spareNodes",
        "leave one of them out",
    ),
    "an elastic gang without a worker": (
        spec(worker="Disabled", elastic={"min": 1}),
        "spec.elastic",
        "worker: Disabled",
    ),
    "negative GPUs": (spec(gpusPerNode=-1), "spec.gpusPerNode", "greater than or equal to 0"),
    "memory in GB": (
        spec(resourcesPerNode={"memory": "512GB"}),
        "spec.resourcesPerNode[memory]",
        "write a quantity as 8, 500m, 200Gi or 2Ti",
    ),
    "a negative resource": (
        spec(resourcesPerNode={"rdma/hca": -8}),
        "spec.resourcesPerNode[rdma/hca]",
        "write a quantity",
    ),
    "a size without its unit's i": (
        spec(shmSize="200GB"),
        "spec.shmSize",
        "write a size as 512Mi, 200Gi or 2Ti",
    ),
    "a negative resource as a string": (
        spec(resourcesPerNode={"memory": "-1Gi"}),
        "spec.resourcesPerNode[memory]",
        "write a quantity",
    ),
    "a size without a unit": (spec(shmSize="200"), "spec.shmSize", "write a size as 512Mi, 200Gi or 2Ti"),
    "a size as a bare number": (spec(shmSize=200), "spec.shmSize", "must be of type string"),
    "a launcher that does not exist": (
        spec(launcher={"type": "torchrun"}),
        "spec.launcher.type",
        'supported values: "Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Slurm", "Ray"',
    ),
    "torchrun started by torchrun": (
        spec(launcher={"type": "Torchrun"}),
        "spec.command",
        "write command: [train.py]",
    ),
    "torchrun by its path started by torchrun": (
        spec(launcher={"type": "Torchrun"}, command=["/opt/venv/bin/torchrun", "train.py"]),
        "spec.command",
        "leave launcher out",
    ),
    "settings of another launcher": (
        spec(launcher={"type": "JAX", "torchrun": {"nprocPerNode": 8}}),
        "spec.launcher.torchrun",
        "need launcher.type: Torchrun",
    ),
    "slots for another launcher": (
        spec(launcher={"type": "DeepSpeed", "mpi": {"slotsPerNode": 8}}, command=["deepspeed", "t.py"]),
        "spec.launcher.mpi",
        "need launcher.type: MPI",
    ),
    "MPI without the worker": (
        spec(launcher={"type": "MPI"}, command=["mpirun", "t"], worker="Disabled"),
        "spec.launcher.type",
        "leave one of them out",
    ),
    "a batch script without the worker": (
        spec(launcher=BATCH, command=ABSENT, worker="Disabled"),
        "spec.launcher.type",
        "leave one of them out",
    ),
    "a batch script and a command": (
        spec(launcher=BATCH),
        "spec.command",
        "the script in launcher.batch is what runs",
    ),
    "Slurm without a script": (
        spec(launcher={"type": "Slurm"}, command=ABSENT),
        "spec.launcher.batch",
        "write both, or leave both out",
    ),
    "a batch script for another launcher": (
        spec(launcher={**BATCH, "type": "MPI"}),
        "spec.launcher.batch",
        "write both, or leave both out",
    ),
    "a batch script without an interpreter": (
        spec(launcher={"type": "Slurm", "batch": {"script": "srun x"}}, command=ABSENT),
        "spec.launcher.batch.script",
        "begin with #!",
    ),
    "a batch script that is too long": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh\n" + 131_072 * "#"}}, command=ABSENT),
        "spec.launcher.batch.script",
        "may not be more than 131072",
    ),
    "a directory from nowhere": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh", "directory": "work"}}, command=ABSENT),
        "spec.launcher.batch.directory",
        "write a path from the root",
    ),
    "a script from nowhere": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh", "command": "t.sh"}}, command=ABSENT),
        "spec.launcher.batch.command",
        "write the path of the script's file from the root",
    ),
    "a submission from nowhere": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh", "submitDirectory": "work"}}, command=ABSENT),
        "spec.launcher.batch.submitDirectory",
        "write a path from the root",
    ),
    "what Ray does about a lost node, for another launcher": (
        spec(launcher={"type": "Torchrun", "ray": {"onNodeLoss": "Join"}}, command=["t.py"]),
        "spec.launcher.ray",
        "need launcher.type: Ray",
    ),
    "an answer to a lost node that there is not": (
        spec(launcher={"type": "Ray", "ray": {"onNodeLoss": "Ignore"}}),
        "spec.launcher.ray.onNodeLoss",
        'supported values: "Join", "Restart"',
    ),
    "Ray without the worker": (
        spec(launcher={"type": "Ray"}, command=["python", "t.py"], worker="Disabled"),
        "spec.launcher.type",
        "leave one of them out",
    ),
    "steps without the worker": (
        spec(launcher={"steps": True}, worker="Disabled"),
        "spec.launcher.steps",
        "leave one of them out",
    ),
    "a variable that Lockstep sets": (
        env(name="LOCKSTEP_ATTEMPT"),
        "spec.env[0].name",
        "choose another name",
    ),
    "a rendezvous variable": (env(name="MASTER_ADDR"), "spec.env[0].name", "leave this one out"),
    "a variable twice": (spec(env=[{"name": "A"}, {"name": "A"}]), "spec.env[1]", "Duplicate value"),
    "a variable's value as a number": (env(value=1), "spec.env[0].value", "must be of type string"),
    "a variable with value and source": (
        env(value="1", valueFrom={"fieldRef": {"fieldPath": "spec.nodeName"}}),
        "spec.env[0]",
        "either value or valueFrom",
    ),
    "a variable with two sources": (
        env(
            valueFrom={
                "fieldRef": {"fieldPath": "spec.nodeName"},
                "secretKeyRef": {"name": "s", "key": "k"},
            }
        ),
        "spec.env[0].valueFrom",
        "exactly one source",
    ),
    "envFrom without a source": (
        spec(envFrom=[{"prefix": "P_"}]),
        "spec.envFrom[0]",
        "configMapRef or secretRef",
    ),
    "a volume without a source": (
        spec(volumes=[{"name": "data", "mountPath": "/data"}]),
        "spec.volumes[0]",
        "exactly one source",
    ),
    "a volume with two sources": (
        volume(persistentVolumeClaim={"claimName": "lustre"}),
        "spec.volumes[0]",
        "exactly one source",
    ),
    "a volume mounted nowhere": (
        spec(volumes=[{"name": "data", "emptyDir": {}}]),
        "spec.volumes[0].mountPath",
        "Required value",
    ),
    "a volume on a relative path": (volume(mountPath="data"), "spec.volumes[0].mountPath", "absolute path"),
    "a volume over the worker": (
        volume(mountPath="/lockstep/x"),
        "spec.volumes[0].mountPath",
        "choose another path",
    ),
    "a volume over /dev/shm": (
        volume(mountPath="/dev/shm"),
        "spec.volumes[0].mountPath",
        "shmSize sizes /dev/shm",
    ),
    "a volume with one of Lockstep's names": (
        volume(name="lockstep-token"),
        "spec.volumes[0].name",
        "choose another",
    ),
    "a volume name in capitals": (volume(name="Data"), "spec.volumes[0].name", "lower case letters"),
    "a topology policy that does not exist": (
        topology(policy="Packed"),
        "spec.placement.topology[0].policy",
        'supported values: "Any", "Pack", "Contiguous", "Spread"',
    ),
    "Spread without a bound": (
        topology(policy="Spread"),
        "spec.placement.topology[0].maxNodes",
        "write maxNodes: 1",
    ),
    "one topology level twice": (
        spec(placement={"topology": [{"level": "rack"}, {"level": "rack"}]}),
        "spec.placement.topology[1]",
        "Duplicate value",
    ),
    "fewer nodes named than asked for": (
        spec(placement={"nodes": ["gpu-0001"]}),
        "spec.placement.nodes",
        "name more of them or lower spec.nodes",
    ),
    "a checkpoint block without a tier": (
        spec(checkpoint={"start": {"mode": "Require"}}),
        "spec.checkpoint",
        "name a tier",
    ),
    "a checkpoint path from the root": (
        spec(checkpoint={"shared": {"claimName": "lustre", "path": "/ckpt"}}),
        "spec.checkpoint.shared.path",
        "relative to the claim",
    ),
    "a checkpoint path that climbs": (
        spec(checkpoint={"shared": {"claimName": "lustre", "path": "a/../../b"}}),
        "spec.checkpoint.shared.path",
        "without '.' or '..'",
    ),
    "a checkpoint format that does not exist": (
        spec(checkpoint={"format": "DCP", "shared": {"claimName": "lustre"}}),
        "spec.checkpoint.format",
        'supported values: "Auto", "Manifest", "TorchDCP"',
    ),
    "a checkpoint pattern with a directory": (
        saving(pattern="out/ckpt_{step}.pt"),
        "spec.checkpoint.pattern",
        "write the name of a file, with {step} at most once",
    ),
    "a checkpoint pattern with two steps": (
        saving(pattern="ckpt_{step}_{step}.pt"),
        "spec.checkpoint.pattern",
        "write the name of a file, with {step} at most once",
    ),
    "a checkpoint pattern of another word": (
        saving(pattern="ckpt_{epoch}.pt"),
        "spec.checkpoint.pattern",
        "write the name of a file, with {step} at most once",
    ),
    "a checkpoint pattern for directories of a format": (
        saving(pattern="ckpt_{step}.pt", format="TorchDCP"),
        "spec.checkpoint.pattern",
        "names files of torch.save; write format: Torch",
    ),
    "a copy to start from that is nowhere": (
        saving(start={"acceptCopy": True}),
        "spec.checkpoint.start.acceptCopy",
        "name that run or path as well",
    ),
    "no local checkpoint kept at all": (
        spec(checkpoint={"local": {"storage": "nvme", "keepLast": 0}}),
        "spec.checkpoint.local.keepLast",
        "write how many of the newest valid steps",
    ),
    "all local checkpoints kept, in a word of one's own": (
        spec(checkpoint={"local": {"storage": "nvme", "keepLast": "All"}}),
        "spec.checkpoint.local.keepLast",
        "or Disabled to remove none",
    ),
    "a limit switched Off": (
        spec(recovery={"noProgressLimit": "Off"}),
        "spec.recovery.noProgressLimit",
        "write Adaptive, or a number of restarts",
    ),
    "a limit of zero": (
        spec(recovery={"noProgressLimit": 0}),
        "spec.recovery.noProgressLimit",
        "write Adaptive, or a number of restarts",
    ),
    "a negative cap on restarts": (
        spec(recovery={"maxRestarts": -1}),
        "spec.recovery.maxRestarts",
        "greater than or equal to 0",
    ),
    "a network that does not exist": (
        spec(network="host"),
        "spec.network",
        'supported values: "Host", "Pod"',
    ),
    "suspend as a word": (spec(suspend="yes"), "spec.suspend", "must be of type boolean"),
    "steps as a float": (
        spec(progress={"totalSteps": 2.5}),
        "spec.progress.totalSteps",
        "must be of type integer",
    ),
}

# what is wrong -> the field changed from, to; the refusal's field and words
BAD_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "another launcher": (
        spec(),
        spec(launcher={"type": "JAX"}, suspend=True),
        "spec.launcher.type",
        "create a new run instead",
    ),
    "a tier added": (
        spec(),
        spec(checkpoint={"shared": {"claimName": "lustre"}}, suspend=True),
        "spec.checkpoint.shared",
        "create a new run instead",
    ),
    "a tier moved": (
        spec(checkpoint={"shared": {"claimName": "lustre"}}),
        spec(checkpoint={"shared": {"claimName": "gpfs"}}, suspend=True),
        "spec.checkpoint.shared",
        "create a new run instead",
    ),
    "a local tier added": (
        saving(),
        saving(local={"storage": "nvme"}) | {"suspend": True},
        "spec.checkpoint.local.storage",
        "create a new run instead",
    ),
    "a local tier taken away": (
        saving(local={"storage": "nvme"}),
        saving() | {"suspend": True},
        "spec.checkpoint.local.storage",
        "create a new run instead",
    ),
    "a local tier moved": (
        saving(local={"storage": "nvme"}),
        saving(local={"storage": "ssd"}) | {"suspend": True},
        "spec.checkpoint.local.storage",
        "create a new run instead",
    ),
    "another image while it runs": (spec(), spec(image="other"), "spec.image", "set suspend: true"),
    "more GPUs while it runs": (spec(gpusPerNode=4), spec(gpusPerNode=8), "spec.gpusPerNode", "set suspend: true"),
    "a variable while it runs": (
        spec(env=[{"name": "A", "value": "1"}]),
        spec(env=[{"name": "A", "value": "2"}]),
        "spec.env",
        "set suspend: true",
    ),
    "a pod template while it runs": (
        spec(podTemplate={"spec": {"schedulerName": "a"}}),
        spec(podTemplate={"spec": {"schedulerName": "b"}}),
        "spec.podTemplate",
        "set suspend: true",
    ),
    "a placement while it runs": (
        spec(),
        spec(placement={"gpuTypes": ["H100"]}),
        "spec.placement.gpuTypes",
        "set suspend: true",
    ),
    "a cancel taken back": (spec(cancel=True), spec(), "spec.cancel", "lockstep retry makes a new one"),
}

GOOD_CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "suspending with another image": (spec(), spec(suspend=True, image="other")),
    "resuming with another image": (spec(suspend=True), spec(image="other")),
    "cancelling": (spec(), spec(cancel=True)),
    "excluding a node": (spec(), spec(placement={"excludeNodes": ["gpu-0017"]})),
    "giving up later": (spec(), spec(recovery={"noProgressLimit": 9, "maxRestarts": 20})),
    "writing out what a group left out stands for": (spec(), spec(launcher={"type": "Plain"}, onTimeLimit={})),
    "writing out where a run with checkpoints starts": (saving(), saving(start={"mode": "Auto"})),
    "leaving out again what was written out": (saving(start={"mode": "Auto"}), saving()),
    "keeping more local checkpoints": (
        saving(local={"storage": "nvme"}),
        saving(local={"storage": "nvme", "keepLast": 5}),
    ),
    "keeping all local checkpoints": (
        saving(local={"storage": "nvme", "keepLast": 1}),
        saving(local={"storage": "nvme", "keepLast": "Disabled"}),
    ),
    "more steps": (spec(progress={"totalSteps": 10}), spec(progress={"totalSteps": 20})),
}


def refusal(cluster: LocalCluster, method: str, path: str, body: dict[str, Any]) -> str:
    """The API server's words; empty when it would take the object."""
    try:
        cluster.api.send(Request(method, f"{path}?fieldValidation=Strict&dryRun=All", body))
    except ApiError as error:
        return str(error)
    return ""


def run(wanted: dict[str, Any], namespace: str, name: str = "bad") -> dict[str, Any]:
    return {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name, "namespace": namespace},
        "spec": wanted,
    }


def runs(namespace: str) -> str:
    return f"/apis/lockstep.dev/v1alpha1/namespaces/{namespace}/trainingruns"


QUOTA = {"gpuType": "H100", "nominalNodes": 4}
QUEUES = "/apis/lockstep.dev/v1alpha1/trainingqueues"


@pytest.mark.parametrize("mistake", BAD_SPECS)
def test_a_bad_spec_is_refused_with_field_and_remedy(cluster: LocalCluster, mistake: str) -> None:
    bad, field, remedy = BAD_SPECS[mistake]
    words = refusal(cluster, "POST", runs("default"), run(bad, "default"))
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("name", ["a" * 41, "has.dots"])
def test_a_name_that_pods_cannot_carry_is_refused(cluster: LocalCluster, name: str) -> None:
    words = refusal(cluster, "POST", runs("default"), run(spec(), "default", name))
    assert "metadata.name must be at most 40 lower case letters, digits and '-'" in words
    assert "write '-' in place of dots" in words


@pytest.mark.parametrize(
    ("queue", "field", "remedy"),
    [
        ({"stopPolicy": "Drain"}, "spec.stopPolicy", 'supported values: "None", "Hold"'),
        ({"limits": {"maxNodesPerRun": 0}}, "spec.limits.maxNodesPerRun", "greater than or equal to 1"),
        ({"nodeSelector": {"pool": True}}, "spec.nodeSelector.pool", "must be of type string"),
        ({"limit": {}}, "spec.limit", "unknown field"),
        ({"quotas": [{"gpuType": "H100"}]}, "spec.quotas[0].nominalNodes", "Required value"),
        ({"quotas": [{"gpuType": "H100", "nominalNodes": -1}]}, "spec.quotas[0].nominalNodes", "or equal to 0"),
        ({"quotas": [QUOTA, QUOTA]}, "spec.quotas[1]", "Duplicate value"),
        ({"quotas": [QUOTA | {"borrowingLimit": 2}]}, "spec.quotas", "need a cohort; name one or leave them out"),
        ({"quotas": [QUOTA | {"lendingLimit": 2}]}, "spec.quotas", "need a cohort; name one or leave them out"),
        ({"cohort": "research"}, "spec.cohort", "a queue of a cohort needs quotas"),
        ({"fairSharing": {"weight": 0}}, "spec.fairSharing.weight", "greater than or equal to 1"),
        ({"limits": {"maxTimeLimit": "72"}}, "spec.limits.maxTimeLimit", "write a duration as 90s"),
        ({"limits": {"gpuHoursPerDay": 0}}, "spec.limits.gpuHoursPerDay", "greater than or equal to 1"),
        ({"limits": {"onGpuHours": "Stop"}}, "spec.limits.onGpuHours", 'supported values: "Warn", "Block"'),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
            "spec.namespaceSelector.matchExpressions[0].values",
            "In and NotIn need values",
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]}},
            "spec.namespaceSelector.matchExpressions[0].values",
            "Exists and DoesNotExist take none",
        ),
        ({"heldRuns": ["llama"]}, "spec.heldRuns[0]", "write a run as namespace/name"),
        ({"allowedPriorityClasses": ["high", "high"]}, "spec.allowedPriorityClasses[1]", "Duplicate value"),
        ({"preemption": {"withinQueue": "Any"}}, "spec.preemption.withinQueue", 'supported values: "Never", "Lower'),
        ({"preemption": {"minRuntime": "10"}}, "spec.preemption.minRuntime", "write a duration as 90s"),
        ({"backend": "kueue"}, "spec.backend", 'supported values: "Builtin", "Kueue"'),
        ({"localQueue": "team"}, "spec.localQueue", "write backend: Kueue, or leave localQueue out"),
        ({"backend": "Kueue", "quotas": [QUOTA]}, "spec.quotas", "the ClusterQueue has the quotas; leave them out"),
        ({"backend": "Kueue", "cohort": "research"}, "spec.cohort", "the ClusterQueue has the cohort; leave it out"),
        (
            {"backend": "Kueue", "preemption": {"withinQueue": "LowerPriority"}},
            "spec.preemption",
            "the ClusterQueue says who is preempted",
        ),
        ({"backend": "Kueue", "limits": {"maxRunningRuns": 3}}, "spec.limits", "leave maxRunningRuns and maxP"),
        ({"backend": "Kueue", "scaleUp": "Enabled"}, "spec.scaleUp", "admission check of the ClusterQueue asks"),
        ({"scaleUp": "enabled"}, "spec.scaleUp", 'supported values: "Disabled", "Enabled"'),
        ({"provisioningClass": "c"}, "spec.provisioningClass", "leave provisioningClass out"),
        (
            {"scaleUp": "Disabled", "provisioningClass": "c"},
            "spec.provisioningClass",
            "is of scaleUp: Enabled; write that",
        ),
        (
            {"scaleUp": "Enabled", "provisioningClass": "Queued Provisioning"},
            "spec.provisioningClass",
            "write a name such as queued-provisioning.gke.io",
        ),
        ({"batch": {"launcher": "Slurm"}}, "spec.batch.launcher", 'supported values: "Plain", "Torchrun"'),
        ({"batch": {"checkpointClaim": ""}}, "spec.batch.checkpointClaim", "at least 1 chars long"),
        ({"batch": {"scriptCheckpointClaim": ""}}, "spec.batch.scriptCheckpointClaim", "at least 1 chars long"),
        ({"visibility": "None"}, "spec.visibility", 'supported values: "Full", "OwnNamespace"'),
    ],
)
def test_a_bad_queue_is_refused_with_field_and_remedy(
    cluster: LocalCluster, queue: dict[str, Any], field: str, remedy: str
) -> None:
    body = {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingQueue",
        "metadata": {"name": "q"},
        "spec": queue,
    }
    words = refusal(cluster, "POST", QUEUES, body)
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("change", BAD_CHANGES)
def test_a_change_that_a_running_gang_cannot_take_is_refused(
    cluster: LocalCluster, namespace: str, change: str
) -> None:
    before, after, field, remedy = BAD_CHANGES[change]
    words = changed(cluster, namespace, before, after)
    assert field in words
    assert remedy in words


@pytest.mark.parametrize("change", GOOD_CHANGES)
def test_a_change_that_costs_the_gang_nothing_is_taken(cluster: LocalCluster, namespace: str, change: str) -> None:
    assert changed(cluster, namespace, *GOOD_CHANGES[change]) == ""


BEFORE: dict[str, Any] = saving(shared={"claimName": "lustre"})
FINISHED = {"type": "Finished", "status": "True", "reason": "Cancelled", "message": ""}
ENDED = {"conditions": [FINISHED | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ({"spec": {"image": "mended"}}, False),
        ({"spec": {"nodes": 3}}, False),
        ({"spec": {"suspend": True}}, False),
        ({"spec": {"suspend": True, "podTemplate": {"metadata": {"labels": {"a": "b"}}}}}, False),
        ({"spec": {"checkpoint": {"signal": "SIGUSR1"}}}, False),
        ({"spec": {"image": "pytorch/pytorch"}}, True),  # nothing changes
        ({"spec": {"cancel": True}}, True),
        ({"spec": {"ttlAfterFinished": "1h"}}, True),
        ({"spec": {"checkpoint": {"archive": {"uri": "s3://golden/late"}}}}, True),
        (
            {"metadata": {"labels": {"team": "nlp"}, "annotations": {"a": "b"}, "finalizers": ["example.com/kept"]}},
            True,
        ),
    ],
)
def test_a_change_of_a_run_that_has_ended_is_refused_where_it_does_nothing(
    cluster: LocalCluster, namespace: str, change: dict[str, Any], is_taken: bool
) -> None:
    path = f"{runs(namespace)}/bad"
    cluster.api.send(Request("POST", runs(namespace), run(BEFORE, namespace)))
    cluster.api.send(Request("PATCH", f"{path}/status", {"status": ENDED}, MERGE_PATCH))
    try:
        cluster.api.send(Request("PATCH", path, change, MERGE_PATCH))
        words = ""
    except ApiError as error:
        words = str(error)
    assert (not words) is is_taken, words
    if not is_taken:
        assert "lockstep retry bad -f FILE, and for a run of an array --name NAME." in words
        assert "only while the run is suspended" not in words, "of a run that has ended one thing is said"
    state = {"status": ENDED | {"state": "Cancelled"}}
    cluster.api.send(Request("PATCH", f"{path}/status", state, MERGE_PATCH))
    cluster.api.send(Request("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH))
    cluster.api.send(Request("DELETE", path))


def test_the_mistakes_are_many_enough_to_mean_something() -> None:
    assert len(BAD_SPECS) + len(BAD_CHANGES) >= 30


def changed(cluster: LocalCluster, namespace: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    """The API server's words on the change of a run that exists."""
    made = cluster.api.send(Request("POST", runs(namespace), run(before, namespace)))
    version = made["metadata"]["resourceVersion"]
    body = run(after, namespace)
    body["metadata"]["resourceVersion"] = version
    return refusal(cluster, "PUT", f"{runs(namespace)}/bad", body)
