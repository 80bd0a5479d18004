"""What earlier attempts saved on the node's own disk goes, as the operator says, and nothing else."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.fake_operator import FakeOperator
from harness.running_worker import RUN_UID, LaunchWorker, ready, run_attempt, until
from lockstep.worker.agent import Worker
from lockstep.worker.checkpoints import removal
from lockstep.worker.checkpoints.removal import REMOVED, ROOM, Removal, free_space
from lockstep.worker.checkpoints.tiers import scan_tier
from lockstep.worker.child import processes
from lockstep.worker.node import preflight
from lockstep.worker.node.preflight import prepare
from lockstep.worker.settings import JSON, Settings, Tier
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age

UID = "run-1"
NOW = 5  # the attempt that starts


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The worker's own lines."""
    lines: list[str] = []
    monkeypatch.setattr(removal, "log_line", lines.append)
    return lines


def node(root: Path, **changed: object) -> Settings:
    return Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        scratch=str(root.parent), tiers={"local": Tier("local", str(root), 1.0)}, **changed,
    )  # fmt: skip


def saved(root: Path, attempt: int, step: int, ranks: Sequence[int] = (0,), uid: str = UID) -> Path:
    """What a node has of a step: a shard with a commit of its own for each of these ranks."""
    directory = root / uid / f"a{attempt}" / f"step-{step}"
    for rank in ranks:
        shard = directory / f"rank-{rank}"
        layouts.written(shard / "weights.bin", b"w" * 5000)
        files = [{"name": "weights.bin", "bytes": 5000, "crc32": "00000000"}]
        said = {"format": "lockstep/1", "runUID": uid, "attempt": attempt, "step": step, "world": 2, "files": files}
        layouts.written(shard / "manifest.json", json.dumps(said))
    return directory


def order(
    floor: tuple[int, int] | None = None, kept: Sequence[tuple[int, int]] = (), spent: Sequence[tuple[int, int]] = ()
) -> JSON:
    """As it comes with START; saves as (step, attempt)."""
    return {"floor": floor and list(floor), "kept": [*map(list, kept)], "spent": [*map(list, spent)]}


EVERYTHING = order((10**9, 0))


def remove(settings: Settings, told: JSON | None, attempt: int = NOW) -> None:
    """Until the thread has nothing to do any more."""
    at_work = Removal(settings)
    at_work.begin(attempt, told)
    until(lambda: not at_work._busy)


def steps(root: Path) -> list[str]:
    """``a<attempt>/<step>`` of what is left."""
    return sorted(str(path.relative_to(root / UID)) for path in (root / UID).glob("a*/*"))


def test_what_the_operator_lets_go_is_removed_and_the_rest_stays(tmp_path: Path, said: list[str]) -> None:
    for attempt, step in ((1, 100), (1, 110), (2, 200), (3, 300), (4, 310), (4, 320)):
        saved(tmp_path, attempt, step, ranks=(0, 3))
    saved(tmp_path, 5, 50)  # of the attempt that starts
    saved(tmp_path, 7, 50)
    other = saved(tmp_path, 1, 100, uid="run-2")
    remove(node(tmp_path), order((300, 3), kept=[(300, 3), (110, 1)], spent=[(320, 4), (50, 5)]))
    assert steps(tmp_path) == ["a1/step-110", "a3/step-300", "a4/step-310", "a5/step-50", "a7/step-50"]
    assert not (tmp_path / UID / REMOVED).exists()
    assert not (tmp_path / UID / "a2").exists(), "nothing is left in it"
    assert other.exists()
    assert said[0] == "attempt=5 old local checkpoints to remove: 3"
    assert len(said) == 2


@pytest.mark.parametrize("told", [None, {}, order(), order(None, spent=[(100, 2)])])
def test_without_an_order_for_it_nothing_goes(tmp_path: Path, told: JSON | None) -> None:
    saved(tmp_path, 1, 100)
    remove(node(tmp_path), told)
    assert steps(tmp_path) == ["a1/step-100"]


@pytest.mark.parametrize("told", [{"floor": 7}, {"floor": None}, order() | {"kept": [[1]]}, order() | {"spent": 3}])
def test_an_order_that_is_not_understood_removes_nothing_and_harms_nobody(
    tmp_path: Path, said: list[str], told: JSON
) -> None:
    saved(tmp_path, 1, 100)
    remove(node(tmp_path), told)
    assert steps(tmp_path) == ["a1/step-100"]
    assert said[0].startswith("old local checkpoints are not removed: ")


LAYOUTS: dict[str, Callable[[Path], Any]] = {
    "TorchDCP": lambda a: layouts.dcp(a / "step-100"),
    "Megatron": lambda a: layouts.megatron(a / "iter_0000100"),
    "Megatron, by rank": lambda a: layouts.megatron_by_rank(a / "iter_0000100"),
    "DeepSpeed": lambda a: layouts.deepspeed(a / "global_step100"),
    "HuggingFace": lambda a: layouts.hugging_face(a / "checkpoint-100"),
    "Lightning": lambda a: layouts.lightning(a / "epoch=0-step=100.ckpt", 100),
    "Lightning, called last": lambda a: layouts.lightning(a / "last.ckpt", 100),
    "Lightning, sharded": lambda a: layouts.lightning_sharded(a / "epoch=0-step=100.ckpt", 100),
    "NeMo": lambda a: layouts.nemo(a / "model--step=100"),
    "Orbax": lambda a: layouts.orbax(a / "100"),
    "Orbax, not ended": lambda a: layouts.orbax(a / "100.orbax-checkpoint-tmp-17", committed=False),
    "NVRx": lambda a: layouts.nvrx(a, 100, {0: (0, 2), 1: (1, 3)}),
    "NVRx, with a session": lambda a: layouts.nvrx(a / "session", 100, {0: (0, 2), 1: (1, 3)}),
    "NVRx, not ended": lambda a: layouts.torch_file(a / "0" / "iter_0000100_0_local.dirty.pt"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_every_format_all_of_a_save_goes_and_what_stays_is_whole(tmp_path: Path, layout: str) -> None:
    for attempt in (1, 2):
        LAYOUTS[layout](tmp_path / UID / f"a{attempt}")
    age(tmp_path)
    before = scan_tier("local", str(tmp_path), UID)
    assert {row["attempt"] for row in before} == {1, 2}
    remove(node(tmp_path), order(spent=[(100, 1)]))
    after = scan_tier("local", str(tmp_path), UID)
    assert after == [row for row in before if row["attempt"] == 2]
    assert not (tmp_path / UID / "a1").exists()


def test_ranks_directories_stay_while_another_step_is_in_them(tmp_path: Path) -> None:
    attempt = tmp_path / UID / "a1"
    layouts.nvrx(attempt, 100, {0: (0,), 1: (1,)})
    layouts.nvrx(attempt, 200, {0: (0,)})  # the other process was not done with its own
    (row,) = [row for row in scan_tier("local", str(tmp_path), UID) if row["step"] == 200]
    remove(node(tmp_path), order((200, 1), kept=[(200, 1)]))
    assert scan_tier("local", str(tmp_path), UID) == [row]


def test_what_is_no_checkpoint_stays_with_the_directory_that_holds_it(tmp_path: Path) -> None:
    attempt = tmp_path / UID / "a1"
    saved(tmp_path, 1, 100)
    layouts.written(attempt / "log.txt", "words")
    layouts.written(attempt / "events-100" / "events.out", "x")
    layouts.written(tmp_path / UID / "a002" / "step-100" / "manifest.json", "{}")
    layouts.written(tmp_path / UID / "notes" / "step-100" / "manifest.json", "{}")
    remove(node(tmp_path), EVERYTHING)
    assert steps(tmp_path) == ["a002/step-100", "a1/events-100", "a1/log.txt"]
    assert (tmp_path / UID / "notes" / "step-100").exists()


def test_with_a_format_named_what_another_one_has_saved_stays(tmp_path: Path) -> None:
    layouts.dcp(tmp_path / UID / "a1" / "step-100")
    layouts.hugging_face(tmp_path / UID / "a1" / "export-100", step=100)
    age(tmp_path)
    remove(node(tmp_path, checkpoint_format="TorchDCP"), EVERYTHING)
    assert steps(tmp_path) == ["a1/export-100"]


def test_what_cannot_be_judged_stays_and_is_told(tmp_path: Path, said: list[str]) -> None:
    layouts.deepspeed(
        tmp_path / UID / "a1" / "global_step100", known=False
    )  # it has no marker, and may still be written
    remove(node(tmp_path), EVERYTHING)
    assert steps(tmp_path) == ["a1/global_step100"]
    assert "cannot be judged: may still be written" in said[0]


def test_a_copy_of_another_runs_checkpoint_stays(tmp_path: Path) -> None:
    theirs = saved(tmp_path, 1, 100, uid="run-2")
    (tmp_path / UID / "a1").mkdir(parents=True)
    theirs.rename(tmp_path / UID / "a1" / "step-100")
    remove(node(tmp_path), EVERYTHING)
    assert steps(tmp_path) == ["a1/step-100"]


# What goes wrong


def test_what_was_cut_off_is_finished_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1, 100)
    saved(tmp_path, 2, 200, ranks=(0, 1))
    with monkeypatch.context() as killed:
        killed.setattr(removal, "finish", lambda *_: 0)  # between the renames and the end of the files
        remove(node(tmp_path), EVERYTHING)
    left = tmp_path / UID / REMOVED
    assert sorted(path.name for path in left.iterdir()) == ["a1-step-100", "a2-step-200"]
    assert scan_tier("local", str(tmp_path), UID) == []
    (left / "a2-step-200" / "rank-0" / "weights.bin").unlink()  # and in the middle of these
    saved(tmp_path, 2, 200)
    remove(node(tmp_path), None, attempt=6)
    assert not left.exists()
    assert steps(tmp_path) == ["a2/step-200"]


def test_a_name_that_is_taken_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "finish", lambda *_: 0)
    for _ in range(3):
        saved(tmp_path, 1, 100)
        remove(node(tmp_path), EVERYTHING)
    assert len(list((tmp_path / UID / REMOVED).iterdir())) == 3
    monkeypatch.undo()
    remove(node(tmp_path), None)
    assert not (tmp_path / UID / REMOVED).exists()


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_what_cannot_be_removed_is_told_a_few_times_and_everything_else_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], call: str
) -> None:
    for step in range(100, 110):
        saved(tmp_path, 1, step)
    saved(tmp_path, 2, 200)
    real = getattr(os, call)

    def refuses(path: str, *more: Any) -> None:
        if "a1" in str(path).removeprefix(str(tmp_path)):
            raise OSError(errno.EPERM, "Operation not permitted", path)
        real(path, *more)

    monkeypatch.setattr(os, call, refuses)
    remove(node(tmp_path), EVERYTHING)
    assert len(list((tmp_path / UID).rglob("weights.bin"))) == 10
    assert not list((tmp_path / UID).rglob("*200*"))
    told = [line for line in said if "Operation not permitted" in line]
    assert len(told) == removal.MOST_TOLD
    monkeypatch.undo()
    remove(node(tmp_path), EVERYTHING)
    assert not list((tmp_path / UID).rglob("weights.bin"))


def test_a_directory_that_cannot_be_listed_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    for attempt in (1, 2, 3):
        saved(tmp_path, attempt, 100)
    real = os.scandir

    def broken(path: Any) -> Any:
        if str(path).endswith("/a2"):
            raise OSError(errno.EIO, "Input/output error", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", broken)
    remove(node(tmp_path), EVERYTHING)
    monkeypatch.undo()
    assert steps(tmp_path) == ["a2/step-100"]
    assert "Input/output error" in said[0]


# Links


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Checkpoints that nobody means; they are there afterwards."""
    outside = tmp_path / "outside"
    saved(outside, 1, 100)
    layouts.nvrx(outside / "nvrx", 100, {0: (0,)})
    before = sorted(outside.rglob("*"))
    yield outside
    assert sorted(outside.rglob("*")) == before


def test_links_to_checkpoints_and_attempts_and_runs_are_not_followed(tmp_path: Path, elsewhere: Path) -> None:
    root = tmp_path / "local"
    (root / UID / "a1").mkdir(parents=True)
    (root / UID / "a1" / "step-100").symlink_to(elsewhere / UID / "a1" / "step-100")
    (root / UID / "a1" / "session").symlink_to(elsewhere / "nvrx")
    (root / UID / "a1" / "0").symlink_to(elsewhere / "nvrx" / "0")
    (root / UID / "a2").symlink_to(elsewhere / UID / "a1")
    remove(node(root), EVERYTHING)
    assert sorted(path.name for path in (root / UID / "a1").iterdir()) == ["0", "session", "step-100"]
    other = tmp_path / "by-link"
    other.mkdir()
    (other / UID).symlink_to(elsewhere / UID)
    remove(node(other), EVERYTHING)


def test_links_inside_a_checkpoint_go_without_what_they_lead_to(tmp_path: Path, elsewhere: Path) -> None:
    root = tmp_path / "local"
    shard = saved(root, 1, 100) / "rank-0"
    (shard / "file").symlink_to(elsewhere / UID / "a1" / "step-100" / "rank-0" / "weights.bin")
    (shard / "directory").symlink_to(elsewhere)
    (shard / "nowhere").symlink_to(tmp_path / "nowhere")
    remove(node(root), EVERYTHING)
    assert list((root / UID).iterdir()) == []


def test_a_link_where_removed_ones_wait_is_told_and_not_followed(
    tmp_path: Path, elsewhere: Path, said: list[str]
) -> None:
    root = tmp_path / "local"
    saved(root, 1, 100)
    (root / UID / REMOVED).symlink_to(elsewhere)
    remove(node(root), EVERYTHING)
    assert steps(root) == ["a1/step-100"]
    assert "is no directory" in said[0]


# In time


def test_when_inventory_is_taken_for_another_attempt_nothing_disappears_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (100, 200):
        saved(tmp_path, 1, step)
    renaming, goes_on = threading.Event(), threading.Event()
    real = os.rename

    def slow(path: str, target: str) -> None:
        renaming.set()
        assert goes_on.wait(20)
        real(path, target)

    monkeypatch.setattr(os, "rename", slow)
    at_work = Removal(node(tmp_path))
    at_work.begin(NOW, EVERYTHING)
    assert renaming.wait(20)

    def let_go_on() -> None:
        until(lambda: not at_work._counts)
        goes_on.set()

    threading.Thread(target=let_go_on).start()
    at_work.rest()
    inventory = steps(tmp_path)
    until(lambda: not at_work._busy)
    assert steps(tmp_path) == inventory == ["a1/step-200"]


def test_a_worker_lets_removals_come_to_rest_before_it_takes_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def survey(*_: object) -> list[JSON]:
        done.append("survey")
        return []

    monkeypatch.setattr(Removal, "rest", lambda self: done.append("rest"))
    monkeypatch.setattr(preflight, "survey", survey)
    monkeypatch.setattr(processes, "other_processes", list)
    (tmp_path / "local" / UID / "a2").mkdir(parents=True)
    worker = Worker(node(tmp_path / "local"))
    worker.barrier.approach({"attempt": 2, "rank": 0, "worldSize": 1})
    until(lambda: "survey" in done)
    assert done == ["rest", "survey"]
    worker.barrier.leave()


def test_an_order_that_comes_while_another_is_carried_out_is_carried_out_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1, 100)
    saved(tmp_path, 2, 200)
    finishing, goes_on = threading.Event(), threading.Event()
    real = removal.finish

    def slow(*how: Any) -> int:
        finishing.set()
        assert goes_on.wait(20)
        return real(*how)

    monkeypatch.setattr(removal, "finish", slow)
    at_work = Removal(node(tmp_path))
    at_work.begin(4, order(spent=[(100, 1)]))
    assert finishing.wait(20)
    at_work.rest()
    at_work.begin(5, order(spent=[(200, 2)]))
    goes_on.set()
    until(lambda: not at_work._busy)
    assert steps(tmp_path) == []


def test_a_container_without_room_for_a_thread_trains_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1, 100)
    at_work = Removal(node(tmp_path))

    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", full)
        at_work.begin(4, EVERYTHING)
    at_work.begin(5, EVERYTHING)
    until(lambda: not at_work._busy)
    assert steps(tmp_path) == []


@pytest.mark.parametrize(("free", "goes"), [(ROOM - 1, True), (ROOM, False)])
def test_what_waits_for_its_end_makes_no_node_fail_its_check_for_want_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, goes: bool
) -> None:
    root = tmp_path / "local"
    left = layouts.written(root / UID / REMOVED / "a1-step-100" / "weights.bin", b"w")
    monkeypatch.setattr(processes, "other_processes", list)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))
    prepared = prepare(node(root), 2, 0, 1)
    assert prepared.problem == ""
    assert prepared.port is not None
    prepared.port.close()
    assert left.exists() is not goes


def test_room_that_the_run_asks_for_is_made_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = layouts.written(tmp_path / UID / REMOVED / "a1-step-100" / "weights.bin", b"w")
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=ROOM * 4, f_frsize=1))
    free_space(node(tmp_path, min_disk=ROOM * 4))
    assert left.exists()
    free_space(node(tmp_path, min_disk=ROOM * 5))
    assert not left.exists()


# In a worker


@pytest.mark.process
def test_a_worker_removes_at_its_start_and_its_program_does_not_wait_for_it(
    operator: FakeOperator, launch: LaunchWorker, tmp_path: Path
) -> None:
    worker = launch("sh", "-c", f"touch {tmp_path}/runs-$LOCKSTEP_ATTEMPT; sleep 100")
    for step in (100, 200, 300):
        saved(worker.local, 1, step, uid=RUN_UID)
    ready(operator, 2)
    hangs = worker.local / RUN_UID / "a1" / "step-100" / "rank-0" / "manifest.json"
    hangs.unlink()
    os.mkfifo(hangs)  # who opens it waits for somebody to write
    operator.run(2, retention=order((300, 1), kept=[(300, 1)]))
    until((tmp_path / "runs-2").exists)
    attempt = worker.local / RUN_UID / "a1"
    assert (attempt / "step-200").exists()
    with hangs.open("w") as writer:
        writer.write("{}")
    until(lambda: not (attempt / "step-200").exists())
    assert (attempt / "step-300").exists()
    until(lambda: "old local checkpoints to remove: 2" in worker.stderr())
    # The next attempt is told nothing.
    run_attempt(operator, 3)
    until((tmp_path / "runs-3").exists)
    assert (attempt / "step-300").exists()
