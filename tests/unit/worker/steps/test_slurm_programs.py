"""Slurm's commands as programs of a batch job, with real step servers behind them."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from harness.running_worker import until
from lockstep.worker.launchers import slurm
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.programs import SHIMS
from lockstep.worker.steps.slurm import registry, sbcast
from support.slurm_gang import SlurmGang

pytestmark = pytest.mark.process
NODES = 3
UNTIL_RUNNING = "until squeue -s -h | grep -q .; do sleep 0.05; done"
"""Of a script that has put a step into the background."""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[SlurmGang]:
    made = SlurmGang(tmp_path, NODES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmGang]:
    made = SlurmGang(tmp_path_factory.mktemp("job"), NODES)
    yield made
    made.close()


class Operator(threading.Thread):
    """The other end of the job's asks: answers the first one."""

    def __init__(self, gang: SlurmGang, answer: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.folder, self.answer = gang.directory.parent / slurm.ASKS, answer
        self.asked: dict[str, Any] = {}
        self.start()

    def run(self) -> None:
        [path] = until(lambda: list(self.folder.glob("*.json")))
        self.asked = json.loads(path.read_text())
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(self.answer))
        beside.rename(path.with_suffix(".answer.json"))


# srun


def test_a_step_has_a_task_on_each_node_with_the_places_of_slurm(shared: SlurmGang) -> None:
    says = "echo $SLURM_PROCID $SLURM_NODEID $SLURMD_NODENAME $SLURM_NTASKS $LOCKSTEP_NODE_RANK"
    ran = shared.run(f"srun -l bash -c '{says}; test $SLURM_TASK_PID = $$'")
    assert (sorted(ran.stdout.splitlines()), ran.returncode) == (
        ["0: 0 0 127.0.0.1 3 0", "1: 1 1 127.0.0.2 3 1", "2: 2 2 127.0.0.3 3 2"],
        0,
    ), ran.stderr


def test_tasks_have_what_the_script_exports_and_nothing_that_python_adds(shared: SlurmGang) -> None:
    ran = shared.run("export MINE=1; srun -n1 -N1 -w node-1 env")
    found = dict(line.split("=", 1) for line in ran.stdout.splitlines())
    assert (found["MINE"], found["SLURM_JOB_ID"], found["SLURM_STEP_NODELIST"]) == ("1", "123", "127.0.0.2")
    assert "LC_CTYPE" not in found


def test_a_command_is_found_on_the_path_of_its_node_where_the_task_has_none(shared: SlurmGang) -> None:
    ran = shared.run("srun --export=NONE -n1 -N1 scontrol -V; srun --export=NONE -n1 -N1 env; srun --export=A nosuch")
    assert ran.stdout.startswith("slurm "), ran.stderr
    assert "\nSLURM_JOB_ID=" in ran.stdout
    assert "PATH=" not in ran.stdout
    assert (ran.returncode, "execve(): nosuch: No such file or directory" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("step", "code", "lines"),
    [
        ("-n3 bash -c 'exit $((SLURM_PROCID + 5))'", 7, ["srun: error: 127.0.0.3: task 2: Exited with exit code 7"]),
        ("-n6 bash -c 'kill -9 $$'", 137, ["srun: error: 127.0.0.1: tasks 0-1: Killed"]),
        (
            "-N1 nosuch",
            2,
            [
                "slurmstepd: error: execve(): nosuch: No such file or directory",
                "srun: error: 127.0.0.1: task 0: Exited with exit code 2",
            ],
        ),
        ("-N1 /etc/passwd", 13, ["slurmstepd: error: execve(): /etc/passwd: Permission denied"]),
        ("-N9 true", 1, ["srun: error: Only allocated 3 nodes asked for 9"]),
        ("-w elsewhere true", 1, ["srun: error: Unable to create step: elsewhere is no node of this job"]),
        (
            "--jobid=77 true",
            1,
            [
                "srun: error: Unable to confirm allocation for job 77: Invalid job id specified",
                "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 77",
            ],
        ),
        ("--bogus true", 255, ["srun: unrecognized option '--bogus'"]),
        ("-o no/such/folder true", 1, ["srun: error: Could not open file no/such/folder: No such file or directory"]),
        ("-D /no/such/folder -N1 true", 1, ["srun: error: 127.0.0.1: /no/such/folder: there is no such directory"]),
    ],
    ids=["codes", "signals", "no command", "no program", "nodes", "node", "job", "option", "file", "directory"],
)
def test_what_goes_wrong_is_said_as_srun_says_it(shared: SlurmGang, step: str, code: int, lines: list[str]) -> None:
    ran = shared.run(f"srun {step}")
    assert ran.returncode == code, ran.stderr
    assert set(lines) <= set(ran.stderr.splitlines()), ran.stderr


def test_output_goes_to_files_of_srun_or_of_each_task(shared: SlurmGang) -> None:
    both = "bash -c 'echo out $SLURM_PROCID; echo err >&2'"
    ran = shared.run(
        f"srun -n3 -o one -e two {both}; srun -n3 -o %j.%s.%t.%n.%N {both}; srun -o none {both}; srun -n3 -o 2 {both}"
    )
    folder = shared.folder
    assert sorted((folder / "one").read_text().split("\n")) == ["", "out 0", "out 1", "out 2"]
    assert (folder / "two").read_text() == "err\n" * 3
    [own] = folder.glob("123.*.2.2.127.0.0.3")
    assert own.read_text() == "out 2\nerr\n"
    assert (ran.stdout, ran.stderr) == ("out 2\n", "err\n")


def test_a_file_is_emptied_unless_it_is_to_be_added_to(shared: SlurmGang) -> None:
    ran = shared.run(
        "for n in 1 2; do srun -N1 -n1 -o new echo $n; srun -N1 -n1 -o more --open-mode=append echo $n; done"
    )
    assert ran.returncode == 0
    assert [(shared.folder / name).read_text() for name in ("new", "more")] == ["2\n", "1\n2\n"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("srun -N2 -n2 -o /dev/full {}", "/dev/full: No space left on device"),
        ("ulimit -f 16; srun -N2 -n2 -o large {}", "large: File too large"),
        ("ulimit -f 16; srun -N2 -n2 {} > large", "stdout: File too large"),
    ],
    ids=["a full disk", "a limit", "srun's own"],
)
def test_a_file_that_takes_no_more_costs_output_and_not_the_step(gang: SlurmGang, script: str, words: str) -> None:
    task = "for n in 1 2 3 4 5; do head -c 8000 /dev/zero; sleep 0.1; done; exit 7"
    ran = gang.run(script.format(f"bash -c '{task}'"))
    assert ran.returncode == 7
    assert ran.stderr.splitlines()[0] == f"srun: error: {words}; what else goes there is lost"
    assert ran.stderr.count("lost") == 1


@pytest.mark.parametrize(
    ("options", "out"),
    [("", "0: x|1: x|2: x"), ("-i 1", "1: x"), ("-i none", ""), ("-i words", "0: y|1: y|2: y")],
)
def test_stdin_is_for_all_tasks_or_for_one(shared: SlurmGang, options: str, out: str) -> None:
    (shared.folder / "words").write_text("y\n")
    ran = shared.run(f"srun -n3 {options} -l cat", text="x\n")
    assert "|".join(sorted(ran.stdout.splitlines())) == out, ran.stderr


def test_a_step_that_cannot_be_takes_no_number(gang: SlurmGang) -> None:
    ran = gang.run("srun -N9 true; srun -w elsewhere true; srun -N1 -n1 bash -c 'echo $SLURM_STEP_ID'")
    assert ran.stdout == "0\n", ran.stderr


def test_tasks_have_the_name_of_their_step(shared: SlurmGang) -> None:
    shown = "srun -N1 -n1 {} bash -c 'echo $SLURM_JOB_NAME'"
    ran = shared.run(f"{shown.format('')}; {shown.format('-J eval')}; SLURM_JOB_NAME=mine {shown.format('')}")
    assert ran.stdout.split() == ["train", "eval", "mine"], ran.stderr


def test_steps_that_overlap_have_numbers_of_their_own(shared: SlurmGang) -> None:
    ran = shared.run("for n in 1 2 3 4; do srun -N1 -n1 bash -c 'echo $SLURM_STEP_ID' & done; wait")
    assert len({int(number) for number in ran.stdout.split()}) == 4
    nested = shared.run("srun -N1 -n1 -w node-2 srun -N1 -n1 -w node-0 bash -c 'echo $SLURM_STEP_ID $SLURM_NODEID'")
    number, node = nested.stdout.split()
    assert (registry.rank_of(int(number)), node) == (2, "0"), nested.stderr


SHOWS = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_STEP_GPUS"


def test_steps_in_the_background_have_different_gpus(tmp_path: Path) -> None:
    made = SlurmGang(tmp_path, 2, gpus=2)
    try:
        held = f"bash -c '{SHOWS}; until [ -e go ]; do sleep 0.05; done'"
        step = "srun -N1 -n1 -w node-0 --gres=gpu:1 --exact"
        both = made.run(
            f"{step} {held} > one & until [ -s one ]; do sleep 0.05; done; {step} {held} > two & "
            "until [ -s two ]; do sleep 0.05; done; touch go; wait; cat one two"
        )
        assert both.stdout.split("\n") == ["127.0.0.1 0 0", "127.0.0.1 1 1", ""], both.stderr
        waits = made.run(
            f"rm go one; srun -N1 -n1 --gpus-per-node=2 {held} > one & until [ -s one ]; do sleep 0.05; done; "
            f"{step} bash -c '{SHOWS}' 2> said & until grep -q retrying said; do sleep 0.05; done; touch go; wait"
        )
        assert waits.stdout == "127.0.0.1 0 0\n", waits.stderr
        first, second = (made.folder / "said").read_text().splitlines()
        assert first == "srun: Job 123 step creation temporarily disabled, retrying (Requested nodes are busy)"
        assert second.startswith("srun: Step created for StepId=123.")
    finally:
        made.close()


@pytest.mark.parametrize("gpus", ["--gres=gpu:2", ""])
def test_steps_in_the_background_that_name_no_node_have_one_each(tmp_path: Path, gpus: str) -> None:
    made = SlurmGang(tmp_path, 2, gpus=2)
    try:
        meets = "touch up.$0; until [ -e up.1 -a -e up.2 ]; do sleep 0.05; done"
        ran = made.run(f"for n in 1 2; do srun -N1 -n1 {gpus} bash -c '{SHOWS}; {meets}' $n & done; wait")
        assert sorted(ran.stdout.splitlines()) == ["127.0.0.1 0,1 0,1", "127.0.0.2 0,1 0,1"], ran.stderr
        assert made.run(f"srun -N1 -n1 {gpus} bash -c '{SHOWS}'").stdout == "127.0.0.1 0,1 0,1\n"
    finally:
        made.close()


def test_tasks_by_gpus_have_one_each(tmp_path: Path) -> None:
    made = SlurmGang(tmp_path, 2, gpus=2)
    try:
        ran = made.run(f"srun --ntasks-per-gpu=1 bash -c '{SHOWS}'")
        assert sorted(ran.stdout.splitlines()) == [
            f"127.0.0.{node} {device} {device}" for node in (1, 2) for device in (0, 1)
        ], ran.stderr
        refused = made.run("srun --gres=gpu:3 true")
        assert "3 GPUs of a node are asked for, and each has 2" in refused.stderr
    finally:
        made.close()


def test_the_first_bad_end_ends_the_step_with_kill_on_bad_exit(shared: SlurmGang) -> None:
    began = time.monotonic()
    ran = shared.run("srun -n3 -K bash -c '[ $SLURM_PROCID = 1 ] && exit 7; sleep 60'")
    assert time.monotonic() - began < 30
    assert ran.returncode == 143
    assert "srun: error: 127.0.0.2: task 1: Exited with exit code 7\nsrun: Terminating StepId=123." in ran.stderr
    assert "srun: error: 127.0.0.3: task 2: Terminated" in ran.stderr
    assert shared.run("srun -n3 bash -c '[ $SLURM_PROCID = 1 ] && exit 7; sleep 1'").returncode == 7


@pytest.mark.parametrize(
    ("options", "line"),
    [("-W1", "srun: First task exited 1s ago"), ("-t 0:01", "DUE TO TIME LIMIT ***")],
    ids=["after the first end", "time limit"],
)
def test_a_step_has_its_own_limits(shared: SlurmGang, options: str, line: str) -> None:
    ran = shared.run(f"srun -n3 {options} bash -c '[ $SLURM_PROCID = 1 ] && exit 0; sleep 60'")
    assert (ran.returncode, line in ran.stderr) == (143, True), ran.stderr


@pytest.mark.parametrize(
    ("options", "then"),
    [("-t 0:01", ":"), ("", "kill -TERM $!"), ("", "scancel 123.0")],
    ids=["time limit", "signal", "scancel"],
)
def test_a_step_whose_tasks_have_ended_well_ends_well_whatever_comes_while_what_they_left_ends(
    gang: SlurmGang, options: str, then: str
) -> None:
    left = "trap 'touch asked; sleep 2; exit' TERM; touch left; while :; do sleep 0.1; done"
    task = 'setsid bash -c "$LEFT" > out 2>&1 & until [ -e left ]; do sleep 0.05; done'
    ran = gang.run(
        f"srun -N1 -n1 {options} bash -c '{task}' & pid=$!; until [ -e asked ]; do sleep 0.05; done; {then}; wait $pid",
        LEFT=left,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("then", "code", "said"),
    [
        ("kill -USR1 $!", 5, ""),
        ("kill -TERM $!", 143, "srun: forcing job termination\nsrun: Job step aborted: Waiting up to 32 seconds"),
        ("kill -INT $!; sleep 0.2; kill -INT $!", 130, "srun: interrupt (one more within 1 sec to abort)"),
        ("scancel 123.0", 143, "*** STEP 123.0 ON 127.0.0.1 CANCELLED AT"),
        ("scancel 123.0", 143, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"),
        ("scancel 123.0", 143, "srun: error: 127.0.0.1: task 0: Terminated\n"),
        ("scancel -s USR1 123.0", 5, ""),
        ("scancel -s USR1 123", 5, ""),
        ("srun -N1 -n1 -w node-2 -o none scancel -s USR1 123.0", 5, ""),
        ("scancel -s KILL 123.0", 137, ""),
    ],
)
def test_a_step_hears_signals_and_scancel(gang: SlurmGang, then: str, code: int, said: str) -> None:
    task = 'trap "exit 5" USR1; touch up.$SLURM_PROCID; while :; do sleep 0.1; done'
    ran = gang.run(
        f"srun -n2 -N2 bash -c '{task}' & pid=$!; until [ -e up.0 -a -e up.1 ]; do sleep 0.05; done; {then}; wait $pid"
    )
    assert ran.returncode in (code, 143) if "INT" in then else ran.returncode == code, ran.stderr
    assert said in ran.stderr


def test_a_step_does_not_hear_signals_that_srun_is_told_to_ignore(gang: SlurmGang) -> None:
    task = 'trap "exit 5" USR1; trap "exit 6" USR2; touch up; while :; do sleep 0.1; done'
    ran = gang.run(
        f"srun --ignore-signals=USR1,TERM -n1 -N1 bash -c '{task}' & pid=$!; until [ -e up ]; do sleep 0.05; done;"
        " kill -USR1 $pid; kill -TERM $pid; kill -USR2 $pid; wait $pid"
    )
    assert ran.returncode == 6, ran.stderr


def test_a_step_runs_on_the_nodes_that_a_file_lists(shared: SlurmGang) -> None:
    ran = shared.run("srun -F <(echo node-2; echo node-1) -N2 -n2 bash -c 'echo $SLURMD_NODENAME'; srun -F nosuch true")
    assert sorted(ran.stdout.splitlines()) == ["127.0.0.2", "127.0.0.3"]
    assert ran.stderr == "srun: error: Could not open file nosuch: No such file or directory\n"


def test_what_a_task_leaves_behind_ends_with_its_step(gang: SlurmGang) -> None:
    for keeps in (">/dev/null 2>&1", ""):
        ran = gang.run(f"srun -N1 -n1 bash -c 'setsid sleep 300 {keeps} & sleep 301 {keeps} & echo $!'")
        until(lambda pid=int(ran.stdout): registry.born_of(pid) == "")


def test_no_step_begins_in_a_job_that_is_being_stopped(gang: SlurmGang) -> None:
    slurm.begin_stop(str(gang.directory))
    ran = gang.run("srun true")
    assert (ran.returncode, "already completing" in ran.stderr) == (1, True)


def test_outside_of_a_job_every_command_says_so(shared: SlurmGang) -> None:
    for command in ("srun true", "scancel 1", "squeue", "sacct", "sbcast a b", "scontrol show job"):
        ran = shared.run(command, **{VARIABLE: ""})
        assert (ran.returncode, VARIABLE in ran.stderr) == (1, True), (command, ran.stderr)


@pytest.mark.parametrize(
    "command",
    ["srun --version", "scontrol -V", "scancel -V", "squeue -V", "sacct -V", "sbcast -V", "sbatch --version"],
)
def test_versions_are_shaped_like_slurms(shared: SlurmGang, command: str) -> None:
    assert re.fullmatch(r"slurm [0-9]+\.[0-9]+\.[0-9]+\n", shared.run(command).stdout)


def test_mpi_types_can_be_listed_and_one_that_is_not_there_is_said(shared: SlurmGang) -> None:
    assert "none" in shared.run("srun --mpi=list").stdout
    ran = shared.run("srun --mpi=pmix -n3 true")
    assert (ran.returncode, "srun: --mpi is ignored" in ran.stderr) == (0, True)


# The others


def test_the_components_of_a_heterogeneous_job_are_one_step(tmp_path: Path) -> None:
    gang = SlurmGang(tmp_path, 2, components=[1, 1])
    try:
        ran = gang.run("srun -l bash -c 'echo a$SLURM_PROCID' : bash -c 'echo b$SLURMD_NODENAME'")
        assert sorted(ran.stdout.splitlines()) == ["0: a0", "1: b127.0.0.2"], ran.stderr
        assert gang.run("srun -o a -e c sh -c 'echo a; echo c >&2' : -o b echo b").returncode == 0
        assert [(gang.folder / name).read_text() for name in "abc"] == ["a\n", "b\n", "c\n"]
    finally:
        gang.close()


def test_scontrol_shows_host_names_and_the_own_job(shared: SlurmGang) -> None:
    assert shared.run("scontrol show hostnames").stdout == "127.0.0.1\n127.0.0.2\n127.0.0.3\n"
    shown = shared.run("scontrol show job $SLURM_JOB_ID").stdout
    assert {f"WorkDir={shared.folder}", "Command=/home/ann/jobs/train.sbatch"} <= {
        line.strip() for line in shown.splitlines()
    }
    assert shared.run("squeue -h -o %o").stdout == "/home/ann/jobs/train.sbatch\n"
    assert "ClusterName             = main" in shared.run("scontrol show config").stdout
    assert "NodeName=127.0.0.2 " in shared.run("scontrol show node node-1").stdout
    assert "Reason=None Dependency=(null)" in shown
    assert shared.run("scontrol show job 5").stderr == "slurm_load_jobs error: Invalid job id specified\n"


@pytest.mark.parametrize(
    ("fields", "code"),
    [("JobId=$SLURM_JOB_ID Comment=epoch-3", 0), ("job=123 comment=x", 0), ("JobId=5 Comment=x", 1),
     ("Comment=x", 1), ("JobId=123 Comment=x TimeLimit=9", 1)],
)  # fmt: skip
def test_a_comment_of_the_own_job_is_taken_and_said_to_be_kept_nowhere(
    shared: SlurmGang, fields: str, code: int
) -> None:
    ran = shared.run(f"scontrol update {fields}")
    assert (ran.returncode, "Comment is not kept here" in ran.stderr) == (code, not code), ran.stderr


def test_squeue_and_sacct_know_this_job_and_its_steps(gang: SlurmGang) -> None:
    ran = gang.run(
        "squeue -j $SLURM_JOB_ID -h -o '%i %T %N'; squeue -j 5; srun -N1 -n1 bash -c 'exit 3';"
        f"srun -J named -n2 -N2 sleep 60 & {UNTIL_RUNNING};"
        " squeue -s -h -o '%i %j %N'; sacct -j 123 -n -P -o JobID,State,ExitCode;"
        " scancel 123.1; wait"
    )
    assert ran.stdout.splitlines() == [
        "123 RUNNING 127.0.0.[1-3]", "123.1 named 127.0.0.[1-2]", "123|RUNNING|0:0", "123.batch|RUNNING|0:0",
        "123.0|FAILED|3:0", "123.1|RUNNING|0:0",
    ]  # fmt: skip
    assert "slurm_load_jobs error: Invalid job id specified" in ran.stderr


def test_sbcast_brings_a_file_to_every_node_and_spares_one_that_is_there(shared: SlurmGang) -> None:
    (shared.folder / "program").write_bytes(bytes(range(256)) * 4096)
    (shared.folder / "program").chmod(0o755)
    ran = shared.run("sbcast -fp program copy && stat -c %a copy && cmp program copy && sbcast program copy")
    assert (ran.stdout, ran.returncode) == ("755\n", 1)
    assert ran.stderr.splitlines()[0] == "sbcast: error: copy: File exists"
    assert shared.run("sbcast program copy -f").returncode == 0


def test_sbcast_to_a_folder_that_nodes_share_gets_through_where_their_process_ids_are_the_same(tmp_path: Path) -> None:
    as_in_containers = f"import os; os.getpid = lambda: 7\n{sbcast.TAKE}"
    command = [sys.executable, "-c", as_in_containers, "copy", "1", str(0o640), "", ""]
    with contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(Popen(command, cwd=tmp_path, stdin=PIPE)) for _ in range(2)]
        until(lambda: len(list(tmp_path.iterdir())) == 2)  # both have begun
        for node in nodes:
            node.communicate(b"same", timeout=10)
    assert [node.returncode for node in nodes] == [0, 0]
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("copy", b"same")]


def test_module_says_once_that_it_does_nothing(gang: SlurmGang) -> None:
    ran = gang.run("set -e; module purge; module load cuda/12")
    assert (ran.returncode, len(ran.stderr.splitlines())) == (0, 1)


@pytest.mark.parametrize(
    ("command", "kind"),
    [("scontrol requeue $SLURM_JOB_ID", "requeue"), ("scontrol hold 123", "hold"), ("scancel 123", "cancel")],
)
def test_the_operator_is_asked_for_the_own_job_alone(gang: SlurmGang, command: str, kind: str) -> None:
    operator = Operator(gang, {"ok": True, "words": ""})
    ran = gang.run(command)
    assert (ran.returncode, operator.asked) == (0, {"kind": kind, "body": {}}), ran.stderr
    assert list(operator.folder.iterdir()) == []
    assert gang.run(command.replace("$SLURM_JOB_ID", "5").replace("123", "5")).returncode == 1


def test_scancel_leaves_a_job_alone_that_its_filters_do_not_fit(gang: SlurmGang) -> None:
    ran = gang.run(
        "sleep 60 & echo $$ > $LOCKSTEP_STEPS_DIR/shell; scancel --me -q other; scancel --me -t PENDING 123;"
        " scancel -A other -b -s KILL 123; scancel -R r -f -s KILL --me; kill $!; echo alive"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "alive\n", "")


def test_what_the_operator_refuses_is_said(gang: SlurmGang) -> None:
    Operator(gang, {"ok": False, "words": "Job is not to be run again"})
    ran = gang.run("scontrol requeue 123")
    assert (ran.returncode, ran.stderr) == (1, "Job is not to be run again for job 123\n")


def test_sbatch_asks_the_operator_for_another_job(gang: SlurmGang) -> None:
    (gang.folder / "next.sh").write_text("#!/bin/bash\ntrue\n")
    operator = Operator(gang, {"ok": True, "words": "", "jobId": 124})
    ran = gang.run("sbatch --dependency=afterok:123 -o next.out next.sh a 'b c'", SBATCH_PARTITION="gpu")
    assert (ran.stdout, ran.returncode) == ("Submitted batch job 124\n", 0), ran.stderr
    clock = [operator.asked["body"].pop(name) for name in ("now", "utc_offset")]
    assert clock[0] == pytest.approx(time.time(), abs=600)
    assert clock[1] == time.localtime(clock[0]).tm_gmtoff
    assert operator.asked == {
        "kind": "submit",
        "body": {
            "options": ["--dependency=afterok:123", "--output=next.out"], "script": "#!/bin/bash\ntrue\n",
            "name": "next.sh", "command": "next.sh", "arguments": ["a", "b c"], "directory": str(gang.folder),
            "environment": {"SBATCH_PARTITION": "gpu"}, "variables": {},
        },
    }  # fmt: skip
    operator = Operator(gang, {"ok": True, "words": "", "jobId": 125})
    assert gang.run("sbatch --parsable --wrap 'echo x'").stdout == "125\n"
    assert (operator.asked["body"]["options"], operator.asked["body"]["script"]) == (
        ["--parsable", "--wrap=echo x"],
        "",
    )
    assert "does not look like a batch script" in gang.run("echo x > n; sbatch n").stderr
    large = gang.run("(echo '#!/bin/sh'; head -c 60000 /dev/zero | tr '\\0' x) > l; sbatch l")
    assert (large.returncode, "larger than" in large.stderr) == (1, True)


def test_sbatch_takes_the_variables_along_that_export_names_and_says_what_has_no_effect(gang: SlurmGang) -> None:
    (gang.folder / "next.sh").write_text("#!/bin/bash\n#SBATCH --export=ALL,RUN,MISSING\ntrue\n")
    environ = {"STEP": "2", "RUN": "a", "OTHER": "o", "LIST": "l", "SBATCH_EXPORT": "LIST"}
    operator = Operator(gang, {"ok": True, "words": "--cpu-freq high: no\npath /x: is lost", "jobId": 124})
    ran = gang.run("sbatch --cpu-freq=high --export=STEP,NEW=1 next.sh", **environ)
    assert (ran.stdout, ran.returncode) == ("Submitted batch job 124\n", 0)
    assert ran.stderr == "sbatch: --cpu-freq high: no\nsbatch: path /x: is lost\n"
    assert operator.asked["body"]["variables"] == {"STEP": "2", "RUN": "a", "LIST": "l"}
    operator = Operator(gang, {"ok": True, "words": "not shown", "jobId": 125})
    assert gang.run("sbatch -Q --export=NONE next.sh", **environ).stderr == ""
    (gang.folder / "next.sh").write_text("#!/bin/bash\n#SBATCH --export='RUN\n")
    operator = Operator(gang, {"ok": False, "words": "Unmatched"})
    assert "Unmatched" in gang.run("sbatch next.sh", **environ).stderr
    assert operator.asked["body"]["variables"] == {"LIST": "l"}


def test_only_this_launcher_has_them() -> None:
    assert [launcher for launcher, names in SHIMS.items() if "srun" in names] == ["Slurm"]
