"""What may be done to a run when, and what it costs in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import QuarantinedCheckpoint, SavedCheckpoint, UnrecognisedSave
from lockstep.api.run_status import ProgressStatus
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.snapshot import RunView
from lockstep.present.actions import DONE, Deed, Stakes, costs, open_to, patch
from support import sample_runs


def with_spec(raw: dict[str, Any], **spec: Any) -> RunView:
    return parse_run(raw | {"spec": raw["spec"] | spec})


RUNNING = parse_run(sample_runs.running())
UNSAVED = with_spec(sample_runs.running(checkpoint={}), checkpoint=None)
SHARED = {"shared": {"claimName": "lustre"}}
ASKED = sample_runs.failed() | {"status": {"conditions": sample_runs.failed()["status"]["conditions"]}}
STOP = {"reason": "Suspended", "time": sample_runs.at(20), "deadline": sample_runs.at(-60), "save": "s-1"}


def stopping(outcome: str = "", save: str = "s-1") -> RunView:
    """It is suspended, and asked to save before it stops."""
    awaited = {"id": save, "attempt": 2, "outcome": outcome}
    raw = sample_runs.running()
    checkpoint = (raw["status"].get("checkpoint") or {}) | {"save": awaited}
    raw = raw | {"status": raw["status"] | {"stop": STOP, "checkpoint": checkpoint}}
    return with_spec(raw, suspend=True)


def on_from_another(run: RunView = RUNNING, *own: SavedCheckpoint, from_disks: bool = False) -> RunView:
    """It began at step 300 of another run, and has saved no more than that itself."""
    root = "/shared-checkpoints/team/base/u"
    path = "/local-checkpoints/a1/step-405" if from_disks else f"{root}/a1/step-300"
    resume = SavedCheckpoint(tier="local" if from_disks else "shared", step=405 if from_disks else 300, path=path)
    status = changed(
        run.status,
        resolved=changed(run.status.resolved, start_root=root),
        checkpoint=changed(run.status.checkpoint, latest=own, resume=resume),
        attempts=tuple(changed(each, resume_step=300, resume_tier="shared") for each in run.status.attempts[:1]),
    )
    return replace(run, status=status)


def saved(tier: str, step: int) -> SavedCheckpoint:
    return SavedCheckpoint(tier=tier, step=step, path=f"/x/a2/step-{step}")


UNKNOWN = (UnrecognisedSave(tier="shared", path="/x/a2"),)
BAD = (QuarantinedCheckpoint(tier="shared", step=400, reason="it failed"),)


def with_saves(*own: SavedCheckpoint, run: RunView = RUNNING) -> RunView:
    return replace(run, status=changed(run.status, checkpoint=changed(run.status.checkpoint, latest=own)))


def passing_over(run: RunView, *, began: SavedCheckpoint | None, **checkpoint: Any) -> RunView:
    """It is at step 412, and its recovery passes over what it has saved before."""
    return replace(
        run, status=changed(run.status, checkpoint=changed(run.status.checkpoint, resume=began, **checkpoint))
    )


def silent(*own: SavedCheckpoint, run: RunView = RUNNING, **checkpoint: Any) -> RunView:
    """Its program reports no step."""
    saves = changed(run.status.checkpoint, latest=own, resume=None, **checkpoint)
    return replace(run, status=changed(run.status, progress=ProgressStatus(), checkpoint=saves))


NEWER_ON_DISKS = with_saves(saved("shared", 400), saved("local", 410))
ONLY_ON_DISKS = with_saves(saved("local", 410))
NO_SHARED_TIER = with_spec(sample_runs.running(), checkpoint={"local": {"storage": "nvme"}})
HELD = with_spec(sample_runs.pending(), suspend=True)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (RUNNING, "checkpoint suspend cancel"),
        (UNSAVED, "suspend cancel"),
        (parse_run(sample_runs.pending()), "suspend cancel"),
        (HELD, "resume cancel"),
        (replace(HELD, set_says="suspend: true of its set sweep"), "cancel"),  # the set alone has it go on
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
        (
            RUNNING,
            Stakes(),
            "on. Its checkpoints stay, and another run may start from them. Retry (lockstep retry llama) makes a new",
        ),
        (UNSAVED, Stakes(), "on. It has no checkpoints that another run could start from. Retry (lockstep"),
        (
            parse_run(sample_runs.pending()),
            Stakes(),
            "on. It has saved nothing so far that another run could start from.",
        ),
        (with_saves(), Stakes(), "on. It has saved nothing so far that another run could start from. Retry"),
        (silent(unrecognised=UNKNOWN), Stakes(), "Its checkpoints stay, and another run may start from them."),
        (on_from_another(), Stakes(), "fails, 112 steps since step 300 are lost."),
        (
            on_from_another(RUNNING, saved("local", 410), from_disks=True),
            Stakes(),
            "112 steps since step 300 are lost.",
        ),
        (NEWER_ON_DISKS, Stakes(), "12 steps since step 400 are lost."),
        (
            NEWER_ON_DISKS,
            Stakes(),
            "on. Step 410 is on its nodes' own disks, which no other run can start from. Retry (lockstep retry llama)",
        ),
        (ONLY_ON_DISKS, Stakes(), "Retry (lockstep retry llama --fresh) makes a new run of it."),
        (ONLY_ON_DISKS, Stakes(), "all 412 steps of it are lost, as it has none in a shared tier."),
        (NO_SHARED_TIER, Stakes(), "Its checkpoints are on its nodes' own disks, which no other run can start from."),
        (
            with_saves(saved("shared", 400), saved("local", 410), run=HELD),
            Stakes(),
            "It trains on no node now: 10 steps since step 400 are lost.",
        ),
        (with_saves(saved("shared", 400), run=HELD), Stakes(), "It trains on no node now, so no step is lost."),
    ],
)
def test_cancelling_says_what_is_lost_and_who_takes_the_nodes(run: RunView, stakes: Stakes, said: str) -> None:
    assert said in " ".join(costs(Deed.CANCEL, run, stakes))


def test_what_was_to_run_never_is_not_said_to_be_retried() -> None:
    asked = replace(parse_run(sample_runs.pending()), annotations={names.ANNOTATION_TEST_ONLY: "true"})
    assert "Retry" not in " ".join(costs(Deed.CANCEL, asked, Stakes()))


def test_a_checkpoint_newer_than_the_last_step_costs_nothing() -> None:
    latest = tuple(changed(saved, step=420) for saved in RUNNING.status.checkpoint.latest)
    ahead = replace(
        RUNNING, status=changed(RUNNING.status, checkpoint=changed(RUNNING.status.checkpoint, latest=latest))
    )
    assert "Where that fails, no step is lost." in " ".join(costs(Deed.CANCEL, ahead, Stakes()))


NO_START = parse_run(sample_runs.recovering() | {"status": sample_runs.recovering()["status"] | {"progress": {}}})
AT_NOW = Stakes(listens=True, now=sample_runs.NOW)
FAILS = "Where that fails, what it did since it "


@pytest.mark.parametrize(
    ("run", "stakes", "said"),
    [
        (silent(), AT_NOW, FAILS + "started (10m ago) is lost, as no checkpoint of it is known; it has reported no"),
        (silent(saved("shared", 400)), AT_NOW, FAILS + "saved step 400 is lost; it has reported no step."),
        (silent(saved("local", 410)), AT_NOW, FAILS + "started (10m ago) is lost, as it has none in a shared tier;"),
        (silent(saved("shared", 400), quarantined=BAD), AT_NOW, "since the newest checkpoint before step 400, or its"),
        (silent(unrecognised=UNKNOWN), AT_NOW, FAILS + "started (10m ago), or last saved, is lost; it has reported"),
        (silent(run=UNSAVED), AT_NOW, "It does not save before it stops: what it did since it started (10m ago) is"),
        (silent(), Stakes(step=0, listens=True), "Where that fails, no step is lost."),  # heard, and not yet in status
        (silent(), Stakes(), FAILS + "started is lost"),
        (NO_START, AT_NOW, "no step is lost."),  # nothing has run since
    ],
)
def test_what_a_run_did_that_reports_no_step_is_not_called_nothing(run: RunView, stakes: Stakes, said: str) -> None:
    told = " ".join(costs(Deed.CANCEL, run, stakes))
    assert said in told
    if "reported" in said:
        assert "no step is" not in told


def test_who_suspends_a_run_that_reports_no_step_is_told_that_it_repeats_what_it_did() -> None:
    words = "what it did since it saved step 410 is to be repeated when it goes on; it has reported no step."
    assert words in " ".join(costs(Deed.SUSPEND, silent(saved("local", 410)), AT_NOW))


@pytest.mark.parametrize(("vacant", "held"), [((), 4), ((2,), 3)])
def test_nodes_that_are_too_many_for_status_are_given_back_as_well(vacant: tuple[int, ...], held: int) -> None:
    assignment = changed(RUNNING.status.assignment, nodes=(), incarnations=(), config_map="large", vacant=vacant)
    large = replace(RUNNING, status=changed(RUNNING.status, assignment=assignment))
    assert f"It gives back {held} nodes." in " ".join(costs(Deed.SUSPEND, large, Stakes()))


def test_other_actions_say_what_comes_of_them() -> None:
    assert "to be repeated when it goes on" in " ".join(costs(Deed.SUSPEND, RUNNING, Stakes()))
    assert "goes on from step 400" in " ".join(costs(Deed.RESUME, RUNNING, Stakes()))
    assert "step 0, as no checkpoint" in " ".join(costs(Deed.RESUME, HELD, Stakes()))
    assert "stops for about 0.12 s" in " ".join(costs(Deed.CHECKPOINT, RUNNING, Stakes(block_seconds=0.12)))
    assert "nothing may come of it" in " ".join(costs(Deed.CHECKPOINT, RUNNING, Stakes(listens=False)))


@pytest.mark.parametrize(
    ("run", "suspending", "resuming"),
    [
        (
            on_from_another(),
            "112 steps since step 300 are to be repeated",
            "step 300 again, as no checkpoint of its own",
        ),
        (NEWER_ON_DISKS, "2 steps since step 410 are to be repeated", "goes on from step 410."),
        (NEWER_ON_DISKS, "on others it goes on from step 400.", "on others it goes on from step 400."),
        (ONLY_ON_DISKS, "on others it has nothing to go on from.", "on others it has nothing to go on from."),
        (
            with_spec(sample_runs.pending(), checkpoint=SHARED | {"start": {"run": "base"}}, suspend=True),
            "no step is to be repeated",
            "goes on from what it is to start from, base.",
        ),
    ],
)
def test_suspending_and_resuming_say_from_where_it_goes_on(run: RunView, suspending: str, resuming: str) -> None:
    assert suspending in " ".join(costs(Deed.SUSPEND, run, Stakes()))
    assert resuming in " ".join(costs(Deed.RESUME, run, Stakes()))


SAID_OF_200 = ("212 steps since step 200 are", "goes on from step 200.", "212 steps since step 200 are")
SAID_OF_NONE = ("its steps since the newest checkpoint before step 400, or its start, are",)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (passing_over(RUNNING, began=saved("shared", 200), ceiling=200), SAID_OF_200),
        (passing_over(RUNNING, began=saved("shared", 200), quarantined=BAD), SAID_OF_200),
        (
            passing_over(NEWER_ON_DISKS, began=saved("local", 300), quarantined=BAD),  # but not on its disks
            (
                "2 steps since step 410 are",
                "on others it goes on from an older checkpoint than step 400",
                *SAID_OF_NONE,
            ),
        ),
        (
            passing_over(RUNNING, began=saved("shared", 400), quarantined=BAD),
            (*SAID_OF_NONE, "goes on from an older checkpoint than step 400", *SAID_OF_NONE),
        ),
        (
            passing_over(RUNNING, began=saved("shared", 200), quarantined=(changed(BAD[0], step=300),)),
            ("12 steps since step 400 are", "goes on from step 400.", "12 steps since step 400 are"),
        ),
    ],
)
def test_what_recovery_passes_over_is_nothing_to_go_on_from(run: RunView, said: tuple[str, str, str]) -> None:
    for action, words in zip((Deed.SUSPEND, Deed.RESUME, Deed.CANCEL), said, strict=True):
        assert words in " ".join(costs(action, run, Stakes(listens=True)))


@pytest.mark.parametrize("action", list(DONE))
def test_what_is_written_hits_this_run_and_no_namesake(action: Deed) -> None:
    body = patch(action, RUNNING, "r1")
    assert body["metadata"]["uid"] == RUNNING.uid
    spec = {Deed.CANCEL: {"cancel": True}, Deed.SUSPEND: {"suspend": True}, Deed.RESUME: {"suspend": False}}
    assert body.get("spec") == spec.get(action)
    asked = {names.ANNOTATION_CHECKPOINT_REQUEST: "r1"} if action is Deed.CHECKPOINT else None
    assert body["metadata"].get("annotations") == asked
