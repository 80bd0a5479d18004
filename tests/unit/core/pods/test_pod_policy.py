"""What a podTemplate may ask of its node: every control of Pod Security's Baseline, and what lifts it."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.v1alpha1 import TrainingRunSpec
from lockstep.core.model.settings import PodPolicy
from lockstep.core.pods.pod_policy import remedy_for
from lockstep.core.pods.validation import KnownNames, validate

OPENED = {"lockstep.dev/allow-privileged": "true"}
ENFORCED = "pod-security.kubernetes.io/enforce"
POD, TRAINER, FIRST = "spec.podTemplate.spec", "containers[0]", "initContainers[0]"


def run(metadata: dict[str, Any] | None = None, **pod: Any) -> TrainingRunSpec:
    template = {"metadata": metadata or {}, "spec": pod}
    return TrainingRunSpec.model_validate({"nodes": 2, "image": "i", "command": ["c"], "podTemplate": template})


def trainer(**container: Any) -> TrainingRunSpec:
    return run(containers=[{"name": "trainer", **container}])


def before(**container: Any) -> TrainingRunSpec:
    return run(initContainers=[{"name": "before", "image": "i", **container}])


def asked(spec: TrainingRunSpec, labels: dict[str, str] | None = None, **policy: Any) -> list[str]:
    """The fields that are refused."""
    given = PodPolicy(**policy)
    return [problem.field for problem in validate(spec, labels or {}, KnownNames(pod_policy=given))]


# what is asked for -> the template, and the field that is refused
POWERS: dict[str, tuple[TrainingRunSpec, str]] = {
    "the node's shared memory": (run(hostIPC=True), "hostIPC"),
    "a path of the node": (run(volumes=[{"name": "a", "hostPath": {"path": "/etc"}}]), "volumes[0].hostPath"),
    "a privileged container": (
        trainer(securityContext={"privileged": True}),
        f"{TRAINER}.securityContext.privileged",
    ),
    "a privileged init container": (
        before(securityContext={"privileged": True}),
        f"{FIRST}.securityContext.privileged",
    ),
    "a capability": (
        trainer(securityContext={"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}),
        f"{TRAINER}.securityContext.capabilities.add",
    ),
    "all capabilities": (
        before(securityContext={"capabilities": {"add": ["ALL"]}}),
        f"{FIRST}.securityContext.capabilities.add",
    ),
    "a port of the node": (trainer(ports=[{"containerPort": 22, "hostPort": 22}]), f"{TRAINER}.ports[0].hostPort"),
    "no AppArmor, by annotation": (
        run({"annotations": {"container.apparmor.security.beta.kubernetes.io/trainer": "unconfined"}}),
        "",
    ),
    "no AppArmor": (
        trainer(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
        f"{TRAINER}.securityContext.appArmorProfile.type",
    ),
    "no seccomp": (
        run(securityContext={"seccompProfile": {"type": "Unconfined"}}),
        "securityContext.seccompProfile.type",
    ),
    "another SELinux type": (
        run(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
        "securityContext.seLinuxOptions",
    ),
    "another SELinux user": (
        trainer(securityContext={"seLinuxOptions": {"user": "system_u"}}),
        f"{TRAINER}.securityContext.seLinuxOptions",
    ),
    "an unmasked /proc": (
        trainer(securityContext={"procMount": "Unmasked"}),
        f"{TRAINER}.securityContext.procMount",
    ),
    "a sysctl": (
        run(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
        "securityContext.sysctls[0]",
    ),
    "a process of a Windows node": (
        run(securityContext={"windowsOptions": {"hostProcess": True}}),
        "securityContext.windowsOptions.hostProcess",
    ),
    "the kubelet's requests": (
        trainer(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        f"{TRAINER}.livenessProbe.httpGet.host",
    ),
    "the kubelet's requests at the end": (
        trainer(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}),
        f"{TRAINER}.lifecycle.preStop.tcpSocket.host",
    ),
}
NEVER: dict[str, tuple[TrainingRunSpec, str]] = {
    "the node's processes": (run(hostPID=True), "hostPID"),
    "the node's network": (run(hostNetwork=True), "hostNetwork"),
    "one node of its own choice": (run(nodeName="control-plane"), "nodeName"),
    "everybody's local checkpoints": (
        trainer(volumeMounts=[{"name": "lockstep-local", "mountPath": "/all"}]),
        f"{TRAINER}.volumeMounts[0].name",
    ),
    "everybody's local checkpoints for another container": (
        before(volumeMounts=[{"name": "lockstep-local", "mountPath": "/all"}]),
        f"{FIRST}.volumeMounts[0].name",
    ),
    "another storage in the place of Lockstep's": (
        run(volumes=[{"name": "lockstep-local", "emptyDir": {}}]),
        "volumes[0].name",
    ),
}


@pytest.mark.parametrize("power", POWERS)
def test_nobody_gains_it_through_the_operator_unless_an_administrator_opens_the_namespace(power: str) -> None:
    spec, field = POWERS[power]
    [refused] = asked(spec)
    assert refused == f"{POD}.{field}" if field else refused.startswith("spec.podTemplate.metadata.annotations[")
    assert asked(spec, OPENED) == []


@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_level_that_the_namespace_enforces_is_not_lifted_by_a_label(power: str, level: str) -> None:
    spec, _ = POWERS[power]
    [problem] = validate(spec, OPENED | {ENFORCED: level}, KnownNames(pod_policy=PodPolicy()))
    assert f"Pod Security's level {level}" in problem.message


@pytest.mark.parametrize("item", [{"NET_ADMIN": True}, None, ["CHOWN"], 7])
def test_a_capability_that_is_no_name_is_refused_by_its_field(item: object) -> None:
    assert asked(trainer(securityContext={"capabilities": {"add": [item]}})) == [
        f"{POD}.{TRAINER}.securityContext.capabilities.add"
    ]


@pytest.mark.parametrize("power", NEVER)
def test_nobody_at_all_gets_it(power: str) -> None:
    spec, field = NEVER[power]
    assert asked(spec, OPENED) == [f"{POD}.{field}"]


def test_what_baseline_allows_needs_no_administrator() -> None:
    assert asked(run(
        {"annotations": {"container.apparmor.security.beta.kubernetes.io/trainer": "runtime/default"}},
        securityContext={
            "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"level": "s0"},
            "sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}],
        },
        containers=[{
            "name": "trainer", "ports": [{"containerPort": 8080}], "livenessProbe": {"httpGet": {"port": 8080}},
            "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}, "procMount": "Default"},
        }],
    )) == []  # fmt: skip


def test_a_policy_gives_what_it_names_and_no_more() -> None:
    lock = trainer(securityContext={"capabilities": {"add": ["IPC_LOCK"]}})
    assert asked(lock, capabilities=["IPC_LOCK"]) == []
    assert asked(trainer(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), capabilities=["IPC_LOCK"])
    sysctl = run(securityContext={"sysctls": [{"name": "net.core.somaxconn", "value": "1"}]})
    assert asked(sysctl, sysctls=["net.core.somaxconn"]) == []
    for path, allowed in {
        "/dev/infiniband": True,
        "/dev/infiniband/": True,
        "/dev": False,
        "/dev/infiniband/x": False,
    }.items():
        volume = {"name": "ib", "hostPath": {"path": path}}
        assert (asked(run(volumes=[volume]), host_paths=["/dev/infiniband"]) == []) is allowed, path
    assert asked(lock, {ENFORCED: "baseline"}, capabilities=["IPC_LOCK"]), "the namespace has the last word"


def test_the_accounts_that_gangs_run_as_may_be_narrowed() -> None:
    other, usual = run(serviceAccountName="deployer"), run(serviceAccountName="default")
    assert asked(other) == []
    assert asked(other, service_accounts=[]) == [f"{POD}.serviceAccountName"]
    assert asked(run(serviceAccount="deployer"), service_accounts=["trainer"]) == [f"{POD}.serviceAccount"]
    assert asked(other, service_accounts=["deployer"]) == []
    assert asked(usual, service_accounts=[]) == []
    direct = TrainingRunSpec.model_validate(
        {"nodes": 1, "image": "i", "command": ["c"], "serviceAccountName": "deployer"}
    )
    assert asked(direct, service_accounts=["trainer"]) == ["spec.serviceAccountName"]
    archive = {"uri": "s3://bucket/prefix", "serviceAccountName": "deployer"}
    checkpoint = {"shared": {"claimName": "lustre"}, "archive": archive}
    archived = TrainingRunSpec.model_validate({"nodes": 1, "image": "i", "command": ["c"], "checkpoint": checkpoint})
    assert asked(archived, service_accounts=["trainer"]) == ["spec.checkpoint.archive.serviceAccountName"]
    assert asked(archived, service_accounts=["deployer"]) == asked(archived) == []
    assert asked(other, OPENED, service_accounts=[]), "an opened namespace opens its nodes, not its accounts"


def test_where_the_policy_is_not_known_only_what_no_policy_could_allow_is_refused() -> None:
    assert validate(trainer(securityContext={"capabilities": {"add": ["IPC_LOCK"]}}), {}) == []
    assert validate(trainer(securityContext={"privileged": True}), {}) != []
    assert validate(trainer(securityContext={"capabilities": {"add": ["IPC_LOCK"]}}), {ENFORCED: "baseline"}) != []


@pytest.mark.parametrize(
    "context", [[], "x", {"capabilities": []}, {"capabilities": {"add": "ALL"}}, {"seLinuxOptions": 1}, {"sysctls": {}}]
)
def test_what_makes_no_sense_is_left_to_the_dry_run(context: object) -> None:
    assert asked(trainer(securityContext=context, ports=1, lifecycle=[], livenessProbe="x")) in (
        [],
        [f"{POD}.{TRAINER}.ports"],
    )


def test_pod_securitys_refusal_of_lockstep_s_own_part_comes_with_a_remedy() -> None:
    said = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": '
    host = "host namespaces (hostNetwork=true), hostPort (container uses hostPort 45999)"
    path = 'hostPath volumes (volume "lockstep-local")'
    body: dict[str, Any] = {"nodes": 1, "image": "i", "command": ["c"]}
    usual = TrainingRunSpec.model_validate(body)
    local = TrainingRunSpec.model_validate(body | {"network": "Pod", "checkpoint": {"local": {"storage": "nvme"}}})
    assert remedy_for(said + host, usual).startswith("; set spec.network: Pod, or")
    assert remedy_for(said + path, local).startswith("; leave out spec.checkpoint.local, or")
    assert remedy_for(said + "allowPrivilegeEscalation != false", usual) == ""
    assert remedy_for("exceeded quota: hostNetwork", usual) == ""
