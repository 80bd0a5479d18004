"""What a gang is told of its batch job: by spec, status and nodes, and the same by any leader."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.plan import BatchOrder
from lockstep.core.model.run_state import RunContext, RunState
from lockstep.core.run.batch_job import batch_order, fields_of
from lockstep.core.run.directive import directive_for
from lockstep.core.run.handover import Handover
from lockstep.slurm.environment import Array, SlurmJob, batch_environment, job_of
from support.values import not_none
from support.world import World, world_with_gang

SCRIPT = "#!/bin/bash\nsrun hostname\n"
ADDRESSES = ("10.0.0.7", "10.0.0.3")


def submitted(ranks: int = 2, *, spec: dict[str, Any] | None = None, **batch: Any) -> World:
    kind = {"type": "Slurm", "batch": {"script": SCRIPT, **batch}}
    return world_with_gang(ranks, launcher=kind, command=[], **(spec or {}))


def state(w: World, annotations: dict[str, str] | None = None, **status: Any) -> RunState:
    snapshot = w.snapshot("one")
    run = replace(snapshot.run, annotations=annotations or {}, status=changed(snapshot.run.status, **status))
    return RunState(RunContext(replace(snapshot, run=run), w.tunables, w.now))


def order(w: World, nodelist: tuple[str, ...] = ADDRESSES, **said: Any) -> BatchOrder:
    return not_none(batch_order(state(w, **said), nodelist))


def test_a_job_is_told_as_slurm_would_know_it() -> None:
    w = submitted(
        name="train.sbatch", command="/home/ada/train.sbatch", directory="/work", submitDirectory="/home/ada",
        host="login", user="ada", uid=1000, gid=100,
        options={"account": "llm", "gpus-per-node": "8"}, memoryMiB=512, arguments=["a b"], output="%j.log",
        append=True, spec={"volumes": [{"name": "data", "mountPath": "/data", "emptyDir": {}}]},
    )  # fmt: skip
    status = w.status("one")
    made = order(w, job_id=4711, last_admitted=5000.0, held_seconds=0, attempt=3)
    assert made.job == SlurmJob(
        id=4711, nodes=ADDRESSES, cpus=(int(status.resolved.cpu),) * 2, gpus=status.resolved.gpus_per_node,
        name="train.sbatch", user="ada", uid=1000, partition="default", cluster="lockstep",
        submit_dir="/home/ada", submit_host="login", start_time=5000, end_time=0,
        said={"account": "llm", "gpus-per-node": "8"}, memory=512,
        restarts=2, account="llm", gid=100, image=not_none(w.snapshot("one").run.spec).image, mounts=("/data",),
        work_dir="/work",
    )  # fmt: skip
    assert (made.script, made.arguments, made.output, made.append) == (SCRIPT, ("a b",), "%j.log", True)
    assert (made.error, made.input, made.directory, made.command) == ("", "", "/work", "/home/ada/train.sbatch")


def test_every_variable_follows_from_what_is_told() -> None:
    """As JSON, too: the worker makes them of that."""
    w = submitted(options={"ntasks-per-node": "4"}, directory="/work")
    told = json.loads(json.dumps(fields_of(order(w, job_id=9, last_admitted=5000.0).job)))
    variables = batch_environment(SlurmJob(**told))
    assert variables["SLURM_JOB_ID"] == variables["SLURM_JOBID"] == "9"
    assert variables["SLURM_JOB_NODELIST"] == "10.0.0.[7,3]"
    assert (variables["SLURM_NTASKS"], variables["SLURM_TASKS_PER_NODE"]) == ("8", "4(x2)")
    assert variables["SLURM_SUBMIT_DIR"] == "/work"


def test_components_of_a_heterogeneous_job_are_told_with_their_tasks() -> None:
    w = submitted(components=[1, 1], componentTasks=[1, 24], ntasks=25, options={"ntasks": "1"})
    job = job_of(json.loads(json.dumps(fields_of(order(w, job_id=9, last_admitted=5000.0).job))))
    assert (job.components, job.component_tasks, job.ntasks) == ((1, 1), (1, 24), 25)


def test_tasks_by_gpus_follow_the_nodes_that_there_are() -> None:
    w = submitted(options={"ntasks-per-gpu": "2", "gpus": "99"}, ntasks=198)
    gpus = w.status("one").resolved.gpus_per_node
    assert gpus
    assert order(w, job_id=9, last_admitted=5000.0).job.ntasks == 2 * gpus * len(ADDRESSES)


def test_where_a_run_stands_in_its_array_is_told() -> None:
    shape = {names.ANNOTATION_ARRAY: "index=3 count=5 min=1 max=9", names.ANNOTATION_ARRAY_JOB: "job=40 step=2"}
    job = order(submitted(), annotations=shape, job_id=44).job
    assert job.array == Array(40, 3, 5, 1, 9, 2)
    again = json.loads(json.dumps(fields_of(job)))
    again = SlurmJob(**{**again, "array": Array(**again["array"])})
    assert batch_environment(again)["SLURM_ARRAY_JOB_ID"] == "40"
    assert batch_environment(again)["SLURM_JOB_ID"] == "44"


@pytest.mark.parametrize(
    "written",
    ["", "job=40", "job=x step=1", "job=0 step=1", "job=67043328 step=1", "job=4 step=0", "job=٤ step=1", "a b c"],
)
def test_what_somebody_wrote_into_the_place_of_an_array_counts_for_nothing(written: str) -> None:
    shape = {names.ANNOTATION_ARRAY: "index=3 count=5 min=1 max=9", names.ANNOTATION_ARRAY_JOB: written}
    assert order(submitted(), annotations=shape, job_id=44).job.array is None
    assert order(submitted(), annotations={names.ANNOTATION_ARRAY_JOB: "job=40 step=1"}, job_id=44).job.array is None


@pytest.mark.parametrize(
    ("batch", "nodes", "tasks"),
    [
        ({}, 2, None),
        ({"ntasks": 5, "options": {"ntasks": "5"}}, 2, 5),
        ({"ntasks": 16, "options": {"ntasks-per-node": "8"}}, 2, 16),
        ({"ntasks": 16, "options": {"ntasks-per-node": "8"}}, 1, 8),  # it has shrunk
        ({"ntasks": 16, "options": {"ntasks-per-node": "many"}}, 2, 16),
    ],
)
def test_the_tasks_are_those_that_were_said_whatever_the_gang_has_become(
    batch: dict[str, Any], nodes: int, tasks: int | None
) -> None:
    assert order(submitted(**batch), ADDRESSES[:nodes], job_id=1).job.ntasks == tasks


def test_its_end_is_that_of_its_time_limit() -> None:
    w = submitted(spec={"timeLimit": "2h"})
    assert order(w, job_id=1, last_admitted=5000.0, held_seconds=200).job.end_time == 5000 + 7200 - 200


@pytest.mark.parametrize(
    ("batch", "name"),
    [({"name": "t.sh", "options": {"job-name": "llama"}}, "llama"), ({"name": "t.sh"}, "t.sh"), ({}, "one")],
)
def test_its_name_is_what_was_said_or_the_scripts(batch: dict[str, Any], name: str) -> None:
    assert order(submitted(**batch), job_id=1).job.name == name


def test_nodes_are_known_by_their_names_and_short_names_too() -> None:
    w = submitted()
    known = state(w, job_id=1)
    assignment = changed(known.status.assignment, nodes=("gpu-1.example.net", "gpu-2"))
    assert order(w, job_id=1, assignment=assignment).words == (("gpu-1.example.net", "gpu-1"), ("gpu-2",))


def test_only_batch_jobs_with_a_number_are_told_of_one() -> None:
    assert batch_order(state(world_with_gang()), ADDRESSES) is None
    assert batch_order(state(submitted(), job_id=None), ADDRESSES) is None


def test_a_gang_that_trains_is_told_of_its_job_and_nobody_while_that_has_no_number() -> None:
    """Its status was lost, and the next number is about to be written."""
    w = submitted()
    told = not_none(directive_for(state(w), Handover()))
    assert not_none(told.batch).job.id == not_none(w.status("one").job_id)
    assert not_none(told.batch).job.nodes == told.nodelist
    assert directive_for(state(w, job_id=None), Handover()) is None
    other = not_none(directive_for(state(world_with_gang()), Handover()))
    assert other.batch is None
    assert TrainingRunStatus().job_id is None
