"""What only the operator can refuse: the words of Accepted=False."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.v1alpha1 import TrainingRunSpec
from lockstep.core.model.settings import PodPolicy
from lockstep.core.pods.validation import KnownNames, validate

PRIVILEGED = {"lockstep.dev/allow-privileged": "true"}
STRICT = KnownNames(pod_policy=PodPolicy())
HOST_PATH = {"name": "nvme", "mountPath": "/nvme", "hostPath": {"path": "/mnt/nvme"}}


def spec(**changes: Any) -> TrainingRunSpec:
    good: dict[str, Any] = {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"]}
    return TrainingRunSpec.model_validate(good | changes)


def pod(**changes: Any) -> TrainingRunSpec:
    return spec(podTemplate={"spec": changes})


def trainer(*, beside: dict[str, Any] | None = None, **changes: Any) -> TrainingRunSpec:
    return spec(podTemplate={"spec": {"containers": [{"name": "trainer"} | changes]}}, **(beside or {}))


def emptied(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path, "emptyDir": {}}


# what is wrong -> the spec, the field of the refusal, and what it says
BAD_SPECS: dict[str, tuple[TrainingRunSpec, str, str]] = {
    "GPUs by a short name": (spec(resourcesPerNode={"gpu": 8}), "spec.resourcesPerNode[gpu]", "write nvidia.com/gpu"),
    "a misspelt resource": (
        spec(resourcesPerNode={"mem": "1Gi"}),
        "spec.resourcesPerNode[mem]",
        "write cpu, memory or vendor/device",
    ),
    "a pattern that is none": (
        spec(recovery={"rules": [{"name": "a", "logPattern": "link (flapped", "action": "Stop"}]}),
        "spec.recovery.rules[0].logPattern",
        "missing ), unterminated subpattern",
    ),
    "a pattern of the steps that is none": (
        spec(progress={"pattern": r"at (?P<step>\d+"}),
        "spec.progress.pattern",
        "missing ), unterminated subpattern",
    ),
    "a shortest time that is longer than the longest": (
        spec(timeLimit="1h", minTimeLimit="90m"),
        "spec.minTimeLimit",
        "90m is longer than timeLimit, which is 1h; shorten it",
    ),
    "a claim by what no claim can be called": (
        spec(checkpoint={"shared": {"claimName": "My_Claim"}}),
        "spec.checkpoint.shared.claimName",
        "no PersistentVolumeClaim can be called My_Claim: names are of lower case letters, digits, - and .",
    ),
    "a secret of the template by what none can be called": (
        pod(volumes=[{"name": "v", "secret": {"secretName": "a/b"}}]),
        "spec.podTemplate.spec.volumes[0].secret.secretName",
        "no Secret can be called a/b",
    ),
    "a program without a name": (spec(command=[""]), "spec.command[0]", "is empty; write the program there"),
    "a directory that is nowhere": (
        spec(workingDir="src"),
        "spec.workingDir",
        "src is no absolute path; begin it with /",
    ),
    "half a GPU": (
        spec(resourcesPerNode={"nvidia.com/gpu": "500m"}),
        "spec.resourcesPerNode[nvidia.com/gpu]",
        "whole number of devices",
    ),
    "more GPUs than anything has": (
        spec(resourcesPerNode={"nvidia.com/gpu": "1k"}),
        "spec.resourcesPerNode[nvidia.com/gpu]",
        "write 128 or less",
    ),
    "no memory at all": (spec(resourcesPerNode={"memory": "0"}), "spec.resourcesPerNode[memory]", "leave it out"),
    "a rendezvous variable of torchrun": (
        spec(env=[{"name": "PET_RDZV_BACKEND", "value": "c10d"}]),
        "spec.env[0]",
        "leave it out",
    ),
    "a path of the node": (spec(volumes=[HOST_PATH]), "spec.volumes[0].hostPath", "lockstep.dev/allow-privileged"),
    "one path for two volumes": (
        spec(volumes=[emptied("a", "/data"), emptied("b", "/data/")]),
        "spec.volumes[0].mountPath",
        "used twice",
    ),
    "a volume over a checkpoint tier": (
        spec(checkpoint={"shared": {"claimName": "c"}}, volumes=[emptied("a", "/shared-checkpoints")]),
        "spec.volumes[0].mountPath",
        "choose another path",
    ),
    "a volume over the worker's scratch": (
        spec(volumes=[emptied("a", "/run/lockstep")]),
        "spec.volumes[0].mountPath",
        "choose another path",
    ),
    "named nodes excluded again": (
        spec(placement={"nodes": ["a", "b"], "excludeNodes": ["b"]}),
        "spec.placement.nodes",
        "leaves 1 of 2 nodes",
    ),
    "a range of nodes": (
        spec(placement={"excludeNodes": ["gpu-7.example.org", "gpu-[1-4]"]}),
        "spec.placement.excludeNodes[1]",
        "'gpu-[1-4]' is no node's name; write each by its name",
    ),
    "a node in capitals": (
        spec(placement={"nodes": ["a", "B"]}),
        "spec.placement.nodes[1]",
        "'B' is no node's name",
    ),
    "Any required": (
        spec(placement={"topology": [{"level": "rack", "policy": "Any", "mode": "Required"}]}),
        "spec.placement.topology[0]",
        "choose Pack, Contiguous or Spread",
    ),
    "a template that is no template": (
        spec(podTemplate={"nodeSelector": {"pool": "a"}}),
        "spec.podTemplate.nodeSelector",
        "move it below",
    ),
    "a template's spec that is no object": (
        spec(podTemplate={"spec": []}),
        "spec.podTemplate",
        "are objects",
    ),
    "a pod's name": (
        spec(podTemplate={"metadata": {"name": "x"}}),
        "spec.podTemplate.metadata.name",
        "only labels and annotations",
    ),
    "one of Lockstep's labels": (
        spec(podTemplate={"metadata": {"labels": {"lockstep.dev/slot": "0"}}}),
        "spec.podTemplate.metadata.labels[lockstep.dev/slot]",
        "choose another key",
    ),
    "containers by name instead of in a list": (
        pod(containers={"trainer": {}}),
        "spec.podTemplate.spec.containers",
        "is a list of objects",
    ),
    "variables by name instead of in a list": (
        trainer(env={"A": "1"}),
        "spec.podTemplate.spec.containers[0].env",
        "is a list of objects",
    ),
    "an object as a name": (
        pod(volumes=[{"name": {"claim": "data"}, "emptyDir": {}}]),
        "spec.podTemplate.spec.volumes[0].name",
        "is text",
    ),
    "no amount of a sidecar": (
        pod(containers=[{"name": "logs", "resources": {"requests": {"cpu": []}}}]),
        "spec.podTemplate.spec.containers[0].resources.requests[cpu]",
        "write a quantity as 8, 500m",
    ),
    "an endless limit of a sidecar": (
        pod(
            initContainers=[
                {"name": "logs", "restartPolicy": "Always", "resources": {"limits": {"memory": "9" * 5000}}}
            ]
        ),
        "spec.podTemplate.spec.initContainers[0].resources.limits[memory]",
        "write a quantity as 8, 500m",
    ),
    "a list as a path": (
        trainer(volumeMounts=[{"name": "data", "mountPath": ["/data"]}]),
        "spec.podTemplate.spec.containers[0].volumeMounts[0].mountPath",
        "is text",
    ),
    "tolerations as words": (
        pod(tolerations=["gpu"]),
        "spec.podTemplate.spec.tolerations",
        "is a list of objects",
    ),
    "an annotation that Lockstep sets": (
        spec(podTemplate={"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}}),
        "spec.podTemplate.metadata.annotations[cluster-autoscaler.kubernetes.io/safe-to-evict]",
        "choose another key",
    ),
    "leave for Karpenter to empty the node": (
        spec(podTemplate={"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}),
        "spec.podTemplate.metadata.annotations[karpenter.sh/do-not-disrupt]",
        "is true on every gang pod",
    ),
    "name resolution on the node's network": (
        pod(dnsPolicy="Default"),
        "spec.podTemplate.spec.dnsPolicy",
        "use dnsConfig",
    ),
    "torchrun as a module, started by torchrun": (
        spec(launcher={"type": "Torchrun"}, command=["python3", "-m", "torch.distributed.run", "train.py"]),
        "spec.command",
        "leave launcher out",
    ),
    "a template mount over a checkpoint tier": (
        trainer(
            volumeMounts=[{"name": "a", "mountPath": "/shared-checkpoints/"}],
            beside={"checkpoint": {"shared": {"claimName": "c"}}},
        ),
        "spec.podTemplate.spec.containers[0].volumeMounts[0].mountPath",
        "choose another path",
    ),
    "a restart policy": (pod(restartPolicy="Always"), "spec.podTemplate.spec.restartPolicy", "leave it out"),
    "a node by its name": (pod(nodeName="a"), "spec.podTemplate.spec.nodeName", "use spec.placement.nodes"),
    "the host's network": (pod(hostNetwork=True), "spec.podTemplate.spec.hostNetwork", "use spec.network"),
    "the host's processes": (pod(hostPID=True), "spec.podTemplate.spec.hostPID", "leave it out"),
    "the host's IPC": (pod(hostIPC=True), "spec.podTemplate.spec.hostIPC", "lockstep.dev/allow-privileged"),
    "a deadline for one pod": (
        pod(activeDeadlineSeconds=60),
        "spec.podTemplate.spec.activeDeadlineSeconds",
        "leave it out",
    ),
    "a priority class of the pods": (
        pod(priorityClassName="high"),
        "spec.podTemplate.spec.priorityClassName",
        "gang pods carry Lockstep's own class",
    ),
    "topology spread by the scheduler": (
        pod(topologySpreadConstraints=[]),
        "spec.podTemplate.spec.topologySpreadConstraints",
        "use spec.placement.topology",
    ),
    "anti-affinity between pods": (
        pod(affinity={"podAntiAffinity": {}}),
        "spec.podTemplate.spec.affinity.podAntiAffinity",
        "use spec.placement.topology",
    ),
    "a service account twice": (
        spec(serviceAccountName="a", podTemplate={"spec": {"serviceAccountName": "b"}}),
        "spec.podTemplate.spec.serviceAccountName",
        "keep that one",
    ),
    "a pull secret twice": (
        spec(imagePullSecrets=[{"name": "s"}], podTemplate={"spec": {"imagePullSecrets": [{"name": "s"}]}}),
        "spec.podTemplate.spec.imagePullSecrets[0]",
        "keep that one",
    ),
    "a volume twice": (
        spec(volumes=[emptied("a", "/a")], podTemplate={"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}}),
        "spec.podTemplate.spec.volumes[0]",
        "keep that one",
    ),
    "a template volume on a path of the node": (
        pod(volumes=[{"name": "a", "hostPath": {"path": "/"}}]),
        "spec.podTemplate.spec.volumes[0].hostPath",
        "lockstep.dev/allow-privileged",
    ),
    "a container without a name": (
        pod(containers=[{"image": "x"}]),
        "spec.podTemplate.spec.containers[0].name",
        "trainer is the training container",
    ),
    "the image twice": (trainer(image="x"), "spec.podTemplate.spec.containers[0].image", "use spec.image"),
    "the command twice": (trainer(command=["x"]), "spec.podTemplate.spec.containers[0].command", "use spec.command"),
    "resources of the training container": (
        trainer(resources={}),
        "spec.podTemplate.spec.containers[0].resources",
        "use spec.resourcesPerNode",
    ),
    "a working directory twice": (
        trainer(workingDir="/a", beside={"workingDir": "/b"}),
        "spec.podTemplate.spec.containers[0].workingDir",
        "keep that one",
    ),
    "a variable twice": (
        trainer(env=[{"name": "A"}], beside={"env": [{"name": "A"}]}),
        "spec.podTemplate.spec.containers[0].env[0]",
        "keep that one",
    ),
    "one of Lockstep's variables": (
        trainer(env=[{"name": "LOCKSTEP_RUN"}]),
        "spec.podTemplate.spec.containers[0].env[0]",
        "leave it out",
    ),
    "a mount over another": (
        trainer(volumeMounts=[{"name": "a", "mountPath": "/dev/shm"}]),
        "spec.podTemplate.spec.containers[0].volumeMounts[0].mountPath",
        "choose another path",
    ),
    "a privileged container": (
        trainer(securityContext={"privileged": True}),
        "spec.podTemplate.spec.containers[0].securityContext.privileged",
        "lockstep.dev/allow-privileged",
    ),
    "an added capability": (
        pod(initContainers=[{"name": "i", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]),
        "spec.podTemplate.spec.initContainers[0].securityContext.capabilities.add",
        "lockstep.dev/allow-privileged",
    ),
}


@pytest.mark.parametrize("mistake", BAD_SPECS)
def test_a_mistake_is_refused_with_field_and_remedy(mistake: str) -> None:
    bad, field, remedy = BAD_SPECS[mistake]
    [problem] = validate(bad, {}, STRICT)
    assert problem.field == field
    assert remedy in problem.message


@pytest.mark.parametrize(
    "powerful",
    [
        spec(volumes=[HOST_PATH]),
        pod(hostIPC=True),
        pod(volumes=[{"name": "a", "hostPath": {"path": "/"}}]),
        trainer(securityContext={"privileged": True, "capabilities": {"add": ["IPC_LOCK"]}}),
    ],
)
def test_a_namespace_opened_by_an_administrator_may_reach_into_its_nodes(powerful: TrainingRunSpec) -> None:
    assert validate(powerful, {"lockstep.dev/allow-privileged": "yes"}, STRICT) != []
    assert validate(powerful, PRIVILEGED, STRICT) == []


def test_even_an_opened_namespace_never_shares_the_processes_of_its_nodes() -> None:
    assert validate(pod(hostPID=True), PRIVILEGED) != []


def test_a_template_may_add_what_the_spec_has_no_word_for() -> None:
    template = {
        "metadata": {"labels": {"team": "golden"}},
        "spec": {
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "volumes": [{"name": "b", "nfs": {"server": "s", "path": "/"}}],
            "containers": [
                {
                    "name": "trainer",
                    "env": [{"name": "B", "value": "1"}],
                    "volumeMounts": [{"name": "b", "mountPath": "/b"}],
                    "securityContext": {"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}},
                },
                {"name": "sidecar", "image": "x", "command": ["x"], "resources": {}},
            ],
        },
    }
    run = spec(env=[{"name": "A", "value": "1"}], volumes=[emptied("a", "/a")], podTemplate=template)
    assert validate(run, {}) == []


def test_names_outside_the_operators_configuration_are_refused_with_those_inside() -> None:
    wanted = spec(
        placement={"gpuTypes": ["h100", "Gaudi"], "topology": [{"level": "row"}]},
        checkpoint={"local": {"storage": "nvme"}},
    )
    known = KnownNames(levels=("zone", "rack"), gpu_types={"H100": {}, "A100": {}}, storages=())
    assert [(problem.field, problem.message) for problem in validate(wanted, {}, known)] == [
        ("spec.placement.topology[0].level", "row is not in the operator's configuration; write one of rack, zone"),
        (
            "spec.placement.gpuTypes[0]",
            "h100 is not in the operator's configuration; did you mean H100? Else write one of A100, H100",
        ),
        ("spec.placement.gpuTypes[1]", "Gaudi is not in the operator's configuration; write one of A100, H100"),
        ("spec.checkpoint.local.storage", "nvme is not in the operator's configuration; it names none"),
    ]
    assert validate(wanted, {}) == []


def test_a_pattern_that_takes_long_to_compile_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten characters of it each half costs some milliseconds, and a spec has room for 16 times 256."""
    slow = "(?i)" + r"[\x01-\uffff]" * 19
    rules = [{"name": f"r{number}", "logPattern": f"{slow}{number}", "action": "Stop"} for number in range(16)]
    compiled = []
    monkeypatch.setattr("re.compile", lambda pattern, *_: compiled.append(pattern))
    assert validate(spec(recovery={"rules": rules}), {}) == []
    assert compiled == []


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        (
            {"gpuResource": "amd.com/gpus"},
            "spec.gpuResource",
            "did you mean amd.com/gpu? Else write one of amd.com/gpu, nvidia.com/gpu",
        ),
        (
            {"gpusPerNode": 8, "resourcesPerNode": {"amd.com/gpu": 8}},
            "spec.gpusPerNode",
            "says the same thing as spec.resourcesPerNode[amd.com/gpu]",
        ),
        ({"resourcesPerNode": {"amd.com/gpu": 129}}, "spec.resourcesPerNode[amd.com/gpu]", "write 128 or less"),
        ({"resourcesPerNode": {"amd.com/gpu": 8}, "gpusPerNode": 0}, "", ""),
        ({"resourcesPerNode": {"amd.com/gpu": 8}}, "", ""),
        ({"gpuResource": "amd.com/gpu"}, "", ""),
    ],
)
def test_gpus_of_any_make_are_asked_for_in_one_place(fields: dict[str, Any], field: str, words: str) -> None:
    known = KnownNames(accelerators=("nvidia.com/gpu", "amd.com/gpu"))
    found = validate(spec(**fields), {}, known)
    assert [problem.field for problem in found] == ([field] if field else [])
    assert all(words in problem.message for problem in found)
