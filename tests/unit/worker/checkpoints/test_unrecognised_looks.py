"""When saves that no format recognises are looked for and told, by whom, and how a look ends."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest

from lockstep.controller.workers.protocol import decode_report
from lockstep.worker.agent import Worker
from lockstep.worker.checkpoints.inventory import CommitWatch
from lockstep.worker.checkpoints.unrecognised import (
    LOOK_SECONDS,
    LOOKED_AT,
    LOOKS,
    MOST,
    as_written,
    being_saved,
    left_behind,
)
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age, safetensors_file, torch_file
from support.unrecognised_saves import UID, attempt_of, launch, names, settings


def test_a_spare_looks_too_as_it_may_become_the_rank_that_does(tmp_path: Path) -> None:
    torch_file(attempt_of(tmp_path) / "ckpt.pt")
    assert names(left_behind(settings(tmp_path), -1)) == ["ckpt.pt"]
    assert left_behind(settings(tmp_path), 1) == []


def test_saves_that_are_begun_and_left_so_are_told_but_the_last_may_still_be_under_way(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    for step in (10, 20):
        safetensors_file(attempt_of(tmp_path) / f"step-{step}" / "model.safetensors")
        found = watch.poll().unrecognised
    (row,) = found
    assert row["path"].endswith("/step-10")
    assert row["reason"] == "no manifest.json: it was never committed"


def test_with_a_valid_save_of_the_attempt_nobody_looks_any_more(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    torch_file(attempt_of(tmp_path) / "final.pt")
    assert names(watch.poll(over=True).unrecognised) == ["final.pt"]
    age(layouts.dcp(attempt_of(tmp_path) / "step-30"))
    assert len(watch.poll().rows) == 1
    assert list(watch.poll(over=True).unrecognised) == []


def test_one_rank_looks_at_the_shared_tier(tmp_path: Path) -> None:
    torch_file(attempt_of(tmp_path) / "ckpt.pt")
    assert left_behind(settings(tmp_path), 1) == []
    assert CommitWatch(settings(tmp_path), launch(rank=1)).poll(over=True).unrecognised == []


@pytest.mark.slow
def test_however_much_lies_there_the_look_ends_and_the_newest_few_are_told(tmp_path: Path) -> None:
    directory = attempt_of(tmp_path)
    directory.mkdir(parents=True)
    for number in range(MOST + 4):
        age(torch_file(directory / f"w_{number:02}.pt"), 1.7e9 + number)
    for number in range(LOOKED_AT):
        (directory / f"log-{number}.txt").touch()
    began = time.monotonic()
    rows = left_behind(settings(tmp_path), 0)
    assert rows is None or 0 < len(rows) <= MOST
    assert time.monotonic() - began < 30.0


BLIND = {"stale": errno.ESTALE, "broken": errno.EIO, "denied": errno.EACCES}
NOTHING_THERE = {"gone": errno.ENOENT, "a file": errno.ENOTDIR}


def test_a_look_that_could_not_see_all_says_nothing_unless_what_it_saw_speaks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_file(attempt_of(tmp_path, 1) / "ckpt.pt")
    torch_file(tmp_path / "ns/one/beside.pt")
    attempt_of(tmp_path, 2).mkdir()
    scandir = os.scandir

    def told(number: int, blind_to: Path) -> list[str] | None:
        def scan(path: str) -> object:
            if Path(path) == blind_to:
                raise OSError(number, os.strerror(number), path)
            return scandir(path)

        with monkeypatch.context() as patch:
            patch.setattr("lockstep.worker.checkpoints.unrecognised.os.scandir", scan)
            rows = left_behind(settings(tmp_path), 0)
        return None if rows is None else names(rows)

    for number in BLIND.values():
        assert told(number, attempt_of(tmp_path, 1)) is None, "what lies beside may be anybody's"
        assert told(number, tmp_path / "ns/one" / UID) is None
        assert told(number, attempt_of(tmp_path, 2)) == ["ckpt.pt", "beside.pt"]
    for number in NOTHING_THERE.values():
        assert told(number, attempt_of(tmp_path, 1)) == ["beside.pt"]
    monkeypatch.setattr("lockstep.worker.checkpoints.unrecognised.LOOKED_AT", 2)
    assert told(errno.EIO, tmp_path) is None, "it ended before it came to the save"


def test_a_look_while_it_trains_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        torch_file(attempt_of(tmp_path) / f"w_{number}.pt")
    ticks = iter(range(1000))
    monkeypatch.setattr("lockstep.worker.checkpoints.unrecognised.monotonic", lambda: LOOK_SECONDS * next(ticks) / 2)
    assert len(being_saved(settings(tmp_path), 0, 1, 0.0)) < 4
    assert len(left_behind(settings(tmp_path), 0)) == 4, "at the barrier what is not seen would be taken for gone"


def test_the_operator_reads_them_bounded_and_a_worker_of_the_release_before_says_nothing() -> None:
    body = (
        b'{"protocol": 1, "runUid": "u", "slot": 0, "incarnation": 1, "podUid": "p", "phase": "Ready", "wall": 1.0,'
        b' "mono": 1.0%s}'
    )
    assert decode_report(body % b"").unrecognised is None
    row = b'{"tier": "shared", "path": "/a/\\u001b[31m%s", "attempt": 1, "reason": "no"}' % (b"x" * 4000)
    told = decode_report(body % (b', "unrecognised": [' + b", ".join([row] * 12) + b"]")).unrecognised
    assert told is not None
    assert len(told) == 8
    assert all(len(each.path) <= 512 and "\x1b" not in each.path for each in told)


def test_a_save_that_is_being_written_is_told_once_nobody_writes_to_it_or_the_program_has_ended(tmp_path: Path) -> None:
    directory = attempt_of(tmp_path) / "30"
    watch = CommitWatch(settings(tmp_path), launch())
    for number in range(3):
        age(safetensors_file(directory / f"part-{number}.safetensors"), 100 + number)
        assert list(watch.poll().unrecognised) == [], "it grows"
    assert names(watch.poll().unrecognised) == ["30"]
    safetensors_file(directory / "part-3.safetensors")
    assert list(watch.poll().unrecognised) == []
    assert names(watch.poll(over=True).unrecognised) == ["30"]


def test_a_save_of_a_known_format_that_begins_with_files_of_none_is_never_told(tmp_path: Path) -> None:
    directory = attempt_of(tmp_path) / "30"
    watch = CommitWatch(settings(tmp_path), launch())
    safetensors_file(directory / "unet.safetensors")
    assert list(watch.poll().unrecognised) == []
    layouts.dcp(directory)
    assert list(watch.poll().unrecognised) == []
    assert list(watch.poll().unrecognised) == []


def test_what_is_written_again_before_each_look_is_told_all_the_same(tmp_path: Path) -> None:
    watch = CommitWatch(settings(tmp_path), launch())
    told = []
    for number in range(LOOKS):
        age(torch_file(attempt_of(tmp_path) / "ckpt.pt"), 100 + number)
        told.append(names(watch.poll().unrecognised))
    assert told == [[]] * (LOOKS - 1) + [["ckpt.pt"]]


def test_at_the_barrier_it_is_known_of_what_the_last_attempt_was_seen_to_write(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = settings(tmp_path, command=["train.py", f"--out={out}"])
    age(torch_file(out / "base.pt"))
    age(torch_file(attempt_of(tmp_path) / "ckpt_10.pt"))
    watch = CommitWatch(one, launch(2))
    torch_file(out / "ckpt_20.pt")
    torch_file(out / "ckpt_30.pt")
    seen = watch.poll(over=True).unrecognised
    (out / "ckpt_30.pt").unlink()
    rows = as_written(left_behind(one, 0), seen, 2) or []
    told = {os.path.basename(row["path"]): row["attempt"] for row in rows}
    assert told == {"ckpt_10.pt": 1, "base.pt": 0, "ckpt_20.pt": 2}
    blind = as_written(None, seen, 2) or []
    assert {(os.path.basename(row["path"]), row["attempt"]) for row in blind} == {("ckpt_20.pt", 2), ("ckpt_30.pt", 2)}
    assert as_written(None, [], 2) is None


class Watched:
    """Of a program that has ended."""

    watching = True


@pytest.mark.parametrize(("ago", "left", "waits"), [(0.0, 20.0, True), (60.0, 20.0, False), (0.0, 0.0, False)])
def test_a_worker_whose_pod_goes_tells_of_the_last_save_first(
    tmp_path: Path, ago: float, left: float, waits: bool
) -> None:
    worker = Worker(settings(tmp_path, scratch=str(tmp_path), termination_grace=left * 4 / 3))
    now = time.monotonic()
    worker.phase, worker.exit = "Exited", {"code": 0, "signal": None, "reason": "StoppedOnRequest"}
    worker.ended = now - ago
    worker.termination.begin()
    worker.training = Watched()  # type: ignore[assignment]
    worker._leave_on_signal()
    assert (worker.leave_with is None) is waits
    worker.training.watching = False
    worker._leave_on_signal()
    assert worker.leave_with == 128 + signal.SIGTERM
