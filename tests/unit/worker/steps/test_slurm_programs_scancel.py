"""scancel where the steps of a job were begun on several nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.slurm.scancel import Cancel
from lockstep.worker.steps.slurm import scancel
from lockstep.worker.steps.slurm.registry import IDS_OF_NODE
from support.slurm_gang import SlurmGang

pytestmark = pytest.mark.process
THERE = f"123.{IDS_OF_NODE}"
TASK = """#!/bin/bash
trap 'touch $1.heard; exit 5' USR1
touch $1.up
while :; do sleep 0.1; done
"""
BEGINS = """#!/bin/bash
trap : USR1
setsid srun -n1 -N1 -w node-2 --overlap ./task there &
while kill -0 $! 2>/dev/null; do wait; done
"""
"""A task that does not pass on to its own step what it gets."""
SEVERAL = (
    "srun -n1 -N1 -w node-0 -o none ./task here & until [ -e here.up ]; do sleep 0.05; done;"
    " srun -n1 -N1 -w node-1 --overlap ./begins & until [ -e there.up ]; do sleep 0.05; done; "
)
"""A step of this node, and one whose srun runs on the second."""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[SlurmGang]:
    made = SlurmGang(tmp_path, 3)
    for name, text in (("task", TASK), ("begins", BEGINS)):
        (made.folder / name).write_text(text)
        (made.folder / name).chmod(0o755)
    yield made
    made.close()


@pytest.mark.parametrize("order", ["123.0 " + THERE, THERE + " 123.0"])
def test_steps_of_several_nodes_are_cancelled_by_one_call(gang: SlurmGang, order: str) -> None:
    ran = gang.run(f"{SEVERAL}timeout -s KILL 40 scancel {order}; code=$?; kill $(jobs -p); wait; echo $code")
    assert ran.stdout == "0\n", ran.stderr
    assert "*** STEP 123.0 ON" in ran.stderr
    assert f"*** STEP {THERE} ON" in ran.stderr


def test_a_node_is_asked_for_its_own_step_and_for_no_other_id(gang: SlurmGang) -> None:
    count = "trap 'echo >> heard' USR1; touch up; while [ ! -e over ]; do sleep 0.05; done"
    ran = gang.run(
        f'srun -n1 -N1 bash -c "{count}" & until [ -e up ]; do sleep 0.05; done;'
        f" timeout -s KILL 30 scancel -s USR1 123.0 {THERE}; echo $?;"
        " until [ -e heard ]; do sleep 0.05; done; sleep 0.5; touch over; wait"
    )
    assert ran.stdout == "1\n", ran.stderr
    assert (gang.folder / "heard").read_text() == "\n"
    over = "Job/step already completing or completed"
    assert f"scancel: error: Kill job error on job step id {THERE}: {over}\n" in ran.stderr
    assert ran.stderr.count("scancel: error") == 1


@pytest.mark.parametrize(
    "call",
    ["", "srun -n1 -N1 -w node-1 --overlap ", "srun -n1 -N1 -w node-2 --overlap "],
    ids=["the script", "a node that has begun a step", "one that has not"],
)
def test_a_signal_to_the_job_reaches_the_steps_that_were_begun_on_any_node(gang: SlurmGang, call: str) -> None:
    """Also where scancel is of a step that gets it."""
    heard = "n=0; until [ -e here.heard -a -e there.heard -o $n = 300 ]; do sleep 0.1; n=$((n + 1)); done"
    ran = gang.run(f"{SEVERAL}{call}scancel -s USR1 123; {heard}; kill -KILL $(jobs -p); ls *.heard")
    assert ran.stdout.split() == ["here.heard", "there.heard"], ran.stderr


def test_a_node_that_cannot_be_asked_is_named(gang: SlurmGang) -> None:
    lost = gang.gang.nodes[2]
    assert lost.server is not None
    lost.server.kill()
    lost.server.wait()
    lost.listener.close()
    task = 'trap "exit 5" USR1; touch up; while :; do sleep 0.1; done'
    ran = gang.run(
        f"srun -n1 -N1 -w node-0 bash -c '{task}' & until [ -e up ]; do sleep 0.05; done; scancel -s USR1 123; echo $?;"
        f" wait $!; echo $?; scancel 123.{2 * IDS_OF_NODE}; echo $?"
    )
    assert ran.stdout == "1\n5\n1\n", ran.stderr
    assert "scancel: error: Kill job error on job id 123: " in ran.stderr
    assert f"scancel: error: Kill job error on job step id 123.{2 * IDS_OF_NODE}: " in ran.stderr
    assert "127.0.0.3" in ran.stderr
    assert "already completing" not in ran.stderr


@pytest.mark.parametrize(
    ("step", "number", "order"),
    [
        ("1", signal.SIGKILL, [2, 1, 0]),
        ("1", signal.SIGSTOP, [2, 1, 0]),
        (str(IDS_OF_NODE), signal.SIGKILL, [0, 2, 1]),
        (str(2 * IDS_OF_NODE), signal.SIGKILL, [0, 1, 2]),
        ("", signal.SIGKILL, [0, 2, 1]),
        ("1", signal.SIGUSR1, [1, 0, 2]),
    ],
)
def test_who_may_kill_itself_tells_the_node_last_from_which_its_step_was_begun(
    monkeypatch: pytest.MonkeyPatch, step: str, number: int, order: list[int]
) -> None:
    told: list[int] = []

    def there(ranks: list[int], *more: object) -> dict[int, object]:
        told.extend(ranks)
        return {}

    monkeypatch.setenv("SLURM_STEP_ID", step)
    monkeypatch.setattr(scancel, "_there", there)
    monkeypatch.setattr(scancel, "_signal_own", lambda *said: told.append(1))
    here: Any = SimpleNamespace(
        job=SimpleNamespace(nodes=["a", "b", "c"], id=123), at=SimpleNamespace(gang=SimpleNamespace(rank=1))
    )
    assert scancel._signal(Cancel(signal=number), here, shell=False) == []
    assert told == order


@pytest.mark.parametrize("ids", ["", "123.7 123.8", "123.batch"])
def test_a_variable_that_only_a_node_that_asks_sets_breaks_no_other_call(gang: SlurmGang, ids: str) -> None:
    ran = gang.run(f"scancel -s CONT {ids} --user ann; echo $?", LOCKSTEP_SCANCEL_ASKED="1")
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ("1\n" if "." in ids and "batch" not in ids else "0\n"), ran.stderr
