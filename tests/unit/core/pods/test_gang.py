"""The pods of a run. Goldens: run with LOCKSTEP_UPDATE_GOLDEN=1 to write them anew, then read the difference."""

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from localcluster.processnodes.environment import expand as kubelets_expand
from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import ResolvedStatus
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.gang import (
    DRY_RUN_NODE,
    ca_config_map,
    dry_run_body,
    pod_body,
    template_for,
    worker_config_map,
)
from lockstep.worker import settings
from lockstep.worker.child.launch import expand as workers_expand
from support.pod_bodies import RESOLVED, TUNABLES, environment, run, trainer

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GOLDEN = Path(__file__).parent / "golden"


def body(view: RunView, slot: int = 1, incarnation: int = 2, node: str = "gpu-7") -> dict[str, Any]:
    return pod_body(view, view.status, TUNABLES, slot, incarnation, node)


SIDECAR = {"name": "logs", "image": "fluent/fluent-bit"}
RUNS: Mapping[str, dict[str, Any]] = {
    "hello": {},
    "full": {
        "command": ["python", "train.py", "--resume", "$(LOCKSTEP_RESUME_PATH)"],
        "entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
        "launcher": {"type": "Torchrun", "torchrun": {"nprocPerNode": 4}},
        "shmSize": "200Gi",
        "workingDir": "/src",
        "serviceAccountName": "trainer",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "volumes": [
            {"name": "data", "mountPath": "/data", "readOnly": True, "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "config", "mountPath": "/config", "configMap": {"name": "config"}},
            {"name": "tmp", "mountPath": "/tmp", "subPath": "x", "emptyDir": {}},
        ],
        "checkpoint": {"local": {"storage": "nvme"}, "shared": {"claimName": "lustre"}},
        "podTemplate": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {
                "nodeSelector": {"pool": "gpu"},
                "terminationGracePeriodSeconds": 300,
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                        }
                    }
                },
                "containers": [
                    {"name": "trainer", "env": [{"name": "A", "value": "1"}], "securityContext": {"runAsUser": 1000}},
                    SIDECAR,
                ],
            },
        },
    },
    "pod-network": {"network": "Pod", "gpusPerNode": 0, "launcher": {"type": "JAX"}, "command": ["python", "t.py"]},
}


@pytest.mark.parametrize("name", RUNS)
def test_the_pod_is_as_on_record(name: str) -> None:
    resolved = RESOLVED if name != "pod-network" else changed(RESOLVED, gpus_per_node=0)
    text = json.dumps(body(run(resolved, **RUNS[name])), indent=2) + "\n"
    golden = GOLDEN / f"pod-{name}.json"
    if os.environ.get("LOCKSTEP_UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_a_pod_is_pinned_by_affinity_and_holds_the_node_mutex() -> None:
    pod = body(run())
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    pin = {"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}
    assert terms == {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    assert "nodeName" not in pod["spec"]
    assert trainer(pod)["ports"][0]["hostPort"] == names.NODE_MUTEX_PORT


def test_on_the_pod_network_required_anti_affinity_is_the_node_mutex() -> None:
    pod = body(run(network="Pod"))
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert (term["topologyKey"], term["namespaceSelector"]) == ("kubernetes.io/hostname", {})
    assert "ports" not in trainer(pod)
    assert "hostNetwork" not in pod["spec"]
    assert "LOCKSTEP_POD_IP" in environment(pod)


def test_nothing_that_changes_from_attempt_to_attempt_is_in_a_pod() -> None:
    before = run()
    later = RunView(**{**_fields(before), "status": changed(before.status, attempt=9, start=None)})
    assert body(before) == body(later)
    variables = environment(body(before)).keys()
    assert not variables & {"LOCKSTEP_ATTEMPT", "LOCKSTEP_NODE_RANK", "LOCKSTEP_NNODES", "MASTER_ADDR", "MASTER_PORT"}


def _fields(view: RunView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in view.__slots__}


def test_two_slots_differ_in_name_labels_pin_and_two_variables_only() -> None:
    template = template_for(run(), run().status, TUNABLES)
    one, two = (json.dumps(template.pod_body(slot, 1, f"gpu-{slot}")) for slot in (3, 4))
    assert one.replace("0f3a9-3-1", "0f3a9-4-1").replace('"3"', '"4"').replace("gpu-3", "gpu-4") == two


@pytest.mark.parametrize(
    ("typed", "run_with"),
    [
        ("$(LOCKSTEP_RESUME_PATH)", "/ckpt"),  # known to the worker only
        ("$(LOCKSTEP_RUN)", "hello"),  # known to the kubelet too
        ("$$(LOCKSTEP_RESUME_PATH)", "$(LOCKSTEP_RESUME_PATH)"),
        ("$$(LOCKSTEP_RUN)", "$(LOCKSTEP_RUN)"),
        ("$$$(LOCKSTEP_RESUME_PATH)", "$/ckpt"),
        ("$$$(LOCKSTEP_RUN)", "$hello"),
        ("$$(HOME) $$5", "$(HOME) $5"),
    ],
)
def test_kubelet_and_worker_expand_an_argument_as_kubernetes_alone_would(typed: str, run_with: str) -> None:
    (_, *arguments) = trainer(body(run(entrypoint=[typed], command=[typed])))["args"]
    handed_on = [kubelets_expand(argument, {"LOCKSTEP_RUN": "hello"}) for argument in arguments]
    known = {"LOCKSTEP_RUN": "hello", "LOCKSTEP_RESUME_PATH": "/ckpt"}
    assert [workers_expand(argument, known) for argument in handed_on] == [run_with, run_with]


def test_no_autoscaler_empties_a_node_of_a_gang() -> None:
    found = body(run())["metadata"]["annotations"]
    assert found["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert found["karpenter.sh/do-not-disrupt"] == "true"
    assert not any("provisioning" in key for key in found)


def test_pods_that_are_to_have_the_nodes_of_a_provisioning_request_say_so() -> None:
    found = body(run(changed(RESOLVED, provisioning_request="r", provisioning_class="c")))["metadata"]["annotations"]
    assert found["autoscaling.x-k8s.io/consume-provisioning-request"] == "r"
    assert found["autoscaling.x-k8s.io/provisioning-class-name"] == "c"


def test_requests_equal_limits() -> None:
    resources = trainer(body(run()))["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"] == {"cpu": "191", "memory": "2046Gi", "nvidia.com/gpu": "8"}


def test_shared_memory_is_half_of_the_memory_unless_said() -> None:
    def size(view: RunView) -> str | None:
        (shm,) = [volume for volume in body(view)["spec"]["volumes"] if volume["name"] == "lockstep-shm"]
        found: str | None = shm["emptyDir"].get("sizeLimit")
        return found

    view = run()
    assert size(view) == "1023Gi"
    assert size(run(shmSize="200Gi")) == "200Gi"
    resolved = changed(view.status.resolved, memory="")
    assert size(replace(view, status=changed(view.status, resolved=resolved))) is None, "half of the node's by itself"


def test_a_template_cannot_displace_what_lockstep_sets() -> None:
    theirs = {"restartPolicy": "Always", "containers": [{"name": "trainer", "image": "other", "command": ["sh"]}]}
    pod = body(run(podTemplate={"spec": theirs, "metadata": {"labels": {names.LABEL_SLOT: "9"}}}))
    assert pod["spec"]["restartPolicy"] == "Never"
    assert trainer(pod)["image"] == "pytorch/pytorch"
    assert pod["metadata"]["labels"][names.LABEL_SLOT] == "1"


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": "trainer"}},
        {"spec": {"containers": ["trainer", None, {"name": None}]}},
        {"spec": "x", "metadata": ["y"]},
        {"spec": {"tolerations": 7, "affinity": [], "volumes": {"a": 1}, "nodeSelector": "gpu"}},
    ],
)
def test_a_template_that_makes_no_sense_is_left_to_the_api_server(template: dict[str, Any]) -> None:
    assert dry_run_body(run(podTemplate=template), TUNABLES)["kind"] == "Pod"


MATCHES = [{"key": "pool", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (None, [{"matchFields": ["pin"]}]),
        ({"nodeAffinity": None}, [{"matchFields": ["pin"]}]),
        ({"nodeAffinity": {REQUIRED: None}}, [{"matchFields": ["pin"]}]),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": MATCHES, "matchFields": None}]}}},
            [{"matchExpressions": MATCHES, "matchFields": ["pin"]}],
        ),
        ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [None]}}}, [{"matchFields": ["pin"]}]),
    ],
)
def test_a_null_in_a_template_is_what_the_api_server_makes_of_it(affinity: Any, expected: Any) -> None:
    """As Helm renders an empty value."""
    template = {
        "metadata": {"labels": {"team": None}, "annotations": None},
        "spec": {
            "affinity": affinity,
            "tolerations": None,
            "securityContext": {"runAsUser": None},
            "containers": [{"name": "logs", "image": "x", "resources": {"limits": {"cpu": None}}, "env": None}],
        },
    }
    view = run(podTemplate=template)
    for pod in (body(view), dry_run_body(view, TUNABLES)):
        found = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert [{**term, "matchFields": ["pin" for _ in term["matchFields"]]} for term in found] == expected
        assert pod["metadata"]["labels"]["team"] == ""
        assert "null" not in json.dumps(pod)


@pytest.mark.parametrize(
    "affinity",
    [
        "gpu",
        [],
        {"nodeAffinity": 7},
        {"nodeAffinity": {REQUIRED: []}},
        {"nodeAffinity": {REQUIRED: {}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {"matchExpressions": []}}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["gpu"]}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": "gpu"}]}}},
    ],
)
def test_an_affinity_that_makes_no_sense_is_put_to_the_api_server_as_it_is(affinity: Any) -> None:
    assert dry_run_body(run(podTemplate={"spec": {"affinity": affinity}}), TUNABLES)["spec"]["affinity"] == affinity


def test_a_dry_run_is_made_as_pods_are_and_asks_for_something() -> None:
    view = run(resolved=ResolvedStatus(), resourcesPerNode={"memory": "64Gi"})
    pod = dry_run_body(view, TUNABLES)
    assert pod["spec"]["affinity"] == body(run(), node=DRY_RUN_NODE)["spec"]["affinity"]
    assert trainer(pod)["resources"]["limits"] == {"cpu": "1", "memory": "64Gi"}


@pytest.mark.process
def test_clocks_that_are_said_to_be_apart_are_told_to_those_who_judge_checkpoints() -> None:
    apart = replace(TUNABLES, gang=replace(TUNABLES.gang, shared_clock_skew=20.0))
    view = run(checkpoint={"shared": {"claimName": "lustre"}})
    pod = pod_body(view, view.status, apart, 1, 2, "gpu-7")
    assert environment(pod)["LOCKSTEP_SHARED_CLOCK_SKEW"] == "20"
    assert "LOCKSTEP_SHARED_CLOCK_SKEW" not in environment(body(view)), "what is usual changes no pod"
    code = "from lockstep.worker.settings import SHARED_SKEW; print(SHARED_SKEW)"
    told = os.environ | {"LOCKSTEP_SHARED_CLOCK_SKEW": "20"}
    answer = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True)
    assert answer.stdout == "20.0\n"


def test_that_times_say_nothing_is_told_to_those_who_judge_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    tier = {"shared": {"claimName": "lustre"}}
    told = environment(body(run(checkpoint=tier | {"trustTimes": False})))
    assert "LOCKSTEP_TRUST_TIMES" not in environment(body(run(checkpoint=tier))), "what is usual changes no pod"
    for value, trusted in ((told["LOCKSTEP_TRUST_TIMES"], False), ("", True)):
        monkeypatch.setenv("LOCKSTEP_TRUST_TIMES", value)
        assert runpy.run_path(settings.__file__, run_name="anew")["TRUST_TIMES"] is trusted


def test_the_worker_config_map_is_named_by_its_content() -> None:
    first = worker_config_map("team", TUNABLES.gang)
    other = worker_config_map("team", GangSettings(worker_archive=b"other zip", ca_certificate="PEM"))
    assert first.name == worker_config_map("team", TUNABLES.gang).name != other.name
    assert first.body["immutable"] is True
    assert first.body["binaryData"] == {"worker.pyz": "emlw"}


def test_another_authority_changes_one_config_map_and_no_pod() -> None:
    later = replace(TUNABLES, gang=replace(TUNABLES.gang, ca_certificate="PEM\nNEXT"))
    view = run(**RUNS["full"])
    assert template_for(view, view.status, later).hash == template_for(view, view.status, TUNABLES).hash
    assert worker_config_map("team", later.gang) == worker_config_map("team", TUNABLES.gang)
    before, after = (ca_config_map("team", tunables.gang) for tunables in (TUNABLES, later))
    assert (before.name, before.changes) == (after.name, True)
    assert (before.body["data"], after.body["data"]) == ({"ca.crt": "PEM"}, {"ca.crt": "PEM\nNEXT"})
    assert "immutable" not in after.body


def test_the_hash_of_a_template_tells_specs_apart() -> None:
    first, second = run(), run(command=["torchrun", "other.py"])
    assert template_for(first, first.status, TUNABLES).hash == template_for(first, first.status, TUNABLES).hash
    assert template_for(first, first.status, TUNABLES).hash != template_for(second, second.status, TUNABLES).hash


def test_512_pods_cost_next_to_nothing() -> None:
    view = run(**RUNS["full"])
    started = process_time()
    template = template_for(view, view.status, TUNABLES)
    for slot in range(512):
        template.pod_body(slot, 1, f"gpu-{slot}")
    assert process_time() - started < 0.5


@pytest.mark.parametrize(
    ("resource", "check", "extra"),
    [("nvidia.com/gpu", "1", []), ("amd.com/gpu", "0", []), ("google.com/tpu", "0", ["google.com/tpu"])],
)
def test_pods_request_the_gpus_that_were_resolved_and_tolerate_their_taint(
    resource: str, check: str, extra: list[str]
) -> None:
    """The worker can look at NVIDIA's alone; torchrun starts a process for each of any make."""
    pod = body(run(changed(RESOLVED, gpu_resource=resource), launcher={"type": "Torchrun"}, command=["train.py"]))
    assert trainer(pod)["resources"]["limits"] == {"cpu": "191", "memory": "2046Gi", resource: "8"}
    assert (environment(pod)["LOCKSTEP_GPUS"], environment(pod)["LOCKSTEP_CHECK_GPUS"]) == ("8", check)
    assert json.loads(environment(pod)["LOCKSTEP_LAUNCHER_OPTIONS"])["nprocPerNode"] == 8
    keys = [toleration["key"] for toleration in pod["spec"]["tolerations"]]
    assert keys[2:] == ["nvidia.com/gpu", "amd.com/gpu", *extra]


def test_a_dry_run_asks_for_gpus_of_the_make_that_the_spec_names() -> None:
    view = run(gpuResource="amd.com/gpu", gpusPerNode=4)
    assert trainer(dry_run_body(view, TUNABLES))["resources"]["limits"]["amd.com/gpu"] == "4"
    other = replace(TUNABLES, accelerators={"example.com/npu": ()})
    assert trainer(dry_run_body(run(gpusPerNode=4), other))["resources"]["limits"]["example.com/npu"] == "4"
