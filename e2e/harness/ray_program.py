"""A driver of Ray that says what it sees of its nodes, and what tests hear of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from harness.training import TrainingRun

STEPS, HELD_AT = 40, 12
DRIVER = """
import json, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, "/app")
import ray
import lockstep_training
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from stub_trainer import BEGINNING, advanced, batch, commit, lineage_line, load, open_for_append, shard, write_durably

environ = os.environ
steps, held_at, every = map(int, sys.argv[1:])
held_at = held_at if environ["LOCKSTEP_ATTEMPT"] == "1" else 0
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
    if lockstep_training.should_checkpoint(step) or step % every == 0 or step == steps:
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
SMALL = ["--num-cpus=1", "--object-store-memory=80000000"]
"""Arguments of `ray start`."""
QUIET = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0", "OMP_NUM_THREADS": "1"}


def arguments(steps: int = STEPS, held_at: int = HELD_AT, save_every: int = 10) -> Sequence[str]:
    """Of the driver. ``held_at``: the first attempt goes no further until it is let go; 0: it is not held."""
    return [str(steps), str(held_at), str(save_every)]


def said(run: TrainingRun, attempt: int, name: str = "said") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (run.folder / f"a{attempt}" / f"{name}.jsonl").read_text().splitlines():
            with suppress(ValueError):
                lines.append(json.loads(line))
    return lines


def wait_until_held(run: TrainingRun) -> None:
    run.wait("the driver is held", lambda: [line for line in said(run, 1) if line["step"] > HELD_AT], 400.0)


def let_go(run: TrainingRun) -> None:
    (run.folder / "a1" / "go").touch()


def assert_one_driver(run: TrainingRun, steps: int = STEPS) -> None:
    """One attempt, and one process from its first step to its last."""
    assert [attempt["number"] for attempt in run.attempts] == [1], run.attempts
    assert len({line["pid"] for line in said(run, 1)}) == 1
    run.assert_undisturbed(steps)
