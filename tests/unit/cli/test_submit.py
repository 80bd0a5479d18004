"""Manifests and flags, and what is refused before a server is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import pytest
import yaml

import lockstep
from lockstep.api.base import names
from lockstep.api.checkpoint_spec import CheckpointFormat
from lockstep.api.queue import QueueLauncher
from lockstep.api.run_spec import LauncherType, TrainingRunSpec
from lockstep.cli.client import Cluster
from lockstep.cli.errors import ApiServerError, CliError, UsageError
from lockstep.cli.main import main
from lockstep.cli.submission import submit
from lockstep.cli.submission.flags import Flags
from lockstep.cli.submission.manifests import are_a_manifest, manifests_of, read_manifests, read_one_run
from lockstep.cli.submission.queue_defaults import _STARTED_BY
from lockstep.cli.submission.refusals import in_fields, refuse_bad
from lockstep.cli.views import render
from support import sample_runs as sample

MANIFESTS = Path(__file__).parents[3] / "manifests"
HELLO = str(MANIFESTS / "hello.yaml")


def test_every_launcher_can_be_asked_for() -> None:
    """The flag spells them out, as the API's models take long to import."""
    asked = {word for words in get_args(get_type_hints(Flags)["launcher"]) for word in get_args(words)}
    assert asked == {*get_args(LauncherType)} - {"Slurm"}, "the words of --launcher stand in cli/submission/flags.py"


def test_a_queue_may_name_each_launcher_that_submit_may() -> None:
    assert {*get_args(QueueLauncher)} == {*get_args(LauncherType)} - {"Slurm"}
    assert {*_STARTED_BY.values()} <= {*get_args(QueueLauncher)}


def test_every_format_of_checkpoints_can_be_asked_for() -> None:
    asked = {word for words in get_args(get_type_hints(Flags)["checkpoint_format"]) for word in get_args(words)}
    assert asked == {*get_args(CheckpointFormat)}, "the words of --checkpoint-format stand in cli/submission/flags.py"


def test_flags_make_the_manifest_that_a_user_would_have_written() -> None:
    flags = Flags(
        nodes=2,
        image="X",
        gpus_per_node=8,
        gpu_resource="amd.com/gpu",
        queue="research",
        launcher="Torchrun",
        claim="lustre",
        shm_size="200Gi",
        env=["A=1=2"],
        exclude_nodes="gpu-7",
    )
    (manifest,) = manifests_of(["train.py", "--lr", "3e-4"], flags, "hello")
    assert manifest == {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "hello"},
        "spec": {
            "nodes": 2,
            "image": "X",
            "command": ["train.py", "--lr", "3e-4"],
            "gpusPerNode": 8,
            "gpuResource": "amd.com/gpu",
            "queue": "research",
            "launcher": {"type": "Torchrun"},
            "checkpoint": {"shared": {"claimName": "lustre"}},
            "shmSize": "200Gi",
            "env": [{"name": "A", "value": "1=2"}],
            "placement": {"excludeNodes": ["gpu-7"]},
        },
    }


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["torchrun", "train.py"], "train-"),
        (["/opt/My_Script.sh"], "my-script-"),
        (["+"], "run-"),
        (["a" * 60], "a" * 34),
    ],
)
def test_a_run_without_a_name_is_named_after_its_script(command: list[str], stem: str) -> None:
    (manifest,) = manifests_of(command, Flags(image="X"), None)
    assert manifest["metadata"]["generateName"].startswith(stem)
    assert len(manifest["metadata"]["generateName"]) <= 35  # five characters come on top


@pytest.mark.parametrize(
    ("arguments", "flags", "words"),
    [
        ([], Flags(), "nothing is given"),
        ([], Flags(image="X"), "no command"),
        (["true"], Flags(image="X", checkpoint_format="Orbax"), "add --checkpoint-claim|not where they are"),
        (["true"], Flags(image="X", volumes=["data"]), "--volume data is no claim and path"),
        (["true"], Flags(image="X", volumes=["data:rel"]), "is no claim and path"),
        (["true"], Flags(image="X", volumes=["data:/x:rx"]), "is no claim and path"),
        (["true"], Flags(image="X", volumes=["/home:/home"]), "a path of the nodes is not mounted by a flag"),
        (["a.yaml", "b.yaml"], Flags(), "one manifest at a time"),
        (
            ["torchrun", "train.py", "--name=a b"],
            Flags(),
            "no --image is given to run torchrun train.py '--name=a b' in",
        ),
        (["train.py"], Flags(nodes=2), "no --image is given to run train.py in"),
        (["true"], Flags(image="X", env=["A"]), "--env A has no value"),
        (["true"], Flags(image="X", env=["=x"]), "--env =x has no name"),
        (["true"], Flags(image="X", exclude_nodes="gpu-[4-1]"), r"--exclude gpu-\[4-1\]: \[4-1\] is no range"),
        (["true"], Flags(image="X", only_nodes="gpu-[1-4"), r"--nodelist gpu-\[1-4: .* has a bracket"),
        (["true"], Flags(image="X", exclude_nodes="gpu-1,GPU_2"), "--exclude gpu-1,GPU_2: GPU_2 is no name of a node"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_a_usage_error(arguments: list[str], flags: Flags, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        manifests_of(arguments, flags, None)


def test_nodes_are_named_as_the_queue_shows_them() -> None:
    said = Flags(image="X", only_nodes="gpu-[1-3,07],m.example, n2,gpu-2", exclude_nodes="gpu-[09-10]").fields()
    assert said["placement"] == {
        "nodes": ["gpu-1", "gpu-2", "gpu-3", "gpu-07", "m.example", "n2"],
        "excludeNodes": ["gpu-09", "gpu-10"],
    }


@pytest.mark.parametrize(
    ("command", "launcher", "made"),
    [
        (["job.sh", "a"], None, ["bash", "job.sh", "a"]),
        (["./job.sh"], None, ["bash", "./job.sh"]),
        (["/opt/job.sh"], None, ["/opt/job.sh"]),
        (["train.py"], None, ["python", "train.py"]),
        (["train.py"], "JAX", ["python", "train.py"]),
        (["train.py"], "Torchrun", ["train.py"]),
        (["torchrun", "train.py"], None, ["torchrun", "train.py"]),
    ],
)
def test_a_script_gets_the_program_that_runs_it(command: list[str], launcher: Any, made: list[str]) -> None:
    (manifest,) = manifests_of(command, Flags(image="X", launcher=launcher), "hello")
    assert manifest["spec"]["command"] == made


def test_flags_beside_a_manifest_say_otherwise_than_it(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    spec = {
        "nodes": 2,
        "image": "old",
        "command": ["python", "train.py"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
        "volumes": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "old"}}],
        "placement": {"gpuTypes": ["A100"], "excludeNodes": ["gpu-1"]},
        "checkpoint": {"shared": {"claimName": "lustre", "path": "x"}},
        "launcher": {"type": "Torchrun", "nprocPerNode": 4},
    }
    run = {"apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingRun", "metadata": {"name": "a"}, "spec": spec}
    path.write_text(yaml.safe_dump(run))
    flags = Flags(
        nodes=4, image="new", env=["B=2"], volumes=["new:/data:ro", "scratch:/scratch"], gpu_type="H100,H200",
        checkpoint_format="Orbax", launcher="JAX", workdir="/src",
    )  # fmt: skip
    (manifest,) = manifests_of([str(path)], flags, None)
    assert manifest["spec"] == {
        "nodes": 4,
        "image": "new",
        "command": ["python", "train.py"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "volumes": [
            {
                "name": "new", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "new"}, "readOnly": True,
            },
            {"name": "scratch", "mountPath": "/scratch", "persistentVolumeClaim": {"claimName": "scratch"}},
        ],
        "placement": {"gpuTypes": ["H100", "H200"], "excludeNodes": ["gpu-1"]},
        "checkpoint": {"shared": {"claimName": "lustre", "path": "x"}, "format": "Orbax"},
        "launcher": {"type": "JAX"},
        "workingDir": "/src",
    }  # fmt: skip
    TrainingRunSpec.model_validate(manifest["spec"])


def test_flags_beside_an_array_say_it_of_its_runs() -> None:
    (manifest,) = manifests_of([str(MANIFESTS / "array.yaml")], Flags(nodes=7), None)
    assert manifest["spec"]["template"]["spec"]["nodes"] == 7
    assert "nodes" not in manifest["spec"]


def test_a_batch_script_is_no_manifest_and_its_image_is_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py\n")
    with pytest.raises(UsageError, match=r"job\.sh is a script") as refused:
        manifests_of([str(script)], Flags(), None)
    assert "--image IMAGE -- bash" in refused.value.remedy


@pytest.mark.parametrize("suffix", [".py", ".sh"])
def test_a_program_that_lies_here_is_no_manifest_whatever_it_begins_with(tmp_path: Path, suffix: str) -> None:
    program = tmp_path / f"train{suffix}"
    program.write_text("import torch\nx = {1: 2}\n")
    assert not are_a_manifest([str(program)], Flags())
    with pytest.raises(UsageError, match=rf"train{re.escape(suffix)} is a script and no manifest") as refused:
        manifests_of([str(program)], Flags(), None)
    assert f"--image IMAGE -- {'python' if suffix == '.py' else 'bash'} {program}" in refused.value.remedy


def test_a_name_overrides_that_of_the_manifest() -> None:
    (manifest,) = manifests_of([HELLO], Flags(), "other")
    assert manifest["metadata"] == {"name": "other"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no run"),
        ("kind: Pod", "a Pod, not a TrainingRun"),
        ("{", r"run\.yaml is no YAML: line 1, column 2: expected the node content"),
        ("kind: TrainingRun", "says kind TrainingRun and no apiVersion"),
        ("kind: TrainingRunSet", "says kind TrainingRunSet and no apiVersion"),
        ("a: \0", r"is no YAML: unacceptable character #x0000: .* in \".*run\.yaml\", position 3"),
        ("[1]", "something not a TrainingRun"),
        ("{apiVersion: lockstep.dev/v9, kind: TrainingRun}", "not a TrainingRun of lockstep.dev/v1alpha1"),
    ],
)
def test_a_file_that_holds_no_run_is_said_to(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(CliError, match=words):
        read_manifests(str(path))


def test_render_and_retry_say_too_that_an_api_version_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("kind: TrainingRun\nmetadata: {name: a}\n")
    with pytest.raises(CliError, match="says kind TrainingRun and no apiVersion") as refused:
        read_one_run(str(path))
    assert refused.value.remedy == "write apiVersion: lockstep.dev/v1alpha1"


@pytest.mark.parametrize("form", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_said_to_be_no_utf_8(tmp_path: Path, form: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("metadata: {name: café}", encoding=form)
    with pytest.raises(CliError, match=r"run\.yaml is not UTF-8 text$"):
        read_manifests(str(path))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gpuPerNode": 8}, "spec.gpuPerNode: unknown field; write gpusPerNode"),
        ({"checkpoint": {"shared": {"claim": "x"}}}, "shared.claim: unknown field; write claimName"),
        ({"env": [{"nam": "x"}]}, r"spec.env\[0\].nam: unknown field; write name"),
        ({"zzz": 1}, "spec.zzz: unknown field; kubectl explain trainingrun.spec and docs/api.md"),
        ({"nodes": "two"}, "spec.nodes: "),
        ({"resourcesPerNode": {"gpu": 8}}, r"spec.resourcesPerNode\[gpu\]: is no resource.*write nvidia.com/gpu"),
    ],
)
def test_a_mistake_is_shown_with_field_and_remedy(spec: dict[str, Any], words: str) -> None:
    manifest = yaml.safe_load(Path(HELLO).read_text())
    manifest["spec"] |= spec
    with pytest.raises(CliError, match=words):
        _refuse(manifest)


def test_what_a_namespace_may_forbid_is_left_to_the_operator_when_its_labels_are_not_known() -> None:
    manifest = yaml.safe_load(Path(HELLO).read_text())
    manifest["spec"]["podTemplate"] = {"spec": {"hostIPC": True}}
    refuse_bad(manifest, None)
    with pytest.raises(CliError, match="hostIPC"):
        refuse_bad(manifest, {})


def _refuse(manifest: dict[str, Any]) -> None:
    refuse_bad(manifest, None)


def test_a_client_dry_run_prints_the_manifest_and_needs_no_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(SystemExit, match="0"):
        main(["submit", "--dry-run=client", "--nodes", "2", "--image", "X", "--name", "a", "--", "torchrun", "t.py"])
    assert yaml.safe_load(capsys.readouterr().out)["spec"]["command"] == ["torchrun", "t.py"]


def test_an_error_is_one_line_with_its_remedy_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    with pytest.raises(SystemExit, match="1"):
        main(["queue"])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: no usable kubeconfig: ")
    assert "--kubeconfig" in said.err.splitlines()[1]


def test_a_bad_duration_is_a_usage_error_with_the_right_form(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["wait", "hello", "--timeout", "5"])
    assert "write a duration as 90s" in capsys.readouterr().err


def test_a_manifest_is_rendered_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["render", str(MANIFESTS / "checkpoint.yaml")])  # it holds a claim, too
    pod = yaml.safe_load(capsys.readouterr().out)
    assert pod["kind"] == "Pod"
    assert pod["spec"]["containers"][0]["name"] == "trainer"


@pytest.mark.parametrize(("target", "is_file"), [("-", True), ("a.yaml", True), ("./a", True), ("hello", False)])
def test_a_manifest_is_told_from_a_run_by_its_name(target: str, is_file: bool) -> None:
    assert render.is_file(target) is is_file


@pytest.mark.process
def test_help_loads_neither_the_models_nor_the_client() -> None:
    """They take most of a second."""
    code = (
        "import sys, contextlib\n"
        "from lockstep.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "sys.exit(str({'kubernetes', 'pydantic', 'kopf', 'rich'} & sys.modules.keys() or ''))\n"
    )
    path = str(Path(lockstep.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""
    assert "submit" in done.stdout


def test_a_time_in_a_manifest_stays_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    spec = "{nodes: 1, image: i, command: [a], notBefore: 2026-12-01T00:00:00Z}"
    path.write_text(f"apiVersion: lockstep.dev/v1alpha1\nkind: TrainingRun\nspec: {spec}\n")
    (manifest,) = read_manifests(str(path))
    assert manifest["spec"]["notBefore"] == "2026-12-01T00:00:00Z"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"timeLimit": "30m"}, "Its time: 30m with its nodes; after 20m all ranks are asked to save, "),
        ({"timeLimit": "30m", "checkpoint": None}, ""),  # it has all of it but the grace, as anybody would think
        ({}, ""),
        ({"queue": "short"}, "Its time: 1h with its nodes; after 50m all ranks are asked to save, "),
        ({"queue": "short", "timeLimit": "30m"}, "Its time: 30m with its nodes; after 20m all ranks are asked to save"),
        ({"queue": "secret"}, ""),
        ({"queue": "odd", "timeLimit": "30m"}, "Its time: 30m with its nodes; after 20m all ranks are asked to save"),
    ],
)
@pytest.mark.parametrize("is_array", [False, True])
def test_who_can_be_asked_to_save_before_its_limit_is_told_so_when_it_is_submitted(
    spec: dict[str, Any], words: str, is_array: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = sample.run(**spec)
    if is_array:
        array = {"indices": "0-3", "template": {"spec": raw["spec"]}}
        raw |= {"kind": names.RUN_SET_KIND, "spec": array, "status": {}}
        words = words.replace("Its time:", "The time of each run:")
    submit.tell_limit(cast(Cluster, Queues()), raw)
    said = capsys.readouterr()
    assert not said.out
    assert said.err.startswith(words)
    assert bool(said.err) is bool(words)


class Queues:
    """A server with one queue that has a limit, one that nobody may read, and one of a newer release."""

    def get(self, path: str) -> dict[str, Any]:
        limits = {"short": {"defaultTimeLimit": "1h"}, "odd": {"defaultTimeLimit": ["1h"]}}
        queue = path.rpartition("/")[2]
        if queue not in limits:
            raise ApiServerError(403 if queue == "secret" else 404, "no", name=queue)
        return {"spec": {"limits": limits[queue]}}


def test_a_namespace_that_is_a_number_was_meant_as_something_else() -> None:
    error = ApiServerError(404, "not found", name="16")
    manifest = {"kind": "TrainingRun", "metadata": {"name": "hello"}}
    assert "-N the number of nodes" in in_fields(error, manifest, "16").remedy
    assert "-N" not in in_fields(ApiServerError(404, "not found", name="team"), manifest, "team").remedy
