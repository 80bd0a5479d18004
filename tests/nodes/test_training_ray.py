"""`launcher: Ray` with a real Ray: a cluster for each attempt, and the command as its driver."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.test_anywhere import annotate
from harness.training import TrainingRun, TrainingSite
from lockstep.api.base import names

pytestmark = pytest.mark.nodes
nightly = pytest.mark.nightly  # one after the other they take more than every run has

VENV = Path(os.environ.get("LOCKSTEP_TEST_RAY", ".build/ray")).absolute()
STEPS, HELD_AT = 40, 12
RESTART = {"onNodeLoss": "Restart"}
WHY = "another node takes its place"
JOINS_WITHIN = 100.0
"""Seconds; a tenth of it on a machine that has nothing else to do."""
DRIVER = """
import json, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, "/app")
import ray
import lockstep_training
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from stub_trainer import BEGINNING, advanced, batch, commit, lineage_line, load, open_for_append, shard, write_durably

environ = os.environ
steps, held_at = int(sys.argv[1]), int(sys.argv[2]) if environ["LOCKSTEP_ATTEMPT"] == "1" else 0
folder, resume = Path(environ["LOCKSTEP_CHECKPOINT_DIR"]), environ["LOCKSTEP_RESUME_PATH"]
ray.init(log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=0, max_retries=0)
def rank_here():
    return int(os.environ["LOCKSTEP_NODE_RANK"])

def ranks_of_ray():
    asked = [
        rank_here.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in ray.nodes() if node["Alive"]
    ]
    found = []
    for each in asked:
        try:
            found.append(ray.get(each, timeout=20))
        except ray.exceptions.RayError:
            pass  # its node is lost
    return sorted(found)

def tell_who_is_alive():
    with open_for_append(folder / "alive.jsonl") as alive:
        while True:
            nodes = ray.nodes()
            found = sorted(node["NodeManagerAddress"] for node in nodes if node["Alive"])
            dead = [node["DeathReasonMessage"] for node in nodes if not node["Alive"]]
            print(json.dumps({"at": time.time(), "alive": found, "dead": dead}), file=alive)
            time.sleep(0.2)

threading.Thread(target=tell_who_is_alive, daemon=True).start()
said, lineage = open_for_append(folder / "said.jsonl"), open_for_append(folder / "lineage-rank0.jsonl")
progress = open_for_append(Path(environ["LOCKSTEP_PROGRESS_FILE"]))
done = int(environ["LOCKSTEP_RESUME_STEP"] or 0)
state = load(Path(resume), 0) if resume else BEGINNING
for step in range(done + 1, steps + 1):
    while True:
        print(json.dumps({"step": step, "pid": os.getpid(), "ranks": ranks_of_ray()}), file=said)
        if step <= held_at or not held_at or (folder / "go").exists():
            break
        time.sleep(0.2)
    state = advanced(state, [batch(step, 0)])
    line = lineage_line(step, 0, state)
    print(json.dumps(line), file=lineage)
    print(json.dumps({**line, "time": time.time()}), file=progress)
    if lockstep_training.should_checkpoint(step) or step % 10 == 0 or step == steps:
        directory = folder / f"step-{step}"
        directory.mkdir()
        commit(directory, step, [write_durably(directory / "shard-0.bin", shard(state))])
        if step < steps and lockstep_training.should_stop():
            print("stops as it was told to", flush=True)
            sys.exit(0)
    time.sleep(0.1)
print("done", flush=True)
"""
"""Asks each node of Ray for its rank in each step, and says what it heard."""


@pytest.fixture(autouse=True)
def ray_is_here() -> None:
    if not (VENV / "bin" / "ray").exists():
        pytest.skip(f"no Ray in {VENV}: see CONTRIBUTING.md")


def train(site: TrainingSite, name: str, nodes: int = 3, held_at: int = HELD_AT, **spec: Any) -> TrainingRun:
    """Its lineage is the driver's, as that of one rank."""
    program = spec.pop("program", DRIVER)
    quiet = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0", "OMP_NUM_THREADS": "1"}
    path = f"{VENV / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    settings = {"arguments": ["--num-cpus=1", "--object-store-memory=80000000"], **spec.pop("ray", {})}
    run = site.apply(
        name, nodes, ["python", "-c", program, str(STEPS), str(held_at)], launcher={"type": "Ray", "ray": settings},
        env=[{"name": key, "value": value} for key, value in {**quiet, "PATH": path}.items()],
        recovery={"hangTimeout": "30m"}, **spec,
    )  # fmt: skip
    return replace(run, ranks=1)


def said(run: TrainingRun, attempt: int, name: str = "said") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (run.folder / f"a{attempt}" / f"{name}.jsonl").read_text().splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))
    return lines


def wait_until_held(run: TrainingRun) -> None:
    run.wait("the driver is held", lambda: [line for line in said(run, 1) if line["step"] > HELD_AT])


def let_go(run: TrainingRun) -> None:
    (run.folder / "a1" / "go").touch()


def processes(run: TrainingRun, rank: int, name: str) -> list[int]:
    """PIDs of the processes that the kernel calls so on the node of a rank."""
    wanted = {f"LOCKSTEP_RUN_UID={run.uid}".encode(), f"LOCKSTEP_NODE_RANK={rank}".encode()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_of_node = wanted <= set((folder / "environ").read_bytes().split(b"\0"))
            if is_of_node and (folder / "comm").read_text().strip() == name:
                found.append(int(folder.name))
    return found


@nightly
def test_the_command_is_rays_driver_once_all_nodes_have_joined(site: TrainingSite) -> None:
    run = train(site, "whole", held_at=0)
    run.wait_until_succeeded()
    heard = said(run, 1)
    assert {tuple(line["ranks"]) for line in heard} == {(0, 1, 2)}
    assert [attempt["number"] for attempt in run.attempts] == [1]
    run.assert_undisturbed(STEPS)


def test_ray_obeys_nobody_without_the_attempts_token(site: TrainingSite) -> None:
    run = train(site, "token")
    wait_until_held(run)
    start = run.status["start"]
    gcs = f"{start['masterAddress']}:{start['masterPort']}"
    ask = f"from ray._raylet import GcsClient; print(len(GcsClient(address={gcs!r}).get_all_node_info(timeout=5)))"
    [token] = tokens(run)
    for given, knows in ((token, True), ("0" * 64, False), ("", False)):
        answer = run_outside(ask, given)
        assert (answer == "3") == knows, f"{given!r}: {answer}"
    host, _, port = start["dashboard"].rpartition(":")
    assert dashboard_status(host, int(port), "") == 401
    assert dashboard_status(host, int(port), token) == 200
    let_go(run)
    run.wait_until_succeeded()


def tokens(run: TrainingRun) -> set[str]:
    """What the nodes' files say: all the same."""
    found = set()
    for rank in range(3):
        for pid in processes(run, rank, "raylet"):
            found.add(Path(f"/proc/{pid}/root/run/lockstep/a1/ray/token").read_text())
    return found


def run_outside(program: str, token: str) -> str:
    """What a process that is no part of the gang hears of Ray: the last line."""
    import subprocess

    environ = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "RAY_AUTH_MODE": "token" if token else "disabled"}
    environ |= {"RAY_AUTH_TOKEN": token} if token else {}
    done = subprocess.run(
        [VENV / "bin" / "python", "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def dashboard_status(host: str, port: int, token: str) -> int:
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    with socket.create_connection((host, port), timeout=20) as connection:
        request = f"GET /api/version HTTP/1.1\r\nHost: {host}\r\n{authorization}Connection: close\r\n\r\n"
        connection.sendall(request.encode())
        return int(connection.makefile("rb").readline().split()[1])


@nightly
def test_a_killed_raylet_ends_the_attempt_and_all_start_again_in_their_pods(site: TrainingSite) -> None:
    run = train(site, "raylet", ray=RESTART)
    wait_until_held(run)
    pods = run.pod_uids
    [raylet] = processes(run, 2, "raylet")
    os.kill(raylet, signal.SIGKILL)
    run.wait_until_succeeded()
    assert run.pod_uids == pods
    assert run.attempts[0]["action"] == "RestartInPlace"
    assert "rank 2" in run.attempts[0]["message"], run.attempts[0]
    run.assert_undisturbed(STEPS)


@nightly
def test_a_driver_that_is_killed_is_the_cause_and_starts_again(site: TrainingSite) -> None:
    run = train(site, "driver")
    wait_until_held(run)
    os.kill(driver(run), signal.SIGKILL)
    run.wait_until_succeeded()
    assert (run.attempts[0]["rank"], run.attempts[0]["exitCode"]) == (0, 137), run.attempts[0]
    run.assert_undisturbed(STEPS)


def driver(run: TrainingRun) -> int:
    [pid] = [
        pid
        for name in ("python", "python3", "python3.11")
        for pid in processes(run, 0, name)
        if b"ranks_of_ray" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


@nightly
def test_a_node_that_is_lost_is_replaced_and_the_driver_resumes(site: TrainingSite) -> None:
    run = train(site, "lost", ray=RESTART)
    wait_until_held(run)
    lost = run.nodes[2]
    site.kill_node(lost)
    site.declare_not_ready(lost)
    run.wait_until_succeeded()
    assert lost not in run.nodes
    assert said(run, 2)[-1]["ranks"] == [0, 1, 2]
    run.assert_undisturbed(STEPS)


@nightly
def test_a_spare_joins_in_the_place_of_a_lost_node_and_the_driver_goes_on(site: TrainingSite) -> None:
    run = train(site, "joined", spareNodes=1)
    wait_until_held(run)
    run.wait("the spare is ready", lambda: run.status.get("spares") == "1/1")
    lost = run.nodes[2]
    site.kill_node(lost)
    site.declare_not_ready(lost)
    before, heard = set(said(run, 1, "alive")[-1]["alive"]), len(said(run, 1))
    run.wait("the loss is established", lambda: run.status["start"].get("joins") == 1)
    established = time.time()
    run.wait("the spare has joined", lambda: [0, 1, 2] in [line["ranks"] for line in said(run, 1)[heard:]])
    joined = next(line["at"] for line in said(run, 1, "alive") if set(line["alive"]) - before)
    print(f"joined {joined - established:.1f} s after the loss was established")
    assert joined - established < JOINS_WITHIN
    assert lost not in [run.nodes[slot] for slot in run.status["assignment"]["rankToSlot"]]
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)


def assert_one_driver(run: TrainingRun) -> None:
    """One attempt, and one process from its first step to its last."""
    assert [attempt["number"] for attempt in run.attempts] == [1], run.attempts
    assert len({line["pid"] for line in said(run, 1)}) == 1
    run.assert_undisturbed(STEPS)


@nightly
def test_without_a_spare_a_new_pod_joins_and_the_driver_goes_on(site: TrainingSite) -> None:
    run = train(site, "refilled")
    wait_until_held(run)
    lost = run.nodes[1]
    site.kill_node(lost)
    site.declare_not_ready(lost)
    run.wait("rank 1 is missed", lambda: said(run, 1)[-1]["ranks"] == [0, 2])
    run.wait("another one has joined", lambda: said(run, 1)[-1]["ranks"] == [0, 1, 2])
    assert lost not in run.nodes
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)
    assert run.events("Joined")


@nightly
def test_an_operator_that_is_killed_while_a_node_is_absent_has_it_join_all_the_same(site: TrainingSite) -> None:
    run = train(site, "leaderless")
    wait_until_held(run)
    lost = run.nodes[1]
    site.kill_node(lost)
    site.declare_not_ready(lost)
    run.wait("it is replaced", lambda: run.status["assignment"]["incarnations"][1] == 2)
    site.kill_operator()
    run.wait("another one has joined", lambda: said(run, 1)[-1]["ranks"] == [0, 1, 2] and lost not in run.nodes)
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)


@nightly
def test_a_killed_raylet_is_started_again_and_the_driver_goes_on(site: TrainingSite) -> None:
    run = train(site, "again", 2)
    wait_until_held(run)
    pods = run.pod_uids
    [raylet] = processes(run, 1, "raylet")
    os.kill(raylet, signal.SIGKILL)
    run.wait("it is missed", lambda: said(run, 1)[-1]["ranks"] == [0])
    run.wait("it is back", lambda: said(run, 1)[-1]["ranks"] == [0, 1])
    let_go(run)
    run.wait_until_succeeded()
    assert_one_driver(run)
    assert run.pod_uids == pods


@nightly  # within a pod's grace, which a machine that does much else lets pass
def test_a_drained_node_is_drained_by_ray_while_another_joins(site: TrainingSite) -> None:
    run = train(site, "drained")
    wait_until_held(run)
    drained = run.nodes[2]
    annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, "new firmware")
    try:
        run.wait("Ray has drained it", lambda: WHY in str(said(run, 1, "alive")[-1]["dead"]))
        run.wait("another one has joined", lambda: drained not in run.nodes and run.status["start"].get("joins") == 1)
        run.wait("all are there", lambda: said(run, 1)[-1]["ranks"] == [0, 1, 2])
        let_go(run)
        run.wait_until_succeeded()
    finally:
        annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, None)
    assert_one_driver(run)
    assert "save" not in run.status["checkpoint"]


@nightly
def test_an_operator_that_is_killed_is_missed_by_nobody(site: TrainingSite) -> None:
    run = train(site, "alone", held_at=0)
    run.wait_until_saved(1, 10)
    site.kill_operator()
    run.wait_until_succeeded()
    assert len(run.attempts) == 1
    run.assert_undisturbed(STEPS)


@nightly
def test_a_run_that_is_suspended_saves_first_and_resumes_there(site: TrainingSite) -> None:
    run = train(site, "paused", held_at=0)
    run.wait_until_step(1, 12)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert save["outcome"] == "Saved"
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.assert_undisturbed(STEPS)


def programs_of_the_page() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "ray.md").read_text()
    return [part.partition("```")[0] for part in page.split("```python\n")[1:]]


def test_the_program_of_the_page_runs_as_shown(site: TrainingSite) -> None:
    run = train(site, "shown", 2, program=programs_of_the_page()[0])
    run.wait_until_succeeded()
    assert "weight 3.5" in run.log(0)


@nightly
def test_ray_train_goes_on_from_its_last_checkpoint_once_another_node_has_joined(site: TrainingSite) -> None:
    run = train(site, "ray-train", spareNodes=1, program=programs_of_the_page()[1])
    run.wait_until_saved(1, 60)
    run.wait("the spare is ready", lambda: run.status.get("spares") == "1/1")
    lost = run.nodes[2]
    site.kill_node(lost)
    site.declare_not_ready(lost)
    run.wait("the spare has joined", lambda: run.status["start"].get("joins") == 1)
    run.wait_until_succeeded()
    assert [attempt["number"] for attempt in run.attempts] == [1], run.attempts
    begun = [int(step) for step in re.findall(r"rank 0 goes on after step (\d+)", run.log(0))]
    assert (begun[0], begun[-1] >= 40) == (0, True), begun


@nightly
def test_ray_train_saves_when_it_is_suspended_and_resumes_there(site: TrainingSite) -> None:
    run = train(site, "ray-pause", 2, program=programs_of_the_page()[1])
    run.wait("it trains", lambda: run.status.get("progress", {}).get("step", 0) > 25)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert save["outcome"] == "Saved"
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]


def test_a_node_where_ray_is_missing_says_so(site: TrainingSite) -> None:
    run = site.apply("missing", 2, ["python3", "-c", "pass"], launcher={"type": "Ray"}, checkpoint=None)
    run.wait_until_finished()
    assert "install ray[default]" in run.attempts[-1]["message"] + run.condition("Succeeded")["message"]
