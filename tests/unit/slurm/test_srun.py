"""srun within a job: how many tasks it means, and where."""

from typing import Any

import pytest

from lockstep.slurm.getopt import OptionError
from lockstep.slurm.gpus import GpusAsked
from lockstep.slurm.handling import OF_ALLOCATION, REFUSED, SUPPORTED
from lockstep.slurm.layout import Layout, LayoutError
from lockstep.slurm.srun import Step, counted, parse, placed
from lockstep.slurm.srun_options import HANDLING, OPTIONS

NODES = [[f"10.9.0.{index}", f"n{index}", f"n{index}.example.org"] for index in range(4)]
FOUR = {"SLURM_JOB_NUM_NODES": "4"}
TASKS = {**FOUR, "SLURM_NTASKS": "32"}
PER_NODE = {**TASKS, "SLURM_NTASKS_PER_NODE": "8"}


FILES = {"hosts": "n2 # the fast one\n\nn1,n3\n", "./hosts": "n[1-2]\n", "tasks": "n2\nn0*2\nn2\n", "/empty": "# n1\n"}


def step(*arguments: str, environ: dict[str, str] | None = None) -> Step:
    [made] = parse([*arguments, "true"], environ or {}, lambda path: FILES[path])
    assert made.command == ("true",)
    return made


@pytest.mark.parametrize(
    ("environ", "arguments", "tasks", "nodes"),
    [
        (FOUR, [], 4, 4),  # one for each node
        (TASKS, [], 32, 4),
        (PER_NODE, [], 32, 4),
        (TASKS, ["-N1"], 32, 1),  # as many as the job has, on one node
        (PER_NODE, ["-N1"], 8, 1),
        (PER_NODE, ["-N1", "-n1"], 1, 1),
        (PER_NODE, ["-n1"], 1, 1),
        (FOUR, ["-n2"], 2, 2),
        (FOUR, ["-n8"], 8, 4),
        (FOUR, ["--ntasks-per-node=8"], 32, 4),
        (FOUR, ["-N2", "--ntasks-per-node=8"], 16, 2),
        (FOUR, ["-N2"], 2, 2),
        (FOUR, ["-w", "n2"], 4, 4),  # only with -N1 that node alone, in Slurm too
        (FOUR, ["-N1", "-w", "n2"], 1, 1),
        ({}, ["-w", "n1,n2"], 2, 2),
        ({}, [], 4, 4),
        (TASKS, ["--ntasks-per-node=1"], 32, 4),
        (FOUR, ["-N2-3"], 3, 3),  # of a range as many as there are
        (FOUR, ["-N2-9"], 4, 4),
        (PER_NODE, ["-N2-3"], 24, 3),
        (TASKS, ["-m", "arbitrary", "-w", "n2,n1,n2"], 3, 2),
    ],
)
def test_tasks_and_nodes_are_counted_as_srun_does(
    environ: dict[str, str], arguments: list[str], tasks: int, nodes: int
) -> None:
    found = counted(step(*arguments, environ=environ), len(NODES))
    assert (found.ntasks, found.nodes) == (tasks, nodes)


@pytest.mark.parametrize(
    ("environ", "arguments", "warning"),
    [
        (FOUR, ["-n1"], "can't run 1 processes on 4 nodes, setting nnodes to 1"),
        (TASKS, ["--ntasks-per-node=1"], "can't honor --ntasks-per-node set to 1 which doesn't match"),
        (FOUR, ["-n4"], ""),
        (PER_NODE, ["-N1", "-n1"], ""),
    ],
)
def test_it_warns_of_what_it_changes(environ: dict[str, str], arguments: list[str], warning: str) -> None:
    warnings = counted(step(*arguments, environ=environ), 4).warnings
    assert "".join(warnings).startswith(warning)
    assert bool(warnings) is bool(warning)


@pytest.mark.parametrize(
    ("arguments", "layout"),
    [
        (["-n4"], Layout([0, 1, 2, 3], [[0], [1], [2], [3]])),
        (["-N2", "-n4"], Layout([0, 1], [[0, 1], [2, 3]])),
        (["-N2", "-n4", "-m", "cyclic"], Layout([0, 1], [[0, 2], [1, 3]])),
        (["-N2", "-n4", "-m", "cyclic:block,nopack"], Layout([0, 1], [[0, 2], [1, 3]])),
        (["-N2", "-n6", "-m", "plane=2"], Layout([0, 1], [[0, 1, 4, 5], [2, 3]])),
        (["-N2", "-n2", "-r", "1"], Layout([1, 2], [[0], [1]])),
        (["-N1", "-n1", "-w", "n2"], Layout([2], [[0]])),
        (["-N1", "-n1", "-w", "10.9.0.2"], Layout([2], [[0]])),
        (["-N1", "-n1", "-w", "n3.example.org"], Layout([3], [[0]])),
        (["-N2", "-n2", "-w", "n[2,1]"], Layout([1, 2], [[0], [1]])),  # in the order of the job
        (["-N2", "-n2", "-w", "n3"], Layout([0, 3], [[0], [1]])),  # and as many others as it needs
        (["-N2", "-n2", "-x", "n0"], Layout([1, 2], [[0], [1]])),
        (["-n3", "-m", "arbitrary", "-w", "n2,n0,n2"], Layout([0, 2], [[1], [0, 2]])),
        (["-F", "hosts"], Layout([1, 2, 3], [[0], [1], [2]])),
        (["-w", "n0", "-F", "hosts", "-N3"], Layout([1, 2, 3], [[0], [1], [2]])),
        (["-w", "./hosts", "-N2"], Layout([1, 2], [[0], [1]])),
        (["-x", "./hosts", "-N2"], Layout([0, 3], [[0], [1]])),
        (["-F", "tasks", "-m", "arbitrary"], Layout([0, 2], [[1, 2], [0, 3]])),
        (["-N2", "-n4", "-m", "arbitrary"], Layout([0, 1], [[0, 1], [2, 3]])),  # of no list: as block
    ],
)
def test_tasks_are_placed(arguments: list[str], layout: Layout) -> None:
    made = step(*arguments)
    assert placed(made, counted(made, 4), NODES) == layout


@pytest.mark.parametrize(
    ("arguments", "busy", "nodes"),
    [
        (["-N1", "-n1"], [0, 0, 0, 0], [0]),
        (["-N1", "-n1"], [1, 2, 0, 0], [2]),
        (["-N1", "-n1"], [2, 1, 1, 2], [1]),
        (["-N2", "-n2"], [2, 1, 2, 0], [1, 3]),  # in the order of the job
        (["-N3", "-n3"], [2, 1, 2, 0], [0, 1, 3]),
        (["-N1", "-n1", "-w", "n0"], [1, 0, 0, 0], [0]),
        (["-N2", "-n2", "-w", "n0"], [1, 1, 1, 0], [0, 3]),
        (["-N1", "-n1", "-x", "n2"], [1, 1, 0, 0], [3]),
        (["-N1", "-n1", "-r", "1"], [0, 1, 1, 0], [3]),
        (["-N1", "-n1", "-r", "1"], [0, 1, 1, 1], [1]),
        (["-m", "arbitrary", "-w", "n1,n0"], [1, 1, 0, 0], [0, 1]),
    ],
)
def test_of_the_nodes_that_may_be_chosen_the_least_busy_are(
    arguments: list[str], busy: list[int], nodes: list[int]
) -> None:
    made = step(*arguments)
    assert placed(made, counted(made, 4), NODES, lambda node: (busy[node],)).nodes == nodes


@pytest.mark.parametrize(
    ("environ", "arguments", "layout"),
    [
        (FOUR, [], Layout([0, 2], [[1, 2], [0, 3]])),
        (FOUR, ["-m", "cyclic", "-n3"], Layout([0, 2], [[1, 2], [0]])),  # it goes over any -m, as in Slurm
        (FOUR, ["-N1", "-n1", "-w", "n1"], Layout([1], [[0]])),
    ],
)
def test_tasks_are_placed_by_the_file_of_the_environment_where_no_nodes_are_named(
    environ: dict[str, str], arguments: list[str], layout: Layout
) -> None:
    made = step(*arguments, environ={**environ, "SLURM_HOSTFILE": "tasks"})
    assert placed(made, counted(made, 4), NODES) == layout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-N5"], "Only allocated 4 nodes asked for 5"),
        (["-N1", "-w", "elsewhere"], "elsewhere is no node of this job"),
        (["-N4", "-x", "n0"], "Only allocated 3 nodes asked for 4"),
        (["-N1", "-w", "n0", "-x", "n0"], "Requested node configuration is not available"),
        (["-N2", "-r", "3"], "Requested node configuration is not available"),
        (["-N3", "-r", "1", "-x", "n1"], "Only allocated 2 nodes asked for 3"),
    ],
)
def test_a_step_that_has_no_place_is_refused(arguments: list[str], words: str) -> None:
    made = step(*arguments)
    with pytest.raises(LayoutError, match=words):
        placed(made, counted(made, 4), NODES)


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["-l"], {"label": True}),
        (["-u"], {"unbuffered": True}),
        (["-o", "%t", "-e", "err", "-i", "none"], {"output": "%t", "error": "err", "input": "none"}),
        (["-K"], {"kill_on_bad_exit": True}),
        (["-K1"], {"kill_on_bad_exit": True}),
        (["-K0"], {"kill_on_bad_exit": False}),
        (["--kill-on-bad-exit=1"], {"kill_on_bad_exit": True}),
        (["-W", "60"], {"wait": 60}),
        (["--wait=0"], {"wait": 0}),
        (["-t", "10"], {"time_limit": 600}),
        (["-D", "/w"], {"chdir": "/w"}),
        (["--container-workdir=/w"], {"chdir": "/w"}),
        (["--export=ALL,A=1"], {"export": "ALL,A=1"}),
        (["-c", "12", "--gpus-per-task=h100:2"], {"cpus_per_task": 12, "gpus_per_task": 2}),
        (["--exact", "--exclusive", "--whole"], {"overlap": False}),
        (["--overlap"], {"overlap": True}),
        (["-G", "h100:4"], {"gpus": 4}),
        (["--gpus-per-node=2"], {"gpus_per_node": 2}),
        (["--gres=gpu:h100:2"], {"gpus_per_node": 2}),
        (["--gres=gpu"], {"gpus_per_node": 1}),
        (["--gres=none"], {"gpus_per_node": 0}),
        (["--tres-per-task=cpu=4,gres/gpu=2"], {"cpus_per_task": 4, "gpus_per_task": 2}),
        (["--ntasks-per-gpu=2"], {"ntasks_per_gpu": 2}),
        (["--ntasks-per-tres=2"], {"ntasks_per_gpu": 2}),
        (["--cpus-per-gpu=12"], {"cpus_per_gpu": 12}),
        (["--external-launcher", "--gpus-per-task=1"], {"gpus_asked": GpusAsked()}),
        (["--immediate"], {"immediate": 0}),
        (["-I30"], {"immediate": 30}),
        (["-J", "x", "--jobid=7", "--het-group=1"], {"job_name": "x", "job": "7", "group": 1}),
        (["--open-mode=append"], {"append": True}),
        (["-Q"], {"quiet": True}),
        (["--ignore-signals=USR1,SIGTERM,12"], {"ignored_signals": (10, 15, 12)}),
        (["-E"], {"preserve_env": True}),
        (["--container-image=x"], {"image": "x"}),
    ],
)
def test_options_make_the_step(arguments: list[str], fields: dict[str, Any]) -> None:
    made = step(*arguments)
    assert {name: getattr(made, name) for name in fields} == fields
    assert not made.notices


@pytest.mark.parametrize(
    ("environ", "fields"),
    [
        ({"SLURM_LABELIO": "1"}, {"label": True}),
        ({"SLURM_LABELIO": "0"}, {"label": False}),
        ({"SLURM_KILL_BAD_EXIT": "1"}, {"kill_on_bad_exit": True}),
        ({"SLURM_WAIT": "30"}, {"wait": 30}),
        ({"SRUN_OUTPUT": "%t"}, {"output": "%t"}),
        ({"SLURM_STDOUTMODE": "a", "SRUN_OUTPUT": "b"}, {"output": "b"}),
        ({"SRUN_EXPORT_ENV": "NONE", "SLURM_EXPORT_ENV": "ALL"}, {"export": "NONE"}),
        ({"SRUN_CPUS_PER_TASK": "4"}, {"cpus_per_task": 4}),
        ({"SLURM_CPUS_PER_TASK": "4"}, {"cpus_per_task": None}),  # no longer, since 22.05
        ({"SLURM_DISTRIBUTION": "cyclic"}, {"distribution": "cyclic"}),
        ({"SLURM_NTASKS_PER_GPU": "2"}, {"ntasks_per_gpu": 2}),
        ({"SLURM_TRES_PER_TASK": "gres/gpu:2"}, {"gpus_per_task": 2}),
        ({"SLURM_OVERLAP": "1"}, {"overlap": True}),
        ({"SLURM_EXTERNAL_LAUNCHER": "1", "SLURM_GPUS_PER_TASK": "1"}, {"gpus_asked": GpusAsked()}),  # MPICH's
        ({"SLURM_GPUS": "8", "SLURM_GPUS_PER_NODE": "8"}, {"gpus": None, "gpus_per_node": None}),  # the job's, all
    ],
)
def test_variables_stand_for_options(environ: dict[str, str], fields: dict[str, Any]) -> None:
    made = step(environ=environ)
    assert {name: getattr(made, name) for name in fields} == fields


def test_the_command_line_goes_over_the_environment() -> None:
    made = step("-n2", "--label", environ={**TASKS, "SLURM_LABELIO": "0"})
    assert (made.ntasks, made.label) == (2, True)
    assert made.by_environment == ("nodes",)


@pytest.mark.parametrize(
    ("environ", "arguments", "tasks"),
    [
        (FOUR, ["--ntasks-per-gpu=1"], 32),
        (FOUR, ["--gpus-per-node=2", "--ntasks-per-gpu=2"], 16),
        (FOUR, ["-N2", "--gpus=4", "--ntasks-per-tres=1"], 4),
        (FOUR, ["-n4", "--ntasks-per-gpu=1"], 4),
        (FOUR, ["--gpus=8", "--gpus-per-task=2"], 4),
        (PER_NODE, ["-N1", "--ntasks-per-gpu=1"], 8),  # what is typed goes over what the job has
        ({**TASKS, "SLURM_NTASKS_PER_GPU": "1"}, [], 32),
        ({**TASKS, "SLURM_NTASKS_PER_GPU": "1"}, ["-N1"], 8),
        ({**TASKS, "SLURM_NTASKS_PER_GPU": "1"}, ["-N1", "--ntasks-per-node=2"], 2),
        ({**TASKS, "SLURM_NTASKS_PER_GPU": "1"}, ["-N1", "-n1"], 1),
    ],
)
def test_tasks_are_counted_by_gpus(environ: dict[str, str], arguments: list[str], tasks: int) -> None:
    assert counted(step(*arguments, environ=environ), 4, 8).ntasks == tasks


@pytest.mark.parametrize("other", ["--ntasks-per-node=8", "--gpus-per-task=1", "--tres-per-task=gres/gpu:1"])
def test_options_that_exclude_each_other_are_refused_as_srun_does(other: str) -> None:
    with pytest.raises(OptionError, match="is mutually exclusive with --ntasks-per-gpu"):
        step("--ntasks-per-gpu=1", other)


def test_all_behind_the_first_word_is_the_command_unchanged() -> None:
    [made] = parse(["-N1", "bash", "-c", "echo $SLURM_PROCID", "-N2", '"q"'], {})
    assert made.command == ("bash", "-c", "echo $SLURM_PROCID", "-N2", '"q"')


@pytest.mark.parametrize(
    ("arguments", "notice"),
    [
        (["--mpi=pmix"], "start MPI programs by mpirun"),
        (["--cpu-bind=cores"], "bound to nothing"),
        (["--cpu_bind=cores"], "bound to nothing"),
        (["--pty"], "no terminal"),
        (["--container-name=x"], "image of the job"),
        (["--ntasks-per-socket=4"], "--ntasks-per-node say how many tasks"),
        (["--hint=nomultithread"], "bound to nothing"),
    ],
)
def test_what_is_ignored_is_told(arguments: list[str], notice: str) -> None:
    [told] = step(*arguments).notices
    assert notice in told


def test_of_what_asks_for_nothing_nothing_is_told() -> None:
    assert step("--mpi=none", "--cpu-bind=none").notices == ()  # as every mpirun calls it
    assert parse(["--mpi=list"], {})[0].show_mpi_types


SAMPLES = {
    "gres": "gpu:1", "tres-per-task": "gres/gpu:1", "nodelist": "n1", "nodefile": "hosts", "exclude": "n1", "time": "1",
    "distribution": "block", "nodes": "1",
}  # fmt: skip
HOLD_ANYWAY = {
    "exact", "exclusive", "whole", "overcommit", "oversubscribe", "mem", "mem-per-cpu", "mem-per-gpu", "mem-update",
    "verbose",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in sorted(HANDLING) if HANDLING[name][0] == SUPPORTED])
def test_every_supported_option_has_a_meaning_or_holds_anyway(name: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    made = step(f"--{name}" if option.value == "none" else f"--{name}={SAMPLES.get(name, '1')}")
    assert (made == step()) is (name in HOLD_ANYWAY)


@pytest.mark.parametrize("name", sorted(HANDLING))
def test_every_option_is_taken_or_refused_with_a_reason(name: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    word = f"--{name}" if option.value == "none" else f"--{name}={SAMPLES.get(name, '1')}"
    handling, words = HANDLING[name]
    if handling == REFUSED:
        assert words
        with pytest.raises(OptionError, match="srun: error: --"):
            step(word)
    else:
        assert bool(step(word).notices) is (handling == "ignored")
    assert handling != OF_ALLOCATION or not words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "No command given to execute"),
        (["-n", "0", "x"], "Invalid --ntasks specification"),
        (["-n", "x", "x"], "Invalid --ntasks specification"),
        (["-m", "plane", "x"], ""),
        (["-m", "random", "x"], "Invalid --distribution specification"),
        (["--bogus", "x"], "unrecognized option"),
        (["-t", "2h", "x"], "Invalid --time specification"),
        (["--het-group=x", "x"], "Invalid --het-group specification: x"),
        (["--het-group=0", "x", ":", "--het-group=0", "y"], "Duplicate het groups in single srun not supported"),
        (["x", ":", "--het-group=0-1", "y"], "Duplicate het groups in single srun not supported"),
        (["-w", "n[2-1]", "x"], "Invalid --nodelist specification"),
        (["-w", "./nodes", "x"], "Invalid --nodelist specification: the file ./nodes cannot be read here"),
        (["--ignore-signals=USR1,KILL", "x"], "Invalid --ignore-signals specification: USR1,KILL: KILL and STOP"),
        (["--ignore-signals=NOPE", "x"], "Invalid --ignore-signals specification: NOPE is no signal"),
        (["--gres=nic:1", "x"], "Invalid --gres specification: nic is nothing"),
        (["--tres-per-task=license/a:1", "x"], "Invalid --tres-per-task specification"),
        (["--gres=gpu:a100:4,gpu:h100:4", "x"], "a node has GPUs of one type here"),
        (["--gpus-per-socket=1", "x"], "--gpus-per-socket: sockets are not counted here; write --gpus-per-node"),
    ],
)
def test_a_bad_command_line_is_refused(arguments: list[str], words: str) -> None:
    if not words:
        made = parse(arguments, {})[0]
        with pytest.raises(LayoutError):
            placed(made, counted(made, 4), NODES)
        return
    with pytest.raises(OptionError, match=words):
        parse(arguments, {})


def test_a_file_of_no_nodes_is_refused() -> None:
    with pytest.raises(OptionError, match="Invalid --nodefile specification: the file /empty lists no nodes"):
        step("-F", "/empty")


def test_version_and_help_need_no_command() -> None:
    assert parse(["--version"], {})[0].show_version
    assert parse(["-V"], {})[0].show_version
    assert parse(["-h"], {})[0].show_help


def test_components_are_separated_by_colons() -> None:
    first, second = parse(["-n1", "a", "x", ":", "-n2", "b"], FOUR)
    assert (first.command, first.ntasks, first.nodes) == (("a", "x"), 1, None)
    assert (second.command, second.ntasks, second.nodes) == (("b",), 2, None)


def test_a_component_without_a_command_has_the_next_ones() -> None:
    steps = parse(["-n2", ":", "-n1", ":", "-n3", "hostname"], {})
    assert [step.command for step in steps] == [("hostname",)] * 3
    assert [step.ntasks for step in steps] == [2, 1, 3]


def test_each_component_has_the_environment_of_its_group() -> None:
    environ = {
        "SLURM_HET_SIZE": "2", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1",
        "SLURM_JOB_NUM_NODES_HET_GROUP_1": "3",
    }  # fmt: skip
    first, second = parse(["a", ":", "b"], environ)
    assert (first.nodes, second.nodes) == ((1, 1), (3, 3))
    assert (first.group, second.group) == (0, 1)
    assert step("--het-group=1", environ=environ).nodes == (3, 3), "of the group named, wherever that stands"
    first, second = parse(["--het-group=1", "a", ":", "--het-group=0", "b"], environ)
    assert (first.nodes, first.group, second.nodes, second.group) == ((3, 3), 1, (1, 1), 0)


def test_each_group_that_is_named_makes_a_component() -> None:
    steps = parse(["--het-group=3,0-1,1,3", "a", ":", "--het-group=2", "b"], {})
    assert [(step.group, step.command) for step in steps] == [
        (0, ("a",)), (1, ("a",)), (3, ("a",)), (2, ("b",)),
    ]  # fmt: skip
