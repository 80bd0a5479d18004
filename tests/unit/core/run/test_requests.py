"""Requests by annotation: a token is taken up once, and acknowledged whatever comes of it."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import RequestResult, StopReason
from lockstep.core.run.requests import obey_annotations
from support.world import World, spec, world, world_with_gang

SAVE, RESTART, REQUEUE = (
    names.ANNOTATION_CHECKPOINT_REQUEST,
    names.ANNOTATION_RESTART_REQUEST,
    names.ANNOTATION_REQUEUE_REQUEST,
)


def annotated(w: World, annotation: str, token: str) -> World:
    w.runs["one"] = replace(w.runs["one"], annotations={annotation: token})
    return w


def waiting() -> World:
    w = world(1)
    w.roll_out("one", spec(2))
    return w


@pytest.mark.parametrize(
    ("annotation", "trains", "listens", "result", "stops", "attempt"),
    [
        (SAVE, True, True, RequestResult.TAKEN_UP, False, 1),
        (SAVE, True, False, RequestResult.NOBODY_LISTENS, False, 1),
        (SAVE, False, False, RequestResult.NOT_RUNNING, False, None),
        (RESTART, True, False, RequestResult.TAKEN_UP, False, 2),
        (RESTART, False, False, RequestResult.NOT_RUNNING, False, None),
        (REQUEUE, True, False, RequestResult.TAKEN_UP, True, 1),
        (REQUEUE, False, False, RequestResult.NOT_RUNNING, False, None),
    ],
)
def test_a_new_token_is_taken_up_where_it_applies(
    annotation: str, trains: bool, listens: bool, result: RequestResult, stops: bool, attempt: int | None
) -> None:
    w = world_with_gang(2) if trains else waiting()
    w.listens = listens
    w.work_reports_only()
    annotated(w, annotation, "token")
    before = w.status("one").attempt
    plan = w.plan("one")
    assert obey_annotations(plan) is stops
    (request,) = plan.status.requests
    assert (request.token, request.result) == ("token", result)
    assert plan.status.attempt == (before if attempt is None else attempt)
    assert (plan.phase is Phase.STOPPING) is stops
    if plan.status.stop is not None:
        assert plan.status.stop.reason == StopReason.REQUEUED


@pytest.mark.parametrize(("token", "taken_up"), [("first", False), ("second", True), ("", False)])
def test_a_token_is_taken_up_once(token: str, taken_up: bool) -> None:
    w = world_with_gang(2)
    annotated(w, RESTART, "first")
    w.reconcile("one")
    annotated(w, RESTART, token)
    w.now += 5.0
    plan = w.plan("one")
    obey_annotations(plan)
    assert (plan.build().status is not None) is taken_up


def test_no_more_of_a_token_is_kept_than_tells_it_apart() -> None:
    w = world_with_gang(2)
    annotated(w, RESTART, "x" * 100)
    w.reconcile("one")
    assert w.status("one").requests[0].token == "x" * 64
    assert not obey_annotations(w.plan("one"))
    assert w.plan("one").build().status is None


@pytest.mark.parametrize(("annotation", "stops"), [(SAVE, False), (RESTART, False), (REQUEUE, True)])
def test_of_a_gang_on_hold_only_stops_are_taken_up_and_the_others_wait(annotation: str, stops: bool) -> None:
    plan = annotated(world_with_gang(2), annotation, "token").plan("one")
    assert obey_annotations(plan, only_stops=True) is stops
    assert bool(plan.status.requests) is stops
    assert plan.status.attempt == 1
