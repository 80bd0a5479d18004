"""The run that a batch job means: each option, and what is named or refused before anything is created."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.api.batch_spec import MOST_CHARACTERS, MOST_OF_AN_OPTION
from lockstep.api.run_spec import LauncherSpec, TrainingRunSpec
from lockstep.core.batch.components import gang_of
from lockstep.core.batch.submission import (
    NumberedJob,
    Submitted,
    Surroundings,
    WantedRun,
    is_on_a_volume,
    wanted,
)
from lockstep.core.pods.validation import validate
from lockstep.slurm.handling import REFUSED
from lockstep.slurm.submission.batch import batches
from lockstep.slurm.submission.directives import directives
from lockstep.slurm.submission.options import HANDLING, OPTIONS

HOME = {"name": "home", "mountPath": "/home", "persistentVolumeClaim": {"claimName": "home"}}
QUEUE = {"image": "nvcr.io/nvidia/pytorch:25.01", "volumes": [HOME], "env": [{"name": "NCCL_DEBUG", "value": "WARN"}]}
JOBS = {"12": NumberedJob("first"), "13": NumberedJob("sweep", is_array=True)}


def moment(option: str, text: str) -> str:
    if text == "never":
        raise ValueError(f"{option} never is no time")
    return f"<{text}>"


def job(number: str) -> NumberedJob:
    if number not in JOBS:
        raise ValueError(f"there is no job {number}")
    return JOBS[number]


def read(path: str) -> str:
    raise OSError(2, "No such file or directory")


def submit(*options: str, script: str = "#!/bin/sh\nsrun x\n", queue: Any = QUEUE, **more: Any) -> WantedRun:
    made = batches(directives("t.sh", script), {}, [*options, "t.sh", "a"], read, "lockstep")
    request, rows, components = gang_of(made)
    who: dict[str, Any] = {"directory": "/home/ada", "user": "ada", "uid": 1000, "gid": 100, "host": "login", **more}
    submitted = Submitted(script, "bin/t.sh", ["a"], **who)
    return wanted(request, rows, submitted, Surroundings(queue, moment, job, read), components)


def spec(*options: str, **more: Any) -> Any:
    made = submit(*options, **more)
    assert not made.refusals
    return made.manifest["spec"]


def test_a_script_without_options_is_one_node_with_what_its_queue_has() -> None:
    made = submit()
    assert not [row for row in made.rows if row.handling == REFUSED]
    assert made.manifest == {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"generateName": "t-"},
        "spec": {
            "nodes": 1,
            "image": "nvcr.io/nvidia/pytorch:25.01",
            "volumes": [HOME],
            "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
            "launcher": {
                "type": "Slurm",
                "batch": {
                    "script": "#!/bin/sh\nsrun x\n",
                    "arguments": ["a"],
                    "name": "t.sh",
                    "directory": "/home/ada",
                    "host": "login",
                    "user": "ada",
                    "uid": 1000,
                    "gid": 100,
                },
            },
        },
    }
    assert made.notices == []


FIELDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nodes": (["-N", "4"], {"nodes": 4}),
    "a range of nodes": (["-N", "2-4"], {"nodes": 4, "elastic": {"min": 2}}),
    "survives a lost node": (["-N", "4", "-k"], {"nodes": 4, "elastic": {"min": 1}}),
    "partition": (["-p", "research"], {"queue": "research"}),
    "GPUs": (["--gres=gpu:h100:8"], {"gpusPerNode": 8, "placement": {"gpuTypes": ["h100"]}}),
    "named nodes": (["-N2", "-w", "n[1-3]", "-x", "n2"], {"nodes": 2, "placement": {"nodes": ["n1", "n2", "n3"],
        "excludeNodes": ["n2"]}}),
    "one switch": (["--switches=1"], {"placement": {"topology": [
        {"level": "rack", "policy": "Pack", "mode": "Required"}]}}),
    "one switch for a while": (["--switches=1@10"], {"placement": {"topology": [
        {"level": "rack", "policy": "Pack", "mode": "Preferred"}]}}),
    "segments": (["--segment=2"], {"placement": {"topology": [
        {"level": "rack", "policy": "Pack", "mode": "Preferred"}]}}),
    "neighbours": (["--contiguous"], {"placement": {"topology": [
        {"level": "rack", "policy": "Contiguous", "mode": "Required"}]}}),
    "time": (["-t", "1-12:00", "--time-min=60"], {"timeLimit": "1d12h", "minTimeLimit": "1h"}),
    "no time limit": (["-t", "UNLIMITED"], {}),
    "begin and deadline": (["-b", "now+2h", "--deadline=18:00"], {"notBefore": "<now+2h>", "deadline": "<18:00>"}),
    "held": (["-H"], {"suspend": True}),
    "nice": (["--nice=5"], {"nice": 5}),
    "nicer than there is": (["--nice=2000000"], {"nice": 100_000}),
    "QOS": (["-q", "high"], {"priorityClassName": "high"}),
    "dependencies": (["-d", "afterok:12,afterany:13_4,singleton", "-J", "chain"], {
        "dependsOn": [{"name": "first", "condition": "Succeeded"}, {"name": "sweep-4", "condition": "Finished"}],
        "singleton": "ada.chain"}),
    "a dependency that can fail": (["-d", "after:12", "--kill-on-invalid-dep=yes"], {
        "dependsOn": [{"name": "first", "condition": "Started"}], "onUnsatisfiable": "Fail"}),
    "an array after another": (["-a", "0-3", "-d", "aftercorr:13"], {"afterCorr": "sweep"}),
    "a signal": (["--signal=B:USR1@120"], {"onTimeLimit": {"leadTime": "2m"}}),
    "a signal, to be requeued": (["--signal=USR1@90", "--requeue"], {
        "onTimeLimit": {"leadTime": "1m30s", "action": "Requeue"}}),
    "to be requeued without one": (["--requeue"], {}),
    "not to be requeued": (["--no-requeue"], {"recovery": {"maxRestarts": 0}}),
    "features": (["-C", "ib&zone=a"], {"podTemplate": {"spec": {"nodeSelector": {"ib": "true", "zone": "a"}}}}),
    "an image": (["--container-image=nvcr.io#nvidia/nemo:25.1"], {"image": "nvcr.io/nvidia/nemo:25.1"}),
    "a variable": (["--export=A=1"], {"env": [
        {"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "A", "value": "1"}]}),
    "a variable of the queue's name": (["--export=NCCL_DEBUG=INFO"], {"env": [
        {"name": "NCCL_DEBUG", "value": "INFO"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("options", "fields"), FIELDS.values(), ids=FIELDS)
def test_options_become_fields(options: list[str], fields: dict[str, Any]) -> None:
    plain = spec()
    made = spec(*options)
    changed = {name: value for name, value in made.items() if name != "launcher" and plain.get(name) != value}
    assert changed == fields


BATCH: dict[str, tuple[list[str], dict[str, Any]]] = {
    "tasks": (["-N2", "--ntasks-per-node=8"], {"ntasks": 16}),
    "memory": (["--mem=64G"], {"memoryMiB": 65_536}),
    "files": (["-o", "/home/ada/%j.log", "-e", "/home/e", "-i", "/home/i", "--open-mode=append"], {
        "output": "/home/ada/%j.log", "error": "/home/e", "input": "/home/i", "append": True}),
    "a directory": (["-D", "/home/bob"], {"directory": "/home/bob", "submitDirectory": "/home/ada"}),
    "a directory below": (["-D", "runs/../x"], {"directory": "/home/ada/x", "submitDirectory": "/home/ada"}),
    "the same directory": (["-D", "."], {}),
    "a signal": (["--signal=B:TERM@30"], {"signal": "SIGTERM"}),
}  # fmt: skip


@pytest.mark.parametrize(("options", "fields"), BATCH.values(), ids=BATCH)
def test_what_the_script_finds_is_in_the_batch_block(options: list[str], fields: dict[str, Any]) -> None:
    plain, made = spec()["launcher"]["batch"], spec(*options)["launcher"]["batch"]
    assert set(made.pop("options")) <= {option.name for option in OPTIONS}
    assert {name: value for name, value in made.items() if plain.get(name) != value} == fields


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("scripts/train.sh", "/home/ada/scripts/train.sh"),
        ("./train.sh", "/home/ada/train.sh"),
        (".//./train.sh", "/home/ada/train.sh"),
        ("../link/../train.sh", "/home/ada/../link/../train.sh"),  # what a link leads to is not known
        ("/opt/bin/train.sh", "/opt/bin/train.sh"),
        ("", None),  # --wrap, or from standard input
        ("x/" * 2100, None),
    ],
)
def test_the_scripts_path_is_that_of_its_submission_wherever_it_starts(command: str, path: str | None) -> None:
    batch = spec("-D", "/home/bob", command=command)["launcher"]["batch"]
    assert (batch.get("command"), batch["directory"]) == (path, "/home/bob")


def test_a_path_that_hangs_on_no_directory_is_left_out() -> None:
    assert "command" not in spec(command="train.sh", directory="")["launcher"]["batch"]


def test_options_are_repeated_as_they_were_typed() -> None:
    said = spec("--gpus-per-node", "h100:8", "-J", "llama")["launcher"]["batch"]["options"]
    assert said == {"gpus-per-node": "h100:8", "job-name": "llama"}


def test_a_long_option_is_repeated_as_well() -> None:
    """Steps have the variables alone that it names."""
    long = "A=" + "x" * 5000
    made = spec(f"--export={long}", f"--comment={long}")["launcher"]
    assert made["batch"]["options"] == {"export": long, "comment": long}
    assert LauncherSpec.model_validate(made).batch is not None


@pytest.mark.parametrize(
    ("many", "long", "taken"),
    [(128, MOST_OF_AN_OPTION, True), (129, 1, False), (1, MOST_OF_AN_OPTION + 1, False)],
)
def test_a_manifest_may_have_so_many_options_that_are_so_long_and_no_more(many: int, long: int, taken: bool) -> None:
    options = {f"option-{number}": "x" * long for number in range(many)}
    made = {"type": "Slurm", "batch": {"script": "#!/bin/sh\n", "options": options}}
    with contextlib.nullcontext() if taken else pytest.raises(ValidationError, match="options"):
        LauncherSpec.model_validate(made)


@pytest.mark.parametrize("option", ["--export", "--comment", "--mail-user"])
def test_an_option_that_is_too_long_to_be_carried_is_refused_by_name(option: str) -> None:
    [row] = submit(f"{option}={','.join(['ALL'] * 10_000)}").refusals
    assert row.option == option
    assert row.words == "it has 39999 characters, and at most 32768 are carried to the nodes; write a shorter one"


def test_a_job_is_named_after_what_was_said_or_after_its_script() -> None:
    assert submit("-J", "LLaMA 70b_v2").manifest["metadata"]["generateName"] == "llama-70b-v2-"
    assert submit("-J", "日本").manifest["metadata"]["generateName"] == "sbatch-"
    assert len(submit("-J", "x" * 99).manifest["metadata"]["generateName"]) == 35


def test_what_people_are_to_read_is_in_labels_and_annotations() -> None:
    made = submit("-A", "llm", "--comment=why not", "--mail-type=END", "--mail-user=ada@example.net")
    assert made.manifest["metadata"]["labels"] == {"slurm/account": "llm"}
    assert made.manifest["metadata"]["annotations"] == {
        "slurm/comment": "why not",
        "slurm/mail-type": "END",
        "slurm/mail-user": "ada@example.net",
    }


REFUSALS: dict[str, tuple[list[str], dict[str, Any], str, str]] = {
    "no image": ([], {"queue": {}}, "--container-image", "the queue's batch.image"),
    "a file as an image": (["--container-image=/x.sqsh"], {}, "--container-image", "push it to a registry"),
    "an image that only the script knows": ([], {"script": "#!/bin/sh\nsrun --container-image=$1 x\n"},
        "--container-image", "known only once the script runs"),
    "fewer named than asked for": (["-N3", "-w", "n[1-2]"], {}, "--nodelist", "name all"),
    "a time that is none": (["-b", "never"], {}, "--begin", "no time"),
    "a bound of nothing": (["--time-min=10"], {}, "--time-min", "write that too"),
    "a job that nobody knows": (["-d", "afterok:99"], {}, "--dependency", "no job 99"),
    "a whole array": (["-d", "afterok:13"], {}, "--dependency", "name its tasks"),
    "all of an array": (["-d", "afterok:13_*"], {}, "--dependency", "name its tasks"),
    "a task of a job": (["-d", "afterok:12_1"], {}, "--dependency", "no array"),
    "one twice": (["-d", "afterok:12,afterany:12"], {}, "--dependency", "twice"),
    "more nodes than are named": (["-N2", "-w", "n[1-1025]"], {}, "--nodelist", "at most 1024"),
    "more nodes than are left out": (["-x", "n[1-1025]"], {}, "--exclude", "at most 1024"),
    "more jobs than are waited for": (["-d", "afterok:" + ":".join(f"13_{index}" for index in range(33))], {},
        "--dependency", "32 others at most"),
    "minutes after": (["-d", "after:12+5"], {}, "--dependency", "leave out what follows"),
    "aftercorr of a run": (["-d", "aftercorr:13"], {}, "--dependency", "an array after"),
    "a real-time signal": (["--signal=34@60"], {}, "--signal", "a name"),
    "a mount that is none": (["--container-mounts=/data:/data"], {}, "--container-mounts", "/data is on no volume"),
    "input from nowhere": (["-i", "/data/in"], {}, "--input", "there are /home"),
    "an account that is no label": (["-A", "a b"], {}, "--account", "no label"),
    "a reservation": (["--reservation=maint"], {}, "--reservation", "leave it out"),
    "a script that is too long": ([], {"script": "#!/bin/sh\n" + "#" * MOST_CHARACTERS}, "script", "at most"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "more", "option", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_is_refused_by_its_option(
    options: list[str], more: dict[str, Any], option: str, words: str
) -> None:
    [row] = submit(*options, **more).refusals
    assert row.option == option
    assert words in row.words


@pytest.mark.parametrize(
    ("options", "more", "named"),
    [
        ([], {}, []),
        ([], {"directory": "/scratch/x"}, ["/scratch/x", "slurm-%j.out"]),
        (["-o", "/dev/null"], {"directory": "/scratch/x"}, ["/scratch/x"]),
        (["-D", "/workspace"], {}, ["/workspace", "slurm-%j.out"]),
        (["-o", "/logs/%j", "-e", "/home/e"], {}, ["/logs/%j"]),
        ([], {"queue": {"image": "i"}}, ["/home/ada", "slurm-%j.out"]),
        ([], {"directory": "/home2"}, ["/home2", "slurm-%j.out"]),
    ],
)
def test_a_path_that_no_volume_has_is_named_before_the_start(
    options: list[str], more: dict[str, Any], named: list[str]
) -> None:
    made = submit(*options, **more)
    assert not made.refusals
    assert [row.value for row in made.notices if row.option == "path"] == named


def test_the_script_starts_in_the_images_directory_where_no_volume_has_its_own() -> None:
    assert "directory" not in spec(directory="/scratch/x")["launcher"]["batch"]


def test_where_it_was_submitted_is_told_where_a_volume_has_that_so_that_a_script_may_go_there() -> None:
    for directory, told in (("/home/ada", "/home/ada"), ("/scratch/x", None), ("/home/bob", None)):
        batch = spec("-D", "/home/bob", directory=directory)["launcher"]["batch"]
        assert (batch["directory"], batch.get("submitDirectory")) == ("/home/bob", told)


@pytest.mark.parametrize(
    ("path", "there"),
    [("/home", True), ("/home/ada/../bob", True), ("/home/../etc", False), ("/homes", False), ("", False)],
)
def test_a_path_is_on_a_volume_by_whole_names(path: str, there: bool) -> None:
    assert is_on_a_volume(path, {"volumes": [{"mountPath": "/home/"}]}) is there


def test_the_image_of_the_first_step_is_the_jobs() -> None:
    script = "#!/bin/sh\nsrun --container-image=docker://ghcr.io#x/y:1 a\nsrun --container-image=ghcr.io/x/y:1 b\n"
    assert spec(script=script)["image"] == "ghcr.io/x/y:1"


def test_a_step_with_another_image_or_mount_than_the_jobs_is_refused_by_its_name() -> None:
    script = "#!/bin/sh\nsrun --container-image=a x\nsrun --container-image=b --container-mounts=/fsx:/fsx x\n"
    first, second = submit(script=script).refusals
    assert (first.option, first.value, "the job runs in a," in first.words) == ("srun --container-image", "b", True)
    assert (second.option, second.words) == (
        "srun --container-mounts",
        "/fsx is on no volume; there are /home",
    )


TORCHX = (
    "#!/bin/sh\n#SBATCH --nodes=1 --ntasks=1 --output=a\n#SBATCH hetjob\n#SBATCH --nodes=2 --ntasks=2\nsrun a : b\n"
)


def test_alike_components_are_one_gang_and_its_steps_know_them() -> None:
    made = spec(script=TORCHX)
    batch = made["launcher"]["batch"]
    assert (made["nodes"], batch["components"], batch["ntasks"]) == (3, [1, 2], 3)
    assert validate(TrainingRunSpec.model_validate(made), {}) == []


@pytest.mark.parametrize(
    ("first", "second", "tasks", "total"),
    [
        (" --ntasks=1", " --ntasks=24", [1, 24], 25),
        ("", " --ntasks=4", [0, 4], None),
        (" --ntasks-per-node=8", " --ntasks-per-node=8", [8, 16], 24),
        ("", "", None, None),
    ],
)
def test_components_keep_the_tasks_that_each_of_them_asks_for(
    first: str, second: str, tasks: list[int] | None, total: int | None
) -> None:
    script = f"#!/bin/sh\n#SBATCH -N1{first}\n#SBATCH hetjob\n#SBATCH -N2{second}\nsrun a : b\n"
    batch = spec(script=script)["launcher"]["batch"]
    assert (batch.get("componentTasks"), batch.get("ntasks")) == (tasks, total)


def test_unlike_components_are_refused() -> None:
    [row] = submit(script=TORCHX.replace("--nodes=2", "--nodes=2 --gpus-per-node=8")).refusals
    assert (row.option, "alike on all nodes" in row.words) == ("hetjob", True)


@pytest.mark.parametrize(
    ("queue", "fields"),
    [
        ({}, {}),
        ({"checkpointClaim": "lustre"}, {}),  # of lockstep submit alone
        ({"scriptCheckpointClaim": "lustre"}, {"checkpoint": {"shared": {"claimName": "lustre"}}}),
    ],
)
def test_a_script_has_a_checkpoint_block_only_where_its_queue_names_a_claim_for_scripts(
    queue: dict[str, Any], fields: dict[str, Any]
) -> None:
    plain, made = spec(), spec(queue={**QUEUE, **queue})
    assert {name: value for name, value in made.items() if plain.get(name) != value} == fields
    assert validate(TrainingRunSpec.model_validate(made), {}) == []


def test_a_script_has_as_long_for_its_signal_with_a_checkpoint_block_as_without() -> None:
    made = spec("--signal=USR1@600", queue={**QUEUE, "scriptCheckpointClaim": "lustre"})
    assert (made["checkpoint"]["gracePeriod"], made["onTimeLimit"]["leadTime"]) == ("10m", "10m")


def test_a_script_that_is_not_to_be_requeued_ends_at_its_first_failure_whatever_its_queue_names() -> None:
    made = spec("--no-requeue", queue={**QUEUE, "scriptCheckpointClaim": "lustre"})
    assert (made["checkpoint"], made["recovery"]) == ({"shared": {"claimName": "lustre"}}, {"maxRestarts": 0})


def test_what_becomes_a_run_is_one_that_the_operator_takes() -> None:
    made = spec("-N4", "--ntasks-per-node=8", "--gpus-per-node=8", "-t", "60", "--signal=USR1@90", "-o", "x/%j.out")
    assert validate(TrainingRunSpec.model_validate(made), {}) == []


def test_every_option_has_a_row_and_none_is_dropped() -> None:
    """What the table of options says is what a submission is told."""
    for option in OPTIONS:
        name = option.same_as or option.name
        assert name in HANDLING
        value = [] if option.value == "none" else ["="]
        if value:
            continue
        assert f"--{name}" in {row.option for row in submit(f"--{option.name}").rows}
