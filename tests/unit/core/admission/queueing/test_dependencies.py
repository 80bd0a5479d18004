"""Runs that have to come first: met for good, missed for good, missing, or waiting for each other."""

from dataclasses import replace

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import Totals
from lockstep.api.run_status import AdmissionStatus, AssignmentStatus, Condition, TrainingRunStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.queueing.dependencies import DependencyVerdict, Namespaces, judge
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support import admission
from support.world import spec


def run(name: str, created: float = 0.0, status: TrainingRunStatus | None = None, **fields: object) -> RunView:
    status = status or TrainingRunStatus()
    return RunView("ns", name, f"uid-{name}", 1, "1", created, spec(1, **fields), status)


def ended(succeeded: bool, reason: str = "Ended") -> TrainingRunStatus:
    def condition(kind: str, word: str) -> Condition:
        return Condition(type=kind, status=word, reason=reason, last_transition_time=0.0)  # type: ignore[arg-type]

    return TrainingRunStatus(
        conditions=(condition("Finished", "True"), condition("Succeeded", str(succeeded))), totals=Totals(attempts=1)
    )


STARTED = TrainingRunStatus(totals=Totals(attempts=1), state="Running")
HOLDING = TrainingRunStatus(assignment=AssignmentStatus(nodes=("n0",), incarnations=(1,)))


def remembering(child: RunView, **records: tuple[str, ...]) -> RunView:
    status = changed(child.status.admission, **records)
    return replace(child, status=changed(child.status, admission=status))


def judged(child: RunView, *others: RunView) -> DependencyVerdict:
    return judge(child, Namespaces((child, *others)))


@pytest.mark.parametrize(
    ("condition", "parent", "met", "failed"),
    [
        ("Succeeded", ended(True), True, False),
        ("Succeeded", ended(False), False, True),
        ("Succeeded", STARTED, False, False),
        ("Failed", ended(True), False, True),
        ("Failed", ended(False), True, False),
        ("Finished", ended(False), True, False),
        ("Finished", STARTED, False, False),
        ("Started", STARTED, True, False),
        ("Started", TrainingRunStatus(), False, False),
        ("Started", ended(False), True, False),
    ],
)
def test_a_dependency_is_met_missed_or_waited_for(
    condition: str, parent: TrainingRunStatus, met: bool, failed: bool
) -> None:
    verdict = judged(run("b", dependsOn=[{"name": "a", "condition": condition}]), run("a", status=parent))
    assert verdict.met == ((f"a {condition}",) if met else ())
    assert verdict.failed == ((f"a {condition}",) if failed else ())
    assert bool(verdict.message) is not met


def test_a_run_that_ended_before_it_ever_started_was_not_started() -> None:
    cancelled = changed(ended(False, "Cancelled"), totals=Totals())
    verdict = judged(run("b", dependsOn=[{"name": "a", "condition": "Started"}]), run("a", status=cancelled))
    assert verdict.failed == ("a Started",)
    assert verdict.message == "a has ended (Cancelled) and was to be Started"


def test_a_run_that_does_not_exist_is_waited_for() -> None:
    verdict = judged(run("b", dependsOn=[{"name": "a"}]))
    assert verdict == DependencyVerdict((), (), "no run a is in this namespace yet")


def test_what_was_met_stays_met_when_its_record_is_gone() -> None:
    child = run("b", dependsOn=[{"name": "a"}])
    child = remembering(child, met=("a Succeeded",))
    assert judged(child) == DependencyVerdict(("a Succeeded",))


def test_what_was_missed_stays_missed_when_the_run_of_that_name_is_made_again() -> None:
    child = remembering(run("b", dependsOn=[{"name": "a"}]), failed=("a Succeeded",))
    assert judged(child, run("a", status=ended(True))).failed == ("a Succeeded",)


def test_a_dependency_that_is_taken_out_of_the_spec_is_forgotten() -> None:
    assert judged(remembering(run("b"), failed=("a Succeeded",))) == DependencyVerdict()


def test_another_condition_is_judged_anew() -> None:
    missed = remembering(run("b", dependsOn=[{"name": "a", "condition": "Finished"}]), failed=("a Succeeded",))
    assert judged(missed, run("a", status=ended(False))) == DependencyVerdict(("a Finished",))
    met = remembering(run("b", dependsOn=[{"name": "a"}]), met=("a Started",))
    assert judged(met, run("a", status=STARTED)).message == "a has to succeed first; it is Running"


def test_the_last_dependency_that_is_taken_out_is_forgotten_in_status() -> None:
    child = admission.run("b", status={"admission": AdmissionStatus(failed=("a Succeeded",))})
    plan = admit(admission.world([child]), Tunables(), admission.NOW)
    assert admission.statuses(plan)["b"].admission.failed == ()


def test_runs_that_wait_for_each_other_are_told_the_whole_circle() -> None:
    runs = [
        run("a", dependsOn=[{"name": "x"}, {"name": "b"}]),
        run("b", dependsOn=[{"name": "c"}]),
        run("c", dependsOn=[{"name": "a"}]),
        run("x"),
    ]
    verdict = judged(*runs)
    assert verdict.message == "the runs wait for each other: a -> b -> c -> a"
    assert (verdict.failed, verdict.circle) == ((), True)


def test_who_waits_for_a_circle_without_being_in_it_just_waits() -> None:
    circle = [run("a", dependsOn=[{"name": "b"}]), run("b", dependsOn=[{"name": "a"}])]
    verdict = judged(run("z", dependsOn=[{"name": "a"}]), *circle)
    assert verdict.failed == ()
    assert verdict.message == "a has to succeed first; it is Pending"


def test_a_run_that_depends_on_itself_is_a_circle() -> None:
    assert judged(run("a", dependsOn=[{"name": "a"}])).message == "the runs wait for each other: a -> a"


def test_of_one_word_the_oldest_goes_first_and_who_has_nodes_before_it() -> None:
    old, young = run("old", 1.0, singleton="w"), run("young", 2.0, singleton="w")
    other = run("other", 0.0, singleton="v")
    runs = Namespaces((young, old, other))
    assert runs.ahead_of(old) is None
    assert runs.ahead_of(young) is old
    holds = replace(young, status=HOLDING)
    assert Namespaces((holds, old)).ahead_of(old) is holds


def test_a_circle_of_a_dependency_and_a_singleton_word_is_told_to_both() -> None:
    old = admission.run("old", at=1.0, singleton="w", dependsOn=[{"name": "young"}])
    young = admission.run("young", at=2.0, singleton="w")
    told = admission.statuses(admit(admission.world([old, young]), Tunables(), admission.NOW))
    assert {name: (status.queue.reason, status.queue.message) for name, status in told.items()} == {
        "old": ("DependencyNeverSatisfied", "the runs wait for each other: old -> young -> old"),
        "young": ("DependencyNeverSatisfied", "the runs wait for each other: young -> old -> young"),
    }


def refused(reason: str) -> TrainingRunStatus:
    told = Condition(type="Accepted", status="False", reason=reason, last_transition_time=0, observed_generation=1)
    return TrainingRunStatus(conditions=(told,))


@pytest.mark.parametrize(
    "older",
    [
        run("old", 1.0, singleton="w", suspend=True),
        run("old", 1.0, singleton="w", status=ended(True)),
        run("old", 1.0, singleton="w", status=refused("InvalidSpec")),
    ],
    ids=["suspended", "finished", "refused"],
)
def test_who_will_not_start_is_waited_for_by_nobody(older: RunView) -> None:
    young = run("young", 2.0, singleton="w")
    assert Namespaces((young, older)).ahead_of(young) is None


def test_who_waits_for_a_queue_to_be_made_keeps_its_turn() -> None:
    old, young = run("old", 1.0, singleton="w", status=refused("QueueNotFound")), run("young", 2.0, singleton="w")
    assert Namespaces((young, old)).ahead_of(young) == old


def test_who_may_have_got_nodes_in_a_write_without_an_answer_is_waited_for() -> None:
    old, young = (admission.run(name, at=at, singleton="w") for name, at in (("old", 1.0), ("young", 2.0)))
    plan = admit(admission.world([old, young], in_flight={young.uid: frozenset({"n0"})}), Tunables(), admission.NOW)
    assert {name: status.queue.reason for name, status in admission.statuses(plan).items()} == {"old": "Singleton"}


def test_the_same_word_in_another_namespace_is_another_word() -> None:
    young = run("young", 2.0, singleton="w")
    elsewhere = replace(run("old", 1.0, singleton="w"), namespace="theirs")
    assert Namespaces((young, elsewhere)).ahead_of(young) is None


def test_whom_a_run_waits_for_is_read_once_for_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    awaited_by = Namespaces._awaited_by

    def counted(self: Namespaces, view: RunView) -> list[str]:
        read.append(view.name)
        return awaited_by(self, view)

    monkeypatch.setattr(Namespaces, "_awaited_by", counted)
    chain = [
        run(f"r{at}", dependsOn=[{"name": f"r{before}"} for before in range(max(0, at - 8), at)]) for at in range(40)
    ]
    runs = Namespaces(chain)
    assert [judge(each, runs).circle for each in chain] == [False] * 40
    assert sorted(read) == sorted(each.name for each in chain)


def test_a_run_that_only_asks_is_told_the_circle_that_it_would_be_in() -> None:
    asks, other = run("a", dependsOn=[{"name": "b"}]), run("b", dependsOn=[{"name": "a"}])
    assert judge(asks, Namespaces([other])).message == "the runs wait for each other: a -> b -> a"
