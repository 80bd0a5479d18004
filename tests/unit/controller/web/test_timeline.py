"""What the page shades of each attempt: as the account counts, and nothing that status leaves open."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import CheckpointStatus, SavedCheckpoint
from lockstep.api.recovery_status import AttemptStatus, Totals
from lockstep.api.run_status import Condition, ProgressStatus, TrainingRunStatus
from lockstep.controller.web.timeline import Told, timeline
from lockstep.core.model.lifecycle import Phase
from support.world import World, phase, spec, world

STEP = 5
"""Seconds."""


def training() -> World:
    w = world(4)
    w.roll_out("llama", spec(2))
    return w


def train(w: World, seconds: int, saves: bool = True) -> None:
    saved = list(w.saved.get("uid-llama", ()))
    for _ in range(seconds // STEP):
        w.pass_time(STEP, step=STEP)
        w.train("llama", 1)
        w.settle()
    if not saves:
        w.saved["uid-llama"] = saved


def set_suspend(w: World, suspend: bool) -> None:
    w.roll_out("llama", spec(2, suspend=suspend))


def repeats_what_was_not_saved(w: World) -> None:
    train(w, 200)
    train(w, 100, saves=False)
    w.end_child("llama", 1, 1)
    train(w, 300)


def goes_back_behind_an_attempt(w: World) -> None:
    repeats_what_was_not_saved(w)
    w.saved["uid-llama"] = [20]
    w.end_child("llama", 1, 1)
    train(w, 100)


def loses_a_node(w: World) -> None:
    train(w, 200)
    w.silent_nodes.add(w.status("llama").assignment.nodes[1])
    w.pass_time(120)
    train(w, 100)


def is_suspended_and_goes_on(w: World) -> None:
    train(w, 200)
    set_suspend(w, True)
    w.pass_time(400)
    set_suspend(w, False)
    train(w, 100)


def is_asked_to_start_again(w: World) -> None:
    train(w, 200)
    train(w, 100, saves=False)
    w.request("llama", restart_request="now")
    train(w, 100)


def waits_for_nodes_first_and_trains(w: World) -> None:
    set_suspend(w, True)
    w.pass_time(100)
    set_suspend(w, False)
    train(w, 50)


def is_cancelled(w: World) -> None:
    train(w, 200)
    train(w, 100, saves=False)
    w.roll_out("llama", spec(2, cancel=True))


def succeeds(w: World) -> None:
    repeats_what_was_not_saved(w)
    for rank in (0, 1):
        w.exit_child("llama", rank, 0)
    w.settle()


LIVES = [
    repeats_what_was_not_saved,
    goes_back_behind_an_attempt,
    loses_a_node,
    is_suspended_and_goes_on,
    is_asked_to_start_again,
    waits_for_nodes_first_and_trains,
    is_cancelled,
    succeeds,
]
SHADED = ("provision", "init", "loading", "productive", "lost_work", "detect", "restart")


def told_of(w: World) -> dict[int, Told]:
    run = w.runs["llama"]
    assert run.spec is not None
    return timeline(run.status, phase(w, "llama"))


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
def test_what_is_shaded_adds_up_to_the_account(life: Callable[[World], None]) -> None:
    w = training()
    life(w)
    now, told = w.status("llama").goodput.time, told_of(w)
    assert now is not None
    sums = Counter[str]()
    for attempt in told.values():
        for part in attempt.parts:
            bucket = {"lostWork": "lost_work"}.get(part.bucket, part.bucket)
            sums[bucket] += int((now if part.end is None else part.end) - part.begin)
    account = dict(w.status("llama").goodput.buckets)
    for bucket in SHADED:
        # Within an attempt all steps count as equally long here, the one that was broken off among them.
        assert sums[bucket] == pytest.approx(account[bucket], abs=STEP * len(told)), bucket


def one(number: int = 1, begun: int = 100, ended: int | None = 1100, **fields: Any) -> AttemptStatus:
    """Admitted 50 s before START, its first step 100 s after, ended by a rank and seen 30 s later."""
    usual: dict[str, Any] = {"admitted_at": begun - 50, "first_step_at": begun + 100, "ended_at": ended}
    if ended is not None:
        usual |= {"rank": 1, "seen_at": ended + 30, "last_step": 90}
    return changed(AttemptStatus(number=number, started_at=begun), **(usual | fields))


def status(*attempts: AttemptStatus, **fields: Any) -> TrainingRunStatus:
    return changed(TrainingRunStatus(attempts=attempts, totals=Totals(attempts=len(attempts))), **fields)


def shaded(phase: Phase, told: TrainingRunStatus, index: int = 0) -> list[tuple[str, float, float | None]]:
    parts = timeline(told, phase)[told.attempts[index].number].parts
    return [(part.bucket, part.begin, part.end) for part in parts]


LAUNCH, INIT, DETECT = ("provision", 50, 100), ("init", 100, 200), ("detect", 1100, 1130)
SAVED = CheckpointStatus(latest=(SavedCheckpoint(tier="shared", step=30, path="/s/30"),))
SUCCEEDED = Condition(type="Succeeded", status="True", reason="AllRanksSucceeded", last_transition_time=1100.0)
IN_PLACE = {"resume_step": 60, "admitted_at": 50, "first_step_at": None}


@pytest.mark.parametrize(
    ("phase", "told", "expected"),
    [
        pytest.param(
            Phase.RUNNING,
            status(one(ended=None)),
            [LAUNCH, INIT, ("productive", 200, None)],
            id="what goes on counts",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(), one(2, 1200, None, **IN_PLACE)),
            [LAUNCH, INIT, ("productive", 200, 800), ("lostWork", 800, 1100), DETECT],
            id="beyond the step that the next one resumed from it is lost",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(resume_step=70), one(2, 1200, None, resume_step=60)),
            [LAUNCH, ("loading", 100, 200), ("lostWork", 200, 1100), DETECT],
            id="all of it is lost where the next one begins further back",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(), one(2, 1200, 1300, resume_step=90), one(3, 1400, None, resume_step=45)),
            [LAUNCH, INIT, ("productive", 200, 650), ("lostWork", 650, 1100), DETECT],
            id="a later one may go back further than the next",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(first_step_at=None), one(2, 1200, None, resume_step=60)),
            [LAUNCH, DETECT],
            id="a first step that nobody wrote down leaves all of the attempt open",
        ),
        pytest.param(
            Phase.RUNNING,
            status(
                one(first_step_at=None, last_step=None),
                one(2, 1200, None),
                progress=ProgressStatus(step=4, time=1400.0),
            ),
            [LAUNCH, ("init", 100, 1100), DETECT],
            id="without a step it never got beyond its start-up",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(last_step=None), one(2, 1200, None, resume_step=60)),
            [LAUNCH, INIT, DETECT],
            id="how far it came is not known",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(admitted_at=None, ended=None)),
            [INIT, ("productive", 200, None)],
            id="when it got its nodes is not known",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(4, ended=None), totals=Totals(attempts=4)),
            [INIT, ("productive", 200, None)],
            id="an attempt that is not kept may have had the nodes before",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(ended=None, first_step_at=None)),
            [LAUNCH, ("init", 100, None)],
            id="it starts up",
        ),
        pytest.param(
            Phase.RUNNING,
            status(one(ended=None, first_step_at=None), progress=ProgressStatus(step=4, time=150.0)),
            [LAUNCH],
            id="it has done a step of which it is not known when it began",
        ),
        pytest.param(
            Phase.PENDING,
            status(one(first_step_at=None, last_step=None), progress=ProgressStatus(step=4, time=900.0)),
            [LAUNCH, DETECT],
            id="it had done a step of which its entry says nothing",
        ),
        pytest.param(
            Phase.SUSPENDED,
            status(one(rank=None), checkpoint=SAVED),
            [LAUNCH, INIT, ("productive", 200, 500)],
            id="beyond the last checkpoint it is open until the next attempt",
        ),
        pytest.param(
            Phase.FINISHED,
            status(one(rank=None), checkpoint=SAVED),
            [LAUNCH, INIT, ("productive", 200, 500), ("lostWork", 500, 1100)],
            id="beyond the last checkpoint of a run that is over it is lost",
        ),
        pytest.param(
            Phase.FINISHED,
            status(one(rank=None), checkpoint=SAVED, conditions=(SUCCEEDED,)),
            [LAUNCH, INIT, ("productive", 200, 1100)],
            id="of a run that succeeded all counts",
        ),
        pytest.param(
            Phase.RECOVERING,
            status(one(steps_lost=30), last_admitted=50.0),
            [LAUNCH, INIT, ("productive", 200, 800), ("lostWork", 800, 1100), DETECT, ("restart", 1130, None)],
            id="the gang gathers again on the nodes that it has",
        ),
        pytest.param(
            Phase.LAUNCHING,
            status(one(steps_lost=0), last_admitted=2000.0),
            [LAUNCH, INIT, ("productive", 200, 1100), DETECT, ("provision", 2000, None)],
            id="it has got nodes anew",
        ),
        pytest.param(
            Phase.PENDING,
            status(one(steps_lost=0)),
            [LAUNCH, INIT, ("productive", 200, 1100), DETECT],
            id="since when it waits is not known",
        ),
        pytest.param(
            Phase.RECOVERING,
            status(one(rank=None, steps_lost=0)),
            [LAUNCH, INIT, ("productive", 200, 1100)],
            id="an end that was decided is seen at once",
        ),
        pytest.param(
            Phase.RECOVERING,
            status(one(ended=150, last_step=None)),
            [LAUNCH, ("init", 100, 150), ("detect", 150, 180)],
            id="an end dated back behind the first step",
        ),
    ],
)
def test_no_moment_is_shaded_that_status_leaves_open(
    phase: Phase, told: TrainingRunStatus, expected: list[tuple[str, float, float | None]]
) -> None:
    assert shaded(phase, told) == expected


@pytest.mark.parametrize(
    ("admitted", "expected"),
    [(50, [("restart", 1130, 1200)]), (1150, [("provision", 1150, 1200)]), (None, []), (900, [])],
    ids=["on the same nodes", "on nodes of its own", "not known", "not as the account would have it"],
)
def test_what_lies_between_two_attempts_is_told_by_when_the_nodes_were_got(
    admitted: int | None, expected: list[tuple[str, float, float | None]]
) -> None:
    following = one(2, 1200, None, resume_step=90, admitted_at=admitted, first_step_at=None)
    known = [("loading", 1200, None)]
    assert shaded(Phase.RUNNING, status(one(), following), 1) == expected + known


@pytest.mark.parametrize(
    ("attempt", "resumed", "steps", "seconds"),
    [
        (one(), 60, 30, 300),
        (one(), 90, 0, 0),
        (one(), 95, 0, 0),  # it was saved after it was last heard of
        (one(resume_step=70), 60, 20, 900),  # the ten before are not its own
        (one(first_step_at=None), 60, 30, None),
        (one(first_step_at=None, last_step=None), 60, 0, None),
        (one(last_step=None), 60, None, None),
        (one(last_step=None), None, None, 900),
    ],
)
def test_an_attempt_has_lost_what_the_next_one_does_again(
    attempt: AttemptStatus, resumed: int | None, steps: int | None, seconds: int | None
) -> None:
    heard = ProgressStatus(step=95, time=1400.0)
    told = status(attempt, one(2, 1200, None, resume_step=resumed), progress=heard)
    found = timeline(told, Phase.RUNNING)
    assert (found[1].lost_steps, found[1].lost_seconds) == (steps, seconds)
    assert (found[2].lost_steps, found[2].lost_seconds) == (None, None)  # it goes on


def test_of_a_program_that_tells_no_steps_it_is_not_known_how_many_were_lost() -> None:
    found = status(one(first_step_at=None, last_step=None))
    assert timeline(found, Phase.PENDING)[1].lost_steps is None


def test_an_attempt_that_never_began_has_no_place_in_time() -> None:
    assert timeline(status(AttemptStatus(number=1, ended_at=100.0), one(2)), Phase.RECOVERING).keys() == {2}
