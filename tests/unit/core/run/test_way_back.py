"""The command after an end: with what it begins, and what has to be another way in the new run."""

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
import typer

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import PreviousSave, QuarantinedCheckpoint, SavedCheckpoint, UnrecognisedSave
from lockstep.cli.commands import retry
from lockstep.core.model.reasons import StopReason
from lockstep.core.model.snapshot import RunView
from lockstep.core.run.way_back import newest_saved, way_back, without_way_back
from support.world import spec, world

SHARED_TIER = {"shared": {"claimName": "lustre"}}
SHARED = SavedCheckpoint(tier="shared", step=40, path="/shared-checkpoints/ns/one/uid/a1/step-40")
BAD = QuarantinedCheckpoint(tier="shared", step=40, reason="it failed soon after it was loaded")
LOCAL = SavedCheckpoint(tier="local", step=60, path="/local-checkpoints/uid/a1/step-60")
EARLIER = PreviousSave(uid="old", step=30, path="/shared-checkpoints/ns/one/old/a1/step-30")
OR_STEP_0 = "; to begin at step 0: lockstep retry one --fresh"
UNKNOWN = UnrecognisedSave(tier="shared", path="/shared-checkpoints/ns/one/uid/a1/model.bin")
UNKNOWN_LOCAL = UnrecognisedSave(tier="local", path="/local-checkpoints/uid/a1/model.bin")


def run(root: str = "", keeps: bool = True, step: int | None = None, **checkpoint: Any) -> RunView:
    w = world(1)
    start = {"start": {"path": "base", "step": step}} if step is not None else {}
    view = w.apply("one", spec(1, checkpoint=SHARED_TIER | start if keeps else None))
    status = changed(view.status, checkpoint=changed(view.status.checkpoint, **checkpoint))
    return replace(view, status=changed(status, resolved=changed(status.resolved, start_root=root)))


@pytest.mark.parametrize(
    ("of", "reason", "told"),
    [
        (run(latest=(SHARED,)), "TimeLimit", "to go on from step 40: lockstep retry one -t LIMIT"),
        (run(latest=(LOCAL, SHARED)), "NoProgress", "to go on from step 40: lockstep retry one [-f FILE]"),
        (run(latest=(SHARED,)), "MaxRestarts", "to go on from step 40: lockstep retry one [-f FILE]"),
        (run(), "OutOfMemory", "to begin at step 0: lockstep retry one [-f FILE]"),
        (run(keeps=False), "CommandNotFound", "to begin at step 0: lockstep retry one -- COMMAND"),
        # On its nodes' own disks no other run finds it, and without the flag the command says so.
        (run(latest=(LOCAL,)), "TimeLimit", "to begin at step 0: lockstep retry one --fresh -t LIMIT"),
        (run(latest=(LOCAL,)), "NoValidCheckpoint", "to begin at step 0: lockstep retry one --fresh"),
        (run(), "CheckpointRequired", "to begin at step 0: lockstep retry one --fresh"),
        (
            run(latest=(SHARED,), ceiling=30),
            "NothingToGoBackTo",
            "to go on from a step that you choose: lockstep retry one --step STEP" + OR_STEP_0,
        ),
        (run(latest=(SHARED,), ceiling=50), "Diverged", "to go on from step 40: lockstep retry one [-f FILE]"),
        (
            run(latest=(SHARED,), quarantined=(BAD,)),
            "MaxRestarts",
            "to go on from a step that you choose: lockstep retry one --step STEP [-f FILE]",
        ),
        (
            run(latest=(changed(SHARED, attempt=2),), quarantined=(changed(BAD, attempt=1),)),
            "MaxRestarts",
            "to go on from step 40: lockstep retry one [-f FILE]",
        ),
        (
            run(previous_saves=(EARLIER,)),
            "PreviousSaves",
            "to go on from step 30 of an earlier run: lockstep retry one" + OR_STEP_0,
        ),
        (
            run(unrecognised=(UNKNOWN,)),
            "UnknownSaves",
            "to go on from what is there: lockstep retry one -f FILE" + OR_STEP_0,
        ),
        # On its nodes' own disks no other run finds that either.
        (run(unrecognised=(UNKNOWN_LOCAL,)), "UnknownSaves", "to begin at step 0: lockstep retry one --fresh"),
        (run(unrecognised=(UNKNOWN_LOCAL,)), "OutOfMemory", "to begin at step 0: lockstep retry one --fresh [-f FILE]"),
        (
            run("/shared-checkpoints/base", step=300),
            "NoStartCheckpoint",
            "to start from another step there: lockstep retry one --step STEP; "
            "to start from the newest there: lockstep retry one [-f FILE]" + OR_STEP_0,
        ),
        (
            run("/shared-checkpoints/base", step=300),
            "OutOfMemory",
            "to start once more from where it was to: lockstep retry one [-f FILE]",
        ),
        (
            run("/shared-checkpoints/base"),
            "NoStartCheckpoint",
            "to start once more from where it was to: lockstep retry one [-f FILE]" + OR_STEP_0,
        ),
    ],
)
def test_the_command_has_what_has_to_be_another_way_and_says_where_the_new_run_begins(
    of: RunView, reason: str, told: str
) -> None:
    assert way_back(of, of.status, reason) == told
    assert without_way_back(f"it failed; to no avail: why; {told}") == "it failed; to no avail: why"


def test_a_run_of_an_array_goes_on_under_another_name() -> None:
    of = replace(run(latest=(SHARED,)), set_uid="uid-of-the-array")
    assert way_back(of, of.status, "TimeLimit") == "to go on from step 40: lockstep retry one --name NAME -t LIMIT"


@pytest.mark.parametrize("reason", StopReason)
def test_no_flag_is_named_that_the_verb_does_not_have(reason: StopReason) -> None:
    group = typer.main.get_command(retry.app)
    command = getattr(group, "commands", {"retry": group})["retry"]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for of in (run(), run(latest=(SHARED,), ceiling=30), run(latest=(LOCAL,))):
        for way in re.findall(r"lockstep retry one([^;]*)", way_back(of, of.status, reason)):
            flags = [word.strip("[]") for word in shlex.split(way) if word.strip("[").startswith("-")]
            assert {*flags} - {"--"} <= known


def test_only_what_every_node_sees_is_saved_for_another_run() -> None:
    assert [newest_saved(of.status) for of in (run(latest=(LOCAL, SHARED)), run(latest=(LOCAL,)))] == [40, None]
