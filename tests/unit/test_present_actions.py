"""What may be done to a run when, and what it costs in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.present.actions import DONE, Deed, Stakes, costs, open_to, patch
from support import sample_runs


def with_spec(raw: dict[str, Any], **spec: Any) -> RunView:
    return parse_run(raw | {"spec": raw["spec"] | spec})


RUNNING = parse_run(sample_runs.running())
UNSAVED = with_spec(sample_runs.running(checkpoint={}), checkpoint=None)
ASKED = sample_runs.failed() | {"status": {"conditions": sample_runs.failed()["status"]["conditions"]}}
STOP = {"reason": "Suspended", "time": sample_runs.at(20), "deadline": sample_runs.at(-60), "save": "s-1"}


def stopping(outcome: str = "", save: str = "s-1") -> RunView:
    """It is suspended, and asked to save before it stops."""
    awaited = {"id": save, "attempt": 2, "outcome": outcome}
    raw = sample_runs.running()
    checkpoint = (raw["status"].get("checkpoint") or {}) | {"save": awaited}
    raw = raw | {"status": raw["status"] | {"stop": STOP, "checkpoint": checkpoint}}
    return with_spec(raw, suspend=True)


HELD = with_spec(sample_runs.pending(), suspend=True)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RUNNING, "checkpoint suspend cancel"),
        (UNSAVED, "suspend cancel"),
        (parse_run(sample_runs.pending()), "suspend cancel"),
        (HELD, "resume cancel"),
        (with_spec(sample_runs.running(), suspend=True), "resume cancel"),  # it is stopped just now
        (parse_run(sample_runs.recovering()), "suspend cancel"),
        (with_spec(sample_runs.running(), cancel=True), ""),
        (parse_run(sample_runs.failed()), "retry"),
        (with_spec(sample_runs.failed(), cancel=True), "retry"),
        (with_spec(sample_runs.failed(), nodes="many"), ""),  # nobody can say what it was
        (replace(parse_run(ASKED), annotations={names.ANNOTATION_TEST_ONLY: "true"}), ""),  # nothing was to run
        (parse_run(sample_runs.run()), "suspend cancel"),  # nobody has looked at it yet
    ],
)
def test_only_what_makes_sense_is_offered(run: RunView, words: str) -> None:
    assert " ".join(open_to(run)) == words


@pytest.mark.parametrize(
    ("run", "stakes", "said"),
    [
        (RUNNING, Stakes(step=412, listens=True), "asked to save first. Where that fails, 12 steps since step 400 are"),
        (RUNNING, Stakes(step=500, listens=True), "100 steps since step 400"),  # than status knows
        (RUNNING, Stakes(step=401), "12 steps since step 400"),  # what was heard last is older than status
        (RUNNING, Stakes(step=412, listens=False), "No process of it asks for saves: 12 steps since step 400"),
        (RUNNING, Stakes(step=412, step_seconds=10.0), "12 steps since step 400 (about 2m)"),
        (UNSAVED, Stakes(), "It does not save before it stops: all 412 steps of it are lost, as no checkpoint"),
        (HELD, Stakes(), "It trains on no node now, so no step is lost."),
        (
            stopping(),
            Stakes(listens=True),
            "It is stopping already (Suspended), and its save is still awaited. Where that fails, 12 steps since",
        ),
        (stopping(outcome="Expired"), Stakes(), "It does not save before it stops: 12 steps since step 400"),
        (stopping(save="s-2"), Stakes(), "It does not save before it stops: 12 steps since step 400"),
        (RUNNING, Stakes(), "It gives back 4 nodes."),
        (RUNNING, Stakes(waiting=("t/a",)), "It gives back 4 nodes, and t/a waits for them."),
        (RUNNING, Stakes(waiting=("t/a", "t/b", "t/c", "t/d", "t/e")), "t/a, t/b, t/c and 2 more wait for them."),
        (RUNNING, Stakes(), "A cancelled run never goes on."),
    ],
)
def test_cancelling_says_what_is_lost_and_who_takes_the_nodes(run: RunView, stakes: Stakes, said: str) -> None:
    assert said in " ".join(costs(Deed.CANCEL, run, stakes))


def test_a_checkpoint_newer_than_the_last_step_costs_nothing() -> None:
    latest = tuple(changed(saved, step=420) for saved in RUNNING.status.checkpoint.latest)
    ahead = replace(
        RUNNING, status=changed(RUNNING.status, checkpoint=changed(RUNNING.status.checkpoint, latest=latest))
    )
    assert "Where that fails, no step is lost." in " ".join(costs(Deed.CANCEL, ahead, Stakes()))


def test_other_actions_say_what_comes_of_them() -> None:
    assert "to be repeated when it goes on" in " ".join(costs(Deed.SUSPEND, RUNNING, Stakes()))
    assert "goes on from step 400" in " ".join(costs(Deed.RESUME, RUNNING, Stakes()))
    assert "step 0, as no checkpoint" in " ".join(costs(Deed.RESUME, HELD, Stakes()))
    assert "stops for about 0.12 s" in " ".join(costs(Deed.CHECKPOINT, RUNNING, Stakes(block_seconds=0.12)))
    assert "nothing may come of it" in " ".join(costs(Deed.CHECKPOINT, RUNNING, Stakes(listens=False)))


@pytest.mark.parametrize("action", list(DONE))
def test_what_is_written_hits_this_run_and_no_namesake(action: Deed) -> None:
    body = patch(action, RUNNING, "r1")
    assert body["metadata"]["uid"] == RUNNING.uid
    spec = {Deed.CANCEL: {"cancel": True}, Deed.SUSPEND: {"suspend": True}, Deed.RESUME: {"suspend": False}}
    assert body.get("spec") == spec.get(action)
    asked = {names.ANNOTATION_CHECKPOINT_REQUEST: "r1"} if action is Deed.CHECKPOINT else None
    assert body["metadata"].get("annotations") == asked
