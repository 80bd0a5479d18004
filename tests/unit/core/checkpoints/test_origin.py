"""What a run starts from besides its own checkpoints, or what is wrong with what the spec says."""

from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import CheckpointStatus, SavedCheckpoint
from lockstep.api.recovery_status import AttemptStatus, Totals
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.origin import ASK_AGAIN_AFTER, has_begun, resolve_origin
from support.world import World, spec, world

SHARED = {"claimName": "lustre"}


def world_of(start: dict[str, Any], origin: dict[str, Any] | None = None, **tiers: object) -> World:
    w = world(1)
    if origin is not None:
        w.apply("base", spec(1, checkpoint=origin))
    w.apply("one", spec(1, checkpoint={"start": start, **(tiers or {"shared": SHARED})}))
    return w


@pytest.mark.parametrize(
    ("start", "origin", "root", "uid"),
    [
        ({}, None, "", ""),
        ({"path": "team/base"}, None, "/team/base", ""),
        ({"run": "base"}, {"shared": SHARED}, "/ns/base/uid-base", "uid-base"),
        ({"run": "base"}, {"shared": SHARED, "layout": "Shared"}, "/ns/base", "uid-base"),
    ],
)
def test_the_directory_to_start_from_goes_into_status(
    start: dict[str, str], origin: dict[str, Any] | None, root: str, uid: str
) -> None:
    plan = world_of(start, origin).plan("one")
    assert resolve_origin(plan) is None
    resolved = plan.status.resolved
    assert resolved.start_root.endswith(root)
    assert (bool(resolved.start_root), resolved.start_run_uid) == (bool(root), uid)


@pytest.mark.parametrize(
    ("start", "origin", "words"),
    [
        ({"run": "base"}, None, "there is no run base in namespace ns"),
        ({"run": "one"}, None, "is this run itself"),
        ({"run": "base"}, {"shared": {"claimName": "nfs"}}, "saves on claim nfs, this one on lustre"),
    ],
)
def test_what_cannot_be_started_from_is_said_and_looked_for_again(
    start: dict[str, str], origin: dict[str, Any] | None, words: str
) -> None:
    plan = world_of(start, origin).plan("one")
    problem = resolve_origin(plan)
    assert problem is not None
    assert words in problem.message
    assert plan.build().wake_at == plan.now + ASK_AGAIN_AFTER
    assert plan.build().status is None


def test_once_resolved_the_other_run_may_go() -> None:
    w = world_of({"run": "base"}, {"shared": SHARED})
    plan = w.plan("one")
    resolve_origin(plan)
    w.amend("one", resolved=plan.status.resolved)
    del w.runs["base"]
    plan = w.plan("one")
    assert resolve_origin(plan) is None
    assert plan.build().status is None


def test_a_step_of_the_directory_that_all_save_in_does_not_stop_a_run_that_has_begun() -> None:
    w = world_of({"path": "ns/one", "step": 300}, shared=SHARED, layout="Shared")
    w.amend("one", totals=changed(w.status("one").totals, attempts=1))
    assert resolve_origin(w.plan("one")) is None, "an older operator let it start, and it has saved since"


@pytest.mark.parametrize(
    ("fields", "begun"),
    [
        ({}, False),
        ({"totals": Totals(attempts=1)}, True),
        ({"attempts": (AttemptStatus(number=1, started_at=5.0),)}, True),
        ({"attempts": (AttemptStatus(number=1),)}, False),
        ({"checkpoint": CheckpointStatus(resume=SavedCheckpoint(step=4, tier="shared", path="/x"))}, True),
    ],
)
def test_a_run_has_begun_by_whatever_its_status_still_has_of_it(fields: dict[str, Any], begun: bool) -> None:
    assert has_begun(TrainingRunStatus(**fields)) is begun


@pytest.mark.parametrize(("path", "refused"), [("ns/one", True), ("ns/other", False)])
def test_in_the_directory_that_all_attempts_save_in_no_single_step_is_started_from(path: str, refused: bool) -> None:
    start: dict[str, Any] = {"path": path, "step": 300}
    problem = resolve_origin(world_of(start, shared=SHARED, layout="Shared").plan("one"))
    assert (problem is not None) == refused
    if problem is not None:
        assert (problem.field, "checkpoint.shared.path" in problem.message) == ("spec.checkpoint.start.step", True)


@pytest.mark.parametrize(
    ("own", "layout", "begun", "refused"),
    [
        ("ns/base/uid-base/a3", "Shared", False, True),
        ("ns/base/uid-base/a3", "Shared", True, False),  # an older operator let it start
        ("ns/base/uid-base/a3", "PerAttempt", False, False),
        ("ns/base/uid-base/a3/mine", "Shared", False, False),
        ("ns/base/uid-base", "Shared", False, False),
        ("ns/base/uid-base/mine", "Shared", False, False),
    ],
)
def test_no_run_saves_in_the_directory_of_an_attempt_that_it_is_to_start_from(
    own: str, layout: str, begun: bool, refused: bool
) -> None:
    shared = {"claimName": "lustre", "path": own}
    for start in ({"run": "base"}, {"path": "ns/base/uid-base"}):
        w = world_of(start, {"shared": SHARED}, shared=shared, layout=layout)
        w.amend("one", totals=changed(w.status("one").totals, attempts=int(begun)))
        problem = resolve_origin(w.plan("one"))
        assert (problem is not None) == refused
        if problem is not None:
            assert problem.field == "spec.checkpoint.shared.path"
            assert "to go on there: start: {path: ns/base/uid-base/a3}" in problem.message
