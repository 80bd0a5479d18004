"""Pods without a worker: what is in them, and that launchers are told what the worker would tell them."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from lockstep.api.base import names
from lockstep.api.run_spec import LauncherType, TrainingRunSpec
from lockstep.core.model.cluster_objects import parse_pod
from lockstep.core.model.snapshot import PodView, RunView
from lockstep.core.pods.launchers import WITHOUT_WORKER, plain_launcher_of
from lockstep.core.pods.launchers.rendezvous import Rendezvous
from lockstep.core.pods.plain_pods import NODELIST_LIMIT, PlainAttempt, PlainTemplate, master_port, plain_dry_run_body
from lockstep.worker.child.launch import launcher_command, launcher_environment
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch
from support.pod_bodies import TUNABLES, environment, trainer
from support.pod_bodies import run as supervised

GOLDEN = Path(__file__).parent / "golden"
ATTEMPT = PlainAttempt(3, 2, "10.0.0.1", 20123, ("10.0.0.1", "10.0.0.2"))


def run(**spec: Any) -> RunView:
    return supervised(**{"worker": "Disabled", **spec})


def body(view: RunView, attempt: PlainAttempt = ATTEMPT) -> dict[str, Any]:
    return PlainTemplate(view, view.status, TUNABLES, attempt).pod_body(1, 2, "gpu-7", rank=1)


FULL: Mapping[str, Any] = {
    "command": ["python", "train.py", "--rank", "$(LOCKSTEP_NODE_RANK)"],
    "entrypoint": ["/init"],
    "launcher": {"type": "Torchrun"},
    "checkpoint": {"shared": {"claimName": "lustre"}, "local": {"storage": "nvme"}},
    "env": [{"name": "JOB", "value": "$(LOCKSTEP_RUN)-$(LOCKSTEP_ATTEMPT)"}],
    "podTemplate": {"spec": {"containers": [{"name": "logs", "image": "fluent/fluent-bit"}]}},
}


def test_the_pod_is_as_the_golden_one() -> None:
    made = json.dumps(body(run(**FULL)), indent=2, sort_keys=True) + "\n"
    golden = GOLDEN / "pod-plain.json"
    if os.environ.get("LOCKSTEP_UPDATE_GOLDEN"):
        golden.write_text(made)
    assert made == golden.read_text()


def test_nothing_of_the_worker_is_in_it() -> None:
    pod = body(run(**FULL))
    text = json.dumps(pod)
    for trace in (
        "lockstep-worker",
        "lockstep-token",
        "lockstep-scratch",
        "OPERATOR_URL",
        "worker.pyz",
        names.TOKEN_MOUNT,
    ):
        assert trace not in text
    assert "args" not in trainer(pod)
    assert pod["metadata"]["annotations"][names.ANNOTATION_ATTEMPT] == "3"


def test_what_the_user_sets_may_refer_to_what_lockstep_sets() -> None:
    order = [entry["name"] for entry in trainer(body(run(**FULL)))["env"]]
    assert order.index("LOCKSTEP_ATTEMPT") < order.index("JOB")


def test_a_variable_that_the_user_sets_is_there_once() -> None:
    pod = body(run(env=[{"name": "PET_NPROC_PER_NODE", "value": "4"}]))
    entries = [entry for entry in trainer(pod)["env"] if entry["name"] == "PET_NPROC_PER_NODE"]
    assert [entry["value"] for entry in entries] == ["4"]


def test_each_attempt_has_directories_and_a_port_of_its_own() -> None:
    told = environment(body(run(**FULL)))
    uid = "0f3a9c1e-0000-4000-8000-000000000000"
    assert told["LOCKSTEP_CHECKPOINT_DIR"] == f"/shared-checkpoints/team/hello/{uid}/a3"
    assert told["LOCKSTEP_LOCAL_CHECKPOINT_DIR"] == f"/local-checkpoints/team/hello/{uid}/a3"
    assert told["LOCKSTEP_RESUME_PATH"] == ""
    ports = {master_port(uid, attempt) for attempt in range(1, 200)}
    assert len(ports) > 190
    assert all(20_000 <= port < 30_000 and port != names.NODE_MUTEX_PORT for port in ports)
    assert master_port(uid, 7) == master_port(uid, 7)


def of_a_secret(name: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}


def in_template(**trainer: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": names.CONTAINER_NAME, **trainer}]}}


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, "FallbackToLogsOnError"),
        ({"env": [{"name": "TOKENIZERS_PARALLELISM", "value": "false"}]}, "FallbackToLogsOnError"),
        ({"env": [{"name": "API_KEY_FILE", "value": "/var/run/keys/api"}]}, "FallbackToLogsOnError"),
        ({"envFrom": [{"configMapRef": {"name": "settings"}}]}, "FallbackToLogsOnError"),
        ({"env": [of_a_secret("HF_TOKEN")]}, "File"),
        ({"env": [of_a_secret("WANDB")]}, "File"),
        ({"env": [{"name": "HF_TOKEN", "value": "hf_0123456789"}]}, "File"),
        ({"env": [{"name": "HF_TOKEN", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}, "File"),
        ({"envFrom": [{"secretRef": {"name": "hub"}}]}, "File"),
        ({"podTemplate": in_template(env=[of_a_secret("HF_TOKEN")])}, "File"),
        (
            {
                "env": [of_a_secret("HF_TOKEN")],
                "podTemplate": in_template(terminationMessagePolicy="FallbackToLogsOnError"),
            },
            "FallbackToLogsOnError",
        ),
        ({"podTemplate": in_template(terminationMessagePolicy="File")}, "File"),
    ],
)
def test_the_end_of_a_log_is_told_where_no_secret_can_be_in_it_or_its_user_says_so(
    spec: dict[str, Any], policy: str
) -> None:
    assert trainer(body(run(**spec)))["terminationMessagePolicy"] == policy


def test_a_nodelist_that_is_too_long_is_left_out() -> None:
    many = tuple(f"2001:db8:0:{index:04x}:ffff:ffff:ffff:ffff" for index in range(1000))
    assert len(",".join(many)) > NODELIST_LIMIT
    assert "LOCKSTEP_NODELIST" not in environment(body(run(), PlainAttempt(1, 1000, many[0], 20_000, many)))


def test_the_attempt_is_read_back_from_the_pod() -> None:
    pod = body(run())
    pod["metadata"] = {**pod["metadata"], "uid": "pod-1", "resourceVersion": "5", "creationTimestamp": None}
    view = parse_pod(json.dumps(pod).encode()).view
    assert isinstance(view, PodView)
    assert (view.attempt, view.slot, view.incarnation, view.node) == (3, 1, 2, "gpu-7")
    for no_number in ("many", "9" * 5_000, "-1", "²", ""):
        pod["metadata"]["annotations"] = {names.ANNOTATION_ATTEMPT: no_number}
        view = parse_pod(json.dumps(pod).encode()).view
        assert isinstance(view, PodView)
        assert view.attempt == 0


def test_the_dry_run_is_of_such_a_pod() -> None:
    pod = plain_dry_run_body(run(**FULL), TUNABLES)
    assert trainer(pod)["command"][:2] == ["/init", "torchrun"]
    assert pod["metadata"]["annotations"][names.ANNOTATION_ATTEMPT] == "1"


BOTH = "say the same in core/pods/launchers, for pods without a worker, and in worker/child/launch.py, for the others"


@pytest.mark.parametrize("launcher", sorted(WITHOUT_WORKER))
@pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1"])
@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["/venv/bin/python3.12", "-u", "-m", "train"],
        ["python", "-O", "train.py"],
        ["train.py"],
        ["/app/start.sh", "x"],
        ["./python", "train.py"],
        ["-m", "train"],
    ],
)
@pytest.mark.parametrize("entrypoint", [[], ["/init", "--"]])
@pytest.mark.parametrize("gpus", [0, 8])
def test_launchers_are_told_what_the_worker_tells_them(
    launcher: str, address: str, command: list[str], entrypoint: list[str], gpus: int
) -> None:
    spec = run(command=command, entrypoint=entrypoint, launcher={"type": launcher}).spec
    assert spec is not None
    ours = plain_launcher_of(spec)
    rendezvous = Rendezvous(rank=1, world=2, address=address, port=20_123, gpus=gpus)
    options = dict(ours.options(spec, gpus))
    settings = Settings.__new__(Settings)
    for name, value in {
        "launcher": launcher,
        "launcher_options": options,
        "gpus": gpus,
        "command": [*entrypoint, *command],
    }.items():
        object.__setattr__(settings, name, value)
    launch = Launch(1, 1, 2, address, 20_123, "", "", [])
    assert list(ours.command(spec, rendezvous)) == launcher_command(settings, launch), BOTH
    assert dict(ours.environment(rendezvous)) == launcher_environment(settings, launch), BOTH


def test_the_api_refuses_each_launcher_that_needs_a_worker_where_there_is_none() -> None:
    [rule] = [rule for rule in TrainingRunSpec.cross_field_rules if "self.launcher.type in [" in rule.cel]
    assert {*re.findall(r"'([A-Z]\w+)'", rule.cel)} - {"Disabled"} == {*get_args(LauncherType)} - WITHOUT_WORKER
