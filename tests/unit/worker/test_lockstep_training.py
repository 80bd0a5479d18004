"""The module that programs import: the answers of one process."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker import lockstep_training
from lockstep.worker.child.progress import ProgressTail
from lockstep.worker.lockstep_training import _Training

SOURCE = Path(lockstep_training.__file__)


class Steered:
    """The module as a process sees it, steered by hand."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = _Training()

    def tell(self, save: Any = None, stop: Any = None, cadence: Any = None) -> None:
        control = {"version": 1, "attempt": 1, "save": save, "stop": stop, "cadence": cadence}
        (self.directory / "control.tmp").write_text(json.dumps(control))
        (self.directory / "control.tmp").rename(self.directory / "control.json")

    def saves(self, steps: range) -> list[int]:
        return [step for step in steps if self.process.should_checkpoint(step)]


@pytest.fixture
def steered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steered:
    for name, file in (("CONTROL_FILE", "control.json"), ("SAVED_FILE", "saved"), ("PROGRESS_FILE", "progress.jsonl")):
        monkeypatch.setenv(f"LOCKSTEP_{name}", str(tmp_path / file))
    monkeypatch.setenv("LOCKSTEP_CHECKPOINT_DIR", "/shared")
    monkeypatch.setenv("LOCKSTEP_LOCAL_CHECKPOINT_DIR", "/local")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return Steered(tmp_path)


def save(identity: str, at_step: int) -> dict[str, Any]:
    return {"id": identity, "atStep": at_step, "deadline": 1.0}


def cadence(steps: int, shared: int = 0, from_step: int = 0) -> dict[str, Any]:
    return {"seconds": 60.0, "steps": steps, "sharedSteps": shared, "fromStep": from_step}


def test_nothing_is_due_before_anything_was_said(steered: Steered) -> None:
    assert steered.saves(range(50)) == []
    assert not steered.process.should_stop()
    assert (steered.directory / "control.json.read").exists()


def test_a_save_is_due_once_per_id_at_its_step(steered: Steered) -> None:
    steered.tell(save("a", 7))
    assert steered.saves(range(1, 20)) == [7]
    steered.tell(save("a", 7), stop={"at": 9.0})  # the rest of the file changes
    assert steered.saves(range(20, 30)) == []
    steered.tell(save("b", 0))  # at the next opportunity
    assert steered.saves(range(30, 40)) == [30]
    assert (steered.directory / "saved").read_text() == "a\nb\n"


def test_a_stop_holds_from_the_save_that_was_asked_for_with_it(steered: Steered) -> None:
    steered.tell(cadence=cadence(10), stop={"at": 9.0})  # of a pod that is told to leave, ahead of its gang
    assert steered.saves(range(1, 11)) == [10]
    assert not steered.process.should_stop()
    steered.tell(save("a", 23), stop={"at": 9.0}, cadence=cadence(10))
    assert steered.saves(range(11, 21)) == [20]
    assert not steered.process.should_stop()  # other ranks may not have heard of it at step 20
    assert steered.saves(range(21, 24)) == [23]
    assert steered.process.should_stop()
    steered.tell(stop={"at": 9.0}, cadence=cadence(10))  # the save is complete
    assert steered.process.should_stop()


def test_the_deadline_is_not_judged_by_the_ranks_own_clock(steered: Steered) -> None:
    steered.tell({"id": "late", "atStep": 3, "deadline": 0.0})
    assert steered.saves(range(1, 5)) == [3]


def test_the_cadence_falls_on_its_multiples_and_once_each(steered: Steered) -> None:
    steered.tell(cadence=cadence(10))
    assert steered.saves(range(35)) == [10, 20, 30]
    assert not steered.process.should_checkpoint(30)


def test_right_after_a_resume_nothing_is_saved_again(steered: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_RESUME_STEP", "20")
    process = Steered(steered.directory)
    process.tell(cadence=cadence(10))
    assert process.saves(range(20, 31)) == [30]


def test_ranks_that_hear_of_a_new_cadence_at_different_steps_save_at_the_same_ones(steered: Steered) -> None:
    early, late = Steered(steered.directory), Steered(steered.directory)
    steered.tell(cadence=cadence(10))
    assert early.saves(range(1, 15)) == late.saves(range(1, 15)) == [10]
    unaware = late.saves(range(15, 41))  # it is the file of the one before that this rank sees until step 40
    steered.tell(cadence=cadence(25, from_step=45))
    assert early.saves(range(15, 120)) == [*unaware, *late.saves(range(41, 120))] == [20, 30, 40, 50, 75, 100]


def test_a_save_that_was_asked_for_and_the_cadence_do_not_save_twice(steered: Steered) -> None:
    steered.tell(save("a", 10), cadence=cadence(10))
    assert steered.saves(range(1, 12)) == [10]
    assert not steered.process.should_checkpoint(10)


def test_what_was_asked_for_goes_to_the_tier_that_outlives_the_node(steered: Steered) -> None:
    steered.tell(save("a", 25), cadence=cadence(10, shared=40))
    where = {step: steered.process.checkpoint_directory(step) for step in steered.saves(range(1, 45))}
    assert where == {10: "/local", 20: "/local", 25: "/shared", 30: "/local", 40: "/shared"}
    assert steered.process.checkpoint_directory(None) == "/shared"


def test_with_one_tier_there_is_no_choice(steered: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    steered.tell(cadence=cadence(10, shared=40))
    steered.process.should_checkpoint(1)
    monkeypatch.delenv("LOCKSTEP_CHECKPOINT_DIR")
    assert steered.process.checkpoint_directory(10) == "/local"
    monkeypatch.delenv("LOCKSTEP_LOCAL_CHECKPOINT_DIR")
    assert steered.process.checkpoint_directory(10) == ""


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"save": 5}', '{"save": {"id": 1}}', "\xff"])
def test_a_control_file_that_is_not_understood_changes_nothing(steered: Steered, content: str) -> None:
    steered.tell(cadence=cadence(10))
    assert steered.saves(range(1, 12)) == [10]
    (steered.directory / "control.json").write_text(content)
    assert steered.saves(range(12, 22)) == [20]


def test_one_process_of_a_node_reports_unless_the_loss_is_no_number(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    steered.process.report(1, 2.5, 10)
    monkeypatch.setenv("LOCAL_RANK", "3")
    other = Steered(steered.directory).process
    other.report(1, 2.5, 10)
    other.report(2, float("nan"), None)
    lines = [json.loads(line) for line in (steered.directory / "progress.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 2.5), (2, "nan")]


def test_a_full_disk_does_not_end_the_training(steered: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_PROGRESS_FILE", "/dev/full")
    steered.process.report(1, 2.5, None)
    steered.process.enter("Save", 1)


def test_a_rank_that_cannot_say_that_it_was_told_to_stop_goes_on_until_it_can(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    steered.tell(save("a", 5), stop={"at": 9.0})
    assert steered.saves(range(1, 6)) == [5]
    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        assert not steered.process.should_stop()  # its end would pass for the end of the run
    assert steered.process.should_stop()


def refuse(path: str, *args: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def test_that_a_program_asks_is_said_as_soon_as_there_is_room(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        steered.process.should_checkpoint(1)
    assert not (steered.directory / "control.json.read").exists()
    steered.process.should_checkpoint(2)
    assert (steered.directory / "control.json.read").exists()


def test_a_line_without_room_for_its_end_does_not_spoil_the_next(
    steered: Steered, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
        steered.process.report(1, None, None)
    steered.process.report(2, None, None)
    steered.process.report(3, None, None)
    read = ProgressTail(str(steered.directory / "progress.jsonl")).read(1.0)
    assert [entry["step"] for entry in read if isinstance(entry, dict)] == [2, 3]


@pytest.mark.process
def test_outside_of_lockstep_every_function_answers_harmlessly(tmp_path: Path) -> None:
    script = """
import lockstep_training as lockstep
lockstep.report(1, loss=2.0)
with lockstep.saving(1): pass
print([lockstep.should_checkpoint(1), lockstep.should_stop(), lockstep.checkpoint_directory(1), lockstep.resume_path()])
"""
    (tmp_path / SOURCE.name).write_bytes(SOURCE.read_bytes())
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, timeout=30,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("[False, False, '', '']\n", "")
