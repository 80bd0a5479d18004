"""How ranks ended, and what is said while others go on."""

from dataclasses import replace as with_fields
from typing import Any

import pytest
from msgspec.structs import replace

from lockstep.api.base.times import to_rfc3339
from lockstep.core.failures.ranks import half_finished
from lockstep.core.model.conditions import find
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import PodPhase
from lockstep.core.model.worker_report import ExitReport, PartlyEndedStep, WorkerPhase
from support.values import not_none
from support.world import World, phase, running, spec, world, world_with_gang


def end_child(w: World, rank: int, code: int, reason: str) -> None:
    worker = not_none(w.worker("one", rank))
    worker.phase, worker.since = WorkerPhase.EXITED, w.now
    worker.exit = ExitReport(code=code, at=w.now, reason=reason)


@pytest.mark.parametrize("reason", ["WorkerTerminated", "StoppedOnRequest", "StoppedForRestart", "Fenced"])
def test_a_process_that_was_made_to_end_with_code_0_has_not_finished_its_training(reason: str) -> None:
    w = running(1, spare=2)
    end_child(w, 0, 0, reason)
    w.settle()
    assert phase(w) is not Phase.FINISHED


def test_a_pod_told_to_leave_is_lost_and_not_the_programs_failure() -> None:
    # Without a checkpoint tier a failing program would end the run for good.
    w = running(2, 2, checkpoint=None)
    end_child(w, 1, 143, "WorkerTerminated")
    w.settle()
    status = w.status("one")
    assert status.stop is None
    assert phase(w) is not Phase.FINISHED
    assert status.attempts[0].cause == "Disruption"
    assert not status.attempts[0].charged
    assert status.recovery.consecutive_no_progress == 0


def test_a_run_that_ended_well_while_no_operator_looked_on_has_succeeded() -> None:
    w = running(spare=2)
    w.train("one", 5)
    w.crash()
    for name, pod in list(w.pods.items()):
        w.workers.pop(pod.uid)
        w.pods[name] = with_fields(pod, phase=PodPhase.SUCCEEDED, exit_code=0)
    w.settle()
    assert phase(w) is Phase.FINISHED
    assert w.status("one").state == "Succeeded"


def test_the_word_of_an_earlier_pod_of_the_same_name_says_nothing_of_the_one_there_now() -> None:
    """Somebody force-deletes a pod of a gathering gang: it is made again under its name."""
    w = world(3)
    w.apply("one", spec(2))
    w.directives_reach = 1  # rank 1 never comes to the barrier
    w.settle()
    assert phase(w) is Phase.LAUNCHING
    first = not_none(w.worker("one", 1))
    (name,) = [name for name, pod in w.pods.items() if pod.uid == first.pod_uid]
    del w.pods[name], w.workers[first.pod_uid]
    w.now += 30
    w.reports["uid-one"][0] = with_fields(w.reports["uid-one"][0], received_at=w.now)
    w.reconcile("one")
    w.reconcile("one")
    assert w.status("one").assignment.nodes == ("n0", "n1")


def test_an_attempt_that_ended_keeps_the_exit_code_of_the_first_to_fail() -> None:
    w = running(spare=2)
    w.end_child("one", 1, 3)
    assert w.status("one").attempts[0].exit_code == 3


def step(
    name: str, task: int, node: int | None, at: float, done: int, left: int, since: float = 0.0
) -> PartlyEndedStep:
    return PartlyEndedStep(name, task, node, at, done, left, since)


def half_done(ranks: int = 4, done: tuple[int, ...] = (1,), **fields: object) -> World:
    w = running(ranks, **fields)
    w.train("one", 14)
    w.work_reports_only()
    for number, rank in enumerate(done):
        w.now += number
        end_child(w, rank, 0, "Completed")
    w.work_reports_only()
    w.reconcile("one")
    return w


def test_a_rank_that_ended_while_others_go_on_is_said_at_once_with_time_and_step() -> None:
    w = half_done()
    told = find(w.status("one"), ConditionType.PROGRESSING)
    assert told is not None
    at = to_rfc3339(w.now)
    assert f"rank 1 ended with code 0 at {at} (after step 14); the other 3 still run" in told.message


def test_what_was_first_to_end_outlives_the_operator_and_the_ranks_that_follow_it() -> None:
    w = half_done(done=(2, 0))
    at = to_rfc3339(w.now - 1)
    expected = f"2 ranks (0,2) ended with code 0, the first was rank 2 at {at} (after step 14); the other 2 still run"
    w.crash()
    w.now += 60
    w.reconcile("one")
    assert half_finished(w.plan("one")) == expected


@pytest.mark.parametrize("done", [(), (0, 1, 2, 3)])
def test_a_gang_that_runs_or_has_ended_whole_is_not_half_finished(done: tuple[int, ...]) -> None:
    assert half_finished(half_done(done=done).plan("one")) == ""


def test_the_pods_of_plain_ranks_tell_the_same() -> None:
    w = world_with_gang(3, worker="Disabled")
    w.end_pod("one", 1, 0)
    w.reconcile("one")
    told = find(w.status("one"), ConditionType.PROGRESSING)
    assert told is not None
    assert f"rank 1 ended with code 0 at {to_rfc3339(w.now)}; the other 2 still run" in told.message


def partly(*told: tuple[int, PartlyEndedStep], **fields: Any) -> World:
    w = running(3, **fields)
    w.train("one", 14)
    for rank, step in told:
        worker = not_none(w.worker("one", rank))
        since = step.since and w.now + step.since
        worker.partly_ended += (replace(step, at=w.now + step.at, since=since),)
    w.work_reports_only()
    w.reconcile("one")
    return w


SLURM: dict[str, Any] = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}, "command": []}
MPI: dict[str, Any] = {"launcher": {"type": "MPI"}, "command": ["mpirun", "python", "train.py"]}


@pytest.mark.parametrize(
    ("fields", "told", "words"),
    [
        (
            SLURM,
            [(0, step("ab", 5, 2, 0, 1, 7))],
            "task 5 of a step on n2 ended with code 0 at {}; the other 7 still run",
        ),
        (
            SLURM,
            [(0, step("ab", 5, 2, 0, 3, 1))],
            "3 tasks of a step ended with code 0, the first was task 5 of a step on n2 at {}; the other still runs",
        ),
        (
            MPI,
            [
                (0, step("MPI", 0, None, 0, 0, 2)),
                (2, step("MPI", 5, None, -1, 1, 1)),
                (1, step("MPI", 2, None, 0, 2, 0)),
            ],
            "3 ranks of MPI ended with code 0, the first was rank 5 of MPI on n2 at {}; the other 3 still run",
        ),
        (MPI, [(0, step("MPI", 0, None, 0, 0, 2)), (1, step("MPI", 2, None, 0, 0, 2))], ""),
        (MPI, [(0, step("MPI", 0, None, 0, 2, 0)), (1, step("MPI", 2, None, 0, 2, 0))], ""),
        (MPI, [(0, step("MPI", 0, None, 0, 0, 2, -50)), (1, step("MPI", 2, None, -60, 2, 0, -90))], ""),
        (
            MPI,
            [(0, step("MPI", 0, None, 0, 0, 2, -50)), (1, step("MPI", 2, None, -40, 1, 0, -49))],
            "rank 2 of MPI on n1 ended with code 0 at {}; the other 2 still run",
        ),
        (SLURM, [(0, step("ab", 5, 1 << 20, 0, 1, 7))], ""),
    ],
    ids=["a task", "tasks", "ranks", "all run", "all have ended", "of an earlier mpirun", "of this one", "of no node"],
)
def test_of_steps_and_of_mpirun_it_is_said_as_well(
    fields: dict[str, Any], told: list[tuple[int, PartlyEndedStep]], words: str
) -> None:
    w = partly(*told, **fields)
    first = min((each.at for _, each in told if each.done), default=0.0)
    assert half_finished(w.plan("one")) == words.format(to_rfc3339(w.now + first))
    said = not_none(find(w.status("one"), ConditionType.PROGRESSING)).message
    assert words.format(to_rfc3339(w.now + first)) in said
    assert bool(words) == ("ended with code 0" in said)


def test_an_attempt_begins_without_the_ends_of_the_one_before() -> None:
    w = half_done()
    end_child(w, 0, 1, "Error")
    w.pass_time(60)
    assert w.status("one").attempt == 2
    assert half_finished(w.plan("one")) == ""
    told = find(w.status("one"), ConditionType.PROGRESSING)
    assert told is not None
    assert "ended with code 0" not in told.message
