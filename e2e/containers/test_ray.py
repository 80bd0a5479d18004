"""`launcher: Ray` in containers without root: what is lost of its nodes joins again while the driver goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from containers.launchers import JOINING, SECONDS
from containers.site import KindSite
from harness.ray_program import assert_one_driver, said
from harness.training import NAMESPACE, TrainingRun
from kindcluster.errors import KindClusterError
from lockstep.api.base import names

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # the image alone takes minutes
TASKS = ("ray::IDLE", "ray::rank_here", "ray::rank_here()")
"""What Ray calls its processes that run tasks."""
Begun = Callable[..., TrainingRun]


def wait_until_all_are_heard(run: TrainingRun, ranks: int) -> None:
    """By the driver, from now on."""
    heard = len(said(run, 1))
    everybody = list(range(ranks))
    run.wait("all are there", lambda: everybody in [line["ranks"] for line in said(run, 1)[heard:]], SECONDS)


def assert_that_the_driver_went_on(run: TrainingRun) -> None:
    JOINING.let_go(run)
    run.wait_until_succeeded(SECONDS)
    assert_one_driver(run, JOINING.steps)
    assert "done" in run.log(0)


def test_a_pod_that_is_deleted_is_replaced_and_joins_while_the_driver_goes_on(site: KindSite, begun: Begun) -> None:
    run = begun(JOINING, "deleted")
    JOINING.wait_until_saved(run)
    before = run.pod_uids
    site.world.kubectl("delete", "pod", names.pod_name(run.name, run.uid, 2, 1), "-n", NAMESPACE, "--now")
    run.wait("another pod is there", lambda: len(run.pod_uids - before) == 1, SECONDS)
    run.wait("it is taken in", lambda: run.status["start"].get("joins") == 1, SECONDS)
    wait_until_all_are_heard(run, 3)
    assert_that_the_driver_went_on(run)


def test_a_node_that_is_lost_is_replaced_and_another_joins_while_the_driver_goes_on(
    site: KindSite, begun: Begun
) -> None:
    run = begun(JOINING, "joined", nodes=2)
    JOINING.wait_until_saved(run)
    lost = run.nodes[1]
    site.kill_node(lost)
    run.wait("another one is taken in", lambda: run.status["start"].get("joins") == 1, SECONDS)
    wait_until_all_are_heard(run, 2)
    assert lost not in run.nodes
    assert_that_the_driver_went_on(run)


def test_a_killed_raylet_is_started_again_and_the_driver_goes_on(site: KindSite, begun: Begun) -> None:
    run = begun(JOINING, "raylet", nodes=2)
    JOINING.wait_until_saved(run)
    pods, node = run.pod_uids, run.nodes[1]
    [raylet] = site.processes(node, "raylet")
    heard = len(said(run, 1))
    site.kill_inside(node, raylet)
    run.wait("it is missed", lambda: [0] in [line["ranks"] for line in said(run, 1)[heard:]], SECONDS)
    wait_until_all_are_heard(run, 2)
    assert_that_the_driver_went_on(run)
    assert run.pod_uids == pods


def test_a_killed_process_that_runs_tasks_is_rays_affair(site: KindSite, begun: Begun) -> None:
    run = begun(JOINING, "task", nodes=2)
    JOINING.wait_until_saved(run)
    pods, node = run.pod_uids, run.nodes[1]
    killed = site.processes(node, *TASKS)
    assert killed
    for pid in killed:
        with suppress(KindClusterError):  # it has ended
            site.kill_inside(node, pid)
    run.wait("another one is there", lambda: set(site.processes(node, *TASKS)) - set(killed), SECONDS)
    wait_until_all_are_heard(run, 2)
    assert_that_the_driver_went_on(run)
    assert (run.pod_uids, run.status["start"].get("joins", 0)) == (pods, 0)


def test_a_driver_that_is_killed_is_the_cause_and_resumes_in_the_same_pods(site: KindSite, begun: Begun) -> None:
    run = begun(JOINING, "driver", nodes=2)
    JOINING.wait_until_saved(run)
    pods, driver = run.pod_uids, said(run, 1)[-1]["pid"]  # as its container counts
    head = names.pod_name(run.name, run.uid, 0, 1)
    site.world.kubectl("exec", "-n", NAMESPACE, head, "--", "sh", "-c", f"kill -KILL {driver}")
    JOINING.finish(run)
    assert run.pod_uids == pods
    assert (run.attempts[0]["rank"], run.attempts[0]["exitCode"]) == (0, 137), run.summary()
    assert run.status["start"]["resume"]["step"] == 10
