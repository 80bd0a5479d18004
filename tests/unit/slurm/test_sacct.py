"""sacct's command line and rows, of one job and its steps."""

import pytest

from lockstep.slurm.environment import Array, SlurmJob
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.sacct import AccountedStep, lines, parse

JOB = SlurmJob(
    123, ["10.9.0.1", "10.9.0.2"], [72, 72], 8, "train", "ann", 1000, "gpu", "main", "/home/ann", "login", 1000, 0
)
STEPS = [
    AccountedStep("0", "bash", ["10.9.0.1"], 1, 1000, 1010, "FAILED", 7),
    AccountedStep("1", "python", ["10.9.0.1", "10.9.0.2"], 16, 1020, 0, "RUNNING"),
]


def rows(*arguments: str, job: SlurmJob = JOB) -> list[str]:
    return lines(parse(arguments, {}), job, "RUNNING", STEPS, 1061)


def test_the_usual_columns_are_those_of_slurm() -> None:
    assert rows()[:3] == [
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode ",
        "------------ ---------- ---------- ---------- ---------- ---------- -------- ",
        "123               train        gpu                   144    RUNNING      0:0 ",
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["-n", "-P", "-j", "123", "-o", "JobID,State"],
            ["123|RUNNING", "123.batch|RUNNING", "123.0|FAILED", "123.1|RUNNING"],
        ),
        (["-n", "-p", "-X", "-o", "jobidraw,state,nodelist"], ["123|RUNNING|10.9.0.[1-2]|"]),
        (["-nP", "-j", "123.0", "--format=JobID,ExitCode,Elapsed"], ["123.0|7:0|00:00:10"]),
        (["-n", "-X", "-o", "State%4"], ["RUN+ "]),
        (["-n", "-X", "-o", "nodelist%-20"], ["10.9.0.[1-2]         "]),
        (["-nXP", "-o", "DerivedExitCode", "--delimiter=;"], ["7:0"]),
        (["-n", "-j", "124"], []),
        (["-n", "--name=other"], []),
        (["-nXP", "-o", "JobID", "-s", "running"], ["123"]),
        (["-nXP", "-o", "JobID,MaxRSS,AllocTRES,State"], ["123|||RUNNING"]),
        (["-nX", "-o", "maxrss,State"], ["              RUNNING "]),
        (["-XP", "-o", "JobIDRaw,CPUTimeRAW,TRESUsageInMaxNode"], ["JobIDRaw|CPUTimeRAW|TRESUsageInMaxNode", "123||"]),
    ],
)  # fmt: skip
def test_options_choose_rows_and_columns(arguments: list[str], expected: list[str]) -> None:
    assert rows(*arguments) == expected


def test_the_directory_is_the_one_in_which_the_script_starts() -> None:
    assert rows("-nPX", "-o", "WorkDir", job=JOB._replace(work_dir="/scratch")) == ["/scratch"]


def test_of_an_array_ids_have_two_parts() -> None:
    job = JOB._replace(array=Array(120, 3, 4, 0, 3))
    assert rows("-nPX", "-j", "120_3", "-o", "JobID,JobIDRaw", job=job) == ["120_3|123"]
    assert rows("-nP", "-j", "120", "-o", "JobID,JobIDRaw", job=job)[2:] == ["120_3.0|123.0", "120_3.1|123.1"]


@pytest.mark.parametrize("arguments", [["-o", "Nope"], ["--json"], ["word"]])
def test_what_is_not_known_is_refused(arguments: list[str]) -> None:
    with pytest.raises(OptionError, match="sacct: "):
        parse(arguments, {})
