"""Runs without the worker: the program is the pod's own process, and a new attempt is a new set of pods."""

from __future__ import annotations

from typing import Any

import pytest

from containers.test_anywhere import plain
from harness.training import TrainingSite

pytestmark = pytest.mark.nodes


def times(pod: dict[str, Any]) -> tuple[int, str, str]:
    """Incarnation of a pod, and when it was made."""
    labels = pod["metadata"]["labels"]
    return int(labels["lockstep.dev/incarnation"]), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def test_a_failed_pod_replaces_the_whole_gang_once_every_old_pod_is_gone(site: TrainingSite) -> None:
    run = plain(site, "plain-fails", 3, 40, "--hold-after=8")
    run.wait_until_step(1, 8)
    before = run.pod_uids
    run.kill_process(1)
    overlap: list[set[str]] = []

    def restarted() -> bool:
        alive = [pod for pod in run.pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        attempts = {pod["metadata"]["annotations"]["lockstep.dev/attempt"] for pod in alive}
        overlap.append(attempts)
        return run.step(2) >= 1

    run.wait("attempt 2 trains", restarted, 90)
    assert all(len(attempts) <= 1 for attempts in overlap)
    assert len(run.pod_uids - before) == 3
    run.wait_until_succeeded()
    first = run.attempts[0]
    # Pods tell their ends in whole seconds, so that its peers may have been as early.
    assert first["rank"] == 1 or "cannot be told" in first["message"]
    assert (first["cause"], first["action"]) == ("Application", "ReplaceGang")
    assert {times(pod)[0] for pod in run.pods if pod["status"]["phase"] == "Succeeded"} == {2}


def test_cancelling_ends_the_programs_with_sigterm(site: TrainingSite) -> None:
    run = plain(site, "plain-cancel", 2, 500)
    run.wait_until_step(1, 3)
    run.change(cancel=True)
    run.wait_until_finished()
    run.wait("its pods are gone", lambda: not run.processes())
    # The stub saves when it is told to end, which only SIGTERM does.
    assert list((run.folder / "a1").glob("step-*/manifest.json"))
