"""The step that srun asks its peers for: tasks, variables, files and streams."""

from typing import Any

import pytest

from lockstep.slurm.environment import Array, SlurmJob, batch_environment
from lockstep.slurm.gpus import chosen
from lockstep.slurm.layout import InUse, LayoutError
from lockstep.slurm.srun import Step, parse
from lockstep.worker.shims.request import EVERYBODY, NOBODY
from lockstep.worker.shims.srun import Call, OutputSink, Place, call, laid_out

JOB = SlurmJob(
    123, ["10.9.0.1", "10.9.0.2"], [72, 72], 8, "train", "ann", 1000, "gpu", "main", "/home/ann", "login", 1, 0,
    {"ntasks-per-node": "2"}, ntasks=4,
)  # fmt: skip
PLACE = Place(4, "10.9.0.1", 40_123, "/w")


def step(*arguments: str, job: SlurmJob = JOB, **environ: str) -> Call:
    shell = {**batch_environment(job), "PATH": "/bin", "A": "1", **environ}
    words = [[node, f"n{index}"] for index, node in enumerate(job.nodes)]
    return called(parse([*arguments, "python", "t.py"], shell), job, words, shell)


def called(steps: list[Step], job: SlurmJob, words: list[list[str]], shell: dict[str, str], taken: int = 0) -> Call:
    """``taken``: GPUs of each node that other steps have."""
    laid = laid_out(steps, job, words)
    wanted = laid.gpus_of_nodes(job)
    devices = chosen(wanted, {node: set(range(taken)) for node in job.nodes}, job.gpus)
    assert devices is not None
    return call(steps, job, laid, shell, PLACE, devices)


def test_each_node_is_asked_once_for_its_tasks() -> None:
    made = step()
    assert [(part.rank, [task.id for task in part.tasks]) for part in made.request.parts] == [(0, [0, 1]), (1, [2, 3])]
    assert {tuple(part.argv) for part in made.request.parts} == {("python", "t.py")}
    assert {part.shell for part in made.request.parts} == {""}
    assert [task.env["SLURM_PROCID"] for part in made.request.parts for task in part.tasks] == ["0", "1", "2", "3"]
    assert made.nodes == {0: "10.9.0.1", 1: "10.9.0.1", 2: "10.9.0.2", 3: "10.9.0.2"}
    assert made.lines == []


def test_tasks_have_the_environment_of_srun_and_the_step() -> None:
    [part, _] = step().request.parts
    assert part.env is not None
    assert part.env.items() >= {"PATH": "/bin", "A": "1", "SLURM_STEP_ID": "4", "SLURM_JOB_NAME": "train"}.items()
    assert not part.env.keys() & {"SLURM_LABELIO"}
    for options, said in (((), "2"), (("-E",), "4")):
        [part] = step("-N1", "-n2", *options).request.parts
        assert part.env is not None
        assert part.env["SLURM_NTASKS"] == said
    [part, _] = step("--export=B=2").request.parts
    assert part.env is not None
    assert (part.env.get("PATH"), part.env["B"], part.env["SLURM_JOB_ID"]) == (None, "2", "123")


@pytest.mark.parametrize(
    ("arguments", "stdout", "stderr", "files"),
    [
        ([], OutputSink(), OutputSink(), ("", "")),
        (["-o", "%j.%s"], OutputSink("123.4"), OutputSink("123.4"), ("", "")),
        (["-o", "out", "-e", "err"], OutputSink("out"), OutputSink("err"), ("", "")),
        (["-o", "out", "--open-mode=append"], OutputSink("out", append=True), OutputSink("out", append=True), ("", "")),
        (["-e", "err"], OutputSink(), OutputSink("err"), ("", "")),
        (["-o", "%j_%t.out"], OutputSink(), OutputSink(), ("123_3.out", "123_3.out")),
        (["-o", "%N.%n", "-e", "%t"], OutputSink(), OutputSink(), ("10.9.0.2.1", "3")),
        (["-o", "%t", "-e", "err"], OutputSink(), OutputSink("err"), ("3", "")),
        (["-o", "none"], OutputSink(), OutputSink(), ("/dev/null", "/dev/null")),
        (["-o", "2"], OutputSink(only=2), OutputSink(only=2), ("", "")),
        (["-o", "9"], OutputSink("9"), OutputSink("9"), ("", "")),  # no such task: a file
        (["-o", "all"], OutputSink(), OutputSink(), ("", "")),
        (["-o", "x%%t"], OutputSink("x%t"), OutputSink("x%t"), ("", "")),
    ],
)
def test_output_goes_where_it_is_said(
    arguments: list[str], stdout: OutputSink, stderr: OutputSink, files: tuple[str, str]
) -> None:
    made = step(*arguments)
    assert (made.stdout, made.stderr) == (stdout, stderr)
    last = made.request.parts[1].tasks[1]
    assert (last.stdout, last.stderr) == files


@pytest.mark.parametrize(
    ("arguments", "stdin", "path", "of_task"),
    [
        ([], EVERYBODY, "", ""),  # broadcast
        (["-i", "all"], EVERYBODY, "", ""),
        (["-i", "none"], NOBODY, "", "/dev/null"),
        (["-i", "2"], "2", "", ""),
        (["-i", "in.%j"], EVERYBODY, "in.123", ""),
        (["-i", "in.%t"], NOBODY, "", "in.3"),
        (["--input", "none"], NOBODY, "", "/dev/null"),  # MPICH and Intel MPI
    ],
)
def test_stdin_goes_to_all_or_one_or_none(arguments: list[str], stdin: str, path: str, of_task: str) -> None:
    made = step(*arguments)
    assert (made.request.stdin, made.stdin, made.request.parts[1].tasks[1].stdin) == (stdin, path, of_task)


def test_labels_are_as_wide_as_the_highest_rank() -> None:
    assert step("-l").request.labels == {0: "0: ", 1: "1: ", 2: "2: ", 3: "3: "}
    labels = step("-l", "-n12").request.labels
    assert labels is not None
    assert (labels[0], labels[11]) == (" 0: ", "11: ")
    assert step().request.labels is None


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["-K"], {"kill_on_bad_exit": True}),
        (["-W", "30"], {"wait": 30}),
        (["-t", "1"], {"time_limit": 60}),
        ([], {"kill_on_bad_exit": False, "wait": 0, "time_limit": 0}),
        (["-n1"], {"lines": ["srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1"]}),
        (["-Q", "-n1"], {"lines": []}),
        (["--pty"], {"lines": ["srun: --pty is ignored: there is no terminal; the step runs without"]}),
    ],
)
def test_how_srun_behaves_meanwhile(arguments: list[str], fields: dict[str, Any]) -> None:
    made = step(*arguments)
    assert {name: getattr(made, name) for name in fields} == fields


def test_the_directory_is_sruns_or_the_one_that_is_asked_for() -> None:
    assert step().request.cwd == "/w"
    assert step("-D", "/x").request.cwd == "/x"
    assert step("-D", "src").request.cwd == "/w/src", "not below that of the node's step server"


def test_a_node_may_be_named_by_each_of_its_words() -> None:
    assert [part.rank for part in step("-N1", "-n1", "-w", "n1").request.parts] == [1]
    assert [part.rank for part in step("-N1", "-n1", "-w", "10.9.0.2").request.parts] == [1]


@pytest.mark.slow
def test_a_step_of_more_tasks_than_a_node_takes_is_refused_before_it_starts() -> None:
    assert [len(part.tasks) for part in step("-n1024").request.parts] == [512, 512]
    with pytest.raises(LayoutError, match="513 tasks on a node, where 512 run at most; ask for more nodes by -N"):
        step("-n1025")


HETEROGENEOUS = JOB._replace(components=[1, 1], said={}, ntasks=2)


def test_components_run_on_their_nodes_with_one_numbering_of_tasks() -> None:
    made = step("python", "a", ":", job=HETEROGENEOUS)
    assert [(part.rank, [task.id for task in part.tasks], list(part.argv)) for part in made.request.parts] == [
        (0, [0], ["python", "a"]),
        (1, [1], ["python", "t.py"]),
    ]
    made = step("--het-group=1", job=HETEROGENEOUS)
    assert [part.rank for part in made.request.parts] == [1]
    for job, group in ((HETEROGENEOUS, 2), (JOB, 1)):
        with pytest.raises(LayoutError, match="het group"):
            step(f"--het-group={group}", job=job)


ROLES = JOB._replace(
    nodes=[f"10.9.0.{node}" for node in range(4)], cpus=[72] * 4, said={}, ntasks=25, components=[1, 3],
    component_tasks=[1, 24],
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "tasks"),
    [
        (["a", ":"], [(0, 1), (1, 8), (2, 8), (3, 8)]),
        (["--het-group=1", "a", ":", "--het-group=0"], [(1, 8), (2, 8), (3, 8), (0, 1)]),
        (["--het-group=1"], [(1, 8), (2, 8), (3, 8)]),
        (["--het-group=0,1"], [(0, 1), (1, 8), (2, 8), (3, 8)]),
        (["--het-group=0-1", "-n2", "--pty"], [(0, 2), (1, 1), (2, 1)]),
        ([], [(0, 1)]),
    ],
)
def test_each_component_has_the_tasks_and_nodes_of_its_own_group(
    arguments: list[str], tasks: list[tuple[int, int]]
) -> None:
    made = step(*arguments, job=ROLES)
    assert [(part.rank, len(part.tasks)) for part in made.request.parts] == tasks
    assert len(set(made.lines)) == len(made.lines), "said once"


def test_files_of_an_array_are_named_by_it() -> None:
    array = JOB._replace(array=Array(120, 3, 10, 0, 9))
    assert step("-o", "%A_%a", job=array).stdout == OutputSink("120_3")


def test_each_component_has_its_own_output() -> None:
    job = JOB._replace(components=[1, 1], ntasks=None, said={})
    environ = {**batch_environment(job), "PATH": "/bin"}
    words = [[node] for node in job.nodes]
    made = called(parse(["-o", "a", "x", ":", "-e", "c", "y"], environ), job, words, environ)
    assert (made.stdout, made.stderr) == (OutputSink("a"), OutputSink("a"))
    assert made.others == [(1, OutputSink(), OutputSink("c"))]
    places = [
        [task.env[f"SLURM_{name}"] for name in ("PROCID", "NODEID", "GTIDS", "LOCALID")]
        for part in made.request.parts for task in part.tasks
    ]  # fmt: skip
    assert places == [["0", "0", "0", "0"], ["1", "1", "1", "0"]], "counted on"


PACKED = JOB._replace(image="r.io/a/b:1", mounts=["/data"])


def test_a_step_says_what_it_does_not_get_of_its_image_and_mounts() -> None:
    made = step("--container-image=/x.sqsh", "--container-mounts=/fsx:/fsx,/data", job=PACKED)
    assert ["is not used" in line or "/fsx is on no volume" in line for line in made.lines] == [True, True]
    assert step("--container-image=r.io#a/b:1", "--container-mounts=/fsx:/data", job=PACKED).lines == []


def test_a_step_with_another_image_than_its_jobs_is_refused() -> None:
    with pytest.raises(LayoutError, match=r"--container-image=other: the job runs in r\.io/a/b:1"):
        step("--container-image=other", job=PACKED)


def devices_of(made: Call) -> list[tuple[str, str]]:
    """Of each task, under both of their names."""
    return [
        (task.env["CUDA_VISIBLE_DEVICES"], task.env["SLURM_STEP_GPUS"])
        for part in made.request.parts
        for task in part.tasks
    ]


def taking(*arguments: str, taken: int = 0, job: SlurmJob = JOB) -> Call:
    shell = batch_environment(job)
    return called(parse([*arguments, "x"], shell), job, [[node] for node in job.nodes], shell, taken)


@pytest.mark.parametrize(
    ("arguments", "taken", "devices"),
    [
        (["-n2"], 3, [("0,1,2,3,4,5,6,7",) * 2] * 2),  # it says nothing of GPUs, and shares all
        (["-n1", "-N1", "--gres=gpu:1", "--exact"], 3, [("3", "3")]),
        (["-n2", "--gpus=4"], 2, [("2,3", "2,3")] * 2),
        (["-n4", "--gpus-per-task=2"], 1, [("1,2",) * 2, ("3,4",) * 2] * 2),
        (["--gpus-per-node=2", "--ntasks-per-gpu=1"], 0, [("0",) * 2, ("1",) * 2] * 2),
    ],
)
def test_a_step_that_asks_for_gpus_has_those_that_were_taken_for_it(
    arguments: list[str], taken: int, devices: list[tuple[str, str]]
) -> None:
    assert devices_of(taking(*arguments, taken=taken, job=JOB._replace(said={}, ntasks=None))) == devices


FOUR_NODES = JOB._replace(nodes=["a", "b", "c", "d"], cpus=[72] * 4, said={}, ntasks=None)
ALL = set(range(8))


@pytest.mark.parametrize(
    ("arguments", "used", "nodes"),
    [
        (["-N1", "-n1", "--gres=gpu:8"], InUse(), ["a"]),
        (["-N1", "-n1", "--gres=gpu:8"], InUse({"a": ALL}), ["b"]),
        (["-N2", "-n2", "--gres=gpu:8"], InUse({"a": {3}, "c": ALL}), ["b", "d"]),
        (["-N1", "-n1", "--gres=gpu:1"], InUse({"a": {3}}, {"a": 1}), ["a"]),  # none is broken into without need
        (["-N1", "-n1", "--gres=gpu:1"], InUse({}, {"a": 1}, {"a": 1}), ["b"]),  # a step there uses all
        (["-n3", "-N2", "--gpus-per-task=4"], InUse({"a": {0, 1, 2, 3}}), ["b", "c"]),
        (["-n3", "-N2", "--gpus-per-task=4"], InUse({"a": ALL, "b": ALL, "d": {1, 2, 3, 4}}), ["c", "d"]),
        (["-n7", "-N4", "--gpus-per-task=4"], InUse({"a": ALL}), ["a", "b", "c", "d"]),  # it has to wait
        (["-N1", "-n1"], InUse({"a": ALL}, {"a": 1}), ["b"]),
        (["-N1", "-n1"], InUse({}, {"a": 2, "b": 1, "c": 1, "d": 1}), ["b"]),
        (["-N1", "-n1", "--gres=gpu:0"], InUse({"a": ALL}, {"a": 1}), ["b"]),
        (["-N1", "-n1", "-w", "a"], InUse({}, {"a": 2}), ["a"]),
    ],
)
def test_a_step_is_laid_out_on_nodes_that_have_room_for_it(arguments: list[str], used: InUse, nodes: list[str]) -> None:
    shell = batch_environment(FOUR_NODES)
    laid = laid_out(parse([*arguments, "x"], shell), FOUR_NODES, [[node] for node in FOUR_NODES.nodes], used)
    assert laid.nodes(FOUR_NODES) == nodes


def test_components_of_a_step_do_not_ask_for_the_same_gpus_where_other_nodes_have_some() -> None:
    made = taking("-n1", "-N1", "--gres=gpu:8", "a", ":", "-n1", "-N1", "--gres=gpu:8", job=FOUR_NODES)
    assert [part.rank for part in made.request.parts] == [0, 1]


def test_what_a_task_knows_of_its_place_follows_the_node_that_was_chosen() -> None:
    shell = batch_environment(FOUR_NODES)
    [step] = parse(["-N1", "-n1", "--gres=gpu:2", "x"], shell)
    laid = laid_out([step], FOUR_NODES, [[node] for node in FOUR_NODES.nodes], InUse({"a": ALL, "b": {0}}))
    [part] = call([step], FOUR_NODES, laid, shell, PLACE, {"b": [1, 2]}).request.parts
    [task] = part.tasks
    assert part.rank == 1
    assert part.env is not None
    assert (part.env["SLURM_STEP_NODELIST"], task.env["SLURMD_NODENAME"], task.env["SLURM_NODEID"]) == ("b", "b", "0")
    assert task.env["CUDA_VISIBLE_DEVICES"] == "1,2"


def test_components_on_a_node_have_different_gpus() -> None:
    one = ("-n1", "-N1", "-w", "10.9.0.1", "--gres=gpu:1")
    assert devices_of(taking(*one, "a", ":", *one)) == [("0", "0"), ("1", "1")]
    with pytest.raises(LayoutError, match="more than the 8 GPUs of a node"):
        taking(*one[:-1], "--gres=gpu:5", "a", ":", *one[:-1], "--gres=gpu:5")
