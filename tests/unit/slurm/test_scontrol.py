"""scontrol within a job."""

import pytest

from lockstep.slurm.environment import Array, SlurmJob
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.scontrol import Printed, ScontrolCommand, answer, parse, show_config, show_job, version

LIST = {"SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    ("arguments", "ask"),
    [
        (["show", "job", "123"], ScontrolCommand("show", "jobs", "123")),
        (["show", "JobId=123"], ScontrolCommand("show", "jobs", "123")),
        (["show", "job=123"], ScontrolCommand("show", "jobs", "123")),
        (["-o", "show", "job", "123_4"], ScontrolCommand("show", "jobs", "123_4", one_line=True)),
        (["show", "jobid", "-dd", "123"], ScontrolCommand("show", "jobs", "123")),
        (["show", "job", "123", "-o"], ScontrolCommand("show", "jobs", "123", one_line=True)),
        (["show", "config"], ScontrolCommand("show", "config")),
        (["sho", "nod"], ScontrolCommand("show", "nodes")),
        (["requeue", "123"], ScontrolCommand("requeue", argument="123")),
        (["requeue", "123_4"], ScontrolCommand("requeue", argument="123_4")),
        (["hold", "1", "2"], ScontrolCommand("hold", argument="1,2")),
        (
            ["update", "JobId=123", "TimeLimit=10"],
            ScontrolCommand("update", fields={"jobid": "123", "timelimit": "10"}),
        ),
        (["--version"], ScontrolCommand("version")),
        (["-V"], ScontrolCommand("version")),
    ],
)
def test_commands_are_understood_with_their_abbreviations(arguments: list[str], ask: ScontrolCommand) -> None:
    assert parse(arguments) == ask


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "host", "n1"], "invalid entity:host for keyword:show"),  # Slurm too wants five letters
        (["show", "hostlist", "n1", "n2"], "too many arguments for keyword:show"),
        (["show"], "too few arguments for keyword:show"),
        (["requeue"], "too few arguments for keyword:requeue"),
        (["frobnicate", "1"], "invalid keyword: frobnicate"),
        ([], "there is no terminal"),
    ],
)
def test_others_are_refused_in_its_words(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(arguments)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(OptionError):
        parse(["--bogus", "show", "job"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "hostnames", "n[1-2],m"], Printed(0, "n1\nn2\nm\n")),
        (["show", "hostname", "n[2,1]"], Printed(0, "n2\nn1\n")),  # the order is kept
        (["show", "hostn", "n1"], Printed(0, "n1\n")),
        (["show", "HostNames", "n1"], Printed(0, "n1\n")),
        (["show", "hostnames=n[1-2]"], Printed(0, "n1\nn2\n")),
        (["show", "hostnames"], Printed(0, "n1\nn2\n")),
        (["show", "hostnames", "n[2-1]"], Printed(1, err="Invalid hostlist: n[2-1]\n")),
        (["show", "hostlist", "n3,n1,n2"], Printed(0, "n[3,1-2]\n")),
        (["show", "hostlistsorted", "n3,n10,n1,n2"], Printed(0, "n[1-3,10]\n")),
        (["show", "hostlist"], Printed(1, err="Hostlist is NULL\n")),
    ],
)
def test_lists_of_hosts_need_nobody(arguments: list[str], said: Printed) -> None:
    assert answer(parse(arguments), LIST) == said


def test_without_a_list_outside_of_a_job_there_is_none() -> None:
    assert answer(parse(["show", "hostnames"]), {}) == Printed(1, err="scontrol: error: host list is empty\n")


def test_what_others_know_is_left_to_them() -> None:
    assert answer(parse(["show", "job", "1"]), LIST) is None
    assert answer(parse(["requeue", "1"]), LIST) is None


def test_versions_are_compared_by_clients_so_slurms_stands_there() -> None:
    words = version().split()
    assert words[0] == "slurm"
    assert [part.isdigit() for part in words[1].split(".")] == [True] * 3
    assert answer(parse(["version"]), {}) == Printed(0, version())


JOB = SlurmJob(
    123, ["n1", "n2"], [72, 72], 8, "train", "ann", 1000, "gpu", "main", "/home/ann", "login", 1_796_112_000,
    1_796_115_600, {"cpus-per-task": "12"}, ntasks=16, account="lab", restarts=1, gid=100, group="lab",
    array=Array(120, 3, 10, 0, 9),
)  # fmt: skip


def test_a_job_is_shown_by_the_keys_that_people_look_for() -> None:
    outputs = ("/home/ann/out", "/home/ann/err", "/dev/null")
    text = show_job(JOB, "RUNNING", "/home/ann/job.sh", outputs, 1_796_112_065)
    lines = text.splitlines()
    assert lines[0] == "JobId=123 ArrayJobId=120 ArrayTaskId=3 JobName=train"
    assert all(line.startswith("   ") for line in lines[1:-1])
    assert lines[-1] == ""
    for row in (
        "UserId=ann(1000) GroupId=lab(100) MCS_label=N/A", "Command=/home/ann/job.sh", "WorkDir=/home/ann",
        "StdOut=/home/ann/out", "StdErr=/home/ann/err", "StdIn=/dev/null", "NodeList=n[1-2]", "BatchHost=n1",
        "RunTime=00:01:05 TimeLimit=01:00:00 TimeMin=N/A",
        "StartTime=2026-12-01T08:00:00 EndTime=2026-12-01T09:00:00 Deadline=N/A",
        "NumNodes=2 NumCPUs=144 NumTasks=16 CPUs/Task=12 ReqB:S:C:T=0:0:*:*",
    ):  # fmt: skip
        assert f"   {row}" in lines
    elsewhere = show_job(JOB._replace(work_dir="/scratch"), "RUNNING", "x", outputs, 1_796_112_065)
    assert "   WorkDir=/scratch" in elsewhere.splitlines()
    one_line = show_job(JOB, "RUNNING", "x", outputs, 1_796_112_065, one_line=True)
    assert one_line.split() == show_job(JOB, "RUNNING", "x", outputs, 1_796_112_065).split()
    assert one_line.count("\n") == 1


def test_the_configuration_has_what_clients_read() -> None:
    rows = dict(line.split("=", 1) for line in show_config("main", 86_400).splitlines())
    assert {name.strip(): value.strip() for name, value in rows.items()}.items() >= {
        "ClusterName": "main", "MinJobAge": "300 sec", "MaxJobTime": "1-00:00:00",
    }.items()  # fmt: skip


@pytest.mark.parametrize(("said", "row"), [({}, "Requeue=1 "), ({"no-requeue": ""}, "Requeue=0 ")])
def test_a_job_that_must_not_run_twice_is_shown_as_such(said: dict[str, str], row: str) -> None:
    assert f"\n   {row}" in show_job(JOB._replace(said=said), "RUNNING", "x", ("", "", ""), 0)


@pytest.mark.parametrize(
    ("array", "row"),
    [("0-9%2", " ArrayTaskThrottle=2 "), ("[0-9%2]", " ArrayTaskThrottle=2 "), ("0-9", ""), ("0-9%x", ""), ("", "")],
)
def test_how_many_tasks_of_its_array_run_at_once_is_shown_where_that_was_said(array: str, row: str) -> None:
    [first, *_] = show_job(JOB._replace(said={"array": array}), "RUNNING", "x", ("", "", ""), 0).splitlines()
    assert first == f"JobId=123 ArrayJobId=120 ArrayTaskId=3{row or ' '}JobName=train"
