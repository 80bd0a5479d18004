"""Checkpoints on the nodes' own disks: resumed from, and not more of them with every attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.training import NAMESPACE, TrainingRun, TrainingSite

pytestmark = pytest.mark.nodes
RANKS, HELD, EVERY, STEPS = 4, 22, 5, 100  # each rank is killed once, after 22 steps; saved is after every 5th
TIERS = {"format": "Manifest", "shared": {"claimName": "checkpoints"}, "local": {"storage": "nvme"}}


def local_folders(site: TrainingSite, run: TrainingRun) -> list[Path]:
    """The run's directory on the disk of each rank's node."""
    disks = {node["name"]: Path(node["disk"]) for node in site.world.process_nodes.state()["nodes"]}
    return [disks[node] / "nvme" / NAMESPACE / run.name / run.uid for node in run.nodes]


def left_by_earlier(folder: Path, attempt: int) -> set[str]:
    """``a<attempt>/step-<step>`` of what attempts before this one have left, and what is being removed of it."""
    saves = {path for path in folder.glob("a*/step-*") if int(path.parent.name[1:]) < attempt}
    return {str(path.relative_to(folder)) for path in (*saves, *folder.glob(".*/*"))}


def test_attempts_resume_from_the_nodes_own_disks_and_leave_no_more_there_than_may_be_needed(
    site: TrainingSite,
) -> None:
    hold = (f"--hold-attempts={RANKS}", f"--hold-steps={HELD}", "--step-delay=0.02")
    options = ("--save-every=1000", f"--save-locally-every={EVERY}", *hold)
    run = site.train("local", RANKS, STEPS, *options, checkpoint=TIERS)

    def comes_to_its_hold(attempt: int, resumed: int) -> int:
        """The step that it has saved by then."""
        run.wait_until_step(attempt, resumed + HELD)
        saved = resumed + HELD - HELD % EVERY
        shards = [
            f / f"a{attempt}" / f"step-{saved}" / f"rank-{rank}" for rank, f in enumerate(local_folders(site, run))
        ]
        run.wait(f"step {saved} is saved", lambda: all((shard / "manifest.json").exists() for shard in shards))
        return saved

    def leaves(kept: set[str], attempt: int) -> None:
        folders = local_folders(site, run)
        run.wait(f"{kept} is left", lambda: all(left_by_earlier(folder, attempt) == kept for folder in folders))

    def starts(attempt: int, resumed: int) -> None:
        run.wait(f"attempt {attempt} starts", lambda: run.status["start"]["attempt"] == attempt)
        resume = run.status["start"]["resume"]
        assert (resume["tier"], resume["step"]) == ("local", resumed), run.summary()

    resumed = 0
    for attempt in range(1, RANKS + 1):
        saved = comes_to_its_hold(attempt, resumed)
        # Of all that came before, two steps of the last one; what it was about to save when it was killed is gone.
        leaves({f"a{attempt - 1}/step-{step}" for step in (resumed - EVERY, resumed)} if resumed else set(), attempt)
        run.kill_process(attempt - 1)  # one that fails first twice would lose its node
        starts(attempt + 1, saved)
        resumed = saved
    run.wait_until_succeeded()
    run.assert_undisturbed(STEPS)
    assert [entry.get("resumeStep") for entry in run.attempts] == [None, 20, 40, 60, 80]
