"""DeepSpeed: what of a command as typed goes to its launcher of one node, and what is refused."""

from typing import Any

import pytest

from lockstep.core.pods.launchers import launcher_of, worker_options
from support.launchers import launched

SCRIPT = ["train.py", "--deepspeed", "ds.json", "--num_nodes", "of its own"]


@pytest.mark.parametrize("world", [1, 4])
def test_every_rank_decides(world: int) -> None:
    assert launcher_of(launched("DeepSpeed", ["deepspeed", *SCRIPT])).deciding_ranks(world) == range(world)


@pytest.mark.parametrize(
    ("flags", "told_on"),
    [
        ([], []),
        (["--module"], [1]),
        (["--enable_each_rank_log", "/logs", "--no_python"], [1, 2, 3]),
        (["--bind_core_list=0-7", "--no_local_rank"], [1, 2]),
        (["-q", "--log_level", "warning"], ["--quiet", 2, 3]),
        (["--no_ssh", "--no_ssh_check", "--ssh_port", "22", "--force_multi"], []),
    ],
)
def test_flags_of_a_nodes_launcher_are_told_on(flags: list[str], told_on: list[Any]) -> None:
    asked = launched("DeepSpeed", ["/venv/bin/deepspeed", *flags, *SCRIPT], entrypoint=["/init", "--"])
    assert launcher_of(asked).problems(asked) == []
    assert worker_options(asked, 8) == {
        "slotsPerNode": 8, "entrypoint": 2, "words": 1 + len(flags), "flags": told_on, "steps": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (["-H", "hosts"], "spec.nodes or spec.placement"),
        (["--hostfile=/job/hostfile"], "spec.nodes or spec.placement"),
        (["-i", "a@b:0"], "spec.placement"),
        (["--include", "a"], "spec.placement"),
        (["-e", "a"], "spec.placement"),
        (["--exclude", "a"], "spec.placement"),
        (["--num_nodes", "2"], "spec.nodes"),
        (["--num_gpus=4"], "spec.gpusPerNode"),
        (["--num_accelerators", "4"], "spec.gpusPerNode"),
        (["--master_addr", "a"], "set by Lockstep"),
        (["--master_port=1"], "set by Lockstep"),
        (["--node_rank", "0"], "set by Lockstep"),
        (["--launcher", "openmpi"], "launcher.type: MPI"),
        (["--elastic_training"], "spec.elastic"),
        (["--min_elastic_nodes", "1"], "spec.elastic"),
        (["--autotuning", "tune"], "a run of its own"),
        (["--save_pid"], "cancel the run"),
        (["--venv_script", "x"], "/venv/bin/deepspeed"),
        (["--num_n", "2"], "write its whole name"),
    ],
)
def test_a_flag_that_chooses_nodes_is_refused_with_the_remedy(flags: list[str], remedy: str) -> None:
    asked = launched("DeepSpeed", ["deepspeed", "--module", *flags, *SCRIPT])
    [problem] = launcher_of(asked).problems(asked)
    assert problem.field == "spec.command"
    assert problem.message.startswith(f"{flags[0].partition('=')[0]}: ")
    assert remedy in problem.message


def test_all_that_is_refused_is_told_at_once() -> None:
    asked = launched("DeepSpeed", ["deepspeed", "--num_nodes", "2", "--num_gpus", "8", *SCRIPT])
    assert len(launcher_of(asked).problems(asked)) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["python", "train.py"], "begins with deepspeed"),
        (["deepspeed"], "names no script"),
        (["deepspeed", "--module"], "names no script"),
        (["ds", "train.py"], ""),
    ],
)
def test_a_command_of_another_kind_is_refused(command: list[str], words: str) -> None:
    asked = launched("DeepSpeed", command)
    problems = launcher_of(asked).problems(asked)
    assert [words in problem.message for problem in problems] == ([True] if words else [])


@pytest.mark.parametrize(("nodes", "gpus", "fits"), [(1024, 8, True), (4096, 8, False), (1024, 128, False)])
def test_a_gang_whose_nodes_do_not_fit_into_one_argument_is_refused(nodes: int, gpus: int, fits: bool) -> None:
    asked = launched("DeepSpeed", ["deepspeed", *SCRIPT], nodes=nodes, gpusPerNode=gpus)
    assert [p.field for p in launcher_of(asked).problems(asked)] == ([] if fits else ["spec.nodes"])
