"""Which step of a decision has the last word, and what is done whichever has it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lockstep.core import decide as core
from lockstep.core.decide import Last, Step
from lockstep.core.model.plan import Plan
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.tunables import Mode
from lockstep.core.run.handover import Handover
from support.world import World, spec, world


def submitted(**fields: object) -> World:
    w = world(2)
    w.apply("one", spec(1, **fields))
    return w


def at_work(**fields: object) -> World:
    w = submitted(**fields)
    w.settle()
    return w


def pause(w: World) -> None:
    w.annotate("one", paused="true")


def delete(w: World) -> None:
    w.runs["one"] = replace(w.runs["one"], deleting=True)


def succeed(w: World) -> None:
    w.end_child("one", 0, 0)


def succeed_and_delete(w: World) -> None:
    succeed(w)
    delete(w)


def nothing(w: World) -> None:
    """It is as it is."""


def have_it_unreadable(w: World) -> None:
    w.runs["one"] = replace(w.runs["one"], spec=None, spec_error="what is this?")


def wipe(w: World) -> None:
    """And nobody has been heard since who could tell what runs."""
    w.wipe_status("one")
    w.crash()


def wipe_and_pause(w: World) -> None:
    wipe(w)
    pause(w)


def cancel(w: World) -> None:
    w.apply("one", spec(1, cancel=True))


def pause_and_cancel(w: World) -> None:
    cancel(w)
    pause(w)


def decided(w: World) -> Plan:
    return core.decide(w.snapshot("one"), w.tunables, w.now)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were tried, in order."""
    tried = list[str]()

    def noted(step: Step) -> Step:
        def note(plan: PlanBuilder, known: Handover) -> Handover:
            tried.append(step.__name__)
            return step(plan, known)

        return note

    for flow in ("STEPS", "LOOKING_ON"):
        monkeypatch.setattr(core, flow, tuple(map(noted, getattr(core, flow))))
    return tried


@pytest.mark.parametrize(
    ("begun", "happens", "last"),
    [
        (at_work, delete, "delete_pods_of_deleted_run"),
        (at_work, succeed_and_delete, "delete_pods_of_deleted_run"),
        (at_work, succeed, "leave_the_finished_alone"),
        (at_work, wipe, "hold_when_status_is_behind"),
        (submitted, nothing, "refuse_what_cannot_run"),
        (at_work, cancel, "obey_requests"),
        (lambda: at_work(suspend=True), nothing, "wait_for_admission"),
        (lambda: at_work(worker="Disabled", checkpoint={}), nothing, "follow_plain_pods"),
        (at_work, nothing, "follow_the_training"),
        (lambda: at_work(suspend=True), pause, "wait_without_asking"),
        (at_work, have_it_unreadable, "obey_stop_orders"),
        (at_work, pause_and_cancel, "obey_stop_orders"),
        (at_work, pause, "stop_for_preemption"),
        (at_work, wipe_and_pause, "wait_without_asking"),
    ],
)
def test_the_first_step_that_concerns_a_run_has_the_last_word(
    begun: Callable[[], World], happens: Callable[[World], None], last: str, asked: list[str]
) -> None:
    w = begun()
    happens(w)
    asked.clear()
    decided(w)
    assert asked[-1] == last


@pytest.mark.parametrize(
    ("steps", "always", "happens"),
    [("STEPS", "ALWAYS", nothing), ("LOOKING_ON", "ALWAYS_LOOKING_ON", pause)],
)
def test_what_always_follows_is_done_in_order_and_told_what_the_steps_have_found(
    steps: str, always: str, happens: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[tuple[str, str]]()

    def step(name: str, *, last: bool = False) -> Step:
        def tried(_: PlanBuilder, known: Handover) -> Handover:
            done.append((name, known.slow))
            return replace(known, slow=known.slow + name, is_last=last)

        return tried

    def follows(name: str) -> Last:
        return lambda _, known: done.append((name, known.slow))

    monkeypatch.setattr(core, steps, (step("a"), step("b", last=True), step("never")))
    monkeypatch.setattr(core, always, (follows("c"), follows("d")))
    w = submitted()
    happens(w)
    decided(w)
    assert done == [("a", ""), ("b", "a"), ("c", "ab"), ("d", "ab")]


@pytest.mark.parametrize("happens", [nothing, succeed, delete, cancel, pause, have_it_unreadable])
def test_workers_are_answered_whichever_step_has_the_last_word(happens: Callable[[World], None]) -> None:
    w = at_work()
    happens(w)
    assert decided(w).directive is not None


@pytest.mark.parametrize("happens", [nothing, succeed, delete, cancel])
def test_an_operator_that_only_reports_answers_workers_and_does_nothing_else(
    happens: Callable[[World], None], asked: list[str]
) -> None:
    w = at_work()
    happens(w)
    asked.clear()
    w.tunables = replace(w.tunables, mode=Mode.REPORT_ONLY)
    plan = decided(w)
    assert plan == Plan(directive=plan.directive)
    assert plan.directive is not None
    assert not asked
