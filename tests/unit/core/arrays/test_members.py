"""The runs of a set: which they are, what they are made from, and what the set says to them."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import RecoveryStatus
from lockstep.api.run_set import SetIndices, SetStop, TrainingRunSetStatus
from lockstep.api.run_status import LeavingStatus, TrainingRunStatus
from lockstep.core.arrays.members import (
    governance,
    governed,
    holds_nodes,
    index_of,
    is_member,
    is_recorded,
    read_ranges,
    recorded_indices,
    run_body,
    split_run_name,
)
from lockstep.core.model.own_objects import parse_run
from lockstep.core.pods.array_environment import array_environment
from support.arrays import HOLDING, NOW, ended, member, run_set, set_spec


@pytest.mark.parametrize(
    ("fields", "suspended", "cancelled", "words"),
    [
        ({}, False, False, ""),
        ({"suspend": True}, True, False, "suspend: true of its set sweep"),
        ({"cancel": True}, False, True, "cancel: true of its set sweep"),
        ({"cancelIndices": "3"}, False, True, "among cancelIndices"),
        ({"cancelIndices": "4"}, False, False, ""),
    ],
)
def test_a_run_does_what_its_set_says_and_its_own_spec_stays_as_it_is(
    fields: dict[str, Any], suspended: bool, cancelled: bool, words: str
) -> None:
    view = run_set(**fields)
    told = governed(member(view, 3), view)
    assert told.spec is not None
    assert (told.spec.suspend, told.spec.cancel) == (suspended, cancelled)
    assert words in told.set_says
    assert governed(told, view) is told
    let_go = governed(told, run_set())
    assert let_go.spec is not None
    assert (let_go.spec.suspend, let_go.spec.cancel, let_go.set_says) == (False, False, "")


def test_a_run_that_its_user_holds_stays_held_when_its_set_goes_on() -> None:
    view = run_set()
    held = member(view, 0, spec=changed(set_spec().template.spec, suspend=True))
    paused = governed(held, run_set(suspend=True))
    assert governed(paused, view).spec.suspend  # type: ignore[union-attr]


def test_a_run_is_made_from_the_template_with_its_index_wherever_that_stands() -> None:
    template = {
        "metadata": {"labels": {"team": "nlp"}, "annotations": {"note": "seed $(LOCKSTEP_ARRAY_INDEX)"}},
        "spec": {
            "nodes": 2,
            "image": "i",
            "command": ["train", "--seed=$(LOCKSTEP_ARRAY_INDEX)", "$$(LOCKSTEP_ARRAY_INDEX)"],
            "checkpoint": {"shared": {"claimName": "c"}, "start": {"run": "base-$(LOCKSTEP_ARRAY_INDEX)"}},
        },
    }
    view = replace(run_set(indices="3-9:3", template=template), annotations={"lockstep.dev/user": "kim"})
    body = run_body(view, 6)
    meta, spec = body["metadata"], body["spec"]
    assert meta["name"] == "sweep-6"
    assert meta["labels"] == {"team": "nlp", "lockstep.dev/set": "sweep", "lockstep.dev/index": "6"}
    assert meta["annotations"]["note"] == "seed 6"
    assert meta["annotations"]["lockstep.dev/user"] == "kim"
    assert meta["ownerReferences"][0]["uid"] == view.uid
    assert spec["command"] == ["train", "--seed=6", "$$(LOCKSTEP_ARRAY_INDEX)"]
    assert spec["checkpoint"]["start"]["run"] == "base-6"
    meta |= {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    run = parse_run(body)
    assert run.spec_error == ""
    assert (index_of(run), run.set_uid) == (6, view.uid)
    assert array_environment(run) == {
        "LOCKSTEP_ARRAY_INDEX": "6",
        "LOCKSTEP_ARRAY_COUNT": "3",
        "LOCKSTEP_ARRAY_MIN": "3",
        "LOCKSTEP_ARRAY_MAX": "9",
        "SLURM_ARRAY_TASK_ID": "6",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MIN": "3",
        "SLURM_ARRAY_TASK_MAX": "9",
    }


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("sweep-3", ("sweep", 3)),
        ("a-b-0", ("a-b", 0)),
        ("sweep-03", None),
        ("sweep", None),
        ("-3", None),
        ("sweep-x", None),
        ("s-123456", None),
    ],
)
def test_a_name_tells_set_and_index_in_one_way_only(name: str, split: tuple[str, int] | None) -> None:
    assert split_run_name(name) == split


@pytest.mark.parametrize(
    ("changes", "index", "belongs"),
    [
        ({}, 3, True),
        ({"set_uid": ""}, None, False),
        ({"name": "sweep-03"}, None, False),
        ({"set_name": "other"}, None, False),
        ({"namespace": "elsewhere"}, 3, False),
    ],
)
def test_a_run_is_a_member_where_owner_name_and_namespace_fit(
    changes: dict[str, Any], index: int | None, belongs: bool
) -> None:
    run = member(run_set(), 3, **changes)
    assert index_of(run) == index
    assert is_member(run, run_set()) is belongs


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        (TrainingRunStatus(), False),
        (TrainingRunStatus(assignment=HOLDING), True),
        (changed(ended("Succeeded"), assignment=HOLDING), False),
    ],
)
def test_a_run_holds_nodes_until_its_end(status: TrainingRunStatus, holds: bool) -> None:
    assert holds_nodes(member(run_set(), 0, status)) is holds


@pytest.mark.parametrize(
    ("cancel", "status", "cancelled"),
    [
        ("Waiting", TrainingRunStatus(), True),
        ("Waiting", TrainingRunStatus(assignment=HOLDING), False),
        ("Waiting", TrainingRunStatus(attempt=2), False),  # as after it was preempted, suspended or requeued
        ("All", TrainingRunStatus(assignment=HOLDING), True),
        ("All", TrainingRunStatus(attempt=2), True),
        ("All", ended("Succeeded"), False),
    ],
)
def test_a_set_that_has_given_up_cancels_as_far_as_it_says(
    cancel: Any, status: TrainingRunStatus, cancelled: bool
) -> None:
    stop = SetStop(reason="StoppedOnFailure", message="2 failed", time=NOW, cancel=cancel)
    told = governed(member(run_set(), 0, status), run_set(status=TrainingRunSetStatus(stop=stop)))
    assert told.spec is not None
    assert told.spec.cancel is cancelled
    assert told.set_says == ("its set sweep has given up: 2 failed" if cancelled else "")


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("spec", "cancelled"),
    [({"cancel": True}, True), ({"cancelIndices": "0-3"}, True), ({"cancelIndices": "1-3"}, False), ({}, False)],
)
def test_what_is_kept_for_debugging_ends_as_somebody_cancels_its_set_and_not_as_that_gives_up(
    spec: dict[str, Any], cancelled: bool, kept: bool
) -> None:
    stop = SetStop(reason="StoppedOnFailure", message="2 failed", time=NOW, cancel="All")
    owner = run_set(status=TrainingRunSetStatus(stop=stop), **spec)
    over = changed(ended("Failed"), recovery=RecoveryStatus(debug_until=NOW + 60))
    over = changed(over, leaving=LeavingStatus(nodes=2, until=NOW + 60)) if kept else over
    told = governed(member(owner, 0, over), owner)
    assert told.spec is not None
    assert told.spec.cancel is (cancelled and kept)


@pytest.mark.parametrize(
    ("status", "suspended"), [(TrainingRunStatus(), True), (TrainingRunStatus(assignment=HOLDING), False)]
)
def test_under_a_set_that_cannot_be_read_nobody_starts_and_who_trains_goes_on(
    status: TrainingRunStatus, suspended: bool
) -> None:
    told = governed(member(run_set(), 0, status), replace(run_set(), spec=None))
    assert told.spec is not None
    assert told.spec.suspend is suspended


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({}, True),
        ({"maxRunning": 3}, True),
        ({"suspend": True}, False),
        ({"cancel": True}, False),
        ({"cancelIndices": "3"}, False),
    ],
)
def test_what_governs_runs_changes_with_what_the_set_says_to_them_alone(fields: dict[str, Any], same: bool) -> None:
    assert (governance(run_set(**fields)) == governance(run_set())) is same
    assert governance(None) != governance(run_set())


@pytest.mark.parametrize(
    ("known", "recorded"),
    [
        ({}, False),
        ({"active": "3"}, False),
        ({"succeeded": "0-5"}, True),
        ({"failed": "3"}, True),
        ({"cancelled": "3"}, True),
        ({"failed": "4"}, False),
    ],
)
def test_a_run_may_go_once_its_outcome_stands_with_its_set(known: dict[str, str], recorded: bool) -> None:
    view = run_set(status=TrainingRunSetStatus(indices=SetIndices(**known)))
    assert is_recorded(member(view, 3), view) is recorded
    assert (3 in recorded_indices(view)) is recorded
    assert not is_recorded(member(view, 3), None), "a set that is not known proves nothing"
    assert is_recorded(member(view, 3, set_uid=""), None), "it is in no set"


@pytest.mark.parametrize(("text", "indices"), [("", set()), ("0-2,5", {0, 1, 2, 5}), ("all", set()), ("-1", set())])
def test_what_is_no_ranges_counts_for_nothing(text: str, indices: set[int]) -> None:
    assert read_ranges(text) == indices
