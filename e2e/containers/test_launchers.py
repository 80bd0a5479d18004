"""What ends processes, daemons, nodes and operators where a program starts the others: each mpirun, and a batch script.

In containers that have neither ssh nor root, and a root file system that nobody writes to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from containers.site import KindSite
from containers.test_operator import kill_twice, leader
from harness.training import TRAINER, TrainingRun

pytestmark = [pytest.mark.containers, pytest.mark.nightly]  # several minutes a launcher
SECONDS = 240.0
STEPS = 200
DAEMONS = ("orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy")
TRAIN = ("python3", "-B", f"/app/{TRAINER.name}", f"--steps={STEPS}", "--later-delay=0.01")
SECURITY = {"runAsNonRoot": True, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False}


class Launcher(NamedTuple):
    """``image``: a group of tests/launchers; empty, the trainer's image. ``starter``: what starts the others."""

    name: str
    image: str
    launcher: dict[str, Any]
    starter: tuple[str, ...]
    env: dict[str, str]


def mpi(group: str, **env: str) -> Launcher:
    return Launcher(group, group, {"type": "MPI"}, ("mpirun", "-n", "2"), env)


LAUNCHERS = [
    mpi("openmpi"),
    mpi("openmpi4", OPAL_PREFIX="/opt/launchers"),
    mpi("mpich"),
    mpi("impi-rt"),
    Launcher("slurm", "", {"type": "Slurm"}, ("srun", "--kill-on-bad-exit=1"), {}),
]
MPI = LAUNCHERS[:4]
each_launcher = pytest.mark.parametrize("launcher", LAUNCHERS, ids=[each.name for each in LAUNCHERS])
each_mpirun = pytest.mark.parametrize("launcher", MPI, ids=[each.name for each in MPI])
others = pytest.mark.parametrize("launcher", MPI[1:], ids=[each.name for each in MPI[1:]])
"""Those that test_mpi.py and test_slurm.py do not have killed."""


@pytest.fixture
def begun(site: KindSite, launcher_image: Callable[[str], str]) -> Callable[..., TrainingRun]:
    """Two of three nodes train."""

    def train(launcher: Launcher, name: str, *options: str) -> TrainingRun:
        command: list[str] = [*launcher.starter, *TRAIN, *options]
        spec = dict(launcher.launcher)
        if spec["type"] == "Slurm":
            spec["batch"] = {"script": f"#!/bin/sh\n{' '.join(command)}\n", "output": "/dev/stdout"}
            command = []
        return site.apply(
            f"{name}-{launcher.name}", 2, command, launcher=spec,
            image=launcher_image(launcher.image) if launcher.image else site.image,
            env=[{"name": key, "value": value} for key, value in launcher.env.items()],
            podTemplate={"spec": {"containers": [{"name": "trainer", "securityContext": SECURITY}]}},
        )  # fmt: skip

    return train


def finish(run: TrainingRun) -> None:
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)


@others
def test_a_rank_that_is_killed_is_named_and_all_resume_in_their_pods(
    site: KindSite, begun: Callable[..., TrainingRun], launcher: Launcher
) -> None:
    run = begun(launcher, "killed")
    run.wait_until_saved(1, 20, SECONDS)
    pods, node = run.pod_uids, run.nodes[1]
    site.kill_inside(node, max(site.trainers(node)))  # its parent, where it has one, tells how it ended
    finish(run)
    assert run.pod_uids == pods
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()
    assert "signal 9" in run.attempts[0]["message"], run.summary()


@each_mpirun
def test_a_daemon_of_mpirun_that_is_killed_ends_the_attempt_by_its_node(
    site: KindSite, begun: Callable[..., TrainingRun], launcher: Launcher
) -> None:
    run = begun(launcher, "daemon")
    run.wait_until_saved(1, 20, SECONDS)
    node = run.nodes[1]
    site.kill_inside(node, min(site.processes(node, *DAEMONS)))
    finish(run)
    assert (run.attempts[0]["rank"], run.attempts[0]["node"]) == (1, node), run.summary()


@each_launcher
def test_a_node_that_is_lost_is_replaced_and_all_resume(
    site: KindSite, begun: Callable[..., TrainingRun], launcher: Launcher
) -> None:
    run = begun(launcher, "lost")
    run.wait_until_saved(1, 20, SECONDS)
    lost = run.nodes[1]
    site.kill_node(lost)
    finish(run)
    assert lost not in run.nodes
    assert (run.attempts[0]["cause"], run.attempts[0]["node"]) == ("NodeLost", lost), run.summary()


@each_launcher
def test_an_operator_that_is_killed_is_missed_by_nobody(
    site: KindSite, begun: Callable[..., TrainingRun], launcher: Launcher
) -> None:
    run = begun(launcher, "alone")
    run.wait_until_saved(1, 20, SECONDS)
    kill_twice(site, leader(site))
    finish(run)
    assert [attempt["number"] for attempt in run.attempts] == [1], run.summary()


@each_launcher
def test_a_run_that_is_suspended_saves_first_and_resumes_there(
    site: KindSite, begun: Callable[..., TrainingRun], launcher: Launcher
) -> None:
    run = begun(launcher, "paused", "--listen", "--save-every=100000")
    run.wait_until_step(1, 12, SECONDS)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods, SECONDS)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    run.change(suspend=False)
    finish(run)
    assert run.status["start"]["resume"]["step"] == save["step"]
