"""What the workers are answered rests on status and on what the steps hand on, and on nothing else."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import DivergedSaves, QuarantinedCheckpoint, SaveStatus
from lockstep.api.run_status import StopStatus
from lockstep.core.model.plan import DesiredPhase, PassOver, PointRequest, VerifyRequest, WarmUpRequest
from lockstep.core.model.reasons import LossReason, StopReason
from lockstep.core.model.run_state import RunContext, RunState
from lockstep.core.run.directive import directive_for
from lockstep.core.run.handover import Gathering, Handover
from lockstep.core.run.time_left import time_is_over
from support.values import not_none
from support.world import World, world_with_gang

NOTHING = Handover()


def state(w: World, **changes: object) -> RunState:
    snapshot = w.snapshot("one")
    return RunState(RunContext(replace(snapshot, run=replace(snapshot.run, **changes)), w.tunables, w.now))


def test_a_gang_that_trains_is_told_start_and_the_addresses_of_all() -> None:
    directive = not_none(directive_for(state(world_with_gang()), NOTHING))
    assert directive.phase is DesiredPhase.RUN
    assert directive.start is not None
    assert len(directive.nodelist) == 2


def test_nobody_is_released_before_all_addresses_are_known() -> None:
    w = world_with_gang()
    snapshot = w.snapshot("one")
    unheard = RunContext(replace(snapshot, reports={0: snapshot.reports[0]}), w.tunables, w.now)
    assert directive_for(RunState(unheard), NOTHING) is None


MPI = {"launcher": {"type": "MPI"}, "command": ["mpirun", "python", "train.py"]}


@pytest.mark.parametrize(
    ("fields", "ports"),
    [
        ({}, ()),
        ({"launcher": {"steps": True}}, (50_000, 50_001)),
        (MPI, (50_000, 50_001)),
    ],
)
def test_a_gang_with_steps_is_told_where_each_rank_takes_them(
    fields: dict[str, object], ports: tuple[int, ...]
) -> None:
    assert not_none(directive_for(state(world_with_gang(**fields)), NOTHING)).step_ports == ports


@pytest.mark.parametrize(
    ("fields", "named"), [({}, ()), (MPI, ("n0", "n1")), ({"launcher": {"steps": True}}, ("n0", "n1"))]
)
def test_a_gang_with_steps_is_told_the_names_of_its_nodes_by_rank(
    fields: dict[str, object], named: tuple[str, ...]
) -> None:
    assert not_none(directive_for(state(world_with_gang(**fields)), NOTHING)).step_nodes == named


def test_past_the_barrier_a_port_that_is_lacking_holds_up_nobody() -> None:
    """A new leader may hear of a worker whose step server is gone."""
    w = world_with_gang(**MPI)
    snapshot = w.snapshot("one")
    reports = {**snapshot.reports, 1: replace(snapshot.reports[1], steps_port=0)}
    heard = RunContext(replace(snapshot, reports=reports), w.tunables, w.now)
    assert not_none(directive_for(RunState(heard), NOTHING)).step_ports == (50_000, 0)


RAY = {"launcher": {"type": "Ray"}}


@pytest.mark.parametrize(("fields", "has_token"), [({}, False), (MPI, False), (RAY, True)])
def test_the_workers_of_ray_share_a_token(fields: dict[str, object], has_token: bool) -> None:
    assert not_none(directive_for(state(world_with_gang(**fields)), NOTHING)).has_token is has_token


BAD = QuarantinedCheckpoint(tier="shared", step=300, attempt=1, reason="CUDA error")


@pytest.mark.parametrize(
    ("checkpoint", "diverged_from", "told"),
    [
        ({}, 0, None),
        ({"ceiling": 490}, 0, PassOver(490)),
        ({"ceiling": 490}, 505, PassOver(504)),
        ({"ceiling": 530}, 505, PassOver(530)),
        ({"quarantined": (BAD,)}, 0, PassOver(None, (("shared", 300, 1),))),
        ({"diverged": (DivergedSaves(step=200, attempt=2),)}, 0, PassOver(diverged=((200, 2),))),
        ({"ceiling": 0, "quarantined": (BAD,)}, 0, PassOver(0, (("shared", 300, 1),))),
    ],
)
def test_at_the_barrier_workers_are_told_what_may_not_be_chosen(
    checkpoint: dict[str, object], diverged_from: int, told: PassOver | None
) -> None:
    w = world_with_gang()
    status = w.status("one")
    status = changed(
        status,
        checkpoint=status.checkpoint.model_validate(checkpoint),
        recovery=changed(status.recovery, diverged_from=diverged_from),
    )
    assert not_none(directive_for(state(w, status=status), NOTHING)).pass_over is None, "it trains"
    status = changed(status, conditions=(), start=None)
    at_barrier = not_none(directive_for(state(w, status=status), NOTHING))
    assert (at_barrier.phase, at_barrier.pass_over) == (DesiredPhase.PREPARE, told)


def test_a_gang_whose_spec_cannot_be_read_any_more_is_told_what_its_workers_say() -> None:
    told = not_none(directive_for(state(world_with_gang(**MPI), spec=None), NOTHING))
    assert told.step_ports == (50_000, 50_001)


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({}, DesiredPhase.RUN),
        ({"attempt": 2}, DesiredPhase.PREPARE),
        ({"stop": StopStatus(reason=StopReason.SUSPENDED, time=1.0, deadline=2.0)}, DesiredPhase.STOP),
    ],
)
def test_a_gang_is_told_by_its_phase_what_to_be_doing(changes: dict[str, object], phase: DesiredPhase) -> None:
    w = world_with_gang()
    directive = not_none(directive_for(state(w, status=changed(w.status("one"), **changes)), NOTHING))
    assert directive.phase is phase


@pytest.mark.parametrize(
    ("fields", "left", "save", "grace"),
    [
        ({}, 5, "", 30),  # without a limit
        ({"timeLimit": "1h"}, 60, "", 30),
        ({"timeLimit": "40s"}, 5, "", 5),
        ({"timeLimit": "1h"}, 8, "", 8),  # stopped for something else, shortly before
        ({"timeLimit": "40s"}, 5, "save-1", 30),  # the ranks are told nothing yet
        ({"timeLimit": "40s"}, -3, "", 30),  # it was over when somebody came to see it
    ],
)
def test_ranks_that_are_told_to_end_are_killed_by_the_limit_whenever_the_answer_is_made(
    fields: dict[str, object], left: int, save: str, grace: int
) -> None:
    w = world_with_gang(**fields)
    told = not_none(w.status("one").last_admitted) + 3600.0 - left
    if "timeLimit" in fields:
        told = not_none(time_is_over(w.plan("one"), w.status("one"))) - left
    stop = StopStatus(reason=StopReason.TIME_LIMIT, time=told, deadline=told + w.tunables.deadlines.stop, save=save)
    for later in (0.0, 3.7):
        w.now = told + later
        directive = directive_for(state(w, status=changed(w.status("one"), stop=stop)), NOTHING)
        assert not_none(directive).stop_grace == grace


def test_a_gang_whose_run_is_deleted_is_told_to_stop_and_of_no_save() -> None:
    w = world_with_gang()
    save = SaveStatus(id="save-1", attempt=1, reason="Suspended", deadline=w.now + 60.0)
    status = changed(w.status("one"), checkpoint=changed(w.status("one").checkpoint, save=save))
    directive = not_none(directive_for(state(w, status=status, deleting=True), NOTHING))
    assert (directive.phase, directive.save) == (DesiredPhase.STOP, None)


def test_a_gang_whose_start_somebody_took_out_of_status_while_it_saves_goes_on_with_what_it_does() -> None:
    w = world_with_gang()
    stop = StopStatus(reason=StopReason.SUSPENDED, time=1.0, deadline=2.0, save="save-1")
    status = changed(w.status("one"), start=None, stop=stop)
    assert directive_for(state(w, status=status), NOTHING) is None


@pytest.mark.parametrize(("reason", "ends"), [("CheckpointRequested", False), (LossReason.POD_TERMINATED, True)])
def test_a_gang_that_saves_is_told_whether_it_stops_then(reason: str, ends: bool) -> None:
    w = world_with_gang()
    save = SaveStatus(id="save-1", attempt=1, reason=reason, deadline=w.now + 60.0)
    status = changed(w.status("one"), checkpoint=changed(w.status("one").checkpoint, save=save))
    directive = not_none(directive_for(state(w, status=status), NOTHING))
    assert directive.save is not None
    assert directive.stopping_at == (save.deadline if ends else 0.0)


def test_what_the_steps_hand_on_is_asked_of_the_workers() -> None:
    verify, point = VerifyRequest("shared", "/shared/5", 5), PointRequest("/shared", 5, "Auto", 0)
    warm_up = WarmUpRequest("1-a", "Ring", ("10.0.0.1",), (1,))
    known = Handover(stacks="a1-Step-5", gathering=Gathering(verify=verify, point=point, warm_up=warm_up))
    directive = not_none(directive_for(state(world_with_gang()), known))
    assert (directive.verify, directive.point, directive.warm_up) == (verify, point, warm_up)
    assert directive.stacks == "a1-Step-5"
