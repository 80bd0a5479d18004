"""What a batch job asks for, and what becomes of each option: table tests for every one of them."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.slurm import times
from lockstep.slurm.getopt import OptionError
from lockstep.slurm.handling import HOLDS, IGNORED, MAPPED, REFUSED, SUPPORTED
from lockstep.slurm.signals import Notice
from lockstep.slurm.submission.batch import Batch, BatchRequest, batches
from lockstep.slurm.submission.dependencies import Dependencies, JobDependency
from lockstep.slurm.submission.directives import directives
from lockstep.slurm.submission.options import ENVIRONMENT, HANDLING, OPTIONS


def batch(*arguments: str, **more: Any) -> Batch:
    [made] = batches(directives("job.sh", "#!/bin/sh\n"), {}, [*arguments, "job.sh"], **more)
    assert made.arguments == ["job.sh"]
    return made


def request(*arguments: str) -> BatchRequest:
    made = batch(*arguments)
    assert not made.refusals
    return made.request


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["-J", "a b"], {"job_name": "a b"}),
        (["-N", "4"], {"nodes": 4, "most_nodes": 4}),
        (["-N", "2-8"], {"nodes": 2, "most_nodes": 8}),
        (["-N1k"], {"nodes": 1024, "most_nodes": 1024}),
        (["-p", "gpu,debug"], {"partitions": ("gpu", "debug")}),
        (["-w", "n[1-2],m"], {"nodelist": ("n1", "n2", "m"), "nodes": 3}),
        (["-x", "n[1-2]"], {"exclude": ("n1", "n2"), "nodes": 1}),
        (["-t", "90"], {"time_limit": 5400}),
        (["-t", "1-12:00"], {"time_limit": 129_600}),
        (["-t", "UNLIMITED"], {"time_limit": times.UNLIMITED}),
        (["--time-min=30"], {"time_min": 1800}),
        (["--deadline=18:00"], {"deadline": "18:00"}),
        (["-b", "now+2hours"], {"begin": "now+2hours"}),
        (["-d", "afterok:12:13_4,singleton"], {
            "dependency": Dependencies((JobDependency("afterok", "12"), JobDependency("afterok", "13_4")), True)}),
        (["-d", "after:12+5"], {"dependency": Dependencies((JobDependency("after", "12", 5),))}),
        (["-d", "aftercorr:12"], {"dependency": Dependencies((JobDependency("aftercorr", "12"),))}),
        (["-a", "0-9%2"], {"array": "0-9%2"}),
        (["-H"], {"hold": True}),
        (["--nice"], {"nice": 100}),
        (["--nice=5"], {"nice": 5}),
        (["-q", "high"], {"qos": "high"}),
        (["--gpus-per-node=8"], {"gpus_per_node": 8, "gpu_types": ()}),
        (["--gpus-per-node=h100:8"], {"gpus_per_node": 8, "gpu_types": ("h100",)}),
        (["--gres=gpu:8"], {"gpus_per_node": 8}),
        (["--gres=gpu:h100:8"], {"gpus_per_node": 8, "gpu_types": ("h100",)}),
        (["--gres=gpu"], {"gpus_per_node": 1}),
        (["--gres=gpu:h100"], {"gpus_per_node": 1, "gpu_types": ("h100",)}),
        (["--gres=none"], {"gpus_per_node": None}),
        (["-N2", "-G", "16"], {"gpus_per_node": 8}),
        (["-N2", "--gpus=a100:16"], {"gpus_per_node": 8, "gpu_types": ("a100",)}),
        (["--gpus-per-task=1", "--ntasks-per-node=8"], {"gpus_per_node": 8}),
        (["-N2", "-n16", "--gpus-per-task=1"], {"gpus_per_node": 8}),
        (["--tres-per-task=gres/gpu:2", "--ntasks-per-node=4"], {"gpus_per_node": 8}),
        (["--tres-per-task=cpu:4,gres/gpu:1", "--ntasks-per-node=8"], {"gpus_per_node": 8, "cpus_per_task": 4}),
        (["--tres-per-task=cpu=4"], {"gpus_per_node": None, "cpus_per_task": 4}),
        (["--gres=gpu:a100:4,gpu:a100:4"], {"gpus_per_node": 8, "gpu_types": ("a100",)}),
        (["--gres=gpu:8", "--gpus-per-node=8"], {"gpus_per_node": 8}),
        (["-N2", "--gpus=16", "--ntasks-per-gpu=1"], {"gpus_per_node": 8, "ntasks": 16}),
        (["-N2", "--gres=gpu:4", "--ntasks-per-tres=2"], {"gpus_per_node": 4, "ntasks": 16}),
        (["-N2", "-n16", "--ntasks-per-gpu=2"], {"gpus_per_node": 4, "ntasks": 16}),
        (["-N2", "-n10", "--gres=gpu:8", "--ntasks-per-gpu=1"], {"gpus_per_node": 8, "ntasks": 10}),
        (["-N2", "--gpus=8", "--gpus-per-task=2"], {"gpus_per_node": 4, "ntasks": 4}),
        (["-N2", "-n8", "--ntasks-per-socket=2"], {"nodes": 2, "ntasks": 8}),
        (["-N2", "--ntasks-per-node=8"], {"ntasks": 16, "ntasks_per_node": 8}),
        (["-n", "16", "--ntasks-per-node=8"], {"nodes": 2, "ntasks": 16}),
        (["-n", "17", "--tasks-per-node=8"], {"nodes": 3, "ntasks": 17}),
        (["-n", "16"], {"nodes": 1, "ntasks": 16}),
        (["-N4", "-n2"], {"nodes": 2, "ntasks": 2}),
        (["-C", "a&b"], {"features": ("a", "b")}),
        (["--signal=USR1"], {"notice": Notice(10, 60)}),
        (["--signal=SIGUSR1@90"], {"notice": Notice(10, 90)}),
        (["--signal=B:USR2@30"], {"notice": Notice(12, 30, shell_only=True)}),
        (["--signal=R:15@5"], {"notice": Notice(15, 5, before_reservation=True)}),
        (["--requeue"], {"requeue": True}),
        (["--no-requeue"], {"requeue": False}),
        (["--requeue", "--no-requeue"], {"requeue": False}),
        (["--no-requeue", "--requeue"], {"requeue": True}),
        (["--switches=1"], {"switches": 1, "switches_wait": None}),
        (["--switches=2@10:00"], {"switches": 2, "switches_wait": 600}),
        (["--segment=4"], {"segment": 4}),
        (["-a", "1-4%2"], {"array": "1-4%2"}),
        (["-a", "[1-4]"], {"array": "1-4"}),
        (["-a", "[1,3-7:2]%2"], {"array": "1,3-7:2%2"}),
        (["-a", "[1-4%2]"], {"array": "1-4%2"}),
        (["-a", "1[-4"], {"array": "1[-4"}),  # which is none
        (["--contiguous"], {"contiguous": True}),
        (["-k"], {"survives_node_loss": True}),
        (["--no-kill=off"], {"survives_node_loss": False}),
        (["-A", "lab"], {"account": "lab"}),
        (["--comment=x y"], {"comment": "x y"}),
        (["--mail-type=end,fail", "--mail-user=a@b"], {"mail_types": ("END", "FAIL"), "mail_user": "a@b"}),
        (["-D", "/w"], {"chdir": "/w"}),
        (["-o", "%j", "-e", "%j.err", "-i", "in"], {"output": "%j", "error": "%j.err", "input": "in"}),
        (["--open-mode=append"], {"append": True}),
        (["--open-mode=t"], {"append": False}),
        (["--export=ALL,A=1"], {"export": "ALL,A=1"}),
        (["--export-file=f"], {"export_file": "f"}),
        (["--kill-on-invalid-dep=yes"], {"kill_on_invalid_dependency": True}),
        (["--container-image=x", "--container-mounts=/a:/b", "--container-workdir=/w"], {
            "image": "x", "mounts": "/a:/b", "image_workdir": "/w"}),
        (["--wrap=hostname"], {"wrap": "hostname"}),
        (["-W", "--test-only", "--parsable", "-Q"], {"wait": True, "test_only": True, "parsable": True, "quiet": True}),
        (["-c", "12"], {"cpus_per_task": 12}),
        (["--mem=64G"], {"memory": 65_536}),
        (["--mem=1000k"], {"memory": 1}),
        (["--mem=0"], {"memory": None}),  # all of it
    ],
)  # fmt: skip
def test_options_make_the_request(arguments: list[str], fields: dict[str, Any]) -> None:
    made = request(*arguments)
    assert {name: getattr(made, name) for name in fields} == fields


SAMPLES = {
    **dict.fromkeys(["nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "segment", "nice"], "2"),
    "time": "1", "time-min": "1", "dependency": "afterok:1", "signal": "USR1", "switches": "1", "constraint": "a",
    "kill-on-invalid-dep": "yes", "open-mode": "append", "mem": "1G", "gres": "gpu:1", "gpus": "1",
    "gpus-per-node": "1", "gpus-per-task": "1", "tres-per-task": "gres/gpu:1", "nodelist": "n1", "exclude": "n1",
    "nodefile": "/nodes", "ntasks-per-gpu": "1", "ntasks-per-tres": "1",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HANDLING))
def test_of_every_option_it_is_told_what_becomes_of_it(name: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    value = SAMPLES.get(name, "x")
    words = [f"--{name}"] if option.value == "none" else [f"--{name}={value}"]
    made = batch(*words, reader=lambda path: "n1\n")
    [row] = [row for row in made.rows if row.option == f"--{name}"][:1]
    handling, meaning = HANDLING[name]
    assert (row.handling, row.words) == (handling, meaning)
    assert (row in made.refusals) is (handling == REFUSED)
    assert (row in made.notices) is (handling == IGNORED)


@pytest.mark.parametrize(
    ("arguments", "nodes", "gpus", "tasks"),
    [
        ("-G 8 --gpus-per-node=4", 2, 4, None),
        ("-G 16 --gres=gpu:h100:8", 2, 8, None),
        ("--gpus=16 --ntasks-per-node=8 --gpus-per-task=1", 2, 8, 16),
        ("-n 16 --gpus-per-node=8 --gpus-per-task=1", 2, 8, 16),
        ("-n 15 --gpus-per-node=8 --gpus-per-task=1", 2, 8, 15),
        ("-n 16 --gpus-per-node=8 --tres-per-task=gres/gpu:2", 4, 8, 16),
        ("-n 16 --gpus-per-node=8 --ntasks-per-gpu=2", 1, 8, 16),
        ("-n 32 --gpus-per-node=8 --ntasks-per-gpu=2", 2, 8, 32),
        ("-G 16 --gpus-per-node=8 --ntasks-per-gpu=1", 2, 8, 16),
        ("-n 16 --gres=gpu:8", 1, 8, 16),  # of how many GPUs a task has nothing is said
        ("-N 2 -G 16 --gpus-per-node=8", 2, 8, None),
        ("-w a,b -G 16", 2, 8, None),
    ],
)
def test_nodes_are_as_many_as_follows_from_all_gpus_and_those_of_a_node(
    arguments: str, nodes: int, gpus: int, tasks: int | None
) -> None:
    made = request(*arguments.split())
    assert (made.nodes, made.most_nodes, made.gpus_per_node, made.ntasks) == (nodes, nodes, gpus, tasks)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-G 16", "one node with 16 GPUs is asked for, as -N is not given; write -N 2 for 2 nodes of 8"),
        ("-n 16 --gpus-per-task=1", "one node with 16 GPUs is asked for"),
        ("-n 16 --ntasks-per-gpu=1", "one node with 16 GPUs is asked for"),
        ("-G 12", "one node with 12 GPUs is asked for, as -N is not given; write -N, and --gpus-per-node"),
        ("-G 8", None),
        ("--gpus-per-node=16", None),
        ("-N 1 -G 16", None),
        ("-w a -G 16", None),
        ("-G 16 --gpus-per-node=8", None),
    ],
)
def test_that_more_gpus_than_a_node_mostly_has_are_sought_on_one_is_said(arguments: str, words: str | None) -> None:
    told = [row.words for row in batch(*arguments.split()).notices]
    assert [row.startswith(words or "") for row in told] == [True] * (words is not None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--segment=4", ["--segment 4: its nodes are sought in as few racks as may be, and not in segments"]),
        ("--switches=2", ["--switches 2: one rack is preferred"]),
        ("--switches=1@10:00", ["--switches 1@10:00: one rack is preferred"]),
        ("--switches=1", []),
        ("--contiguous --switches=1", ["--switches 1: has no effect beside --contiguous"]),
        ("--switches=1 --segment=4", ["--segment 4: has no effect beside --switches"]),
        ("--signal=R:USR1@60", ["--signal R:USR1@60: R: has no effect"]),
        ("--signal=BR:USR1@60", ["--signal BR:USR1@60: R: has no effect"]),
        ("--signal=B:USR1@60", []),
    ],
)
def test_what_of_a_value_is_not_kept_is_said(arguments: str, told: list[str]) -> None:
    made = batch(*arguments.split()).notices
    assert len(made) == len(told)
    assert all(row.sentence.startswith(words) for row, words in zip(made, told, strict=True))


HOLD_ANYWAY = {"verbose", "version", "help", "usage"}


@pytest.mark.parametrize("name", [name for name in sorted(HANDLING) if HANDLING[name][0] in (SUPPORTED, MAPPED)])
def test_every_supported_option_has_a_meaning_or_holds_anyway(name: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    words = [f"--{name}"] if option.value == "none" else [f"--{name}={SAMPLES.get(name, 'x')}"]
    made = replace(batch(*words, reader=lambda path: "n1\n").request, said=())
    assert (made == replace(batch().request, said=())) is (name in HOLD_ANYWAY)


@pytest.mark.parametrize(
    "asked", ["-c 9", "--mem=64G", "--mem-per-cpu=2G", "--mem-per-gpu=9G", "--mincpus=4", "--tmp=1T"]
)
def test_that_no_node_is_looked_at_for_what_is_asked_of_it_is_said(asked: str) -> None:
    [row] = batch(*asked.split()).notices
    assert "nodes are given whole, with all that is free on them, and none is looked at for having as much" in row.words


def test_cpus_of_tres_per_task_are_taken_as_those_of_c() -> None:
    made, plain = batch("--tres-per-task=cpu:4,gres/gpu:1"), batch("-c", "4")
    assert made.request.as_typed("cpus-per-task") == plain.request.as_typed("cpus-per-task") == "4"
    assert [(row.option, row.words) for row in made.notices] == [("--tres-per-task", plain.notices[0].words)]
    assert batch("-c", "2", "--tres-per-task=cpu:4").request.as_typed("cpus-per-task") == "2"


def test_all_memory_of_a_node_is_what_a_job_has_anyway() -> None:
    made = batch("--mem=0", "--exclusive")
    assert [row.handling for row in made.rows] == [HOLDS, HOLDS]


def test_each_class_of_options_has_those_that_were_settled() -> None:
    def of(handling: str) -> set[str]:
        return {name for name, (found, _) in HANDLING.items() if found == handling}

    assert {"exclusive", "overcommit", "wait-all-nodes", "spread-job", "use-min-nodes", "ignore-pbs"} <= of(HOLDS)
    assert {"cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu", "cpus-per-gpu", "mincpus", "tmp"} <= of(IGNORED)
    assert of(REFUSED) == {
        "licenses", "bb", "bbf", "clusters", "cluster-constraint", "uid", "gid", "container", "container-id",
        "external", "resources", "batch", "prefer", "reservation", "gpus-per-socket",
    }  # fmt: skip
    assert all(words for handling, words in HANDLING.values() if handling == REFUSED)
    assert of(SUPPORTED) | of(MAPPED) | of(HOLDS) | of(IGNORED) | of(REFUSED) == set(HANDLING)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-N", "1-15:4"], "leave the step out"),
        (["-N", "1,2,4"], "leave the step out"),
        (["-N", "0"], "not a valid node count"),
        (["-N", "8-2"], "not a valid node count"),
        (["-N", "x"], "not a valid node count"),
        (["-t", "2h"], "is no time"),
        (["-C", "a|b"], "alternatives"),
        (["-C", "[a*2&b*2]"], "alternatives"),
        (["-d", "afterok:1?afterok:2"], "all of them have to be met"),
        (["-d", "afterok:train"], "train is no job"),
        (["-d", "never:1"], "write after"),
        (["--nice=-5"], "priority cannot be taken"),
        (["--signal=NOPE"], "is no signal"),
        (["--signal=X:USR1"], "is no signal"),
        (["--signal=USR1@x"], "no number of seconds"),
        (["-n", "0"], "is no number"),
        (["-N1", "--ntasks-per-node=513"], "no number from 1 to 512"),
        (["-N2", "-n1025"], "at most 1024 tasks run on 2 nodes, 512 each; write a larger -N"),
        (["-n513"], "write a larger -N"),
        (["-N2-4", "-n1025"], "at most 1024 tasks run on 2 nodes"),
        (["-N1", "--gpus-per-node=8", "--ntasks-per-gpu=65"], "at most 512 tasks run on 1 node, 512 each"),
        (["-N3", "-G", "16"], "not the same on each"),
        (["--gres=gpu:8", "--gpus-per-node=4"], "keep one of them"),
        (["--gres=gpu:a100:8", "--gpus-per-node=h100:8"], "one type"),
        (["--gres=gpu:a100:4,gpu:h100:4"], "a node has GPUs of one type here"),
        (["--gpus-per-node=a100:4,h100:4"], "a node has GPUs of one type here"),
        (["-G", "a100:2,h100:2"], "a node has GPUs of one type here"),
        (["--gpus-per-task=a100:1,h100:1"], "a node has GPUs of one type here"),
        (["--tres-per-task=gres/gpu:a100:1,gres/gpu:h100:1"], "a node has GPUs of one type here"),
        (["--tres-per-task=cpu:0"], "cpu:0 is no count of CPUs"),
        (["--tres-per-task=cpu:x,gres/gpu:1"], "cpu:x is no count of CPUs"),
        (["--tres-per-task=license/a:1"], "license is nothing that"),
        (["--gres=nic:1"], "only gpu is"),
        (["--gpus-per-node=8", "--ntasks-per-node=8", "--ntasks-per-gpu=1"], "excludes --ntasks-per-node"),
        (["-n8", "--gpus-per-task=1", "--ntasks-per-tres=1"], "excludes --gpus-per-task"),
        (["-N2", "--ntasks-per-gpu=1"], "write --gpus-per-node"),
        (["-N2", "-n3", "--ntasks-per-gpu=1"], "3 tasks on 2 nodes need 3 GPUs"),
        (["-N1", "-n9", "--gres=gpu:8", "--ntasks-per-gpu=1"], "9 tasks on 1 node need 9 GPUs"),
        (["-n8", "--ntasks-per-socket=4"], "write -N and --ntasks-per-node"),
        (["-n8", "--ntasks-per-core=1"], "write -N and --ntasks-per-node"),
        (["--gpus-per-socket=4"], "write --gpus-per-node"),
        (["--gres=gpu:h100:x"], "no count of GPUs"),
        (["--mem=lots"], "no amount of memory"),
        (["-w", "n[2-1]"], "no range"),
        (["-w", "/nodes"], "cannot be read here"),
        (["--switches=x"], "no count of switches"),
        (["--open-mode=x"], "neither append nor truncate"),
        (["-L", "matlab"], "licences"),
        (["-M", "other"], "one cluster"),
        (["--uid=0"], "submitter"),
    ],
)
def test_what_cannot_be_promised_is_refused_by_name_with_the_remedy(arguments: list[str], words: str) -> None:
    refused = batch(*arguments).refusals
    assert refused
    assert words in refused[0].words


@pytest.mark.parametrize("arguments", [["-N1", "--ntasks-per-node=512"], ["-N2", "-n1024"], ["-n512"]])
def test_as_many_tasks_as_a_step_may_have_on_a_node_are_accepted(arguments: list[str]) -> None:
    assert not batch(*arguments).refusals


def test_its_own_cluster_may_be_named() -> None:
    assert not batch("-M", "main", cluster="main").refusals


def test_nodes_may_stand_in_a_file() -> None:
    made = batch("-w", "./nodes", reader=lambda path: {"./nodes": "n1 n2\nn[3-4]\n"}[path])
    assert made.request.nodelist == ("n1", "n2", "n3", "n4")
    assert batch("-F", "nodes", reader=lambda path: "n1 # fast\n#n2\nn3,n4\n").request.nodelist == ("n1", "n3", "n4")
    made = batch("-N2", "-F", "nodes", reader=lambda path: "n1\nn2\nn3\n")
    assert [row.option for row in made.refusals] == ["--nodefile"]
    assert not batch("-N3", "-F", "nodes", reader=lambda path: "n1\nn2\nn3\n").refusals


def missing(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def test_a_file_that_is_not_there_is_a_refusal() -> None:
    assert batch("-F", "nodes", reader=missing).refusals[0].words == "cannot read nodes: No such file or directory"


SCRIPT = directives("job.sh", "#!/bin/sh\n#SBATCH -N 1 -J script -t 1 --err=%x.err\n#SBATCH -J later\n")


def test_the_command_line_goes_over_the_environment_and_that_over_the_script() -> None:
    [made] = batches(SCRIPT, {"SBATCH_TIMELIMIT": "2", "SBATCH_JOB_NAME": "environment"}, ["-t", "3", "job.sh", "a"])
    assert (made.request.job_name, made.request.time_limit, made.request.nodes) == ("environment", 180, 1)
    assert made.request.error == "%x.err"
    assert made.arguments == ["job.sh", "a"]
    assert made.request.as_typed("time") == "3"


def test_of_one_said_twice_the_last_counts() -> None:
    [made] = batches(SCRIPT, {}, [])
    assert made.request.job_name == "later"
    assert len([row for row in made.rows if row.option == "--job-name"]) == 1


def test_flags_of_the_environment_need_no_value() -> None:
    [made] = batches(directives("job.sh", "#!/bin/sh\n"), {"SBATCH_WAIT": "yes", "SBATCH_NO_REQUEUE": ""}, [])
    assert (made.request.wait, made.request.requeue) == (True, False)
    assert all(name.startswith(("SBATCH_", "SLURM_")) for name in ENVIRONMENT)


def test_a_word_that_is_no_option_is_no_directive() -> None:
    with pytest.raises(OptionError, match="Invalid directive found in batch script: four"):
        batches(directives("job.sh", "#!/bin/sh\n#SBATCH four\n"), {}, [])


def test_components_share_what_the_command_line_says() -> None:
    script = directives("job.sh", "#!/bin/sh\n#SBATCH -N 1 -J a\n#SBATCH hetjob\n#SBATCH -N 2\n")
    first, second = batches(script, {}, ["-t", "5"])
    assert (first.request.nodes, first.request.job_name, first.request.time_limit) == (1, "a", 300)
    assert (second.request.nodes, second.request.job_name, second.request.time_limit) == (2, "", 300)


@pytest.mark.slow
def test_components_name_no_more_hosts_together_than_one_may_alone() -> None:
    script = directives("job.sh", "#!/bin/sh\n" + "#SBATCH hetjob\n" * 7)
    assert len(batches(script, {}, ["-x", "n[1-8000]"])) == 8
    with pytest.raises(OptionError, match="of all components name more than 65536 hosts"):
        batches(script, {}, ["-x", "n[1-8000]", "-w", "n[1-200]"])


def test_fewer_tasks_than_nodes_are_told_of() -> None:
    rows = [row for row in batch("-N4", "-n2").rows if row.option == "--nodes"]
    assert rows[-1].words == "can't run 2 processes on 4 nodes, setting nnodes to 2"
