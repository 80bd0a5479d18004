"""How attempts begin on nodes: after an exchange between them, from another run, in one directory, by the loader."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from harness import stub_trainer
from harness.training import CLAIM, NAMESPACE, TRAINER, TrainingSite

pytestmark = pytest.mark.nodes

SLOW = 150.0
"""Seconds for what takes a few on an idle machine."""
QUICK = "--step-delay=0.05"


@pytest.mark.parametrize("kind", ["Ring", "Pairwise"])
def test_nodes_exchange_data_once_before_the_gang_trains(site: TrainingSite, kind: str) -> None:
    run = site.train(f"warm-{kind.lower()}", 3, 40, "--hold-after=12", QUICK, preflight={"warmUp": kind})
    run.wait_until_saved(1, 10, SLOW)
    assert run.status["recovery"]["warmed"] == run.status["assignment"]["hash"]
    run.kill_process(1)
    run.wait_until_succeeded(SLOW)
    run.assert_undisturbed(40)
    assert not run.events("WarmUpFailed")
    assert [entry["cause"] for entry in run.attempts] == ["Application", "Succeeded"]
    for rank in range(3):
        log = run.log(rank)
        assert log.count("exchange with the other nodes") == 1, log
        assert f"lockstep: attempt=1 rank={rank} exchange with the other nodes: {kind}" in log


def test_a_run_starts_from_what_another_one_saved_and_goes_on_from_its_own(site: TrainingSite) -> None:
    base = site.train("base", 2, 20, "--step-delay=0")
    base.wait_until_succeeded(SLOW)
    checkpoint = {"format": "Manifest", "shared": {"claimName": CLAIM}, "start": {"run": "base"}}
    run = site.train("further", 2, 60, "--hold-after=32", QUICK, checkpoint=checkpoint)
    run.wait_until_saved(1, 30, SLOW)
    resume = run.status["start"]["resume"]
    root = f"/shared-checkpoints/{NAMESPACE}/base/{base.uid}"
    assert (resume["step"], resume["path"]) == (20, f"{root}/a1/step-20")
    assert run.status["resolved"]["startRoot"] == root
    run.kill_process(1)
    run.wait_until_succeeded(SLOW)
    resume = run.status["start"]["resume"]
    assert resume["step"] >= 30
    assert resume["path"] == f"/shared-checkpoints/{NAMESPACE}/further/{run.uid}/a1/step-{resume['step']}"
    for rank in range(2):
        wanted = list(stub_trainer.undisturbed(60, 2, rank))
        first = run.lineage(1, rank)
        assert first == wanted[20 : 20 + len(first)]
        assert run.lineage(2, rank) == wanted[resume["step"] :]


def test_attempts_that_share_a_directory_go_on_in_it_after_a_process_was_killed(site: TrainingSite) -> None:
    checkpoint = {"format": "Manifest", "shared": {"claimName": CLAIM}, "layout": "Shared"}
    run = site.train("one-directory", 3, 40, "--hold-after=12", QUICK, checkpoint=checkpoint)
    folder = site.world.claim_folder(NAMESPACE, CLAIM) / NAMESPACE / run.name
    run.wait("step 10 is saved", (folder / "step-10" / "manifest.json").exists, SLOW)
    pods = run.pod_uids
    run.kill_process(1)
    run.wait_until_succeeded(SLOW)
    assert run.pod_uids == pods
    assert [(entry["number"], entry["cause"]) for entry in run.attempts] == [(1, "Application"), (2, "Succeeded")]
    resume = run.status["start"]["resume"]
    assert resume["step"] >= 10
    assert resume["path"] == f"/shared-checkpoints/{NAMESPACE}/{run.name}/step-{resume['step']}"
    assert (folder / "step-40" / "manifest.json").exists()
    assert not list(folder.rglob("a[0-9]*"))
    for rank in range(3):
        wanted = list(stub_trainer.undisturbed(40, 3, rank))
        taken = lines_of(folder, rank)
        again = len(taken) - (40 - resume["step"])  # where attempt 2 begins
        assert taken == wanted[:again] + wanted[resume["step"] :]


def test_in_a_shared_directory_nothing_starts_beside_a_lost_writer_until_its_node_is_declared_out(
    site: TrainingSite,
) -> None:
    checkpoint = {"format": "Manifest", "shared": {"claimName": CLAIM}, "layout": "Shared"}
    run = site.train("lost-writer", 3, 40, "--hold-after=12", QUICK, checkpoint=checkpoint)
    folder = site.world.claim_folder(NAMESPACE, CLAIM) / NAMESPACE / run.name
    run.wait("step 10 is saved", (folder / "step-10" / "manifest.json").exists, SLOW)
    lost = run.nodes[1]
    site.world.process_nodes.kill_node(lost)
    run.wait("waits", lambda: "waits for the fence of" in run.condition("GangReady").get("message", ""), SLOW)
    assert lost in run.condition("GangReady")["message"]
    assert not run.processes()
    assert run.status["start"]["attempt"] == 1
    taint = "node.kubernetes.io/out-of-service"
    site.world.kubectl("taint", "nodes", lost, f"{taint}=nodeshutdown:NoExecute")
    try:
        run.wait("attempt 2 starts", lambda: run.status["start"]["attempt"] == 2, SLOW)
        run.wait_until_succeeded(SLOW)
    finally:
        site.world.kubectl("taint", "nodes", lost, f"{taint}-")
    assert lost not in run.nodes
    resume = run.status["start"]["resume"]
    for rank in range(3):
        wanted = list(stub_trainer.undisturbed(40, 3, rank))
        taken = lines_of(folder, rank)
        again = len(taken) - (40 - resume["step"])
        assert taken == wanted[:again] + wanted[resume["step"] :]


def lines_of(folder: Path, rank: int) -> list[stub_trainer.Line]:
    """The steps of a rank in all attempts; a line that was cut short is none."""
    lines = []
    for line in (folder / f"lineage-rank{rank}.jsonl").read_text().splitlines():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(line))
    return lines


# Saves as the Trainer of transformers does (weights alone), and loads as its get_last_checkpoint: the highest number.
SEARCHES_BY_ITSELF = f"""
import json, os, struct, sys
from pathlib import Path
sys.path.insert(0, "/app")
import {TRAINER.stem} as trainer

def save(gang, folder, step, state, **how):
    directory = folder / f"checkpoint-{{step}}"
    if gang.rank == 0:
        directory.mkdir()
        tensor = {{"dtype": "U8", "shape": [len(state)], "data_offsets": [0, len(state)]}}
        header = json.dumps({{"state": tensor}}).encode()
        weights = struct.pack("<Q", len(header)) + header + state.encode()
        trainer.write_durably(directory / "model.safetensors", weights)
        trainer.write_durably(directory / "trainer_state.json", json.dumps({{"global_step": step}}).encode())
    gang.exchange("saved")

def load(path, rank):
    found = Path(os.environ["LOCKSTEP_RESUME_DIR"]).glob("checkpoint-*")
    numbers = [int(each.name[11:]) for each in found if each.name[11:].isdigit()]
    latest = Path(os.environ["LOCKSTEP_RESUME_DIR"], f"checkpoint-{{max(numbers)}}")
    print("trainer: found", latest.name, flush=True)
    return (latest / "model.safetensors").read_bytes()[-len(trainer.BEGINNING):].decode()

trainer.save, trainer.load, trainer.save_what_one_can = save, load, lambda *lost: None
sys.exit(trainer.main())
"""


def test_a_loader_that_takes_the_highest_number_finds_the_chosen_step(site: TrainingSite) -> None:
    options = ("--steps=60", "--save-every=1000", "--save-at=20", "--hold-after=22", QUICK)
    command = ["python3", "-B", "-c", SEARCHES_BY_ITSELF, *options]
    checkpoint = {"format": "HuggingFace", "shared": {"claimName": CLAIM}, "resumeBy": "Pointer"}
    run = site.apply("searches", 2, command, checkpoint=checkpoint)
    attempt = run.folder / "a1"
    run.wait("step 20 is saved", (attempt / "checkpoint-20" / "trainer_state.json").exists, SLOW)
    torn = shutil.copytree(attempt / "checkpoint-20", attempt / "checkpoint-25")
    (torn / "trainer_state.json").unlink()
    run.kill_process(1)
    run.wait_until_succeeded(SLOW)
    assert (attempt / "checkpoint-25.lockstep-invalid-2" / "model.safetensors").exists()
    assert not torn.exists()
    pointing = run.status["checkpoint"]["pointing"]
    assert (pointing["attempt"], pointing["step"], pointing.get("problem", "")) == (2, 20, "")
    assert run.status["start"]["resume"]["step"] == 20
    for rank in range(2):
        assert "trainer: found checkpoint-20\n" in run.log(rank)
    run.assert_undisturbed(60)
