"""Slurm: a batch script on rank 0 alone."""

from typing import Any

import pytest

from lockstep.core.pods.gang import dry_run_body
from lockstep.core.pods.launchers import launcher_of, worker_options
from lockstep.core.pods.validation import validate
from support.launchers import launched
from support.pod_bodies import TUNABLES, run, trainer

SCRIPT = "#!/bin/bash\nsrun hostname\n"


def submitted(settings: dict[str, Any] | None = None, command: list[str] | None = None, **batch: Any) -> Any:
    fields = {"nodes": 4, **(settings or {})}
    return launched("Slurm", command or [], settings={"batch": {"script": SCRIPT, **batch}}, **fields)


@pytest.mark.parametrize("world", [1, 4])
def test_the_script_on_rank_0_alone_decides(world: int) -> None:
    assert launcher_of(submitted()).deciding_ranks(world) == range(1)


@pytest.mark.parametrize(
    ("options", "gpus", "slots"),
    [({}, 8, 8), ({}, 0, 1), ({"ntasks-per-node": "4"}, 8, 4), ({"ntasks-per-node": "x"}, 8, 8)],
)
def test_an_mpirun_in_it_finds_a_slot_for_each_task_of_a_node(options: dict[str, str], gpus: int, slots: int) -> None:
    asked = submitted(options=options)
    assert worker_options(asked, gpus) == {"slotsPerNode": slots, "standsBy": True, "steps": True}


def test_workers_hear_of_each_line_that_may_say_where_the_program_saves() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --output=/shared-checkpoints/log\nsrun train \\\n  --out=/shared-checkpoints/x\n"
        "OUT=/local-checkpoints/$(date)/y\necho /shared-checkpoints-of-old/x\n"
    )
    arguments = ["--save", "/shared-checkpoints/z"]
    asked = submitted({"checkpoint": {"shared": {"claimName": "c"}}}, script=script, arguments=arguments)
    assert worker_options(asked, 8)["places"] == [
        "srun train    --out=/shared-checkpoints/x",
        "OUT=/local-checkpoints/$ (date)/y",
        "--save /shared-checkpoints/z",
    ]
    long = "#!/bin/sh\n" + f"train /shared-checkpoints/{'x' * 2000}\n" * 60
    many = worker_options(submitted({"checkpoint": {"shared": {"claimName": "c"}}}, script=long), 8)["places"]
    assert (len(many), {len(line) for line in many}) == (16, {1024})
    assert "places" not in worker_options(submitted(script=script), 8), "it has no tier to save in"


def test_a_script_as_it_is_and_its_arguments_are_taken() -> None:
    assert validate(submitted(arguments=["a b", ""], name="train.sbatch", directory="/work", ntasks=32), {}) == []


REFUSED: dict[str, tuple[Any, str, str]] = {
    "no script": (launched("Slurm", []), "spec.launcher.batch", "write batch.script"),
    "no interpreter": (submitted(script="srun hostname"), "spec.launcher.batch.script", "begin with #!"),
    "DOS line breaks": (submitted(script="#!/bin/sh\r\nsrun x\r\n"), "spec.launcher.batch.script", "\\r\\n"),
    "a NUL": (submitted(script="#!/bin/sh\n\0"), "spec.launcher.batch.script", "NUL"),
    "a NUL in an argument": (submitted(arguments=["a\0b"]), "spec.launcher.batch", "NUL"),
    "a command beside it": (submitted(command=["python"]), "spec.command", "leave command out"),
    "an entrypoint": (submitted({"entrypoint": ["/init"]}), "spec.entrypoint", "leave entrypoint out"),
    "two directories": (submitted({"workingDir": "/a"}, directory="/b"), "spec.workingDir", "keep that"),
    "components of another size": (submitted(components=[1, 2]), "spec.launcher.batch.components", "3 nodes together"),
    "tasks of other components": (
        submitted(components=[1, 3], componentTasks=[4]),
        "spec.launcher.batch.componentTasks",
        "1 number for 2 components; write one for each, 0 for one that says none",
    ),
    "components that shrink": (
        submitted({"elastic": {"min": 2}}, components=[2, 2]),
        "spec.launcher.batch.components",
        "keeps its size",
    ),
    "no worker": (submitted({"worker": "Disabled"}), "spec.launcher.type", "worker: Enabled"),
}


@pytest.mark.parametrize(("asked", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_what_no_shell_could_run_is_refused_by_its_field(asked: Any, field: str, words: str) -> None:
    [problem] = validate(asked, {})
    assert problem.field == field
    assert words in problem.message


def test_pods_have_a_word_in_the_place_of_the_command() -> None:
    """The worker has the script, and no pod needs to be made anew for it."""
    asked = submitted(arguments=["x"])
    pod = dry_run_body(run(launcher=asked.launcher.dump(), command=[]), TUNABLES)
    assert trainer(pod)["args"] == ["--", "slurm_script"]


@pytest.mark.parametrize("launcher", ["Plain", "Torchrun", "JAX", "MPI", "DeepSpeed"])
def test_only_a_batch_script_goes_without_a_command(launcher: str) -> None:
    [problem] = validate(launched(launcher, []), {})
    assert problem.field == "spec.command"
    assert "write it" in problem.message
