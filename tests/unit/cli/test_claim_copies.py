"""Code that is copied to a claim: by which pod, what it makes there, and that nothing is left of the way."""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.cli.errors import ApiServerError, CliError, ExitCode, UsageError
from lockstep.cli.main import main
from lockstep.cli.submission import claim_copies, code, unpack
from lockstep.cli.submission.claim_copies import PART_BYTES, destination, is_copy, refuse_unfit, wanted_place
from lockstep.cli.submission.packing import ON_A_CLAIM, Destination
from support.cli_server import CliServer

FILES = [("pkg/net.py", b"x = 1\n"), ("train.py", b"import pkg.net\n"), ("weights.bin", os.urandom(2 * PART_BYTES))]
TO = Destination("data", "lockstep-code/hello-0123456789ab")
SPEC: dict[str, Any] = {"image": "lab/train:1", "nodes": 2, "command": ["python", "train.py"]}
CLAIM = "persistentvolumeclaims/data"


def with_claim(*statuses: Any, modes: Any = ("ReadWriteMany",)) -> CliServer:
    """Each look at a pod shows the next status; without a list of modes the claim is answered with an error."""
    refused = isinstance(modes, int)
    claim = ApiServerError(modes, "no", name="data") if refused else {"spec": {"accessModes": list(modes)}}
    return CliServer({CLAIM: claim}, statuses=statuses or [{"phase": "Succeeded"}])


def pod(server: CliServer) -> dict[str, Any]:
    [found] = [raw for raw in server.created if raw["kind"] == "Pod"]
    return found


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Time passes by sleeping alone."""
    now = [0.0]
    monkeypatch.setattr(claim_copies.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(claim_copies.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return lambda: now[0]


def copy(server: CliServer, spec: dict[str, Any] = SPEC) -> None:
    claim_copies.copy(server, FILES, TO, spec, "hello")


def parts_of(server: CliServer, folder: Path) -> Path:
    """As the kubelet shows them to the pod."""
    folder.mkdir()
    volume = pod(server)["spec"]["volumes"][0]
    data = {raw["metadata"]["name"]: raw.get("binaryData") for raw in server.created}
    for source in volume["projected"]["sources"]:
        [item] = source["configMap"]["items"]
        (folder / item["path"]).write_bytes(base64.b64decode(data[source["configMap"]["name"]][item["key"]]))
    (folder / "..data").symlink_to(".")
    return folder


def test_what_arrives_on_the_claim_is_what_was_sent_and_nothing_of_the_way_stays(tmp_path: Path) -> None:
    server = with_claim({"phase": "Pending"}, {"phase": "Running"}, {"phase": "Succeeded"})
    copy(server)
    assert [*server.objects] == [CLAIM]
    assert all(len(base64.b64decode(raw["binaryData"]["part"])) <= PART_BYTES for raw in server.created[:-1])
    *_, target, digest, uid = pod(server)["spec"]["containers"][0]["command"]
    assert target == f"/lockstep-claim/{TO.path}"
    assert uid == "$(POD_UID)"
    there = tmp_path / "claim" / TO.path
    unpack.unpack(str(parts_of(server, tmp_path / "parts")), str(there), digest, "uid")
    found = {path.relative_to(there).as_posix(): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    assert found == dict(FILES)
    assert {path.stat().st_mode & 0o777 for path in there.rglob("*") if path.is_file()} == {0o555}
    assert os.listdir(there.parent) == [there.name]


@pytest.mark.process
def test_the_program_in_the_pod_needs_python_and_nothing_else_and_says_what_is_wrong_in_a_line(tmp_path: Path) -> None:
    server = with_claim()
    copy(server)
    python, *flags, _, target, digest, _ = pod(server)["spec"]["containers"][0]["command"]
    assert (python, flags[:3]) == ("python3", ["-I", "-B", "-c"])
    assert "$" not in flags[3], "Kubernetes would expand it"
    ast.parse(flags[3], feature_version=(3, 8))
    where = [str(parts_of(server, tmp_path / "parts")), str(tmp_path / "claim" / TO.path)]
    for sent, ends in ((digest, 0), (digest, 0), (digest[::-1], 0)):
        assert subprocess.run([sys.executable, *flags, *where, sent, "uid"], check=False).returncode == ends
    said = subprocess.run(
        [sys.executable, *flags, where[0], f"{where[1]}x", digest[::-1], "uid"], capture_output=True, check=False
    )
    assert (said.returncode, said.stderr) == (1, b"the code did not arrive as it was sent\n")
    assert target.endswith(TO.path)


def made_parts(folder: Path) -> tuple[str, str]:
    folder.mkdir(exist_ok=True)
    server = with_claim()
    copy(server)
    parts = str(parts_of(server, folder / "parts"))
    return parts, pod(server)["spec"]["containers"][0]["command"][-2]


def test_a_copy_that_is_there_is_used_again(tmp_path: Path) -> None:
    parts, digest = made_parts(tmp_path)
    target = tmp_path / "code"
    target.mkdir()
    unpack.unpack(parts, str(target), digest, "uid")
    assert os.listdir(target) == []


def test_what_is_not_whole_is_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, digest = made_parts(tmp_path / "sent")
    target = tmp_path / "claim" / "code"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unpack.os, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        unpack.unpack(parts, str(target), digest, "uid")
    assert os.listdir(target.parent) == []


def test_two_pods_that_copy_the_same_do_not_mind_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, digest = made_parts(tmp_path / "sent")
    target = tmp_path / "claim" / "code"
    sync = os.sync

    def meanwhile() -> None:
        monkeypatch.setattr(unpack.os, "sync", sync)
        unpack.unpack(parts, str(target), digest, "other")

    monkeypatch.setattr(unpack.os, "sync", meanwhile)
    unpack.unpack(parts, str(target), digest, "uid")
    assert os.listdir(target.parent) == ["code"]
    assert (target / "train.py").read_bytes() == FILES[1][1]


def test_what_a_pod_left_half_made_goes_once_it_is_nobodys(tmp_path: Path) -> None:
    parts, digest = made_parts(tmp_path / "sent")
    above = tmp_path / "claim"
    for name, age in ((".code.dead", 4000), (".code.alive", 60), (".other.dead", 4000), ("mine", 4000)):
        (above / name).mkdir(parents=True)
        at = unpack.time.time() - age
        os.utime(above / name, (at, at))
    unpack.unpack(parts, str(above / "code"), digest, "uid")
    assert sorted(os.listdir(above)) == [".code.alive", ".other.dead", "code", "mine"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("data", ("data", "lockstep-code")),
        ("data:", ("data", "lockstep-code")),
        ("data:team/code", ("data", "team/code")),
        ("data:/code/", ("data", "code")),
        ("", None),
        (":x", None),
        ("/home:x", None),
        ("data:a/../b", None),
        ("data:a//b", None),
        ("data:x:ro", None),
        ("data:" + "x" * 500, None),
        ("data:a\nb", None),
    ],
)
def test_a_claim_and_the_path_inside_it(text: str, place: tuple[str, str] | None) -> None:
    if place is not None:
        assert wanted_place(text) == place
        return
    with pytest.raises(UsageError, match="is no claim and path"):
        wanted_place(text)


def test_a_copy_is_named_by_its_content_alone() -> None:
    first = destination(Destination("data", "a/b"), "hello", FILES)
    assert first == destination(Destination("data", "a/b"), "hello", [*reversed(FILES)])
    assert first.path.startswith("a/b/hello-")
    assert is_copy(first.path)
    for other in ([*FILES[:2]], [("train2.py", FILES[0][1]), *FILES[1:]], [(FILES[0][0], b"x = 2\n"), *FILES[1:]]):
        assert destination(Destination("data", "a/b"), "hello", other).path != first.path


@pytest.mark.parametrize(
    ("modes", "nodes", "words"),
    [
        (["ReadWriteMany"], 8, ""),
        (["ReadWriteOnce", "ReadWriteMany"], 8, ""),
        (["ReadWriteOnce"], 1, ""),
        (["ReadWriteOnce"], 2, "ReadWriteOnce: only one node at a time has it"),
        (["ReadWriteOncePod"], 2, "ReadWriteOncePod: only one"),
        (["ReadOnlyMany"], 1, "is ReadOnlyMany: no code can be copied"),
        (404, 1, "there is no PersistentVolumeClaim data in namespace team"),
        (403, 8, ""),
    ],
)
def test_a_claim_that_cannot_have_the_code_is_told_before(
    modes: Any, nodes: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = with_claim(modes=modes)
    if words:
        with pytest.raises(CliError, match=words):
            refuse_unfit(server, "data", nodes)
        return
    refuse_unfit(server, "data", nodes)
    told = "neither the copy nor the run starts while a pod on another node has it" in capsys.readouterr().err
    assert told is (modes == ["ReadWriteOnce"])


WAITS = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/4 nodes fit"}]}
PULLS = {
    "phase": "Pending",
    "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such\nimage"}}}],
}
FAILED = {
    "phase": "Failed",
    "containerStatuses": [{"state": {"terminated": {"reason": "Error", "message": "[Errno 13] Permission denied"}}}],
}
BESIDE = {"name": "mesh", "state": {"running": {}}}
UNDONE = {
    "phase": "Running",
    "containerStatuses": [
        BESIDE,
        {"name": "copy", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "No space left"}}},
    ],
}
LATE = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"}


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (FAILED, "failed: Error: .Errno 13. Permission denied", ExitCode.FAILED),
        (UNDONE, "failed: Error: No space left", ExitCode.FAILED),
        (LATE, "failed: DeadlineExceeded: Pod was active too long", ExitCode.FAILED),
        (WAITS, "is not done after 600 s: 0/4 nodes fit", ExitCode.TIMED_OUT),
        (PULLS, "is not done after 600 s: ImagePullBackOff: no such image", ExitCode.TIMED_OUT),
    ],
)
def test_a_copy_that_fails_says_why_and_leaves_nothing(status: Any, words: str, code: ExitCode) -> None:
    server = with_claim(status)
    with pytest.raises(CliError, match=words) as raised:
        copy(server)
    assert raised.value.exit_code is code
    assert [*server.objects] == [CLAIM]


def test_a_copy_is_done_when_its_container_is_whatever_runs_beside_it(clock: Callable[[], float]) -> None:
    done = {"name": "copy", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    copy(with_claim({"phase": "Running", "containerStatuses": [BESIDE, done]}))
    assert clock() == 0


def test_what_a_copy_waits_for_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    copy(with_claim(*[WAITS] * 20, *[PULLS] * 3, {"phase": "Succeeded"}))
    said = capsys.readouterr().err
    assert said.count("waits: 0/4 nodes fit") == 1
    assert said.count("waits: ImagePullBackOff") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ApiServerError(403, "no")])
def test_an_interrupt_leaves_nothing(error: BaseException) -> None:
    server = with_claim()
    server.refusals["get pods"] = error
    with pytest.raises(type(error)):
        copy(server)
    assert [*server.objects] == [CLAIM]


def test_what_a_command_left_that_was_killed_is_removed_by_the_next_by_the_servers_clock() -> None:
    server = with_claim()
    for name, made in (("dead", "2026-01-01T10:59:00Z"), ("alive", "2026-01-01T11:59:00Z")):
        metadata = {"name": name, "uid": name, "labels": {claim_copies.LABEL: "first"}, "creationTimestamp": made}
        server.objects[f"configmaps/{name}"] = {"kind": "ConfigMap", "metadata": metadata}
    copy(server)
    assert [*server.objects] == [CLAIM, "configmaps/alive"]


def test_all_of_it_belongs_to_the_first_part_and_the_pod_ends_by_itself() -> None:
    server = with_claim()
    copy(server)
    first, *others = server.created
    for raw in others:
        [owner] = raw["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("ConfigMap", first["metadata"]["uid"])
    assert "ownerReferences" not in first["metadata"]
    assert pod(server)["spec"]["activeDeadlineSeconds"] == 600
    assert pod(server)["spec"]["restartPolicy"] == "Never"
    assert server.deleted[0] == pod(server)["metadata"]["uid"]


def test_the_pod_may_what_the_runs_pods_may_and_no_more() -> None:
    trainer = {"name": names.CONTAINER_NAME, "securityContext": {"runAsUser": 7}, "env": [{"name": "A"}]}
    template = {
        "securityContext": {"fsGroup": 5},
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "mine"}],
        "hostNetwork": True,
        "containers": [{"name": "other", "securityContext": {"privileged": True}}, trainer],
    }
    spec = SPEC | {
        "podTemplate": {"spec": template},
        "imagePullSecrets": [{"name": "reg"}],
        "gpuResource": "amd.com/gpu",
    }
    server = with_claim()
    copy(server, spec)
    made = pod(server)["spec"]
    [container] = made["containers"]
    assert (container["image"], container["securityContext"]) == ("lab/train:1", {"runAsUser": 7})
    assert made["securityContext"] == {"fsGroup": 5}
    assert made["nodeSelector"] == {"pool": "cpu"}
    assert made["imagePullSecrets"] == [{"name": "reg"}]
    assert made["tolerations"] == [{"key": "mine"}, {"key": "amd.com/gpu", "operator": "Exists"}]
    assert made["automountServiceAccountToken"] is False
    assert "hostNetwork" not in made
    assert [variable["name"] for variable in container["env"]] == ["POD_UID"]


def program(folder: Path) -> str:
    (folder / "train.py").write_text("print(1)\n")
    (folder / "tokens.bin").write_bytes(b"\0" * 2_000_000)
    return str(folder)


def test_the_run_mounts_the_copy_read_only_and_starts_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run: dict[str, Any] = {"metadata": {"name": "hello"}, "spec": dict(SPEC)}
    packed = code.packed_for([run], program(tmp_path), "data:team")
    assert packed is not None
    assert packed.to is not None
    [volume] = run["spec"]["volumes"]
    assert volume == {
        "name": "code",
        "mountPath": "/code",
        "readOnly": True,
        "subPath": packed.to.path,
        "persistentVolumeClaim": {"claimName": "data"},
    }
    assert packed.to.path.startswith("team/hello-")
    assert run["spec"]["workingDir"] == "/code"
    assert code.made_for(run, packed) == frozenset()
    assert f"2 files of {tmp_path} (2.0 MB) go to {packed.to.path} on claim data" in capsys.readouterr().err
    TrainingRunSpec.model_validate(run["spec"])
    (tmp_path / "train.py").write_text("print(2)\n")
    before = packed.to.path
    code.packed_for([run], str(tmp_path), "data:team")
    [volume] = run["spec"]["volumes"]
    assert volume["subPath"] != before, "new code takes the place of the old, which stays for whoever runs by it"
    code.packed_for([{"metadata": {"name": "hello"}, "spec": run["spec"]}], str(small(tmp_path)))
    [volume] = run["spec"]["volumes"]
    assert "projected" in volume


def small(folder: Path) -> Path:
    (folder / "tokens.bin").unlink()
    return folder


@pytest.mark.parametrize(
    ("dry_run", "keep", "copies"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_a_run_that_is_only_asked_about_copies_nothing(tmp_path: Path, dry_run: bool, keep: bool, copies: bool) -> None:
    run: dict[str, Any] = {"metadata": {"name": "hello"}, "spec": dict(SPEC)}
    server = with_claim()
    packed = code.packed_for([run], program(tmp_path), "data")
    with code.sent_along(server, run, packed, dry_run=dry_run, keep=keep):
        assert bool(server.created) is copies
    assert [*server.objects] == [CLAIM]


def test_an_array_on_a_claim_for_one_node_is_refused(tmp_path: Path) -> None:
    template = {"spec": SPEC | {"nodes": 1}}
    array = {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_SET_KIND,
        "metadata": {"name": "sweep"},
        "spec": {"indices": "0-3", "template": template},
    }
    packed = code.packed_for([array], program(tmp_path), "data")
    server = with_claim(modes=["ReadWriteOnce"])
    with (
        pytest.raises(CliError, match="only one node at a time has it"),
        code.sent_along(server, array, packed, dry_run=True, keep=True),
    ):
        pass


def test_what_is_more_than_a_claim_gets_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"#" * (ON_A_CLAIM.size + 1))
    with pytest.raises(CliError, match=r"are more than --code-claim copies \(5000 files, 30.0 MB\)"):
        code.packed_for([{"metadata": {"name": "hello"}, "spec": dict(SPEC)}], str(tmp_path), "data")


def test_a_claim_for_code_needs_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["submit", "--code-claim", "data", "--image", "X", "--dry-run=client", "--", "train.py"])
    assert "add --code DIR" in capsys.readouterr().err


def test_a_client_dry_run_says_that_nothing_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("submit", "--code", program(tmp_path), "--code-claim", "data", "--image", "X", "--dry-run=client")
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--", "train.py"])
    said = capsys.readouterr()
    run = yaml.safe_load(said.out)
    assert run["spec"]["volumes"][0]["subPath"].startswith("lockstep-code/train-")
    assert "Nothing is copied" in said.err


def test_the_digest_in_the_pod_is_that_of_what_is_sent() -> None:
    server = with_claim()
    copy(server)
    sent = b"".join(base64.b64decode(raw["binaryData"]["part"]) for raw in server.created if raw["kind"] == "ConfigMap")
    assert pod(server)["spec"]["containers"][0]["command"][-2] == hashlib.sha256(sent).hexdigest()
