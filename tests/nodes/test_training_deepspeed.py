"""`launcher: DeepSpeed` with the real one, on CPUs: `deepspeed train.py --deepspeed ds.json` as typed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.deepspeed_program import PAGE, write_program
from harness.shown_commands import block_on
from harness.training import CLAIM, TrainingRun, TrainingSite
from support.deepspeed import ENVIRONMENT, MISSING, VENV

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.nightly,
    pytest.mark.skipif(not (VENV / "bin" / "deepspeed").exists(), reason=MISSING),
]
STEPS, RANKS = 40, 3
SECONDS = 400.0  # an attempt begins with all processes importing torch


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deepspeed")
    folder.chmod(0o755)
    write_program(folder)
    return folder


def train(site: TrainingSite, program: Path, name: str, seconds: float = 0.0, shown: str = "") -> TrainingRun:
    """A run as the page has it; ``seconds`` a step."""
    text = block_on(PAGE, "yaml", shown or "name: with-deepspeed-launcher")
    spec: dict[str, Any] = yaml.safe_load(text)["spec"]
    words = [word.replace("train.py", f"{program}/train.py").replace("ds.json", f"{program}/ds.json")
             for word in spec["command"]]  # fmt: skip
    environment = {**ENVIRONMENT, "STEP_SECONDS": str(seconds)}
    return site.apply(
        name, RANKS, words, launcher=spec["launcher"], checkpoint=spec["checkpoint"] | {"shared": {"claimName": CLAIM}},
        env=[{"name": key, "value": value} for key, value in environment.items()],
    )  # fmt: skip


def wait_until_saved(run: TrainingRun, attempt: int, step: int) -> None:
    latest = run.folder / f"a{attempt}" / "latest"
    run.wait(
        f"attempt {attempt} saves {step}", lambda: latest.exists() and int(latest.read_text()[11:]) >= step, SECONDS
    )


def processes(run: TrainingRun, rank: int, word: str) -> list[int]:
    """PIDs of those on a node with this word in their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (folder / "environ").read_bytes().split(b"\0")
            mine = {f"LOCKSTEP_RUN_UID={run.uid}".encode(), f"LOCKSTEP_NODE_RANK={rank}".encode()}
            if mine <= set(environ) and word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@pytest.fixture(scope="module")
def undisturbed() -> list[list[dict[str, Any]]]:
    """What every rank recorded when nothing happened: filled by whoever comes first."""
    return []


def lineages(run: TrainingRun, attempt: int = 1) -> list[list[dict[str, Any]]]:
    return [list(run.lineage(attempt, rank)) for rank in range(RANKS)]


def assert_undisturbed(run: TrainingRun, expected: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Bit for bit: losses of all steps of all attempts are those of a run to which nothing happened."""
    run.assert_lineage_is(lambda rank: expected[rank])


@pytest.fixture
def expected(site: TrainingSite, program: Path, undisturbed: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    if not undisturbed:
        run = train(site, program, "reference")
        run.wait_until_succeeded(SECONDS)
        undisturbed.extend(lineages(run))
        site.put_in_order()
    return undisturbed


def test_the_command_as_typed_trains_on_all_nodes_to_its_end(
    site: TrainingSite, program: Path, undisturbed: list[list[dict[str, Any]]]
) -> None:
    run = train(site, program, "typed")
    run.wait_until_succeeded(SECONDS)
    losses = lineages(run)
    assert [[line["step"] for line in rank] for rank in losses] == [list(range(1, STEPS + 1))] * RANKS
    assert len({rank[0]["loss"] for rank in losses}) == RANKS, "each has its own part of the data"
    assert float(losses[0][-1]["loss"]) < float(losses[0][0]["loss"]) / 2, "they learn from each other"
    assert run.status["checkpoint"]["latest"][0]["step"] == STEPS
    undisturbed[:] = losses


def test_a_process_that_is_killed_ends_the_attempt_by_its_node_and_all_resume(
    site: TrainingSite, program: Path, expected: list[list[dict[str, Any]]]
) -> None:
    run = train(site, program, "killed", 0.3)
    wait_until_saved(run, 1, 10)
    pods = run.pod_uids
    (pid,) = processes(run, 2, "--local_rank=0")
    os.kill(pid, signal.SIGKILL)
    run.wait_until_succeeded(SECONDS)
    entry = run.attempts[0]
    assert (entry["action"], entry["rank"]) == ("RestartInPlace", 2), entry
    assert run.pod_uids == pods
    assert_undisturbed(run, expected)


def test_a_node_that_is_lost_is_replaced_and_all_resume(
    site: TrainingSite, program: Path, expected: list[list[dict[str, Any]]]
) -> None:
    run = train(site, program, "lost", 0.3)
    wait_until_saved(run, 1, 10)
    lost = run.nodes[1]
    site.kill_node(lost)
    site.declare_not_ready(lost)
    run.wait_until_succeeded(SECONDS)
    assert lost not in run.nodes
    assert_undisturbed(run, expected)


def test_an_operator_that_is_killed_is_missed_by_nobody(
    site: TrainingSite, program: Path, expected: list[list[dict[str, Any]]]
) -> None:
    run = train(site, program, "alone", 0.2)
    wait_until_saved(run, 1, 10)
    site.kill_operator()
    run.wait_until_succeeded(SECONDS)
    assert len(run.attempts) == 1
    assert_undisturbed(run, expected)


def test_a_run_that_is_suspended_saves_first_and_resumes_there(
    site: TrainingSite, program: Path, expected: list[list[dict[str, Any]]]
) -> None:
    run = train(site, program, "paused", 0.3)
    run.wait_until_step(1, 12, SECONDS)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: run.is_true("Suspended") and not run.pods)
    save = run.status["checkpoint"]["save"]
    assert (save["outcome"], save["step"]) == ("Saved", save["atStep"])
    run.change(suspend=False)
    run.wait_until_succeeded(SECONDS)
    assert run.status["start"]["resume"]["step"] == save["step"]
    assert_undisturbed(run, expected)


def test_deepspeed_with_a_hostfile_inside_a_command_reaches_the_nodes_by_pdsh(
    site: TrainingSite, program: Path, expected: list[list[dict[str, Any]]]
) -> None:
    run = train(site, program, "hostfile", shown="name: with-hostfile")
    run.wait_until_succeeded(SECONDS)
    assert lineages(run) == expected
