"""Who trains on, and for how long, once a pod is told to end or its node is replaced."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.worker.launchers.ray import DRAIN_FILE
from lockstep.worker.link.operator_view import OperatorView
from lockstep.worker.node.termination import HELD_SECONDS, Termination
from support.unrecognised_saves import settings

GRACE = 40.0  # of the pod: 35 of it for the worker
RAY = {"launcher": "Ray", "launcher_options": {"joins": True}, "termination_grace": GRACE}


def child(attempt: int = 1, kill_at: float | None = None) -> Any:
    return SimpleNamespace(attempt=attempt, kill_at=kill_at)


def training(listens: bool = True, rank: int = 1) -> Any:
    return SimpleNamespace(listens=listens, rank=rank)


def operator(phase: str = "Run", attempt: int = 1, **more: Any) -> OperatorView:
    view = OperatorView()
    view.desired = {"phase": phase, "attempt": attempt, "stopGraceSeconds": 10, **more}
    return view


def drained(tmp_path: Path) -> Any:
    path = tmp_path / "a1" / "ray" / DRAIN_FILE
    return json.loads(path.read_text()) if path.exists() else None


def test_a_pod_that_is_told_to_end_twice_has_the_grace_of_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    termination = Termination(settings(tmp_path, termination_grace=GRACE), operator())
    assert (termination.begun, termination.trains_until()) == (False, None)
    now = [time.time(), time.monotonic()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[1])
    termination.begin()
    now[:] = [moment + 30 for moment in now]
    termination.begin()
    assert termination.begun
    assert termination.leaving_by == pytest.approx(now[0] + 5)
    assert termination.trains_until() == pytest.approx(now[0] - 5)  # 10 s of it are the program's
    assert termination.seconds_left() == termination.stop_grace() == pytest.approx(5)


@pytest.mark.parametrize(
    ("view", "process", "trains", "may"),
    [
        (operator(), child(), training(), True),
        (operator(attempt=2), child(), training(), False),
        (operator("Stop"), child(), training(), False),
        (operator("Prepare"), child(), training(), False),
        (operator(), child(kill_at=1.0), training(), False),
        (operator(), child(), training(listens=False), False),
        (operator(), child(), None, False),
    ],
)
def test_a_program_that_listens_trains_on_while_the_gang_does(
    tmp_path: Path, view: OperatorView, process: Any, trains: Any, may: bool
) -> None:
    termination = Termination(settings(tmp_path, termination_grace=GRACE), view)
    termination.begin()
    assert termination.may_train_on(process, trains) is may


@pytest.mark.parametrize(
    ("held", "passed", "may"), [(HELD_SECONDS / 2, 0, True), (HELD_SECONDS, 0, False), (0, 26, False)]
)
def test_it_trains_on_while_the_run_is_known_and_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: float, passed: float, may: bool
) -> None:
    view = operator()
    termination = Termination(settings(tmp_path, termination_grace=GRACE), view)
    termination.begin()
    now = time.monotonic()
    view.held_since, view.contact = now - held, now
    monkeypatch.setattr(time, "monotonic", lambda: now + passed)
    assert termination.may_train_on(child(), training()) is may


@pytest.mark.parametrize(
    ("changed", "view", "rank", "is_told"),
    [
        ({}, operator(), 1, True),
        ({}, operator("Stop", superseded=True), 1, True),
        ({}, operator("Stop"), 1, False),
        ({}, operator(attempt=2), 1, False),
        ({}, operator(), 0, False),
        ({"launcher_options": {}}, operator(), 1, False),
        ({"launcher": "Torchrun"}, operator(), 1, False),
    ],
)
def test_ray_is_told_until_when_a_node_is_there_that_it_goes_on_without(
    tmp_path: Path, changed: dict[str, Any], view: OperatorView, rank: int, is_told: bool
) -> None:
    (tmp_path / "a1" / "ray").mkdir(parents=True)
    termination = Termination(settings(tmp_path, scratch=str(tmp_path), **{**RAY, **changed}), view)
    termination.begin()
    assert termination.drain(child(), training(rank=rank)) is is_told
    told = drained(tmp_path)
    assert (told is not None) is is_told
    if told:
        assert told["until"] == pytest.approx(time.time() + 25, abs=5)


def test_a_node_that_is_replaced_is_drained_once_until_its_grace_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a1" / "ray").mkdir(parents=True)
    termination = Termination(settings(tmp_path, scratch=str(tmp_path), **RAY), operator("Stop", superseded=True))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert termination.drain_replaced(child(), training())
    told = drained(tmp_path)
    now += 24
    assert termination.drain_replaced(child(), training())
    now += 2
    assert not termination.drain_replaced(child(), training())
    assert drained(tmp_path) == told
    termination.begin_attempt()
    assert termination.drain_replaced(child(), training())
    assert not termination.drain_replaced(child(kill_at=1.0), training())
