"""A batch script in the life of workers: two of one gang, as real processes, against a fake operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.fake_operator import FakeOperator
from harness.proc import is_alive
from harness.running_worker import until
from support.worker_gang import Workers

pytestmark = pytest.mark.process


class BatchJob(Workers):
    """A job of two nodes."""

    def __init__(self, directory: Path, operator: FakeOperator, **environ: str) -> None:
        super().__init__(directory, operator, ["slurm_script"], LOCKSTEP_LAUNCHER="Slurm", **environ)
        self.folder = directory / "work"
        self.folder.mkdir()

    def submit(
        self, script: str, *arguments: str, attempt: int = 1, said: dict[str, str] | None = None, **batch: Any
    ) -> None:
        nodes = [f"127.0.0.{rank + 1}" for rank in range(len(self.nodes))]
        job = {
            "id": 123, "nodes": nodes, "cpus": [4] * len(nodes), "gpus": 0, "name": "train", "user": "ann", "uid": 1000,
            "partition": "gpu", "cluster": "main", "submit_dir": str(self.folder), "submit_host": "login",
            "start_time": 1_700_000_000, "end_time": 0, "said": said or {}, "restarts": attempt - 1,
        }  # fmt: skip
        given = {
            "job": job, "words": [[f"node-{rank}"] for rank in range(len(nodes))], "arguments": list(arguments),
            "directory": str(self.folder), **batch,
        }  # fmt: skip
        own = {slot: {"batch": {**given, **({"script": script} if slot == 0 else {})}} for slot in range(len(nodes))}
        self.start(attempt, own=own)

    def ended(self, attempt: int = 1) -> dict[str, Any]:
        return dict(self.exited(0, attempt)["exit"])

    def output(self, name: str = "slurm-123.out") -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def job(tmp_path: Path, operator: FakeOperator) -> Iterator[BatchJob]:
    made = BatchJob(tmp_path, operator)
    yield made
    for node in made.nodes:
        node.kill()


def test_the_script_runs_on_the_first_node_as_a_copy_with_its_arguments(job: BatchJob) -> None:
    job.submit(
        "#!/bin/bash\n#SBATCH -N2\necho $(basename $0) \"$@\" $PWD $SLURM_JOB_ID $SLURM_JOBID ${SLURM_STEP_ID-none}\n"
        "[ $SLURM_TASK_PID = $$ ] && echo pid; echo ${PET_NNODES-none} ${MASTER_ADDR-none} >&2\n"
        "yes | head -1\nsrun -l bash -c 'echo $SLURM_PROCID $SLURM_STEP_ID $PWD'\n",
        "a", "b c",
    )  # fmt: skip
    assert job.ended()["code"] == 0
    lines = job.output().splitlines()
    assert lines[:4] == [f"slurm_script a b c {job.folder} 123 123 none", "pid", "none none", "y"]
    assert sorted(lines[4:]) == [f"0: 0 0 {job.folder}", f"1: 1 0 {job.folder}"]
    assert job.nodes[0].out.read_text() == job.output(), "the log has it, too"


@pytest.mark.parametrize(
    ("batch", "out", "err"),
    [
        ({}, "slurm-123.out", "slurm-123.out"),
        ({"output": "%x-%j.out", "error": "%x.err"}, "train-123.out", "train.err"),
        ({"output": "logs"}, "logs", "logs"),
    ],
    ids=["by default", "apart", "together"],
)
def test_output_goes_to_the_files_that_were_said(job: BatchJob, batch: dict[str, str], out: str, err: str) -> None:
    (job.folder / out).write_text("before\n")
    job.submit("#!/bin/sh\nfor n in 1 2 3; do echo o$n; echo e$n >&2; done; exit 3\n", **batch)
    ended = job.ended()
    assert ended["code"] == 3
    if out == err:
        assert job.output(out) == ended["stderrTail"] == "o1\ne1\no2\ne2\no3\ne3\n", "in order"
    else:
        assert (job.output(out), job.output(err), ended["stderrTail"]) == ("o1\no2\no3\n", *["e1\ne2\ne3\n"] * 2)


def test_output_is_added_where_that_was_said_and_input_is_read(job: BatchJob) -> None:
    (job.folder / "log").write_text("before\n")
    (job.folder / "words").write_text("typed\n")
    job.submit("#!/bin/sh\ncat\n", output="log", append=True, input="words")
    assert (job.ended()["code"], job.output("log")) == (0, "before\ntyped\n")


def test_a_file_that_cannot_be_written_costs_nobody_the_run(job: BatchJob) -> None:
    job.submit("#!/bin/sh\necho hello\n", output="/proc/nothing/out")
    assert job.ended()["code"] == 0
    assert job.nodes[0].out.read_text() == "hello\n"
    assert "the script's output is in this log alone, as /proc/nothing/out cannot be written" in job.nodes[0].stderr()


@pytest.mark.parametrize(
    ("script", "batch", "code", "words"),
    [
        ("#!/no/shell\n", {}, 127, "/no/shell, which runs the script: No such file or directory"),
        ("#!/bin/sh\n", {"directory": "/no/folder", "output": "/dev/null"}, 127, "couldn't chdir to `/no/folder'"),
        ("#!/bin/sh\n", {"input": "nothing"}, 127, "could not open stdin file"),
    ],
    ids=["interpreter", "directory", "input"],
)
def test_what_a_script_lacks_is_named(job: BatchJob, script: str, batch: dict[str, str], code: int, words: str) -> None:
    job.submit(script, **batch)
    ended = job.ended()
    assert (ended["code"], words in ended["stderrTail"]) == (code, True), ended


def test_a_new_attempt_runs_the_script_from_its_start_and_knows_its_number(job: BatchJob) -> None:
    script = "#!/bin/sh\necho ${SLURM_RESTART_COUNT-none} >> counts\n[ ${SLURM_RESTART_COUNT:-0} = 1 ] || exit 1\n"
    job.submit(script)
    assert job.ended()["code"] == 1
    job.submit(script, attempt=2)
    assert job.ended(2)["code"] == 0
    assert job.output("counts") == "none\n1\n"


def test_at_a_stop_the_shell_outlives_what_it_waits_for_and_begins_nothing_else(job: BatchJob) -> None:
    task = 'trap "sleep 1; echo saved >> end; exit 0" TERM; touch up.$SLURM_PROCID; while :; do sleep 0.1; done'
    job.submit(
        f"#!/bin/bash\ntrap 'echo shell >> end; exit 1' TERM\nsrun bash -c '{task}'\n"
        "srun -N1 -n1 touch next\nsleep 100\n"
    )
    until(lambda: all((job.folder / f"up.{rank}").exists() for rank in range(2)))
    began = time.monotonic()
    job.operator.desire("Stop", 1, world=2, stopGraceSeconds=40)
    assert job.ended()["reason"] == "StoppedOnRequest"
    assert time.monotonic() - began < 30, "not at the end of its grace"
    assert job.output("end").splitlines() == ["saved", "saved", "shell"]
    assert not (job.folder / "next").exists()


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\n{} 2>&1 | tee train.log\n",
        "#!/bin/bash\nexec > >(tee train.log) 2>&1\n{}\n",
        "#!/bin/bash\n{} 2>&1 | while read line; do echo $line; done | tee train.log\n",
    ],
    ids=["a pipe", "the script's own", "a chain"],
)
@pytest.mark.parametrize("launcher", ["srun ", ""], ids=["srun", "by itself"])
def test_who_reads_the_output_of_a_program_that_saves_outlives_it(job: BatchJob, script: str, launcher: str) -> None:
    says = "for n in 1 2 3 4 5 6; do sleep 0.1; echo saves \\$n || exit 1; done"
    task = f'trap "{says}; touch saved; exit 0" TERM; touch up; while :; do sleep 0.1; done'
    job.submit(script.format(f"{launcher}bash -c '{task}'"))
    until((job.folder / "up").exists)
    job.operator.desire("Stop", 1, world=2, stopGraceSeconds=40)
    assert job.ended()["reason"] == "StoppedOnRequest"
    assert (job.folder / "saved").exists()
    assert "saves 6" in job.output("train.log")


def test_at_a_stop_output_that_nobody_reads_ends_no_save(job: BatchJob) -> None:
    says = "for n in 1 2 3 4 5 6; do sleep 0.1; echo saves || exit 1; done"
    task = f'trap "{says}; touch saved.$SLURM_PROCID; exit 0" TERM; echo up; while :; do sleep 0.1; done'
    job.submit(f"#!/bin/bash\nsrun -n2 bash -c '{task}' | (head -2; touch up)\n")
    until((job.folder / "up").exists)
    job.operator.desire("Stop", 1, world=2, stopGraceSeconds=40)
    assert job.ended()["reason"] == "StoppedOnRequest"
    assert [(job.folder / f"saved.{rank}").exists() for rank in range(2)] == [True, True]


def test_a_program_below_a_shell_that_traps_nothing_has_time_to_save(job: BatchJob) -> None:
    program = "trap 'sleep 1; touch saved; exit 0' TERM; touch up; while :; do sleep 0.1; done"
    job.submit(f'#!/bin/bash\nbash -c "{program}"\nsleep 100\n')
    until((job.folder / "up").exists)
    job.operator.desire("Stop", 1, world=2, stopGraceSeconds=40)
    assert job.ended()["reason"] == "StoppedOnRequest"
    assert (job.folder / "saved").exists()


@pytest.mark.parametrize(
    ("said", "who"), [("USR1@60", "task 0\ntask 1\n"), ("B:USR1@60", "shell\n")], ids=["steps", "the shell alone"]
)
def test_the_signal_before_the_end_reaches_whom_it_is_for(
    tmp_path: Path, operator: FakeOperator, said: str, who: str
) -> None:
    config = '{"format": "Auto", "signal": "SIGUSR1"}'
    job = BatchJob(tmp_path, operator, LOCKSTEP_CHECKPOINT_CONFIG=config)
    try:
        task = 'trap "echo task $SLURM_PROCID >> $PWD/heard" USR1; touch up.$SLURM_PROCID; while :; do sleep 0.1; done'
        script = f"#!/bin/bash\ntrap 'echo shell >> heard' USR1\nsrun bash -c '{task}' &\nwait; wait\n"
        job.submit(script, said={"signal": said})
        until(lambda: all((job.folder / f"up.{rank}").exists() for rank in range(2)))
        start = job.state(0, lambda state: state["phase"] == "Running")["start"]
        save = {"id": "s1", "atStep": 0, "deadline": time.time() + 60}
        job.operator.desire("Run", 1, world=2, start=start, save=save)
        until(lambda: (job.folder / "heard").exists() and len(job.output("heard")) == len(who))
        time.sleep(0.5)  # whoever else got it would say so
        assert "".join(sorted(job.output("heard").splitlines(keepends=True))) == who
    finally:
        for node in job.nodes:
            node.kill()


def test_a_requeue_is_asked_until_it_is_answered_and_the_end_is_no_completion(job: BatchJob) -> None:
    job.submit("#!/bin/bash\nscontrol requeue $SLURM_JOB_ID && echo agreed\nexit 0\n")
    asked = job.state(0, lambda state: state.get("asks"))["asks"]
    assert [(row["kind"], row["body"]) for row in asked] == [("requeue", {})]
    start = job.state(0, lambda state: state["phase"] == "Running")["start"]
    job.operator.desire("Run", 1, world=2, start=start, asked=[{"id": asked[0]["id"], "ok": True, "words": ""}])
    ended = job.exited(0)
    assert (ended["exit"]["code"], ended["exit"]["reason"], ended.get("asks")) == (0, "StoppedOnRequest", None)
    assert job.output() == "agreed\n"


def test_what_nobody_can_ask_for_is_not_told(job: BatchJob) -> None:
    job.submit(
        '#!/bin/bash\ncd $(dirname $LOCKSTEP_STEPS_DIR)/asks; echo \'{"kind": "root", "body": {}}\' > x.json\n'
        "head -c 100000 /dev/zero > y.json; mkfifo z.json\n"
        "while [ -e x.json -o -e y.json -o -e z.json ]; do sleep 0.05; done\n"
    )
    assert job.ended()["code"] == 0
    assert not any(state.get("asks") for state in job.operator.states())


def test_an_srun_that_is_killed_takes_its_step_along(job: BatchJob, tmp_path: Path) -> None:
    job.submit(
        "#!/bin/bash\nsrun bash -c 'echo $$ > pid.$SLURM_PROCID; exec sleep 300' &\n"
        "until [ -s pid.1 ]; do sleep 0.05; done\nkill -9 $!; wait $!; echo $?\n"
    )
    assert job.ended()["code"] == 0
    pid = int(job.output("pid.1"))
    until(lambda: not is_alive(pid))


def test_a_job_that_is_not_understood_ends_the_attempt_and_not_the_worker(job: BatchJob) -> None:
    job.submit("#!/bin/sh\n", words=[["one"]])
    assert (job.ended()["code"], job.ended()["reason"]) == (125, "ProcessNotStarted")
    assert all(node.process.poll() is None for node in job.nodes)


def test_scancel_reaches_the_shell(job: BatchJob) -> None:
    job.submit("#!/bin/bash\ntrap 'echo got; exit 4' USR2\nscancel -b -s USR2 $SLURM_JOB_ID & wait; wait\nsleep 5\n")
    assert (job.ended()["code"], job.output()) == (4, "got\n")
