"""Requests of a job's programs on their way to the operator: told until they are answered, whatever else lies there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.launchers import slurm
from lockstep.worker.steps import asks as worker_side
from lockstep.worker.steps.asks import MAX_ASKS, MAX_BYTES, Asks
from lockstep.worker.steps.slurm.asking import AskedError, ask

UNREACHABLE = "Unable to contact slurm controller (connect failure)"


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Asks], list[dict[str, Any]]]:
    (tmp_path / slurm.ASKS).mkdir()
    monkeypatch.setattr(worker_side, "LOOK_SECONDS", 0.0)

    def rows(asks: Asks) -> list[dict[str, Any]]:
        asks.observe()
        found: list[dict[str, Any]] = asks.report().get("asks", [])
        return found

    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / slurm.ASKS


@pytest.fixture
def asks(folder: Path) -> Asks:
    made = Asks()
    made.begin(str(folder))
    return made


Look = Callable[[Asks], list[dict[str, Any]]]


def request(folder: Path, name: str, kind: str = "requeue", **body: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"kind": kind, "body": body}))


def test_a_request_is_told_until_it_is_answered_and_once_more_to_nobody(look: Look, asks: Asks, folder: Path) -> None:
    request(folder, "one")
    assert look(asks) == look(asks) == [{"id": "one", "kind": "requeue", "body": {}}]
    asks.take([{"id": "other", "ok": True, "words": ""}])
    assert (look(asks)[0]["id"], asks.requeued) == ("one", False)
    asks.take([{"id": "one", "ok": True, "words": "agreed", "jobId": 7}])
    assert (look(asks), asks.requeued) == ([], True)
    assert json.loads((folder / "one.answer.json").read_text()) == {"ok": True, "words": "agreed", "jobId": 7}
    asks.take([{"id": "one", "ok": False, "words": "no"}])
    assert json.loads((folder / "one.answer.json").read_text())["ok"], "the first answer counts"


@pytest.mark.parametrize(
    ("kind", "agreed", "requeued"), [("requeue", True, True), ("requeue", False, False), ("hold", True, False)]
)
def test_only_a_requeue_that_was_agreed_to_says_that_the_job_runs_again(
    look: Look, asks: Asks, folder: Path, kind: str, agreed: bool, requeued: bool
) -> None:
    request(folder, "one", kind)
    look(asks)
    asks.take([{"id": "one", "ok": agreed, "words": ""}])
    assert asks.requeued is requeued


def test_what_is_no_request_is_removed_and_told_to_nobody(look: Look, asks: Asks, folder: Path) -> None:
    request(folder, "kind", "root")
    (folder / "text.json").write_text("[1]")
    (folder / "deep.json").write_text("[" * 20_000)
    (folder / "large.json").write_text(json.dumps({"kind": "submit", "body": {"script": "x" * MAX_BYTES}}))
    os.mkfifo(folder / "pipe.json")
    (folder / "a name.json").write_text("{}")
    assert look(asks) == []
    assert sorted(path.name for path in folder.iterdir()) == ["a name.json"]


def test_so_many_are_told_at_once_and_so_much_and_the_others_have_their_turn(
    look: Look, asks: Asks, folder: Path
) -> None:
    for number in range(MAX_ASKS + 2):
        request(folder, f"n{number}")
    told = look(asks)
    assert len(told) == MAX_ASKS
    asks.take([{"id": row["id"], "ok": True, "words": ""} for row in told])
    assert len(look(asks)) == 2
    for path in folder.iterdir():
        path.unlink()
    for number in range(3):
        request(folder, f"l{number}", "submit", script="x" * (MAX_BYTES // 2 - 1000))
    assert [row["id"] for row in look(asks)] == ["l0", "l1"]


def test_of_very_many_files_so_many_are_looked_at_each_time(
    look: Look, asks: Asks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_side, "_MAX_NAMES", 3)
    for number in range(8):
        (folder / f"bad-{number}.json").write_text("none")
    left = []
    for _ in range(3):
        look(asks)
        left.append(len(list(folder.iterdir())))
    assert left == [5, 2, 0]


def test_who_waits_no_more_is_forgotten(look: Look, asks: Asks, folder: Path) -> None:
    request(folder, "one")
    assert look(asks)
    (folder / "one.json").unlink()
    assert look(asks) == []
    asks.take([{"id": "one", "ok": True, "words": ""}])
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("answers", [None, "x", [1], [{}], [{"id": "one"}], [{"id": ["one"], "ok": True}]])
def test_answers_that_are_none_do_no_harm(look: Look, asks: Asks, folder: Path, answers: Any) -> None:
    request(folder, "one")
    look(asks)
    asks.take(answers)
    assert look(asks)


def test_a_program_waits_for_its_answer_and_leaves_nothing(look: Look, asks: Asks, folder: Path) -> None:
    got: list[Any] = []
    client = threading.Thread(target=lambda: got.append(ask(str(folder.parent / "steps"), "submit", {"script": "#!"})))
    client.start()
    while not (rows := look(asks)):
        pass
    assert (rows[0]["kind"], rows[0]["body"]) == ("submit", {"script": "#!"})
    asks.take([{"id": rows[0]["id"], "ok": True, "words": "fine", "jobId": 8}])
    client.join(20)
    assert got == [(True, "fine", 8)]
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_program_that_nobody_answers_says_what_slurms_would(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    with pytest.raises(AskedError, match="connect failure"):
        ask(str(tmp_path / "steps"), "requeue", {}, seconds=0.2)
    assert list(folder.iterdir()) == []
    with pytest.raises(AskedError, match="larger than"):
        ask(str(tmp_path / "steps"), "submit", {"script": "x" * MAX_BYTES})
    folder.rmdir()
    with pytest.raises(AskedError, match="Unable to contact"):
        ask(str(tmp_path / "steps"), "requeue", {})
