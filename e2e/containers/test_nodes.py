"""Nodes that stop, freeze or are cut off: the gang goes on elsewhere, and nothing of the old one harms it."""

from __future__ import annotations

import pytest

from containers.site import KindSite
from harness.training import TrainingRun

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # in every run the fault menu loses nodes, on processes
SECONDS = 240.0
STEPS = 300


def begun(site: KindSite, name: str, *options: str) -> TrainingRun:
    """Two of three nodes train, and have saved."""
    run = site.train(name, 2, STEPS, "--save-every=20", *options)
    run.wait_until_saved(1, 20, SECONDS)
    return run


def assert_replaced(run: TrainingRun, lost: str) -> None:
    """Rank 1 goes on elsewhere, and the step where it goes on was saved."""
    run.wait_until_step(2, 21, SECONDS)
    assert run.nodes[1] != lost
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"], first["action"]) == ("NodeLost", 1, lost, "Replace")


def finish(run: TrainingRun) -> None:
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)


def test_a_stopped_node_is_replaced_and_free_again_once_it_starts(site: KindSite) -> None:
    run = begun(site, "stopped")
    lost = run.nodes[1]
    site.kill_node(lost)
    assert_replaced(run, lost)
    site.return_node(lost)
    finish(run)


def test_a_paused_node_is_replaced_and_harms_nothing_when_it_wakes(site: KindSite) -> None:
    run = begun(site, "paused")
    lost = run.nodes[1]
    site.freeze_node(lost)
    assert_replaced(run, lost)
    site.thaw_node(lost)
    run.wait("what it ran is gone", lambda: not site.trainers(lost), SECONDS)
    finish(run)


def test_a_zombie_on_a_node_that_is_cut_off_writes_on_in_vain_and_ends_when_it_is_heard_again(site: KindSite) -> None:
    # Whoever has lost its peers does not end by itself here, but goes on saving what it can.
    run = begun(site, "cut-off", f"--write-on={10 * SECONDS}")
    lost = run.nodes[1]
    zombie = site.trainers(lost)
    site.cut_node(lost)
    run.wait("attempt 2 has its START", lambda: run.status["start"]["attempt"] == 2, SECONDS)
    assert_replaced(run, lost)
    kept = [pod for pod in run.pods if pod["spec"].get("nodeName") == lost]
    assert kept, "its pod is gone from the API, although nobody can know that it ended"
    assert zombie
    assert site.trainers(lost) == zombie
    run.wait_until_saved(2, 40, SECONDS)
    newer, written = run.files(2), last_written(run)
    run.wait("the zombie has written since", lambda: last_written(run) > written, SECONDS)
    assert site.trainers(lost) == zombie
    assert {path.name for path in run.folder.iterdir()} == {"a1", "a2"}
    now = run.files(2)
    for name, content in newer.items():
        grows = name.endswith(".jsonl")
        assert now[name].startswith(content) if grows else now[name] == content, f"{name} was changed by the zombie"

    site.heal_node(lost)
    run.wait("the zombie is gone", lambda: not site.trainers(lost), SECONDS)
    written = last_written(run)
    finish(run)
    assert last_written(run) == written
    assert [entry["number"] for entry in run.attempts] == [1, 2]


def last_written(run: TrainingRun) -> int:
    """When rank 1 last finished a file in the first attempt's directory."""
    return max(path.stat().st_mtime_ns for path in run.folder.glob("a1/step-*/shard-1.bin"))
