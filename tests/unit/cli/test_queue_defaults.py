"""What a queue adds to runs that `lockstep submit` makes of flags."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lockstep.cli.errors import ApiServerError
from lockstep.cli.main import main
from lockstep.cli.options import Target
from lockstep.cli.submission.flags import Flags
from lockstep.cli.submission.queue_defaults import batch_of, filled, put_into
from support.cli_server import CliServer

HOME = {"name": "home", "mountPath": "/home", "persistentVolumeClaim": {"claimName": "home"}}
BATCH: dict[str, Any] = {"image": "lab/train:3", "volumes": [HOME], "env": [{"name": "HF_HOME", "value": "/home/hf"}]}


def with_queue(batch: Any = None, refusal: int = 0) -> CliServer:
    refusals = {"trainingqueues": ApiServerError(refusal, "no", name="research")} if refusal else {}
    queue = {"spec": {"batch": batch} if batch else {}}
    there = {"trainingqueues/research": queue, "persistentvolumeclaims/home": {}, "persistentvolumeclaims/lustre": {}}
    return CliServer(there, refusals=refusals)


@pytest.mark.parametrize(("status", "found"), [(0, BATCH), (403, {}), (404, {})])
def test_a_queue_that_is_absent_or_may_not_be_read_has_nothing(status: int, found: Any) -> None:
    assert batch_of(with_queue(BATCH, status), "research") == found


def test_another_refusal_is_told() -> None:
    with pytest.raises(ApiServerError):
        batch_of(with_queue(BATCH, 401), "research")


@pytest.mark.parametrize(("own", "queues", "image"), [(None, "b", "b"), ("a", "b", "a"), ("a", None, "a"), (None,) * 3])
def test_the_image_is_the_runs_own_or_the_queues(own: str | None, queues: str | None, image: str | None) -> None:
    flags, added = filled(Flags(image=own), ["a"], {"image": queues} if queues else {}, has_origin=False)
    assert flags.image == image
    assert added == (["image b"] if image == "b" else [])


@pytest.mark.parametrize(
    ("own", "queues", "command", "launcher"),
    [
        (None, "Torchrun", "train.py", "Torchrun"),
        ("Plain", "Torchrun", "train.py", "Plain"),
        (None, "Torchrun", "torchrun", None),
        (None, "Torchrun", "/venv/bin/torchrun", None),
        (None, "Torchrun", "mpirun", None),
        (None, "MPI", "mpirun", "MPI"),
        (None, "MPI", "/opt/mpi/bin/mpiexec", "MPI"),
        (None, "DeepSpeed", "deepspeed", "DeepSpeed"),
        (None, "JAX", "accelerate", None),
        (None, None, "train.py", None),
    ],
)
def test_the_launcher_is_the_runs_own_or_the_queues_unless_the_command_is_one(
    own: Any, queues: str | None, command: str, launcher: str | None
) -> None:
    flags, added = filled(Flags(launcher=own), [command], {"launcher": queues} if queues else {}, has_origin=False)
    assert flags.launcher == launcher
    assert added == ([f"launcher {launcher}"] if launcher and not own else [])


@pytest.mark.parametrize(
    ("own", "has_origin", "claim"), [(None, False, "lustre"), ("nfs", False, "nfs"), (None, True, None)]
)
def test_the_checkpoint_claim_is_the_runs_own_or_the_queues_or_that_of_the_run_it_starts_from(
    own: str | None, has_origin: bool, claim: str | None
) -> None:
    flags, _ = filled(Flags(claim=own), ["a"], {"checkpointClaim": "lustre"}, has_origin=has_origin)
    assert flags.claim == claim


@pytest.mark.parametrize(
    ("spec", "added", "names"),
    [
        ({}, ["volume home", "env HF_HOME"], (["home"], ["HF_HOME"])),
        ({"env": [{"name": "HF_HOME", "value": "/x"}]}, ["volume home"], (["home"], ["HF_HOME"])),
        ({"volumes": [{"name": "mine", "mountPath": "/home"}]}, ["env HF_HOME"], (["mine"], ["HF_HOME"])),
        ({"volumes": [{"name": "home", "mountPath": "/h"}]}, ["env HF_HOME"], (["home"], ["HF_HOME"])),
        ({"env": [{"name": "A", "value": "1"}]}, ["volume home", "env HF_HOME"], (["home"], ["A", "HF_HOME"])),
    ],
)
def test_what_the_run_has_of_the_same_name_or_path_comes_first(
    spec: dict[str, Any], added: list[str], names: tuple[list[str], list[str]]
) -> None:
    own = copy.deepcopy(spec)
    manifest = {"spec": spec}
    assert put_into(manifest, BATCH) == added
    assert tuple([each["name"] for each in spec[field]] for field in ("volumes", "env")) == names
    assert all(each in spec[field] for field, entries in own.items() for each in entries)


def test_a_queue_without_defaults_changes_nothing() -> None:
    manifest: dict[str, Any] = {"spec": {"nodes": 1}}
    assert put_into(manifest, {}) == []
    assert manifest == {"spec": {"nodes": 1}}


def types(server: CliServer, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(Target, "connect", lambda self: server)
    with pytest.raises(SystemExit) as ended:
        main(["submit", "--no-wait", "--name", "one", *words])
    return int(ended.value.code or 0)


def test_flags_without_an_image_get_the_queues_and_what_was_added_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = with_queue(BATCH)
    assert types(server, monkeypatch, "-q", "research", "--", "torchrun", "train.py") == 0
    assert "queue research adds image lab/train:3, volume home, env HF_HOME" in capsys.readouterr().err
    (created,) = server.created
    assert (created["spec"]["image"], created["spec"]["volumes"]) == ("lab/train:3", [HOME])


def test_launcher_and_claim_of_the_queue_are_in_the_run_and_what_rests_on_them_is_judged_with_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = with_queue({"image": "lab", "launcher": "Torchrun", "checkpointClaim": "lustre"})
    words = ("-q", "research", "--checkpoint-format", "Orbax", "--", "train.py")
    assert types(server, monkeypatch, *words) == 0
    (created,) = server.created
    assert created["spec"]["launcher"] == {"type": "Torchrun"}
    assert created["spec"]["command"] == ["train.py"], "Torchrun takes scripts"
    assert created["spec"]["checkpoint"] == {"shared": {"claimName": "lustre"}, "format": "Orbax"}
    assert "queue research adds image lab, launcher Torchrun, checkpoint claim lustre" in capsys.readouterr().err


def test_each_run_of_an_array_gets_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    server = with_queue(BATCH)
    assert types(server, monkeypatch, "-q", "research", "-a", "0-3", "--image", "mine", "--", "train") == 0
    template = server.created[0]["spec"]["template"]["spec"]
    assert (template["image"], template["volumes"]) == ("mine", [HOME])


def test_a_manifest_is_what_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingRun\nmetadata: {name: one}\n"
        "spec: {nodes: 1, queue: research, image: mine, command: [train]}\n"
    )
    server = with_queue(BATCH | {"launcher": "Torchrun", "checkpointClaim": "lustre"})
    assert types(server, monkeypatch, str(file)) == 0
    assert server.created[0]["spec"].keys() == {"nodes", "queue", "image", "command"}


def test_without_a_default_the_image_is_asked_for_as_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert types(with_queue(), monkeypatch, "-q", "research", "--", "train.py") == 2
    assert "no --image is given" in capsys.readouterr().err
