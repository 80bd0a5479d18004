"""squeue's command line and lines, of one job."""

from typing import Any

import pytest

from lockstep.slurm.environment import Array, SlurmJob
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.squeue import clock, fits, header, job_line, parse, step_line

JOB = SlurmJob(
    123, ["10.9.0.1", "10.9.0.2"], [72, 72], 8, "train", "ann", 1000, "gpu", "main", "/home/ann", "login", 1000, 4600
)
RUNNING = ("R", "RUNNING")


def line(*arguments: str, job: SlurmJob = JOB, now: int = 1061, **environ: str) -> str:
    return job_line(parse(arguments, environ), job, RUNNING, "/home/ann/train.sh", now)


def test_the_usual_columns_are_those_of_slurm() -> None:
    assert (
        header(parse([], {})) == "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    )
    assert line() == "               123       gpu    train      ann  R       1:01      2 10.9.0.[1-2]"
    assert line(SQUEUE_FORMAT="%i") == "123"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-j", "123", "-h", "-o", "%N"], "10.9.0.[1-2]"),
        (["-j123", "-o", "%i %T %D %C %Z"], "123 RUNNING 2 144 /home/ann"),
        (["--jobs=123", "-O", "JobID:,State:"], "123RUNNING"),
        (["-l"], "               123       gpu    train      ann  RUNNING       1:01   1:00:00      2 10.9.0.[1-2]"),
        (["--only-job-state"], "123 RUNNING"),
        (["-o", "%L %b %a %q %v"], "58:59 gres/gpu:8 (null) (null) (null)"),
    ],
)
def test_a_format_chooses_columns(arguments: list[str], text: str) -> None:
    assert line(*arguments) == text


def test_the_directory_is_the_one_in_which_the_script_starts() -> None:
    assert line("-o", "%Z", job=JOB._replace(work_dir="/scratch")) == "/scratch"


def test_of_an_array_ids_have_two_parts() -> None:
    job = JOB._replace(array=Array(120, 3, 4, 0, 3), end_time=0)
    assert line("-o", "%i %A %F %K %l %e", job=job) == "120_3 123 120 3 UNLIMITED N/A"


def test_steps_have_lines_of_their_own() -> None:
    queue = parse(["-s", "-h", "-o", "%i %j %N"], {})
    assert (queue.steps, queue.header, queue.jobs) == (True, False, [])
    assert step_line(queue, JOB, 4, "bash", JOB.nodes, 3) == "123.4 bash 10.9.0.[1-2]"
    assert header(parse(["-s", "123.4"], {})).split()[0] == "STEPID"


@pytest.mark.parametrize(
    ("arguments", "fit"),
    [
        ([], True), (["-u", "ann"], True), (["-u", "1000,bob"], True), (["-u", "bob"], False), (["-n", "train"], True),
        (["-t", "running"], True), (["-t", "PD"], False), (["-p", "cpu"], False), (["-w", "node-1"], True),
        (["-w", "node-7"], False), (["-t", "all"], True),
    ],
)  # fmt: skip
def test_filters_leave_out_what_does_not_fit(arguments: list[str], fit: bool) -> None:
    assert fits(parse(arguments, {}), JOB, [["10.9.0.1", "node-0"], ["10.9.0.2", "node-1"]]) is fit


@pytest.mark.parametrize("arguments", [["word"], ["--json"], ["-j", "1", "2"], ["--nope"]])
def test_what_is_not_known_is_refused(arguments: list[str]) -> None:
    with pytest.raises(OptionError, match=r"squeue: "):
        parse(arguments, {})


@pytest.mark.parametrize(("span", "text"), [(-5, "0:00"), (61, "1:01"), (3661, "1:01:01"), (90_061, "1-01:01:01")])
def test_times_have_no_more_digits_than_they_need(span: int, text: Any) -> None:
    assert clock(span) == text
