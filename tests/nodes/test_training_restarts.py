"""What goes wrong in one process, and what users ask for: the pods stay, the training comes back."""

from __future__ import annotations

import pytest

from containers.test_anywhere import QUICK
from harness.training import NODES, TrainingSite

pytestmark = pytest.mark.nodes


def test_a_process_that_dies_is_started_again_in_its_pod(site: TrainingSite) -> None:
    run = site.train("in-place", 3, 40, "--save-every=10", "--hold-after=12", QUICK)
    run.wait_until_saved(1, 10)
    pods, processes = run.pod_uids, run.processes()
    run.kill_process(1)
    run.wait_until_step(2, 11)
    assert run.pod_uids == pods
    assert not set(run.processes().values()) & set(processes.values())
    run.wait_until_succeeded()
    run.assert_undisturbed(40)
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["exitCode"]) == ("Application", 1, 137)
    assert first["action"] == "RestartInPlace"
    totals = run.status["totals"]
    assert (totals["restartsInPlace"], totals.get("podsReplaced", 0), totals.get("nodesReplaced", 0)) == (1, 0, 0)


def test_a_suspended_run_saves_leaves_its_nodes_and_resumes_where_it_was(site: TrainingSite) -> None:
    run = site.train("suspended", 3, 60, "--save-every=1000", "--hold-after=8", QUICK)
    run.wait_until_step(1, 8)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    assert not run.processes()
    saved = run.step(1)
    assert saved < 60
    run.change(suspend=False)
    run.wait_until_succeeded()
    assert run.status["start"]["resume"]["step"] == saved
    run.assert_undisturbed(60)


def test_logs_show_every_attempt_with_what_the_training_wrote(site: TrainingSite) -> None:
    run = site.train("talks", 2, 40, "--save-every=10", "--hold-after=12", QUICK)
    run.wait_until_saved(1, 10)
    run.kill_process(0)
    run.wait_until_succeeded()
    run.wait("the worker left", lambda: all(pod["status"]["phase"] == "Succeeded" for pod in run.pods))
    lines = run.log(1).splitlines()
    resumed = run.status["start"]["resume"]["step"]
    node = run.nodes[1]
    wanted = [
        f"lockstep: attempt=1 rank=1 node={node} resume=none world=2",
        "trainer: attempt=1 rank=1 begins after step 0",
        f"lockstep: attempt=1 node={node} end ",  # it saw its peer hang up, or was stopped for the restart first
        f"lockstep: attempt=2 rank=1 node={node} resume={resumed} world=2",
        f"trainer: attempt=2 rank=1 begins after step {resumed}",
        "trainer: done",
        f"lockstep: attempt=2 node={node} end code=0 reason=Completed",
    ]
    found = iter(lines)
    for beginning in wanted:
        assert any(line.startswith(beginning) for line in found), f"{beginning!r} is not there, or too early: {lines}"
    assert lines.count("trainer: this is stderr") == 2


@pytest.mark.parametrize(
    ("command", "reason", "remedy"),
    [
        (["no-such-program"], "CommandNotFound", "check spec.command and the image"),
        (["/app/stub_trainer.py"], "CommandNotExecutable", "check spec.command and the image"),
    ],
)
def test_a_command_that_cannot_be_run_ends_the_run_with_the_remedy(
    site: TrainingSite, command: list[str], reason: str, remedy: str
) -> None:
    run = site.apply(f"hopeless-{len(reason)}", 2, command)
    run.wait_until_finished()
    failed = run.condition("Succeeded")
    assert (failed["status"], failed["reason"]) == ("False", reason)
    assert remedy in failed["message"]
    assert run.status["attempt"] == 1
    assert run.attempts[0]["exitCode"] == {"CommandNotFound": 127, "CommandNotExecutable": 126}[reason]


def test_an_image_without_python_ends_the_run_with_the_remedy(site: TrainingSite) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "env": [{"name": "PATH", "value": "/nowhere"}]}]}}
    run = site.apply("no-python", len(NODES), ["true"], podTemplate=template)
    run.wait_until_finished()
    failed = run.condition("Succeeded")
    assert (failed["status"], failed["reason"]) == ("False", "PythonNotFound")
    assert "Python 3.8 or newer" in failed["message"]
