"""What users get wrong in the spec of a run, with the words they get back."""

from __future__ import annotations

from typing import Any

from support.bad_launchers import BAD_LAUNCHERS
from support.good_specs import ABSENT, saving, spec


def env(**variable: Any) -> dict[str, Any]:
    return spec(env=[{"name": "A"} | variable])


def volume(**changes: Any) -> dict[str, Any]:
    return spec(volumes=[{"name": "data", "mountPath": "/data", "emptyDir": {}} | changes])


def topology(**rule: Any) -> dict[str, Any]:
    return spec(placement={"topology": [{"level": "rack"} | rule]})


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
    **BAD_LAUNCHERS,
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
