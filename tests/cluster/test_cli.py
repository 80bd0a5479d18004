"""Every verb against a real API server, as a user who may edit one namespace and nothing else."""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.pods import wait_until
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.cli.main import main
from lockstep.cli.submission import claim_copies, verdicts
from support import sample_runs as sample

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

ROOT = Path(__file__).parents[2]
HELLO = str(ROOT / "manifests/hello.yaml")


class User:
    """Types commands; what they printed and how they ended is kept."""

    def __init__(self, namespace: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.namespace = namespace
        self._capsys = capsys
        self.notes = ""

    def types(self, *words: str, code: int = 0) -> str:
        """Standard output of `lockstep WORDS`, which must end with ``code``."""
        with pytest.raises(SystemExit) as end:
            main([*words])
        said = self._capsys.readouterr()
        self.notes = said.err
        assert (end.value.code or 0) == code, said
        return said.out


@pytest.fixture(scope="session")
def roles(cluster: LocalCluster, crds_installed: None) -> None:
    """The roles that the installation adds to view, edit and admin are in force."""
    installed = yaml.safe_load_all((ROOT / "manifests/operator.yaml").read_text())
    wanted = [d for d in installed if d["kind"] == "ClusterRole" and "aggregate-to" in str(d["metadata"])]
    for role in wanted:
        cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump(role))
    deadline = time.monotonic() + 60
    while names.GROUP not in cluster.kubectl("get", "clusterrole", "edit", "-o", "yaml"):
        assert time.monotonic() < deadline, "the roles were not aggregated"
        time.sleep(0.05)


@pytest.fixture
def user(
    cluster: LocalCluster,
    roles: None,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> User:
    cluster.kubectl("-n", namespace, "create", "serviceaccount", "alice")
    binding = ("create", "rolebinding", "alice", "--clusterrole=edit", f"--serviceaccount={namespace}:alice")
    cluster.kubectl("-n", namespace, *binding)
    kubeconfig = cluster.kubeconfig_for_service_account(namespace, "alice")
    content = yaml.safe_load(kubeconfig.read_text())
    content["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(verdicts, "PATIENCE", 0.0)  # there is no operator that would judge
    return User(namespace, capsys)


def write_status(cluster: LocalCluster, namespace: str, run: str, status: dict[str, Any]) -> dict[str, Any]:
    """As the operator would."""
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUNS}/{run}/status"
    return cluster.api.send(Request("PATCH", path, {"status": status}, MERGE_PATCH))


def later(act: Callable[[], object], seconds: float = 0.3) -> threading.Thread:
    thread = threading.Timer(seconds, act)
    thread.start()
    return thread


def test_a_manifest_is_submitted_listed_and_shown(user: User) -> None:
    assert user.types("submit", HELLO) == "trainingrun.lockstep.dev/hello created\n"
    header, row = user.types("queue").splitlines()
    assert header.split()[:3] == ["NAME", "USER", "STATE"]
    assert [*row.split()[:1], *row.split()[2:5]] == ["hello", "Pending", "NotSeenYet", "0/2"]
    assert user.types("queue", "-o", "name") == "trainingrun.lockstep.dev/hello\n"
    assert f"hello (namespace {user.namespace}" in user.types("info", "hello")
    assert "operator has not looked at it yet" in user.types("explain", "trun/hello")
    assert user.types("history", "hello") == ""
    assert "has not started yet" in user.notes


def test_json_and_yaml_are_the_api_object_itself(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    path = f"/apis/{names.API_VERSION}/namespaces/{user.namespace}/{names.RUNS}/hello"
    expected = cluster.api.get(path)
    expected["metadata"].pop("managedFields")
    for verb in ("info", "explain", "history"):
        assert json.loads(user.types(verb, "hello", "-o", "json")) == expected
        assert yaml.safe_load(user.types(verb, "hello", "-o", "yaml")) == expected
    assert json.loads(user.types("queue", "-o", "json"))["items"] == [expected]


def test_whose_a_run_is_stands_in_every_list_and_me_lists_only_mine(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    other = Path(HELLO).read_text().replace("name: hello", "name: other", 1)
    cluster.kubectl("-n", user.namespace, "apply", "-f", "-", input=other)
    me = f"system:serviceaccount:{user.namespace}:alice"
    header, row = cluster.kubectl("-n", user.namespace, "get", "trun", "hello").splitlines()
    assert header.split()[-2:] == ["USER", "AGE"]
    assert "STEP-AGE" in header
    assert me in row
    assert me not in cluster.kubectl("-n", user.namespace, "get", "trun", "other")
    assert user.types("queue", "--me").count("\nhello ") == 1
    assert "\nother " not in user.types("queue", "--me")
    assert user.types("queue", "--user", "bob") == ""
    assert "No runs of bob" in user.notes
    assert len(user.types("queue").splitlines()) == 3


def test_flags_submit_a_run_named_after_its_script(user: User) -> None:
    said = user.types("submit", "--nodes", "2", "--image", "X", "--gpus-per-node", "8", "--", "torchrun", "train.py")
    name = said.split()[0].partition("/")[2]
    assert name.startswith("train-")
    spec = json.loads(user.types("info", name, "-o", "json"))["spec"]
    assert (spec["nodes"], spec["gpusPerNode"], spec["command"]) == (2, 8, ["torchrun", "train.py"])


def test_code_of_a_directory_goes_along_and_goes_with_its_run(
    user: User, cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/net.py").write_text("x = 1")
    (tmp_path / "train.py").write_text("import pkg.net")
    flags = ("submit", "--name", "carried", "--image", "X", "--code", str(tmp_path), "--stop-on-failure")
    assert "created (server dry run)" in user.types(*flags, "-a", "0-3", "--dry-run=server", "--", "train.py")
    assert user.types(*flags, "-a", "0-3", "--", "train.py") == "trainingrunset.lockstep.dev/carried created\n"
    assert "2 files" in user.notes
    maps = json.loads(
        cluster.kubectl("-n", user.namespace, "get", "configmap", "-l", "lockstep.dev/code", "-o", "json")
    )
    [made] = maps["items"]
    assert made["data"] == {"file-000": "x = 1", "file-001": "import pkg.net"}
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("TrainingRunSet", "carried")
    array = json.loads(cluster.kubectl("-n", user.namespace, "get", "trunset", "carried", "-o", "json"))
    spec = array["spec"]["template"]["spec"]
    [source] = spec["volumes"][0]["projected"]["sources"]
    assert source["configMap"]["name"] == made["metadata"]["name"]
    assert [item["path"] for item in source["configMap"]["items"]] == ["pkg/net.py", "train.py"]
    assert (spec["workingDir"], spec["command"]) == ("/code", ["python", "train.py"])
    user.types(*flags, "-a", "0-3", "--", "train.py", code=1)  # the name is taken
    maps = json.loads(
        cluster.kubectl("-n", user.namespace, "get", "configmap", "-l", "lockstep.dev/code", "-o", "json")
    )
    assert len(maps["items"]) == 1, "what no run mounts does not stay"


def test_code_goes_to_a_claim_by_a_pod_that_the_right_to_edit_is_enough_for(
    user: User, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_copies, "PATIENCE", 30.0)
    (tmp_path / "train.py").write_text("import os")
    (tmp_path / "tokens.bin").write_bytes(os.urandom(1_500_000))
    flags = ("submit", "--name", "carried", "--image", "X", "--code", str(tmp_path), "--code-claim", "data:team")
    user.types(*flags, "--", "train.py", code=1)
    assert "there is no PersistentVolumeClaim data" in user.notes
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": wanted}
    cluster.kubectl("-n", user.namespace, "create", "-f", "-", input=json.dumps(claim))

    def of_the_copy(kind: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{user.namespace}/{kind}"
        found: list[dict[str, Any]] = cluster.api.get(f"{path}?labelSelector={claim_copies.LABEL}")["items"]
        return found

    seen: list[dict[str, Any]] = []

    def end_pod() -> None:
        """As a kubelet would."""
        wait_until(lambda: bool(of_the_copy("pods")))
        seen.extend([*(pods := of_the_copy("pods")), *of_the_copy("configmaps")])
        path = f"/api/v1/namespaces/{user.namespace}/pods/{pods[0]['metadata']['name']}/status"
        cluster.api.send(Request("PATCH", path, {"status": {"phase": "Succeeded"}}, MERGE_PATCH))

    thread = later(end_pod, 0.0)
    assert user.types(*flags, "--", "train.py") == "trainingrun.lockstep.dev/carried created\n"
    thread.join()
    pod, *maps = seen
    assert len(maps) == 2
    run = json.loads(cluster.kubectl("-n", user.namespace, "get", "trun", "carried", "-o", "json"))
    [volume] = run["spec"]["volumes"]
    assert (volume["mountPath"], volume["readOnly"], run["spec"]["workingDir"]) == ("/code", True, "/code")
    command = pod["spec"]["containers"][0]["command"]
    assert f"/lockstep-claim/{volume['subPath']}" in command
    wait_until(lambda: not of_the_copy("pods") and not of_the_copy("configmaps"))
    user.types(*flags, "--", "train.py", code=1)
    assert "there is a run carried" in user.notes, "which is told before anything is copied"


def test_a_server_dry_run_creates_nothing(user: User) -> None:
    assert "created (server dry run)" in user.types("submit", HELLO, "--dry-run=server")
    assert user.types("queue") == ""
    assert f"No runs wait or run in namespace {user.namespace}." in user.notes


def test_what_a_client_dry_run_prints_is_taken_by_kubectl(user: User, cluster: LocalCluster, tmp_path: Path) -> None:
    """--lr 1e-3 among it, which other readers of YAML take for a number."""
    printed = tmp_path / "run.yaml"
    flags = ("--nodes", "2", "--image", "X", "--name", "rate", "--dry-run=client")
    printed.write_text(user.types("submit", *flags, "--", "train", "--lr", "1e-3", "--resume", "y"))
    cluster.kubectl("apply", "-n", user.namespace, "-f", str(printed))
    spec = json.loads(user.types("info", "rate", "-o", "json"))["spec"]
    assert spec["command"] == ["train", "--lr", "1e-3", "--resume", "y"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nodes: 0", "spec.nodes: is 0; write 1 or more"),
        ("gpuPerNode: 8", "spec.gpuPerNode: unknown field; write gpusPerNode"),
        ("shmSize: 200GB", "write a size as 512Mi, 200Gi or 2Ti"),
        ("command: [torchrun, train.py]\n  launcher: {type: Torchrun}", "write command: [train.py]"),
        ("env: [{name: PET_NNODES, value: '1'}]", "spec.env[0]: PET_NNODES is set by Lockstep"),
        ("resourcesPerNode: {gpu: 8}", "write nvidia.com/gpu"),
    ],
)
def test_a_bad_run_is_refused_with_field_and_remedy(user: User, tmp_path: Path, line: str, words: str) -> None:
    field = line.partition(":")[0]
    kept = [old for old in Path(HELLO).read_text().splitlines() if not old.strip().startswith(f"{field}:")]
    bad = tmp_path / "bad.yaml"
    bad.write_text("\n".join([*kept, f"  {line}"]))
    user.types("submit", str(bad), code=1)
    assert user.notes.startswith("error: hello is refused:\n  spec.")
    assert words in user.notes


def test_a_name_that_is_taken_is_said_with_the_ways_out(user: User) -> None:
    user.types("submit", HELLO)
    user.types("submit", HELLO, code=1)
    assert "there is a run hello" in user.notes
    assert "--name" in user.notes


def test_a_run_that_there_is_not_is_one_clear_line(user: User) -> None:
    for verb in ("info", "explain", "logs", "events", "history", "cancel", "wait", "render"):
        user.types(verb, "nope", code=1)
        assert user.notes.splitlines()[0] == f"error: there is no run nope in namespace {user.namespace}"


def test_a_missing_right_is_said_with_its_remedy(user: User) -> None:
    user.types("queue", "-n", "kube-system", code=1)
    assert "is forbidden" in user.notes
    assert "ask for the role edit" in user.notes


def test_an_api_server_that_is_away_is_said_at_once(
    user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: LocalCluster
) -> None:
    dead = tmp_path / "dead.yaml"
    dead.write_text(cluster.kubeconfig.read_text().replace(cluster.url, "https://127.0.0.1:9"))
    user.types("queue", "--kubeconfig", str(dead), code=1)
    assert "no answer from the API server at https://127.0.0.1:9" in user.notes


def test_runs_are_suspended_resumed_and_cancelled(user: User) -> None:
    def spec() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(user.types("info", "hello", "-o", "json"))["spec"]
        return found

    user.types("submit", HELLO)
    assert user.types("suspend", "hello") == "trainingrun.lockstep.dev/hello suspended\n"
    assert spec()["suspend"] is True
    assert user.types("resume", "hello") == "trainingrun.lockstep.dev/hello resumed\n"
    assert spec()["suspend"] is False
    assert user.types("cancel", "hello") == "trainingrun.lockstep.dev/hello cancelled\n"
    assert spec()["cancel"] is True
    assert user.types("cancel", "hello") == ""
    assert "is cancelled already" in user.notes


def test_a_run_that_has_ended_is_tried_again_under_its_name_once_the_server_would_take_it(
    user: User, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def now() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(user.types("info", "hello", "-o", "json"))
        return found

    user.types("submit", HELLO)
    user.types("retry", "hello", code=1)
    assert "hello has not ended" in user.notes
    write_status(cluster, user.namespace, "hello", sample.failed()["status"] | {"checkpoint": {}})
    old = now()
    user.types("retry", "hello", "-t", "2parsecs", code=2)
    user.types("retry", "hello", "--image", "x" * 2000, code=1)
    assert "hello is refused:\n  spec.image" in user.notes
    assert (
        user.types("retry", "hello", "--dry-run=server") == "trainingrun.lockstep.dev/hello created (server dry run)\n"
    )
    assert now()["metadata"]["uid"] == old["metadata"]["uid"], "it is still there"
    assert user.types("retry", "hello", "--image", "mended") == "trainingrun.lockstep.dev/hello created\n"
    new = now()
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["spec"] == old["spec"] | {"image": "mended"}
    assert "status" not in new
    assert not list((tmp_path / "lockstep" / "retry").iterdir())


def test_a_run_is_asked_to_save_by_a_new_token_each_time(user: User) -> None:
    user.types("submit", HELLO)
    tokens = set()
    for _ in range(2):
        assert user.types("checkpoint", "hello") == "trainingrun.lockstep.dev/hello asked to save\n"
        found = json.loads(user.types("info", "hello", "-o", "json"))["metadata"]["annotations"]
        tokens.add(found["lockstep.dev/checkpoint-request"])
    assert len(tokens) == 2
    user.types("checkpoint", "hello", "--wait", "--timeout", "1s", code=124)


def test_one_run_that_there_is_not_does_not_keep_the_others(user: User) -> None:
    user.types("submit", HELLO)
    assert user.types("cancel", "nope", "hello", code=1) == "trainingrun.lockstep.dev/hello cancelled\n"
    assert "no run nope" in user.notes


def test_runs_are_chosen_by_label(user: User, tmp_path: Path) -> None:
    for name, team in (("a", "nlp"), ("b", "vision")):
        manifest = yaml.safe_load(Path(HELLO).read_text())
        manifest["metadata"] = {"name": name, "labels": {"team": team}}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(manifest))
        user.types("submit", str(path))
    assert user.types("queue", "-l", "team=nlp", "-o", "name") == "trainingrun.lockstep.dev/a\n"
    assert user.types("suspend", "-l", "team=vision") == "trainingrun.lockstep.dev/b suspended\n"
    user.types("suspend", code=2)


def test_waiting_ends_with_the_run_and_its_exit_code_tells_how(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    user.types("wait", "hello", "--for", "running", "--timeout", "1s", code=124)
    writing = later(lambda: write_status(cluster, user.namespace, "hello", sample.running()["status"]))
    assert user.types("wait", "hello", "--for", "running", "--timeout", "60s") == "hello is Running (StepsReported)\n"
    writing.join()
    writing = later(lambda: write_status(cluster, user.namespace, "hello", sample.failed()["status"]))
    user.types("wait", "hello", "--for", "succeeded", "--timeout", "60s", code=1)
    writing.join()
    assert "has ended as Failed (NoProgress)" in user.notes
    assert user.types("wait", "hello") == "hello is Failed (NoProgress)\n"


def test_submitting_with_wait_tells_each_state_and_fails_with_the_run(user: User, cluster: LocalCluster) -> None:
    told_so_far = sys.stderr

    def operate() -> None:
        """Each state only when the one before was told: those that come and go in between are not."""
        try:
            wait_until(lambda: "hello: Pending" in told_so_far.getvalue())
            write_status(cluster, user.namespace, "hello", sample.running()["status"])
            wait_until(lambda: "hello: Running" in told_so_far.getvalue())
        finally:  # whatever was told, the waiting ends
            write_status(cluster, user.namespace, "hello", sample.failed()["status"])

    operating = later(operate)
    user.types("submit", HELLO, "--wait", code=1)
    operating.join()
    told = [line for line in user.notes.splitlines() if line.startswith("hello: ")]
    assert told == ["hello: Pending (NotSeenYet)", "hello: Running (StepsReported)", "hello: Failed (NoProgress)"]


def test_finished_runs_are_shown_when_asked_for(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    write_status(cluster, user.namespace, "hello", sample.failed()["status"])
    assert user.types("queue") == ""
    assert "1 finished run not shown" in user.notes
    assert "Failed" in user.types("queue", "--finished")


def test_why_a_run_waits_is_computed_where_rights_allow_and_read_from_status_elsewhere(
    user: User, cluster: LocalCluster
) -> None:
    user.types("submit", "--name", "huge", "--nodes", "9000", "--image", "X", "--", "true")
    write_status(cluster, user.namespace, "huge", sample.pending()["status"])
    said = user.types("explain", "huge")
    assert "needs 4 nodes, 1 fit: 3 booked by runs" in said
    assert "(as the operator last wrote it; not computed anew: you may not read the nodes)" in said
    said = user.types("explain", "huge", "-n", user.namespace, "--kubeconfig", str(cluster.kubeconfig))
    assert "needs 9000 nodes" in said
    assert "(computed now from" in said


def test_events_of_this_run_and_no_other_are_shown_in_order(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    uid = json.loads(user.types("info", "hello", "-o", "json"))["metadata"]["uid"]
    for reason, moment, about in (("Second", 2, uid), ("First", 1, uid), ("Former", 0, "another-uid")):
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"e{secrets.token_hex(4)}", "namespace": user.namespace},
            "eventTime": f"2026-01-01T00:00:0{moment}.000000Z",
            "reportingController": names.CONTROLLER,
            "reportingInstance": "test",
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": names.RUN_KIND,
                "name": "hello",
                "namespace": user.namespace,
                "uid": about,
            },
            "type": "Normal",
            "reason": reason,
            "action": "Test",
            "note": f"{reason} note",
        }
        cluster.api.send(Request("POST", f"/apis/events.k8s.io/v1/namespaces/{user.namespace}/events", body))
    for flags in ((), ("--pods",)):
        rows = user.types("events", "hello", *flags).splitlines()[1:]
        assert [row.split()[2] for row in rows] == ["First", "Second"]


def test_the_pod_of_an_admitted_run_is_rendered_for_any_slot(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    user.types("render", "hello", "--slot", "1", code=1)
    assert "only slot 0 can be shown" in user.notes
    status = sample.running()["status"]
    write_status(cluster, user.namespace, "hello", status)
    pod = yaml.safe_load(user.types("render", "hello", "--slot", "1"))
    assert pod["metadata"]["name"].endswith("-1-1")
    assert "gpu-2" in json.dumps(pod["spec"]["affinity"])


def test_logs_of_a_run_that_never_started_say_so(user: User, cluster: LocalCluster) -> None:
    user.types("submit", HELLO)
    user.types("logs", "hello", code=1)
    assert "has had no nodes yet" in user.notes
    write_status(cluster, user.namespace, "hello", sample.running()["status"])
    user.types("logs", "hello", "--rank", "1", code=1)
    assert "rank 1 has no log to read: " in user.notes
