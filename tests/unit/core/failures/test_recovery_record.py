"""Some parts of a status have one owner each; the verbs of recovery keep bounded what it holds."""

import ast

import pytest

from lockstep.api.recovery_status import ExcludedNode
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.failures import recovery_record as record
from lockstep.core.model.reasons import AttemptCause
from support.sources import CORE, nodes

OWNERS = {
    "recovery": "failures/recovery_record.py",
    "checkpoint": "checkpoints/checkpoint_record.py",
    "start": "model/start_record.py",
    "stop": "run/stop_record.py",
    "assignment": "model/assignment.py",
    "admission": "model/admission_record.py",
    "kueue": "kueue/kueue_record.py",
    "resolved": "model/resolved_record.py",
    "scale_up": "model/scale_up_record.py",
    "progress": "run/progress_record.py",
    "totals": "model/totals_record.py",
    "exits": "model/exits_record.py",
}
NOTHING = TrainingRunStatus()


def writers(part: str) -> set[str]:
    """Modules of the core that change ``part`` of a run's status."""
    found = set()
    for path, call in nodes(ast.Call, CORE):
        if isinstance(call.func, ast.Name) and call.func.id == "changed" and path.parts[0] != "arrays":
            whole = {keyword.arg for keyword in call.keywords}
            changes = ast.unparse(call.args[0]) if call.args else ""
            if part in whole or changes == part or changes.endswith(f"status.{part}"):
                found.add(str(path))
    return found


@pytest.mark.parametrize(("part", "owner"), OWNERS.items())
def test_a_part_of_status_is_changed_by_its_owner_alone(part: str, owner: str) -> None:
    assert writers(part) == {owner}


def test_failures_of_one_root_are_one_entry_and_of_many_roots_the_newest_stay() -> None:
    status = NOTHING
    for number in range(record.MAX_ROOTS + 2):
        for step in range(record.FAILURES_OF_A_ROOT + 1):
            status = record.remember_root(status, f"root-{number}", step, "n1", float(number))
    roots = status.recovery.roots
    assert [root.root for root in roots] == [f"root-{number}" for number in range(2, record.MAX_ROOTS + 2)]
    assert {(root.count, len(root.steps)) for root in roots} == {(record.FAILURES_OF_A_ROOT + 1, 8)}


def test_what_is_taken_back_leaves_no_trace() -> None:
    status = record.remember_root(NOTHING, "root", 5, "n1", 10.0)
    status = record.exclude_node(status, ExcludedNode(node="n1", reason="", since=10.0))
    assert record.unblame(status, "n1", "Unknown", 10.0).recovery == NOTHING.recovery
    assert record.unblame(status, "n2", "Unknown", 10.0).recovery == status.recovery


def test_of_several_nodes_under_one_suspicion_it_is_taken_back_of_all() -> None:
    status = record.remember_first_failure(NOTHING, "n3", AttemptCause.NODE_LOST, 10.0)
    for node in ("n1", "n2"):
        status = record.remember_first_failure(status, node, AttemptCause.UNKNOWN, 10.0)
    left = record.unblame(status, "n1", AttemptCause.UNKNOWN, 10.0).recovery.first_failures
    assert [one.node for one in left] == ["n3"]


def test_a_node_is_excluded_once() -> None:
    status = NOTHING
    for until in (1.0, 2.0):
        status = record.exclude_node(status, ExcludedNode(node="n1", reason="", until=until))
    assert [entry.until for entry in status.recovery.excluded_nodes] == [2.0]


@pytest.mark.parametrize(("resumed", "best", "streak"), [(None, 50, 3), (40, 50, 3), (50, 50, 3), (60, 60, 0)])
def test_a_start_beyond_the_best_step_is_progress_and_ends_every_wait(
    resumed: int | None, best: int, streak: int
) -> None:
    status = record.record_progress_made(NOTHING, 50)
    status = record.count_attempts_without_progress(status, 3)
    status = record.record_fence(record.record_requeue(status, 100.0), 100.0)
    recovery = record.record_start(status, resumed).recovery
    assert (recovery.best_step, recovery.consecutive_no_progress) == (best, streak)
    assert (recovery.not_before, recovery.requeues, recovery.fenced_at) == (None, 0, None)


def test_a_roll_back_lowers_what_counts_as_progress_and_is_forgotten_as_a_whole() -> None:
    status = record.record_progress_made(NOTHING, 50)
    back = record.record_roll_back(status, 30, 70, 45)
    assert (back.recovery.best_step, back.recovery.roll_backs, back.recovery.diverged_step) == (30, 1, 70)
    again = record.record_roll_back(back, 40, 60, 55).recovery
    assert (again.diverged_step, again.diverged_from) == (70, 45)
    assert record.record_roll_back(back, 20, 60, 35).recovery.diverged_from == 35
    over = record.forget_roll_backs(back).recovery
    assert (over.roll_backs, over.diverged_step, over.diverged_from, over.best_step) == (0, 0, 0, 30)


def test_lost_pods_are_counted_by_slot_and_forgotten_at_none() -> None:
    status = record.count_lost_pods(NOTHING, 2, "n2", 1, 5.0)
    status = record.count_lost_pods(status, 0, "n0", 2, 5.0)
    assert [(entry.slot, entry.count) for entry in status.recovery.slot_losses] == [(0, 2), (2, 1)]
    assert [entry.slot for entry in record.count_lost_pods(status, 0, "n0", 0, 6.0).recovery.slot_losses] == [2]
    assert record.forget_lost_pods(status).recovery == NOTHING.recovery
