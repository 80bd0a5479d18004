"""What ends processes, daemons, nodes and operators where a program starts the others: mpirun, srun, deepspeed, Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from containers.launchers import DEEPSPEED, MPI, RAY, SECONDS, SLURM, Launcher
from containers.site import KindSite
from containers.test_operator import kill_twice, leader
from harness.training import TrainingRun

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # several minutes a launcher
DAEMONS = ("orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy", "raylet")
Begun = Callable[..., TrainingRun]


def each(launchers: Sequence[Launcher]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("launcher", launchers, ids=[launcher.name for launcher in launchers])


each_launcher = each([*MPI, SLURM, DEEPSPEED, RAY])
each_with_daemons = each([*MPI, RAY])
others = each(MPI[1:])
"""Those that test_mpi.py, test_slurm.py, test_deepspeed.py and test_ray.py do not have killed."""


@others
def test_a_rank_that_is_killed_is_named_and_all_resume_in_their_pods(
    site: KindSite, begun: Begun, launcher: Launcher
) -> None:
    run = begun(launcher, "killed")
    launcher.wait_until_saved(run)
    pods, node = run.pod_uids, run.nodes[1]
    site.kill_inside(node, max(site.trainers(node)))  # its parent, where it has one, tells how it ended
    launcher.finish(run)
    assert run.pod_uids == pods
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()
    assert "signal 9" in run.attempts[0]["message"], run.summary()


@each_with_daemons
def test_a_daemon_that_is_killed_ends_the_attempt_by_its_node(site: KindSite, begun: Begun, launcher: Launcher) -> None:
    run = begun(launcher, "daemon")
    launcher.wait_until_saved(run)
    node = run.nodes[1]
    site.kill_inside(node, min(site.processes(node, *DAEMONS)))
    launcher.finish(run)
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()


@each_launcher
def test_a_node_that_is_lost_is_replaced_and_all_resume(site: KindSite, begun: Begun, launcher: Launcher) -> None:
    run = begun(launcher, "lost", nodes=site.all_but_one)
    launcher.wait_until_saved(run)
    lost = run.nodes[1]
    site.kill_node(lost)
    launcher.finish(run)
    assert lost not in run.nodes
    assert (run.attempts[0]["cause"], run.attempts[0]["node"]) == ("NodeLost", lost), run.summary()


@each_launcher
def test_an_operator_that_is_killed_is_missed_by_nobody(site: KindSite, begun: Begun, launcher: Launcher) -> None:
    run = begun(launcher, "alone")
    launcher.wait_until_saved(run)
    kill_twice(site, leader(site))
    launcher.let_go(run)
    launcher.finish(run)
    assert [attempt["number"] for attempt in run.attempts] == [1], run.summary()


@each_launcher
def test_a_run_that_is_suspended_saves_first_and_resumes_there(
    site: KindSite, begun: Begun, launcher: Launcher
) -> None:
    run = begun(launcher, "paused", only_if_asked=True)
    run.wait_until_step(1, 12, SECONDS)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods, SECONDS)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    run.change(suspend=False)
    launcher.finish(run)
    assert run.status["start"]["resume"]["step"] == save["step"]
