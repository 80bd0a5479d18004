"""SLURM_* of the batch shell and of tasks, variable by variable."""

import json

import pytest

from lockstep.slurm.environment import (
    Array,
    SlurmJob,
    batch_environment,
    exported,
    job_of,
    step_environment,
    task_environment,
    without_steps,
)
from lockstep.slurm.gpus import GpusAsked
from lockstep.slurm.layout import Layout

JOB = SlurmJob(
    123, ["10.9.0.1", "10.9.0.2"], [72, 72], 8, "train", "ann", 1000, "gpu", "main", "/home/ann", "login",
    1_796_112_000, 1_796_115_600, gid=100, group="lab",
)  # fmt: skip
PER_NODE = JOB._replace(
    said={"ntasks-per-node": "8", "gpus-per-node": "h100:8", "cpus-per-task": "9", "export": "ALL"}, ntasks=16
)
STEP = Layout([0, 1], [[0, 1], [2, 3]])


def test_the_batch_shell_has_the_job() -> None:
    assert batch_environment(JOB) == {
        "SLURM_JOB_ID": "123", "SLURM_JOBID": "123", "SLURM_JOB_NAME": "train",
        "SLURM_JOB_NODELIST": "10.9.0.[1-2]", "SLURM_NODELIST": "10.9.0.[1-2]",
        "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "72(x2)",
        "SLURM_JOB_CPUS_PER_NODE": "72(x2)", "SLURM_CPUS_ON_NODE": "72", "SLURM_GPUS_ON_NODE": "8",
        "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
        "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_GTIDS": "0",
        "SLURMD_NODENAME": "10.9.0.1", "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_USER": "ann", "SLURM_JOB_UID": "1000",
        "SLURM_JOB_GID": "100", "SLURM_JOB_GROUP": "lab", "SLURM_CLUSTER_NAME": "main",
        "SLURM_SUBMIT_DIR": "/home/ann", "SLURM_SUBMIT_HOST": "login", "SLURM_JOB_START_TIME": "1796112000",
        "SLURM_JOB_END_TIME": "1796115600", "SLURM_PRIO_PROCESS": "0", "ENVIRONMENT": "BATCH",
        "SLURM_TOPOLOGY_ADDR": "10.9.0.1", "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ntasks": 16}, {"SLURM_NTASKS": "16", "SLURM_NPROCS": "16", "SLURM_TASKS_PER_NODE": "8(x2)"}),
        ({"ntasks": 3}, {"SLURM_NTASKS": "3", "SLURM_TASKS_PER_NODE": "2,1"}),
        ({}, {"SLURM_NTASKS": None, "SLURM_NPROCS": None, "SLURM_NTASKS_PER_NODE": None}),
        ({"said": {"ntasks-per-node": "8"}, "ntasks": 16}, {"SLURM_NTASKS_PER_NODE": "8"}),
        ({"said": {"cpus-per-task": "12"}}, {"SLURM_CPUS_PER_TASK": "12", "SLURM_TASKS_PER_NODE": "6(x2)"}),
        ({}, {"SLURM_CPUS_PER_TASK": None}),
        ({"said": {"gpus-per-node": "h100:8"}}, {"SLURM_GPUS_PER_NODE": "h100:8"}),  # as typed
        ({"said": {"gpus": "16"}}, {"SLURM_GPUS": "16", "SLURM_GPUS_PER_NODE": None}),
        ({"said": {"gpus-per-task": "1"}}, {"SLURM_GPUS_PER_TASK": "1"}),
        ({"said": {"ntasks-per-gpu": "1"}, "ntasks": 16}, {"SLURM_NTASKS_PER_GPU": "1", "SLURM_NTASKS": "16"}),
        ({"memory": 65_536}, {"SLURM_MEM_PER_NODE": "65536"}),
        ({}, {"SLURM_MEM_PER_NODE": None}),
        ({"gpus": 0}, {"SLURM_GPUS_ON_NODE": None, "SLURM_JOB_GPUS": None, "CUDA_VISIBLE_DEVICES": None}),
        ({"cpus": [72, 36]}, {"SLURM_JOB_CPUS_PER_NODE": "72,36"}),
        ({"restarts": 2}, {"SLURM_RESTART_COUNT": "2"}),
        ({"restarts": 0}, {"SLURM_RESTART_COUNT": None}),  # scripts write ${SLURM_RESTART_COUNT:-0}
        ({"end_time": 0}, {"SLURM_JOB_END_TIME": None}),
        ({"account": "lab", "qos": "high", "reservation": "r"}, {
            "SLURM_JOB_ACCOUNT": "lab", "SLURM_JOB_QOS": "high", "SLURM_JOB_RESERVATION": "r"}),
        ({"said": {"export": "ALL"}}, {"SLURM_EXPORT_ENV": None}),
        ({"said": {"export": "NONE"}}, {"SLURM_EXPORT_ENV": "NONE"}),
        ({"said": {"open-mode": "Append"}}, {"SLURM_OPEN_MODE": "a"}),
        ({"said": {"open-mode": "truncate"}}, {"SLURM_OPEN_MODE": "t"}),
        ({}, {"SLURM_OPEN_MODE": None}),
        ({"said": {"distribution": "cyclic"}}, {"SLURM_DISTRIBUTION": "cyclic"}),
        ({"array": Array(120, 3, 10, 0, 18, 2)}, {
            "SLURM_JOB_ID": "123", "SLURM_ARRAY_JOB_ID": "120", "SLURM_ARRAY_TASK_ID": "3",
            "SLURM_ARRAY_TASK_COUNT": "10", "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": "18",
            "SLURM_ARRAY_TASK_STEP": "2"}),
        ({}, {"SLURM_ARRAY_JOB_ID": None, "SLURM_ARRAY_TASK_ID": None}),
        ({"topology": [("s1.n1", "switch.node"), ("s1.n2", "switch.node")]}, {
            "SLURM_TOPOLOGY_ADDR": "s1.n1", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.node"}),
        ({}, {"SLURM_STEP_ID": None, "SLURM_STEPID": None, "SLURM_STEP_NODELIST": None, "SLURM_HET_SIZE": None}),
    ],
)  # fmt: skip
def test_what_was_said_is_said_again_and_nothing_else(change: dict[str, object], said: dict[str, str | None]) -> None:
    made = batch_environment(JOB._replace(**change))  # type: ignore[arg-type]
    assert {name: made.get(name) for name in said} == said


def test_components_have_their_own_beside_the_jobs() -> None:
    made = batch_environment(JOB._replace(components=[1, 1], ntasks=2))
    assert made["SLURM_HET_SIZE"] == "2"
    assert made["SLURM_JOB_NODELIST"] == "10.9.0.[1-2]"
    groups = [made[f"SLURM_JOB_NODELIST_HET_GROUP_{group}"] for group in range(2)]
    assert groups == ["10.9.0.1", "10.9.0.2"]
    assert [made[f"SLURM_NTASKS_HET_GROUP_{group}"] for group in range(2)] == ["1", "1"]
    assert [made[f"SLURM_JOB_ID_HET_GROUP_{group}"] for group in range(2)] == ["123", "124"]


@pytest.mark.parametrize(
    ("component_tasks", "ntasks", "of_groups", "on_nodes"),
    [
        ([1, 24], 25, ["1", "24"], ["1", "8(x3)"]),
        ([0, 4], None, [None, "4"], ["72", "2,1(x2)"]),  # one that says nothing has none from the others
        ([], 8, ["2", "6"], ["2", "2(x3)"]),
    ],
)
def test_each_component_has_as_many_tasks_as_it_asked_for(
    component_tasks: list[int], ntasks: int | None, of_groups: list[str | None], on_nodes: list[str]
) -> None:
    made = batch_environment(
        JOB._replace(
            nodes=list("abcd"), cpus=[72] * 4, components=[1, 3], component_tasks=component_tasks, ntasks=ntasks
        )
    )
    assert [made.get(f"SLURM_NTASKS_HET_GROUP_{group}") for group in range(2)] == of_groups
    assert [made.get(f"SLURM_TASKS_PER_NODE_HET_GROUP_{group}") for group in range(2)] == on_nodes
    assert made.get("SLURM_NTASKS") == (str(ntasks) if ntasks else None)


def test_a_step_has_its_nodes_and_the_job_keeps_its_own() -> None:
    made = step_environment(PER_NODE, 4, Layout([1], [[0, 1]]), "10.9.0.1", 40_123)
    assert made.items() >= {
        "SLURM_JOB_ID": "123", "SLURM_JOBID": "123", "SLURM_JOB_NODELIST": "10.9.0.[1-2]",
        "SLURM_NODELIST": "10.9.0.[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_NNODES": "1", "SLURM_NTASKS": "2",
        "SLURM_NPROCS": "2", "SLURM_TASKS_PER_NODE": "2", "SLURM_STEP_ID": "4", "SLURM_STEPID": "4",
        "SLURM_STEP_NODELIST": "10.9.0.2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_LAUNCH_NODE_IPADDR": "10.9.0.1", "SLURM_SRUN_COMM_HOST": "10.9.0.1",
        "SLURM_SRUN_COMM_PORT": "40123", "SLURM_STEP_LAUNCHER_PORT": "40123", "SLURM_GPUS_PER_NODE": "h100:8",
        "SLURM_NTASKS_PER_NODE": "8", "SLURM_CPUS_PER_TASK": "9",
    }.items()  # fmt: skip
    assert "SLURM_JOB_NAME" not in made  # inherited
    assert made["SLURM_DISTRIBUTION"] == "block"
    assert step_environment(JOB, 4, Layout([0, 1], [[0], [1]]), "h", 1)["SLURM_DISTRIBUTION"] == "cyclic"
    assert step_environment(JOB, 0, STEP, "h", 1, cpus_per_task=4)["SLURM_CPUS_PER_TASK"] == "4"
    assert step_environment(JOB, 0, STEP, "h", 1, cpus_per_gpu=3)["SLURM_CPUS_PER_GPU"] == "3"


def test_a_task_has_its_ranks() -> None:
    made = task_environment(PER_NODE, STEP, node=1, local=0)
    assert made == {
        "SLURM_NODEID": "1", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_GTIDS": "2,3",
        "SLURMD_NODENAME": "10.9.0.2", "SLURM_CPUS_ON_NODE": "72", "SLURM_GPUS_ON_NODE": "8",
        "SLURM_TOPOLOGY_ADDR": "10.9.0.2", "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "SLURM_STEP_GPUS": "0,1,2,3,4,5,6,7", "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    }  # fmt: skip


def test_nodes_are_counted_in_the_step_and_named_in_the_job() -> None:
    made = task_environment(JOB, Layout([1], [[0]]), node=0, local=0)
    assert (made["SLURM_NODEID"], made["SLURMD_NODENAME"]) == ("0", "10.9.0.2")


@pytest.mark.parametrize(("local", "count", "devices"), [(0, 1, "0"), (1, 1, "1"), (1, 2, "2,3"), (1, 5, "5,6,7")])
def test_devices_are_dealt_only_where_tasks_ask_for_some(local: int, count: int, devices: str) -> None:
    made = task_environment(JOB, STEP, node=0, local=local, asked=GpusAsked(per_task=count))
    assert made["CUDA_VISIBLE_DEVICES"] == made["SLURM_STEP_GPUS"] == devices
    assert made["SLURM_GPUS_ON_NODE"] == "8"


@pytest.mark.parametrize(
    ("devices", "asked", "own", "named"),
    [
        ([3], GpusAsked(per_node=1), "3", "3"),
        ([3, 5], GpusAsked(per_task=1), "5", "5"),
        ([3, 5], GpusAsked(ntasks_per_gpu=2), "3", "3"),
        ([], GpusAsked(per_node=0), "", None),
    ],
)
def test_a_step_with_gpus_of_its_own_has_those(
    devices: list[int], asked: GpusAsked, own: str, named: str | None
) -> None:
    made = task_environment(JOB, STEP, node=0, local=1, asked=asked, devices=devices)
    assert (made["CUDA_VISIBLE_DEVICES"], made.get("SLURM_STEP_GPUS")) == (own, named)
    assert made["SLURM_GPUS_ON_NODE"] == str(len(devices))


OWN = {"PATH": "/bin", "A": "1", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}
SLURM = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}


@pytest.mark.parametrize(
    ("export", "environ"),
    [
        ("", OWN),
        ("ALL", OWN),
        ("ALL,B=2", {**OWN, "B": "2"}),
        ("ALL,A=2", OWN),  # its own value wins
        ("B=2", {**SLURM, "B": "2"}),
        ("A", {**SLURM, "A": "1"}),
        ("A,MISSING", {**SLURM, "A": "1"}),
        ("NONE", SLURM),
        ("B='x,y',A", {**SLURM, "B": "x,y", "A": "1"}),
    ],
)
def test_what_srun_passes_on(export: str, environ: dict[str, str]) -> None:
    assert exported(OWN, export) == environ


def test_a_step_within_a_step_has_nothing_of_it() -> None:
    made = {**OWN, **step_environment(JOB, 4, STEP, "h", 1)}
    assert not [name for name in without_steps(made) if "STEP" in name or "COMM" in name]
    assert without_steps(made)["A"] == "1"


@pytest.mark.parametrize(
    "job", [JOB, PER_NODE, JOB._replace(array=Array(120, 3, 4, 0, 3), topology=(("a.b", "s.n"),) * 2)]
)
def test_a_job_survives_json(job: SlurmJob) -> None:
    fields = json.loads(json.dumps({**job._asdict(), "more": 1}))
    assert job_of(fields) == job
    assert job_of({**fields, "array": job.array._asdict() if job.array else None}) == job


@pytest.mark.parametrize("broken", [{"cpus": [1]}, {"nodes": [], "cpus": []}, {"array": [1]}, {"topology": [1]}])
def test_what_is_no_job_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        job_of({**JOB._asdict(), **broken})
