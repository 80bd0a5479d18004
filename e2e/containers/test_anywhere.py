"""Tests that ask nothing of a cluster but its API: `tests/nodes` runs them too, with processes for containers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from harness import stub_trainer
from harness.training import NAMESPACE, TRAINER, AnySite, TrainingRun
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.api.base.times import to_unix

pytestmark = [pytest.mark.containers, pytest.mark.anywhere]
STEPS = 100
LISTENING = ("--listen", "--save-every=100000", "--step-delay=0.1")
"""Nothing is saved but what is asked for, and the end."""
NO_CADENCE = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "cadence": {"interval": "Disabled"}}
QUICK = "--step-delay=0.05"


def listening(site: AnySite, name: str, nodes: int) -> TrainingRun:
    run = site.train(name, nodes, STEPS, *LISTENING, checkpoint=NO_CADENCE)
    run.wait_until_step(1, 5)
    return run


def annotate(site: AnySite, path: str, annotation: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {annotation: value}}}
    site.world.cluster.api.send(Request("PATCH", path, patch, MERGE_PATCH))


@pytest.mark.nightly  # the fault menu and test_training_restarts.py suspend
def test_a_suspended_run_saves_at_one_step_on_all_ranks_and_resumes_from_it(site: AnySite) -> None:
    run = listening(site, "suspended", site.all_but_one)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    assert run.step(1) == save["step"]
    assert (run.folder / "a1" / f"step-{save['step']}" / "manifest.json").exists()
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == save["step"]
    run.assert_undisturbed(STEPS)


@pytest.mark.nightly  # on kind one is drained by kubectl
def test_a_drained_node_alone_is_left_and_the_others_keep_their_pods(site: AnySite) -> None:
    run = listening(site, "drained", site.all_but_one)
    drained, pods = run.nodes[1], {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.pods}
    annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, "new firmware")
    try:
        run.wait("it goes on elsewhere", lambda: run.status["attempt"] == 2 and drained not in run.nodes)
        run.wait_until_succeeded()
    finally:
        annotate(site, f"/api/v1/nodes/{drained}", names.ANNOTATION_DRAIN, None)
    first, save = run.attempts[0], run.status["checkpoint"]["save"]
    assert (first["cause"], first["node"], first.get("charged", False)) == ("Drained", drained, False)
    assert save["outcome"] == "Saved"
    assert run.attempts[1]["resumeStep"] >= save["step"]  # the stub saves once more on its SIGTERM
    assert set(run.nodes) <= set(site.nodes) - {drained}
    for rank in {*range(run.ranks)} - {1}:
        name = names.pod_name(run.name, run.uid, rank, 1)
        assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in run.pods}[name] == pods[name]
    run.assert_undisturbed(STEPS)


def test_a_run_whose_time_is_up_saves_and_ends(site: AnySite) -> None:
    run = site.train("timed", 2, 100_000, *LISTENING, checkpoint=NO_CADENCE)
    run.wait_until_step(1, 5)
    # Half of the limit is over in ten seconds: then the save is asked for, which may take as long as the start did.
    since_admitted = time.time() - to_unix(run.status["lastAdmitted"])
    run.change(timeLimit=f"{2 * int(since_admitted + 10)}s")
    run.wait_until_finished()
    ended = run.condition("Succeeded")
    assert (ended["status"], ended["reason"]) == ("False", "TimeLimit"), run.summary()
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    assert (run.folder / "a1" / f"step-{save['step']}" / "manifest.json").exists()
    run.wait("its programs have ended", lambda: not run.processes())
    assert run.status["attempt"] == 1
    for rank in range(run.ranks):
        taken = run.lineage(1, rank)
        assert taken == list(stub_trainer.undisturbed(save["step"], run.ranks, rank))


# How a save can go wrong, and what is said of it then.


def never_committed(step: Path) -> None:
    (step / "manifest.json").unlink()


def shard_missing(step: Path) -> None:
    (step / "shard-1.bin").unlink()


def size_wrong(step: Path) -> None:
    with (step / "shard-1.bin").open("r+b") as file:
        file.truncate(1000)


def checksum_wrong(step: Path) -> None:
    before = os.stat(step / "shard-1.bin")
    with (step / "shard-1.bin").open("r+b") as file:
        file.write(b"x")
    os.utime(step / "shard-1.bin", ns=(before.st_atime_ns, before.st_mtime_ns))


def changed_after_commit(step: Path) -> None:
    os.utime(step / "shard-1.bin")


TORN = {
    31: (never_committed, "no manifest.json"),
    32: (shard_missing, "shard-1.bin is missing"),
    33: (size_wrong, "shard-1.bin has 1000 bytes"),
    34: (checksum_wrong, "shard-1.bin has crc32"),
    35: (changed_after_commit, "shard-1.bin changed after its commit"),
}


def copy_of(step: Path, number: int) -> Path:
    """A valid checkpoint like another one, for a later step, that was saved a while ago."""
    copy = step.with_name(f"step-{number}")
    shutil.copytree(step, copy)
    manifest = copy / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"step": number}))
    for file in copy.iterdir():
        os.utime(file, (time.time() - 60, time.time() - 60))
    return copy


def test_torn_checkpoints_newer_than_the_valid_one_are_passed_over_with_the_reason(site: AnySite) -> None:
    run = site.train("torn", 2, 80, "--save-every=1000", "--save-at=20", "--hold-after=22", QUICK)
    run.wait_until_saved(1, 20)
    valid = run.folder / "a1" / "step-20"
    for number, (tear, _) in TORN.items():
        tear(copy_of(valid, number))
    run.kill_process(0)
    run.wait_until_succeeded()
    start = run.status["start"]
    assert (start["attempt"], start["resume"]["step"]) == (2, 20)
    rejected = {entry["step"]: entry["reason"] for entry in run.status["checkpoint"]["rejected"]}
    events = run.events("CheckpointRejected")
    for number, (_, reason) in TORN.items():
        assert reason in rejected[number]
        assert [note for note in events if f"step {number} " in note and reason in note]
    run.assert_undisturbed(80)


def test_a_cancelled_run_hears_sigterm_and_ends_for_good(site: AnySite) -> None:
    run = site.train("cancelled", 3, 100_000)
    run.wait_until_step(1, 5)
    pods = run.pod_uids
    run.change(cancel=True)
    run.wait_until_finished()
    assert run.condition("Succeeded")["reason"] == "Cancelled"
    run.wait("its processes are gone", lambda: not run.processes())
    run.wait("its workers left by themselves", lambda: all(p["status"]["phase"] == "Succeeded" for p in run.pods))
    assert run.pod_uids == pods
    assert "trainer: told to end, saves step" in run.log(2)


def plain(site: AnySite, name: str, nodes: int, steps: int, *options: str) -> TrainingRun:
    """The stub trainer, with what the worker would have done for it: a directory, and a file for its progress."""
    trainer = f"python3 -B /app/{TRAINER.name} --steps={steps} {' '.join(options)}"
    script = f'mkdir -p "$LOCKSTEP_CHECKPOINT_DIR"; export LOCKSTEP_PROGRESS_FILE=/dev/null; exec {trainer}'
    checkpoint = {"shared": {"claimName": "checkpoints"}}
    return site.apply(name, nodes, ["sh", "-c", script], worker="Disabled", checkpoint=checkpoint)


def test_a_gang_without_workers_trains_to_its_end(site: AnySite) -> None:
    run = plain(site, "plain", 3, 20)
    run.wait("runs", lambda: run.is_true("GangReady"))
    assert "no barrier" in run.condition("GangReady")["message"]
    for pod in run.pods:
        assert pod["metadata"]["annotations"]["lockstep.dev/attempt"] == "1"
        assert not [v for v in pod["spec"]["volumes"] if v["name"] == "lockstep-worker"]
    run.wait_until_succeeded()
    run.assert_undisturbed(20)
    assert run.status["start"]["masterPort"] in range(20_000, 30_000)


def test_a_spare_takes_the_place_of_a_killed_node_and_no_pod_is_made_for_it(site: AnySite) -> None:
    ranks = spare = site.all_but_one
    run = site.train("spared", ranks, 60, "--hold-after=22", spareNodes=1)
    run.wait("its spare is ready", lambda: run.status.get("spares") == "1/1")
    run.wait_until_saved(1, 20)
    before, pods = run.nodes, run.pod_uids
    assert sorted(before) == sorted(site.nodes), "there is no further node"
    site.kill_node(before[1])
    run.wait("attempt 2 is started", lambda: run.status["start"]["attempt"] == 2)
    assert run.pod_uids <= pods
    status = run.status
    order = [0, spare, *range(2, ranks)]
    assert status["assignment"]["rankToSlot"] == order
    assert status["start"]["order"] == ",".join(map(str, order))
    assert status["start"]["resume"]["tier"] == "shared"
    assert status["assignment"]["nodes"] == [before[0], "", *before[2:]]
    run.wait_until_step(2, int(status["start"]["resume"]["step"]) + 1)
    run.wait_until_succeeded()
    run.assert_undisturbed(60)
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"]) == ("NodeLost", 1, before[1])
    assert run.events("SpareUsed") == [f"the spare on {before[spare]} takes the place of rank 1"]


def test_a_gang_that_hangs_leaves_its_stacks_and_starts_again_in_its_pods(site: AnySite) -> None:
    # Ranks wait for each other as long as one likes, as in a collective operation.
    options = ("--listen", "--patience=600", "--later-delay=0.01")
    run = site.train("hangs", 3, 200, *options, recovery={"hangTimeout": "8s"})
    run.wait_until_saved(1, 20)
    pods, node = run.pod_uids, run.nodes[1]
    run.signal_process(1, signal.SIGSTOP)
    run.wait_until_succeeded()
    run.assert_undisturbed(200)
    assert run.pod_uids == pods
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"], first["action"]) == ("Hang", 1, node, "RestartInPlace")
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{first['stacks']}"
    data = site.world.cluster.api.get(path)["data"]
    stacks = {row["ranks"]: row["stacks"] for row in json.loads(data["stacks.json"])}
    assert "stopped by a signal" in stacks["1"]
    for rank in "02":
        assert "exchange (stub_trainer.py:" in stacks[rank]
