"""The first hour of somebody who knows Slurm, as it is typed: mistakes, limits, logs, with real processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.training import NAMESPACE, TrainingRun, TrainingSite
from localcluster.api import Request
from lockstep.api.base import names
from lockstep.api.base.times import to_unix
from lockstep.cli.main import main

pytestmark = pytest.mark.nodes

SLOW = 150.0
"""Seconds for what takes a few on an idle machine."""
LOCKSTEP = (sys.executable, "-c", "from lockstep.cli.main import main; main()")
WORKER_PAGE = Path(__file__).parents[2] / "docs" / "worker.md"
FLAGS = ("--image", "none", "--gpus-per-node", "0")
COMMAND = ("--", "sleep", "1000")
Types = Callable[..., str]


@pytest.fixture
def types(site: TrainingSite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Types:
    """All that `lockstep WORDS` says, which ends with ``code``. It has longer than two seconds to hear a verdict."""
    monkeypatch.setattr("lockstep.cli.submission.verdicts.PATIENCE", SLOW)

    def typed(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        where = () if words[0] == "nodes" else ("-n", NAMESPACE)
        split = words.index("--") if "--" in words else len(words)
        with pytest.raises(SystemExit) as end:
            main([*words[:split], *where, "--kubeconfig", kubeconfig(site), *words[split:]])
        said = capsys.readouterr()
        assert (end.value.code or 0) == code, said
        return said.out + said.err

    return typed


def kubeconfig(site: TrainingSite) -> str:
    return str(site.world.cluster.kubeconfig)


def submitted(site: TrainingSite, name: str, ranks: int) -> TrainingRun:
    """A run that was made by `lockstep submit`."""
    path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}/{name}"
    run = site.applied(name, site.world.cluster.api.get(path)["metadata"]["uid"], ranks, "checkpoints")
    site.runs.append(run)
    return run


def manifest(folder: Path, name: str, **spec: Any) -> str:
    """A file that says so."""
    path = folder / f"{name}.yaml"
    usual = {"nodes": 4, "gpusPerNode": 0, "image": "none", "command": ["sleep", "1000"]}
    head = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": {"name": name}}
    path.write_text(yaml.safe_dump(head | {"spec": usual | spec}))
    return str(path)


def test_what_a_manifest_misspells_is_told_when_it_is_submitted_and_costs_nobody_a_node(
    site: TrainingSite, types: Types, tmp_path: Path
) -> None:
    code = {"name": "app", "mountPath": "/app", "configMap": {"name": "trainr"}}
    stuck = manifest(tmp_path, "stuck", volumes=[code], checkpoint={"shared": {"claimName": "checkpoint"}})
    told = types("submit", stuck, code=1)
    assert f"there is no ConfigMap trainr in namespace {NAMESPACE}" in told
    assert f"there is no PersistentVolumeClaim checkpoint in namespace {NAMESPACE}; did you mean checkpoints?" in told
    assert "stuck" not in types("queue", "--finished")

    types("submit", stuck, "--no-wait")
    run = submitted(site, "stuck", 4)
    run.wait("it is refused", lambda: run.condition("Accepted").get("reason") == "ConfigMapNotFound")
    explained = types("explain", "stuck")
    assert "trainr" in explained
    assert "did you mean checkpoints?" in explained
    other = site.train("other", 4, 5, "--step-delay=0")
    other.wait_until_succeeded(SLOW)
    assert not run.status.get("assignment")
    assert run.pods == []
    assert "cancelled" in types("cancel", "stuck")
    run.wait("it is over", lambda: run.status.get("state") == "Cancelled")
    for said in (types("queue"), types("nodes")):
        assert "stuck" not in said


def test_a_service_account_that_is_not_there_is_told_with_the_one_that_was_meant(
    site: TrainingSite, types: Types, tmp_path: Path
) -> None:
    account = manifest(tmp_path, "account", nodes=1, serviceAccountName="defualt")
    words = f"there is no ServiceAccount defualt in namespace {NAMESPACE}"
    assert f"{words}; did you mean default?" in types("submit", account, code=1)
    types("submit", account, "--no-wait")
    run = submitted(site, "account", 1)
    run.wait("it is refused", lambda: run.condition("Accepted").get("reason") == "ServiceAccountNotFound")
    assert words in types("explain", "account")
    assert run.pods == []


def test_who_hangs_in_front_of_its_containers_is_named_to_who_waits_and_gives_its_nodes_back_once_it_is_cancelled(
    site: TrainingSite, types: Types
) -> None:
    """The operator may not look for Secrets here: as everywhere, unless it is told to."""
    key = {"secretKeyRef": {"name": "tokn", "key": "token"}}
    stuck = site.apply("stuck", 4, ["sleep", "1000"], env=[{"name": "TOKEN", "valueFrom": key}])
    stuck.wait("its pods are on their nodes", lambda: [p for p in stuck.pods if p["status"].get("containerStatuses")])
    mended = site.train("mended", 4, 5, "--step-delay=0")
    mended.wait("it waits", lambda: mended.status.get("queue", {}).get("reason") == "Resources")
    assert f"{NAMESPACE}/stuck" in types("explain", "mended")

    assert "cancelled" in types("cancel", "stuck")
    mended.wait_until_succeeded(90.0)  # workers that are silent would be given up much later
    since = to_unix(stuck.condition("Finished")["lastTransitionTime"])
    admitted = to_unix(mended.condition("Admitted")["lastTransitionTime"])
    assert admitted - since < 60
    assert stuck.pods == []
    assert stuck.name not in types("queue")


def test_a_program_that_fails_everywhere_leaves_nothing_on_nodes_and_no_number_is_below_zero(
    site: TrainingSite, types: Types
) -> None:
    options = ("--step-delay=0", "--save-every=1", "--fail=1:300:ValueError: lr", "--fail-again")
    suspects = re.findall(r"^(\S+) +Suspect", types("nodes"), re.MULTILINE)  # by what other tests did to them
    run = site.train("usrerr", 2, 400, *options)
    run.wait_until_finished(SLOW)
    assert run.condition("Succeeded")["reason"] == "Deterministic"
    assert len(run.attempts) >= 2
    for node in site.nodes:
        metadata = site.world.cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]
        assert "usrerr" not in json.dumps(metadata.get("annotations", {}))
    again = site.train("toy", 2, 400, *options)
    again.wait_until_finished(SLOW)
    assert again.condition("Succeeded")["reason"] == "Deterministic"
    shown = types("nodes")
    assert not re.search("usrerr|toy", shown)
    assert set(re.findall(r"^(\S+) +Suspect", shown, re.MULTILINE)) <= set(suspects), "by two runs it would be else"
    assert types("explain", "usrerr").count("ValueError: lr") == 1, "each thing is said once"
    said = "\n".join([types("explain", "usrerr", "--all"), types("history", "usrerr"), types("events", "usrerr")])
    assert "costs" in said, said
    assert not re.search(r"(?<![\w-])-\d+(\.\d+)? ?(s|steps?)\b", said), said
    assert run.status["goodput"].get("stepsLost", 0) >= 0
    last = run.attempts[-1]
    assert last["resumeStep"] <= max(line["step"] for line in run.lineage(1, 0)), "what is saved was trained"
    told = [each.get("lastStep", 0) for each in run.attempts[:-1]]
    assert last["resumeStep"] <= max(told), "and is told to have been"


def test_what_hung_on_the_way_is_told_of_a_run_that_succeeded(site: TrainingSite, types: Types) -> None:
    options = ("--listen", "--patience=600", "--step-delay=0.05", "--later-delay=0")
    run = site.train("hung", 2, 100, *options, recovery={"hangTimeout": "8s"})
    run.wait_until_saved(1, 10)
    run.signal_process(1, signal.SIGSTOP)
    run.wait_until_succeeded(SLOW)
    assert run.attempts[0]["cause"] == "Hang"
    assert "On the way ended attempt 1 Hang (lockstep history hung)." in types("explain", "hung")


def test_logs_typed_right_after_submit_wait_for_the_first_line_and_end_with_the_pipe(
    site: TrainingSite, types: Types, tmp_path: Path
) -> None:
    lines = "import time\nfor n in range(100000):\n    print('line', n)\n    time.sleep(0.05)\n"
    types("submit", manifest(tmp_path, "long", nodes=2, command=["python3", "-c", lines]), "--no-wait")
    command = [*LOCKSTEP, "logs", "-f", "long", "-n", NAMESPACE, "--kubeconfig", kubeconfig(site)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as logs:
        assert logs.stdout is not None
        seen = [logs.stdout.readline() for _ in range(10)]
        logs.stdout.close()  # as head does
        said = logs.communicate(timeout=SLOW)[1]
    run = submitted(site, "long", 2)
    assert all(line.startswith("[rank ") for line in seen), (seen, said)
    assert [line for line in seen if re.search(r"\] line \d+$", line)]
    assert "Traceback" not in said
    assert "has had no nodes yet" not in said
    assert not run.is_true("Finished")
    types("cancel", "long")


@pytest.mark.nightly  # tests/cluster/test_queues.py has limits
def test_a_limit_of_seconds_is_one_number_and_all_of_it_is_the_runs_which_ends_then_whatever_it_does(
    site: TrainingSite, types: Types, tmp_path: Path
) -> None:
    """It is told so 5 s before, and will not end: of the 10 s that ranks have here usually, it has no more."""
    deaf = "trap 'echo told $(date +%s)' TERM; while :; do echo lives $(date +%s); sleep 0.2; done"
    told = types("submit", manifest(tmp_path, "short", nodes=1, timeLimit="40s", command=["sh", "-c", deaf]))
    run = submitted(site, "short", 1)
    run.wait("it trains", lambda: run.status.get("state") == "Running")
    since = to_unix(run.status["lastAdmitted"])
    for said in (types("explain", "short"), types("info", "short")):
        assert "40s" in said
        assert not re.search(r"\b1m\b", said), said
    assert "save" not in told, "nothing of it can be asked to"
    run.wait_until_finished(SLOW)
    ended = run.condition("Finished")
    assert (ended["reason"], run.status["admission"]["timeLimit"]) == ("TimeLimit", 40)
    moments = {word: int(at) - since for word, at in re.findall(r"(told|lives) (\d+)", run.log(0))}
    assert moments["told"] >= 35
    assert 38 <= moments["lives"] < moments["told"] + 8, "and a moment for the word to reach it"


@pytest.mark.nightly
def test_minutes_that_were_typed_are_had_and_who_waits_for_their_end_starts_when_it_was_told(
    site: TrainingSite, types: Types
) -> None:
    """Nothing of these can be asked to save: a tenth of the limit is for their end."""
    for name, nodes, minutes in (("four", "1", "4"), ("two", "3", "2")):
        said = types("submit", "--name", name, "-N", nodes, "-t", minutes, *FLAGS, *COMMAND)
        assert "save" not in said
    four, two = submitted(site, "four", 1), submitted(site, "two", 3)
    two.wait("it runs", lambda: two.status.get("state") == "Running")
    assert "Its time: 2m" in types("explain", "two")
    types("submit", "--name", "next", "-N", "3", "-t", "2", *FLAGS, *COMMAND)
    following = submitted(site, "next", 3)
    following.wait("it is told when", lambda: following.status.get("queue", {}).get("estimatedStart"))
    over = to_unix(two.status["timeLimit"]["overAt"])
    assert abs(to_unix(following.status["queue"]["estimatedStart"]) - over) < 15
    for run, seconds in ((two, 120), (four, 240)):
        since = to_unix(run.status["lastAdmitted"])
        run.wait_until_finished(seconds + SLOW)
        ended = run.condition("Finished")
        assert ended["reason"] == "TimeLimit"
        assert to_unix(ended["lastTransitionTime"]) - since >= 0.9 * seconds
    assert to_unix(following.status["lastAdmitted"]) <= over + 5


def test_a_program_that_reports_nothing_is_told_how_and_plain_lines_are_understood(
    site: TrainingSite, types: Types
) -> None:
    says = "import time\nfor n in range(10_000):\n    print({words}, flush=True)\n    time.sleep(0.2)\n"
    for name, words in (("plain", "'step', n, 'loss 2.5'"), ("mute", "'batch', n")):
        types("submit", "--name", name, *FLAGS, "--", "python3", "-c", says.format(words=words))
    plain, mute = submitted(site, "plain", 1), submitted(site, "mute", 1)
    plain.wait("its steps are seen", lambda: plain.status.get("progress", {}).get("step"))
    mute.wait("it runs", lambda: mute.status.get("state") == "Running")
    assert re.search(r"It runs: step \d+", types("explain", "plain"))
    told = types("explain", "mute")
    for words in ("hangs cannot be seen", "lockstep_training.report(step)", "spec.progress.pattern"):
        assert words in told


def test_jax_finds_its_processes_on_all_nodes_as_the_page_shows_it(site: TrainingSite) -> None:
    pytest.importorskip("jax", reason="JAX comes with make setup-demo")
    blocks = re.findall(r"^```python\n(.*?)^```", WORKER_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    program = next(block for block in blocks if "jax.distributed" in block)
    program += "\nprint('process', jax.process_index(), 'of', jax.process_count())\n"
    run = site.apply("jax", 3, ["python3", "-c", program], launcher={"type": "JAX"}, checkpoint=None)
    run.wait_until_succeeded(400.0)
    assert [line for rank in range(3) for line in run.log(rank).splitlines() if line.startswith("process ")] == [
        f"process {rank} of 3" for rank in range(3)
    ]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--gpu-type", "a100"], 3, ["gpuTypes", "a100", "did you mean A100?"]),
        (["-q", "reserch"], 3, ["typo is refused: there is no TrainingQueue reserch"]),
        (["--priority-class", "hgih"], 3, ["typo is refused: there is no PriorityClass hgih"]),
        (["-N", "500"], 3, ["needs 500 nodes", "Placement"]),
        (["--checkpoint-claim", "checkpoint"], 1, ["there is no PersistentVolumeClaim checkpoint", "checkpoints?"]),
        (["--volume", "dta:/data"], 1, ["there is no PersistentVolumeClaim dta"]),
        (["--test-only", "--volume", "dta:/data"], 1, ["there is no PersistentVolumeClaim dta"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_run_is_told_when_it_is_submitted_and_by_the_exit_code(
    site: TrainingSite, types: Types, words: list[str], code: int, told: list[str]
) -> None:
    said = types("submit", "--name", "typo", *FLAGS, *words, *COMMAND, code=code)
    for word in told:
        assert word in said
    if code == 3:
        submitted(site, "typo", 1)
    else:
        assert "typo" not in types("queue", "--finished")


@pytest.fixture
def small(site: TrainingSite) -> Iterator[str]:
    """A queue with four nodes."""
    api, path = site.world.cluster.api, f"/apis/{names.API_VERSION}/{names.QUEUES}"
    head = {"apiVersion": names.API_VERSION, "kind": "TrainingQueue", "metadata": {"name": "small"}}
    api.send(Request("POST", path, head | {"spec": {"quotas": [{"gpuType": "Any", "nominalNodes": 4}]}}))
    yield "small"
    api.send(Request("DELETE", f"{path}/small", absence_is_fine=True))


def test_more_nodes_than_the_queue_ever_gives_are_told_when_they_are_asked_for(
    site: TrainingSite, types: Types, small: str
) -> None:
    flags = (*FLAGS, "-q", small)
    said = types("submit", "--name", "wide", *flags, "-N", "5", *COMMAND, code=3)
    submitted(site, "wide", 5)
    assert "QuotaTooSmall: queue small uses 0 of its 4 nodes; the run needs 5, and can never have more than 4" in said
    first = site.apply("first", 3, ["sleep", "1000"], checkpoint=None, queue=small)
    first.wait("it runs", lambda: first.status.get("state") == "Running")
    said = types("submit", "--name", "waits", *flags, "-N", "2", *COMMAND)
    submitted(site, "waits", 2)
    assert "waits in queue small" in said


def test_an_array_for_a_queue_that_there_is_not_is_told_so_by_its_first_run(site: TrainingSite, types: Types) -> None:
    flags = (*FLAGS, "--array", "2-3", "-q", "reserch")
    try:
        said = types("submit", "--name", "sweep", *flags, *COMMAND, code=3)
    finally:
        path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUN_SETS}/sweep"
        site.world.cluster.api.send(Request("DELETE", path, absence_is_fine=True))
    assert "sweep is accepted; its first run sweep-2 is refused: there is no TrainingQueue reserch" in said


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"command": "python train.py"}, ["spec.command", "list"]),
        ({"command": ["python", "train.py", "--lr", 0.1]}, ["spec.command[3]", "0.1"]),
        ({"env": {"FOO": "bar"}}, ["spec.env", "name", "value"]),
        ({"nodes": 0, "nice": -5}, ["spec.nodes", "spec.nice"]),
        ({"checkpoint": {"shared": {"claimName": "nope"}, "format": "Pickle"}}, ["claimName", "nope", "format"]),
    ],
    ids=["a string", "a number", "a map", "two of the schema", "of two kinds"],
)
def test_mistakes_of_a_manifest_are_told_together_in_words_of_ours(
    site: TrainingSite, types: Types, tmp_path: Path, spec: dict[str, Any], told: list[str]
) -> None:
    said = types("submit", manifest(tmp_path, "Llama_70B", **spec), code=1)
    for word in [*told, "metadata.name", "Llama_70B"]:
        assert word in said
    for raw in ("in body", "Invalid value", "must be of type", "a-z0-9"):
        assert raw not in said


def test_one_that_is_held_one_that_is_suspended_and_one_that_stops_differ_in_every_list(
    site: TrainingSite, types: Types
) -> None:
    types("submit", "--name", "held", *FLAGS, "-H", *COMMAND)
    held = submitted(site, "held", 1)
    paused = site.apply("paused", 1, ["sleep", "1000"], checkpoint=None)
    ends = site.apply("ends", 1, ["sh", "-c", "trap '' TERM; sleep 1000"], checkpoint=None)
    for run in (paused, ends):
        run.wait("it runs", lambda run=run: run.status.get("state") == "Running")
    types("suspend", "paused")
    paused.wait("it is suspended", lambda: paused.is_true("Suspended"))
    types("cancel", "ends")
    held.wait("it is held", lambda: held.status.get("state"))
    ends.wait("it stops", lambda: ends.status.get("state") == "Stopping")
    rows = {line.split()[0]: line for line in types("queue").splitlines() if line}
    assert "Held" in rows["held"]
    assert "Stopping" in rows["ends"]
    assert "Suspended" in rows["paused"]
    assert "Held" not in rows["paused"]
    assert "lockstep release held" in types("explain", "held")
    assert "lockstep resume paused" in types("explain", "paused")
    types("release", "held")
    held.wait("it runs", lambda: held.status.get("state") == "Running")


def test_a_start_is_the_same_moment_wherever_it_is_shown(site: TrainingSite, types: Types) -> None:
    first = site.apply("first", 4, ["sleep", "1000"], checkpoint=None, timeLimit="1h")
    first.wait("it runs", lambda: first.status.get("state") == "Running")
    second = site.apply("second", 2, ["sleep", "1000"], checkpoint=None, timeLimit="30m")
    third = site.apply("third", 3, ["sleep", "1000"], checkpoint=None, timeLimit="30m")
    for run in (second, third):
        run.wait("its start is known", lambda run=run: run.status.get("queue", {}).get("estimatedStart"))
        shown = types("queue", "--start")
        told = {
            re.search(r"\d\d:\d\d:\d\d", line)[0]  # type: ignore[index]
            for said in (types("explain", run.name), types("info", run.name), shown)
            for line in said.splitlines()
            if ("expected to start" in line or line.startswith(("Starts", run.name))) and re.search(r":\d\d:\d\d", line)
        }
        assert len(told) == 1, told
