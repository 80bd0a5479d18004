"""What a worker says on its way from one attempt to the next, and when: all of a gang say it at the same time."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pytest

from harness.fake_operator import FakeOperator
from harness.proc import children, names
from harness.running_worker import (
    RUN_UID,
    LaunchWorker,
    RunningWorker,
    commit_shared,
    exited,
    ready,
    run_attempt,
    until,
)
from lockstep.worker.checkpoints import inventory
from lockstep.worker.child.launch import TOGETHER_SECONDS, start_delay
from lockstep.worker.node import barrier as worker_barrier
from lockstep.worker.node import preflight
from lockstep.worker.node.barrier import Barrier
from lockstep.worker.node.preflight import scratch_problem
from lockstep.worker.settings import JSON, Settings, Tier
from lockstep.worker.start import Launch
from lockstep.worker.steps.service import StepService

pytestmark = pytest.mark.process


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[FakeOperator]:
    # No heartbeat falls between two reports that follow each other.
    fake = FakeOperator(tmp_path, heartbeat=10.0)
    yield fake
    fake.close()


def test_start_is_acknowledged_before_the_program_is_started(operator: FakeOperator, launch: LaunchWorker) -> None:
    """Unless that takes too long, as it may now and then on a machine that does much else. Two connections: what is
    sent first may arrive last."""
    launch("/no/such/program")
    for attempt in range(1, 11):
        run_attempt(operator, attempt)
        assert exited(operator, attempt)["exit"]["reason"] == "CommandNotFound"
        said = [state["phase"] for state in operator.states() if state["attempt"] == attempt]
        if "Running" in said:
            return
    raise AssertionError(f"it was never told before the program had been started; the last time: {said}")


def test_start_is_acknowledged_in_one_report_which_is_the_next_poll(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sleep", "100")
    ready(operator, 1)
    operator.wait_for(lambda state: state["readyFor"] == 1 and state["waitSeconds"])
    count = len(operator.requests)
    operator.run(1)
    until(lambda: "sleep" in started_by(worker))
    operator.desire("Stop", 1)
    exited(operator, 1)
    running = [state for state in operator.states()[count:] if state["phase"] == "Running"]
    assert [bool(state["waitSeconds"]) for state in running] == [True]


def test_start_is_acknowledged_at_once_by_those_whose_program_is_held_back(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sleep", "100")
    ready(operator, 1)
    asked = time.monotonic()
    operator.run(1, startIn=0.8)
    operator.wait_for(lambda state: state["phase"] == "Running")
    assert "sleep" not in started_by(worker) or time.monotonic() - asked > 0.8  # on a machine that stood still
    until(lambda: "sleep" in started_by(worker))
    assert time.monotonic() - asked >= 0.8


@pytest.mark.parametrize(
    ("desired", "seconds"),
    [
        ({}, 0.0),
        ({"startIn": 0.25}, 0.25),
        ({"startIn": 0.25, "jitterSeconds": 8}, 2.25),
        ({"startIn": 1e9}, TOGETHER_SECONDS),
        ({"startIn": -1.0}, 0.0),
    ],
)
def test_a_rank_starts_once_all_were_told_and_its_turn_in_the_jitter_has_come(desired: JSON, seconds: float) -> None:
    launch = Launch(1, rank=1, world=4, master_address="a", master_port=1, resume_path="", resume_step="", nodelist=())
    assert start_delay(launch, desired) == seconds


def test_what_older_attempts_left_in_scratch_is_removed_once_the_next_one_starts(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sleep", "100")
    for attempt in (1, 2):
        run_attempt(operator, attempt)
        until(lambda: "sleep" in started_by(worker))
    assert sorted(path.name for path in worker.scratch.glob("a*")) == ["a2"]


def test_without_an_operator_to_acknowledge_to_the_program_starts_all_the_same(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("sleep", "100")
    ready(operator, 1)
    operator.refusals += [(503, "not-leading")] * 50
    operator.run(1)
    until(lambda: "sleep" in started_by(worker))


def test_what_a_poll_could_not_deliver_is_told_at_once_by_the_other_connection(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    launch("sleep", "100")
    ready(operator, 1)
    operator.wait_for(lambda state: state["readyFor"] == 1 and state["waitSeconds"])
    count = len(operator.requests)
    operator.refusals.append((503, "unavailable"))
    operator.run(1)
    told = operator.wait_for(lambda state: state["phase"] == "Running" and not state["waitSeconds"], since=count)
    assert told["attempt"] == 1


def test_the_newest_checkpoint_is_read_while_the_node_is_still_being_checked(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nuntil [ -e {tmp_path}/free ]; do sleep 0.05; done\necho 0\n")
    tool.chmod(0o755)
    operator.heartbeat = 0.5
    worker = launch("true", PATH=f"{tmp_path}:{os.environ['PATH']}", LOCKSTEP_GPUS="1")
    saved = commit_shared(worker, 1, 10, b"x" * 1000)
    wanted = {"tier": "shared", "path": str(saved), "step": 10, "share": 0, "of": 1}
    operator.desire("Prepare", 2, verify=wanted)
    read = operator.wait_for(lambda state: state["verified"])
    assert (read["phase"], read["readyFor"], read["verified"][0]["verdict"]) == ("Preparing", 0, "Valid")
    (tmp_path / "free").touch()
    arrived = operator.wait_for(lambda state: state["readyFor"] == 2)
    assert [row["path"] for row in arrived["verified"]] == [str(saved)]


ASKED_TO_READ = {"attempt": 1, "rank": 0, "verify": {"tier": "shared", "path": "/c", "share": 0, "of": 1}}


class Reading(NamedTuple):
    """A worker for whose arrival nothing lacks but what it was asked to read; ``read`` does that."""

    barrier: Barrier
    read: Callable[[], Callable[[], None] | None]


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    tiers = {"shared": Tier("shared", str(tmp_path), 0.0)}
    settings = Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",), scratch=str(tmp_path), tiers=tiers)
    begun: list[Callable[[], Callable[[], None] | None]] = []
    barrier = Barrier(settings, Mock(), begun.append, StepService(settings))
    barrier.approach(ASKED_TO_READ)
    read, prepare = begun
    arrive = prepare()
    assert arrive is not None
    arrive()
    barrier.approach(ASKED_TO_READ)
    yield Reading(barrier, read)
    barrier.leave()


def test_who_is_asked_looks_again_at_once_and_tells_of_what_was_saved_since(
    operator: FakeOperator, launch: LaunchWorker
) -> None:
    worker = launch("true")
    ready(operator, 2)
    saved = commit_shared(worker, 1, 10, b"x" * 1000)  # by a rank whose program ended later
    operator.desire("Prepare", 2, lookAgain=True)
    told = operator.wait_for(lambda state: state.get("lookedAgain") == 2)
    assert [row["path"] for row in told["inventory"]] == [str(saved)]


def test_a_second_look_that_fails_is_not_said_to_have_been_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: Reading
) -> None:
    answer = reading.read()
    assert answer is not None
    answer()
    reading.barrier.approach(ASKED_TO_READ)
    asked = ASKED_TO_READ | {"worldSize": 1, "lookAgain": True}
    begun: list[Callable[[], Callable[[], None] | None]] = []
    monkeypatch.setattr(reading.barrier, "_in_thread", begun.append)
    monkeypatch.setattr(worker_barrier, "survey", Mock(side_effect=[OSError("stale"), []]))
    reading.barrier.approach(asked)
    _take(begun.pop())
    reading.barrier.approach(asked)
    assert not begun, "not at once"
    assert "lookedAgain" not in reading.barrier.report()
    monkeypatch.setattr(reading.barrier, "_look_after", 0.0)
    reading.barrier.approach(asked)
    _take(begun.pop())
    assert reading.barrier.report()["lookedAgain"] == 1


def test_each_look_lists_what_is_older_than_what_the_operator_passes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def survey(*_: object, may_not_be: Callable[[str, int, int], bool], **__: object) -> list[JSON]:
        given.append((may_not_be("shared", 490, 1), may_not_be("shared", 500, 1)))
        return []

    monkeypatch.setattr(preflight, "end_other_processes", str)
    monkeypatch.setattr(preflight, "survey", lambda *rest: survey(may_not_be=rest[-1]))
    monkeypatch.setattr(worker_barrier, "survey", survey)
    settings = Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",), scratch=str(tmp_path))
    begun: list[Callable[[], Callable[[], None] | None]] = []
    barrier = Barrier(settings, Mock(inventory=[]), begun.append, StepService(settings))
    asked = {"attempt": 1, "rank": 0, "worldSize": 1, "passOver": {"beyond": 490, "saves": []}}
    barrier.approach(asked)
    _take(begun.pop())
    barrier.approach(asked)
    barrier.approach(asked | {"lookAgain": True, "passOver": {"beyond": 480, "saves": []}})
    _take(begun.pop())
    assert given == [(False, True), (True, True)]
    barrier.leave()


def test_a_second_look_sees_what_may_be_saves_too(monkeypatch: pytest.MonkeyPatch, reading: Reading) -> None:
    answer = reading.read()
    assert answer is not None
    answer()
    reading.barrier.approach(ASKED_TO_READ)
    reading.barrier.unrecognised = None
    asked = ASKED_TO_READ | {"worldSize": 1, "lookAgain": True}
    begun: list[Callable[[], Callable[[], None] | None]] = []
    monkeypatch.setattr(reading.barrier, "_in_thread", begun.append)
    save = {"tier": "shared", "attempt": 1, "path": "/c/ckpt.pt", "reason": ""}
    monkeypatch.setattr(worker_barrier, "left_behind", Mock(side_effect=[[save], None, []]))
    for told in ([save], None, []):
        monkeypatch.setattr(reading.barrier, "_look_after", 0.0)
        reading.barrier.approach(asked)
        _take(begun.pop())
        assert reading.barrier.unrecognised == told
    reading.barrier.approach(asked | {"rank": -1})
    assert not begun
    monkeypatch.setattr(reading.barrier, "_look_after", 0.0)
    reading.barrier.approach(asked | {"rank": -1})
    _take(begun.pop())
    assert reading.barrier.unrecognised == [], "a spare may stand there while others save"


def _take(work: Callable[[], Callable[[], None] | None]) -> None:
    finish = work()
    assert finish is not None
    finish()


def test_what_hangs_on_the_way_to_the_barrier_is_named_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = tmp_path / "lustre"
    tiers = {"shared": Tier("shared", str(tier), 0.0)}
    settings = Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",), scratch=str(tmp_path), tiers=tiers)
    begun: list[Callable[[], Callable[[], None] | None]] = []
    reached, answers = threading.Event(), threading.Event()

    def hangs(*_: object, **__: object) -> list[JSON]:
        reached.set()
        assert answers.wait(20)
        return []

    monkeypatch.setattr(inventory, "scan_tier", hangs)
    barrier = Barrier(settings, Mock(), begun.append, StepService(settings))
    asked = {"attempt": 1, "rank": 0, "worldSize": 1}
    barrier.approach(asked)
    arrive: list[Callable[[], None] | None] = []
    preparing = threading.Thread(target=lambda: arrive.append(begun[0]()))
    preparing.start()
    assert reached.wait(20)
    barrier.approach(asked)
    assert barrier.problem == "", "it may only be slow"
    monkeypatch.setattr(worker_barrier, "SLOW_SECONDS", 0.0)
    barrier.approach(asked)
    assert barrier.problem == f"still preparing: the shared checkpoint tier {tier} has not answered for 0 s"
    answers.set()
    preparing.join(20)
    assert arrive[0] is not None
    arrive[0]()
    assert barrier.problem == ""
    barrier.leave()


def test_what_is_read_quickly_is_told_in_the_same_words_as_the_arrival(reading: Reading) -> None:
    assert reading.barrier.ready_for == 0
    answer = reading.read()
    assert answer is not None
    answer()
    reading.barrier.approach(ASKED_TO_READ)
    said = reading.barrier.report()
    assert (said["readyFor"], [row["path"] for row in said["verified"]]) == (1, ["/c"])


def test_what_takes_long_to_read_holds_up_no_arrival(reading: Reading) -> None:
    assert reading.barrier.ready_for == 0

    def arrived() -> bool:
        reading.barrier.approach(ASKED_TO_READ)
        return reading.barrier.ready_for == 1

    until(arrived)
    assert reading.barrier.report()["port"] > 0


def test_a_port_held_for_an_arrival_that_is_not_wanted_any_more_is_let_go(reading: Reading) -> None:
    assert reading.barrier.report()["port"] > 0
    reading.barrier.stand_down()
    assert reading.barrier.report()["port"] == 0


def test_a_save_seen_last_is_told_with_the_arrival_and_not_before(operator: FakeOperator, launch: LaunchWorker) -> None:
    worker = launch("sleep", "100")
    run_attempt(operator, 1)
    until(lambda: "sleep" in started_by(worker))
    saved = commit_shared(worker, 1, 10, b"x" * 1000)
    count = len(operator.requests)
    ready(operator, 2)
    said = [state for state in operator.states()[count:] if not state["waitSeconds"]]  # the others are polls
    assert [state["phase"] for state in said] == ["Ready"]
    assert str(saved) in {row["path"] for row in said[0]["inventory"]}


def test_what_it_saved_as_it_was_told_to_end_is_its_own_at_the_barrier_though_nobody_heard_of_it(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    saved, up = tmp_path / "shared" / RUN_UID / "ckpt.pt", tmp_path / "up"
    worker = launch("sh", "-c", f"trap 'echo weights > {saved}; exit 0' TERM; touch {up}; while :; do sleep 0.05; done")
    run_attempt(operator, 1)
    until(up.exists)
    ready(operator, 2)
    (row,) = operator.wait_for(lambda state: [row["attempt"] for row in state["unrecognised"]] == [1])["unrecognised"]
    assert row["path"] == str(saved)
    assert worker.process.poll() is None


def test_only_a_suspicious_worker_waits_for_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    settings = Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",), scratch=str(tmp_path))
    assert scratch_problem(settings, synced=False) == ""
    assert not synced
    assert scratch_problem(settings) == ""
    assert len(synced) == 1


def test_a_scratch_volume_that_directories_of_an_earlier_attempt_have_filled_is_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, kept = tmp_path / "scratch", tmp_path / "shared" / "weights"
    spilled = scratch / "a1" / "ray" / "session" / "spilled"
    for path in (spilled, scratch / "a1" / "steps" / "told", scratch / "a1" / "progress.jsonl", kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for link in ("a1/out", "a1/ray/out", "a2"):
        (scratch / link).symlink_to(kept.parent)
    full = os.strerror(errno.ENOSPC)
    monkeypatch.setattr(preflight, "_write_problem", lambda probe, synced: full if spilled.exists() else "")
    settings = Settings("https://x", "team", "hello", "u", 0, 1, "pod", ("true",), scratch=str(scratch))
    assert scratch_problem(settings) == ""
    assert os.listdir(scratch / "a1") == [], "it says that the attempt has run"
    assert kept.read_text() == "x"


def started_by(worker: RunningWorker) -> list[str]:
    """Names of the worker's children."""
    return list(names(children(worker.process.pid)).values())
