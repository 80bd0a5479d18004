"""Arrays: which index gets its run when, what is remembered of each, and what the set says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.base.indices import parse_indices
from lockstep.api.run_set import SetDependency, SetIndices, SetRefusal, TrainingRunSetStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.arrays.members import governed, index_of, run_body
from lockstep.core.arrays.run_set import WAITING_AT_ONCE, decide_run_set
from lockstep.core.model.array_views import RunSetPlan, RunSetSnapshot, RunSetView
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.ranges import count_ranges, format_ranges
from lockstep.core.model.tunables import Mode, Tunables
from support.arrays import HOLDING, NOW, ArrayWorld, ended, member, run_set, set_spec
from support.values import not_none


def known(**indices: str) -> TrainingRunSetStatus:
    """A status that was written before."""
    return TrainingRunSetStatus(observed_generation=1, indices=SetIndices(**indices))


def decided(view: RunSetView, *runs: Any, **rest: Any) -> RunSetPlan:
    own = {index_of(run): governed(run, view) for run in runs}
    return decide_run_set(RunSetSnapshot(view, own, **rest), Tunables(), NOW)  # type: ignore[arg-type]


def made(plan: RunSetPlan) -> list[int]:
    return [create.index for create in plan.creates]


def status_of(plan: RunSetPlan) -> TrainingRunSetStatus:
    assert plan.status is not None
    return plan.status


def said(plan: RunSetPlan, kind: str = "Progressing") -> tuple[str, str, str]:
    found = not_none(find(status_of(plan), kind))
    return found.status, found.reason, found.message


WITH_NODES = TrainingRunStatus(assignment=HOLDING)


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0-3", {0, 1, 2, 3}),
        ("0-7:2", {0, 2, 4, 6}),
        ("1,3,7-9", {1, 3, 7, 8, 9}),
        ("5-5", {5}),
        ("0-3,2", {0, 1, 2, 3}),
        ("99999", {99999}),
    ],
)
def test_indices_mean_what_they_mean_in_slurm(text: str, indices: set[int]) -> None:
    assert parse_indices(text) == indices


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-99%8", "maxRunning: 8"),
        ("3-1", "a range goes up"),
        ("0-10000", "more than 10000"),
        ("0-5999,6000-11999", "more than 10000"),
        ("", "write indices as"),
        ("1,,2", "write indices as"),
        ("0-9:0", "write indices as"),
        ("-1", "write indices as"),
        ("\u0661", "write indices as"),
    ],
)
def test_indices_that_mean_nothing_are_refused_with_the_remedy(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_indices(text)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, list(range(10))),
        ({"maxRunning": 3}, [0, 1, 2]),
        ({"maxRunning": 0}, []),
        ({"suspend": True}, []),
        ({"cancel": True}, []),
        ({"cancelIndices": "0,2-8"}, [1, 9]),
        ({"indices": "0-999"}, list(range(WAITING_AT_ONCE))),
        ({"afterCorr": "before"}, []),
    ],
)
def test_a_new_set_makes_as_many_runs_as_may_have_nodes_in_ascending_order(
    fields: dict[str, Any], expected: list[int]
) -> None:
    assert made(decided(run_set(**fields))) == expected


def test_a_run_of_a_set_holds_what_the_template_says_and_no_defaults_beside_it() -> None:
    spec = {"nodes": 1, "image": "train", "command": ["train"], "queue": "default", "recovery": {"maxRestarts": 2}}
    assert run_body(run_set(template={"spec": spec}), 3)["spec"] == spec


def test_a_run_that_ends_makes_room_for_the_next() -> None:
    view = run_set(maxRunning=3, status=known(active="0-2"))
    runs = [member(view, 0, ended("Succeeded")), member(view, 1, WITH_NODES), member(view, 2)]
    plan = decided(view, *runs)
    assert made(plan) == [3]
    status = status_of(plan)
    assert (status.indices.succeeded, status.indices.active, status.done) == ("0", "1-2", "1/10")
    counts = status.counts
    assert (counts.total, counts.pending, counts.running, counts.succeeded) == (10, 8, 1, 1)


def test_a_run_that_its_user_holds_makes_room_for_the_next() -> None:
    view = run_set(maxRunning=2, status=known(active="0-1"))
    held = member(view, 0, spec=changed(set_spec().template.spec, suspend=True))
    assert made(decided(view, held, member(view, 1))) == [2]


def test_a_lower_width_makes_nothing_and_a_higher_one_more() -> None:
    runs = [member(run_set(), index, WITH_NODES) for index in range(4)]
    before = known(active="0-3")
    assert made(decided(run_set(maxRunning=2, status=before), *runs)) == []
    assert made(decided(run_set(maxRunning=6, status=before), *runs)) == [4, 5]


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("Succeeded", "succeeded"), ("NoProgress", "failed"), ("TimeLimit", "failed"), ("Cancelled", "cancelled")],
)
def test_what_came_of_a_run_is_remembered_when_it_is_gone(reason: str, outcome: str) -> None:
    view = run_set(status=known(active="0"), indices="0")
    first = decided(view, member(view, 0, ended(reason)))
    assert getattr(status_of(first).indices, outcome) == "0"
    after = decided(replace(view, status=status_of(first)))
    assert after == RunSetPlan()


def test_a_run_that_was_deleted_before_its_end_counts_as_cancelled_and_is_not_made_again() -> None:
    plan = decided(run_set(status=known(active="0-9")), *(member(run_set(), i) for i in range(10) if i != 4))
    assert made(plan) == []
    assert status_of(plan).indices.cancelled == "4"
    assert [event.reason for event in plan.events] == ["RunDeleted"]


def test_a_run_that_ended_just_before_it_was_deleted_counts_as_what_it_was_seen_last() -> None:
    view = run_set(status=known(active="4"))
    plan = decided(view, departed={4: member(view, 4, ended("Succeeded"))})
    assert status_of(plan).indices.succeeded == "4"


def test_a_run_that_is_there_is_active_whatever_status_says() -> None:
    view = run_set(status=known(cancelled="4"))
    assert 4 not in made(decided(view, member(view, 4)))
    assert status_of(decided(view, member(view, 4))).indices.active.startswith("4")


def test_a_run_of_somebody_else_is_named_and_left_alone() -> None:
    plan = decided(run_set(maxRunning=2), taken=frozenset({0, 5}))
    assert made(plan) == [1, 2]
    value, reason, message = said(plan)
    assert (value, reason) == ("False", "NameTaken")
    assert "sweep-0, sweep-5" in message
    assert "cancelIndices" in message


def test_an_array_that_is_called_like_a_run_makes_none_and_one_that_was_there_before_goes_on() -> None:
    plan = decided(run_set(), namesake=True)
    assert made(plan) == []
    for condition in ("Accepted", "Progressing"):
        value, reason, message = said(plan, condition)
        assert (value, reason) == ("False", "NameTaken")
        assert "a run is called sweep as well" in message
    assert made(decided(run_set(status=status_of(decided(run_set(maxRunning=2)))), namesake=True))
    assert made(decided(run_set(status=status_of(plan)))), "it goes on once the run has ended"


def refused(indices: str, tries: int = 1, retry_at: float = NOW + 60, last: int = 0, **more: Any) -> Any:
    """A status with a refusal on record."""
    refusal = SetRefusal(indices=indices, last=last, message="no", tries=tries, retry_at=retry_at)
    return changed(known(**more), refusal=refusal)


def test_a_refused_index_is_on_record_with_its_reason_and_holds_up_no_other() -> None:
    plan = decided(run_set(maxRunning=2), refused={0: "the webhook says: index 0 is bad luck"})
    assert made(plan) == [1, 2]
    refusal = status_of(plan).refusal
    assert refusal == SetRefusal(
        indices="0", last=0, message="the webhook says: index 0 is bad luck", tries=1, retry_at=NOW + 2
    )
    value, reason, message = said(plan)
    assert (value, reason) == ("False", "RunRefused")
    assert "refuses 0; the others go on; tried again at" in message
    assert "sweep-0: the webhook says: index 0 is bad luck" in message
    assert plan.wake_at == NOW + 2


@pytest.mark.parametrize(("tries", "new"), [(1, 1), (2, 2), (5, 16), (9, 64)])
def test_the_longer_the_wait_the_more_are_tried_for_the_first_time(tries: int, new: int) -> None:
    view = run_set(status=refused("0-9", tries, NOW, 9), indices="0-999", maxRunning=1)
    plan = decided(view, fruitless=tries)
    assert (made(plan), plan.room) == ([*range(10, 10 + new), 0], 1)


def test_while_none_is_taken_few_are_tried_and_only_when_the_wait_is_over() -> None:
    words = dict.fromkeys(range(4), "exceeded quota: count/trainingruns.lockstep.dev")
    plan = decided(run_set(), refused=words, fruitless=1)
    assert (made(plan), plan.wake_at) == ([], NOW + 2)
    assert "exceeded quota" in said(plan)[2]
    assert "go on" not in said(plan)[2]
    view = run_set(status=refused("0-3", retry_at=NOW, last=3))
    assert made(decided(view, fruitless=1)) == [4, 0]
    plan = decided(replace(view, spec=set_spec(maxRunning=1)), fruitless=1)
    assert (made(plan), plan.room) == ([4, 0], 1), "the second only if the first is refused"


@pytest.mark.parametrize(("tries", "wait"), [(0, 2), (1, 4), (3, 16), (8, 300), (1000, 300)])
def test_the_wait_doubles_with_each_refusal_up_to_five_minutes(tries: int, wait: int) -> None:
    plan = decided(run_set(status=refused("2", tries, NOW, 2)), refused={2: "still no"})
    refusal = not_none(status_of(plan).refusal)
    assert (refusal.tries, refusal.retry_at) == (tries + 1, NOW + wait)


@pytest.mark.parametrize(("last", "again"), [(1, 4), (4, 7), (7, 1)])
def test_refused_indices_are_tried_again_in_turn_one_at_a_time(last: int, again: int) -> None:
    view = run_set(status=refused("1,4,7", retry_at=NOW, last=last), maxRunning=3)
    assert made(decided(view)) == [again, 0, 2]


def test_a_refused_index_that_is_taken_frees_the_others_and_one_that_is_cancelled_does_not() -> None:
    view = run_set(status=refused("1,4,7", tries=5))
    plan = decided(view, member(view, 4))
    assert (status_of(plan).refusal, made(plan)) == (None, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    plan = decided(replace(view, spec=set_spec(cancelIndices="4")))
    left = not_none(status_of(plan).refusal)
    assert (left.indices, left.tries) == ("1,7", 5)


def test_a_time_that_is_further_away_than_any_wait_holds_up_nobody() -> None:
    assert 1 in made(decided(run_set(status=refused("1", retry_at=NOW + 10**6))))


def test_nothing_is_awaited_of_refused_runs_while_there_is_no_room_for_them() -> None:
    view = run_set(status=refused("5", active="0"), maxRunning=1)
    assert decided(view, member(view, 0)).wake_at is None


def test_a_template_that_cannot_run_is_refused_before_any_run_is_made() -> None:
    template = {"spec": {"nodes": 1, "image": "i", "command": ["t"], "resourcesPerNode": {"gpu": 8}}}
    plan = decided(run_set(template=template))
    assert made(plan) == []
    assert said(plan, "Accepted")[:2] == ("False", "InvalidSpec")
    assert "spec.template.spec.resourcesPerNode[gpu]" in said(plan, "Accepted")[2]
    assert status_of(plan).reason == "InvalidSpec"


def test_a_spec_that_does_not_parse_is_refused_and_nothing_is_taken_for_done() -> None:
    view = replace(run_set(status=known(active="0-3")), spec=None, spec_error="spec.indices: no")
    plan = decide_run_set(RunSetSnapshot(view), Tunables(), NOW)
    assert (made(plan), status_of(plan).indices) == ([], view.status.indices)
    assert said(plan, "Accepted")[1:] == ("InvalidSpec", "spec.indices: no")


def test_a_status_that_cannot_be_read_stops_the_set_and_loses_nothing() -> None:
    plan = decided(run_set(status=known(succeeded="all")))
    assert (made(plan), status_of(plan).indices.succeeded) == ([], "all")
    assert said(plan, "Accepted")[1] == "StateRegression"


def test_what_may_have_had_a_run_is_not_run_again_after_status_was_lost() -> None:
    view = run_set()
    plan = decided(view, member(view, 5, WITH_NODES), member(view, 2, ended("Succeeded")))
    status = status_of(plan)
    assert (status.indices.active, status.indices.succeeded, status.indices.cancelled) == ("5", "2", "0-1,3-4")
    assert made(plan) == [6, 7, 8, 9]
    assert [event.reason for event in plan.events] == ["StateRegression"]


def test_after_so_many_failures_the_rest_is_cancelled_and_that_is_written_first() -> None:
    view = run_set(status=known(active="0-3"), stopOnFailure={"failures": 2})
    runs = [member(view, i, ended("NoProgress")) for i in (0, 1)]
    runs += [member(view, 2, WITH_NODES), member(view, 3)]
    plan = decided(view, *runs)
    status = status_of(plan)
    assert made(plan) == []
    assert status.stop is not None
    assert (status.indices.failed, status.indices.cancelled, status.indices.active) == ("0-1", "4-9", "2-3")
    told = [governed(run, replace(view, status=status)) for run in runs[2:]]
    assert [run.spec is not None and run.spec.cancel for run in told] == [False, True], "what trains goes on"
    everybody = replace(view, status=changed(status, stop=changed(status.stop, cancel="All")))
    assert governed(runs[2], everybody).spec.cancel  # type: ignore[union-attr]
    assert status.state == "Stopping"


AFTER = {"afterCorr": "before"}


def other(**indices: str) -> dict[str, RunSetView]:
    return {"before": run_set("before", known(**indices))}


def test_an_index_starts_when_the_same_one_of_the_other_set_has_succeeded() -> None:
    plan = decided(run_set(**AFTER), sets=other(succeeded="1,4-5", active="0"))
    assert made(plan) == [1, 4, 5]


def test_what_was_met_once_stays_met_when_the_other_set_is_gone() -> None:
    first = decided(run_set(maxRunning=1, **AFTER), sets=other(succeeded="1,4-5"))
    assert made(first) == [1]
    dependency = status_of(first).dependency
    assert dependency == SetDependency(name="before", met="1,4-5")
    later = run_set(maxRunning=3, status=changed(status_of(first), indices=SetIndices(active="1")), **AFTER)
    assert made(decided(later, member(later, 1))) == [4, 5]


def test_what_can_never_be_met_is_said_and_holds_up_nobody_else() -> None:
    sets = {"before": run_set("before", known(succeeded="0", failed="1", cancelled="2"), indices="0-7")}
    plan = decided(run_set(**AFTER), member(run_set(), 0, ended("Succeeded")), sets=sets)
    value, reason, message = said(plan)
    assert (value, reason) == ("False", "DependencyNeverSatisfied")
    assert message.endswith("1-2,8-9")
    assert not is_true(status_of(plan), "Finished")


def test_what_can_never_be_met_is_cancelled_on_request_and_passed_on() -> None:
    sets = other(succeeded="0-7", failed="8", cancelled="9")
    plan = decided(run_set(onUnsatisfiable="Cancel", **AFTER), sets=sets)
    assert status_of(plan).indices.cancelled == "8-9"
    held = decided(run_set(**AFTER), sets=sets)
    third = run_set("third", afterCorr="sweep")
    passed_on = decided(third, sets={"sweep": replace(run_set(**AFTER), status=status_of(held))})
    dependency = not_none(status_of(passed_on).dependency)
    assert dependency.never == "8-9"


@pytest.mark.parametrize(
    ("sets", "reason", "words"),
    [
        ({}, "Dependency", "no TrainingRunSet before is in this namespace yet"),
        ({"before": run_set("before", known(active="0"))}, "Dependency", "waits for the same indices of before"),
        ({"before": run_set("before", afterCorr="sweep")}, "DependencyNeverSatisfied", "sweep -> before -> sweep"),
    ],
)
def test_a_set_that_waits_for_another_says_so(sets: dict[str, RunSetView], reason: str, words: str) -> None:
    plan = decided(run_set(**AFTER), sets=sets)
    assert said(plan)[1] == reason
    assert words in said(plan)[2]


def test_a_circle_is_forgotten_when_it_is_broken() -> None:
    first = decided(run_set(**AFTER), sets={"before": run_set("before", afterCorr="sweep")})
    later = run_set(status=status_of(first), **AFTER)
    assert made(decided(later, sets=other(succeeded="3"))) == [3]


@pytest.mark.parametrize(
    ("indices", "fields", "state", "reason"),
    [
        ({"succeeded": "0-9"}, {}, "Succeeded", "AllSucceeded"),
        ({"succeeded": "0-8", "failed": "9"}, {}, "Failed", "SomeFailed"),
        ({"succeeded": "0-8", "cancelled": "9"}, {}, "Cancelled", "SomeCancelled"),
        ({"succeeded": "0-8", "cancelled": "9"}, {"cancel": True}, "Cancelled", "Cancelled"),
        ({"succeeded": "0", "failed": "1", "cancelled": "2-9"}, {"cancel": True}, "Cancelled", "Cancelled"),
        ({"succeeded": "0-8", "failed": "9"}, {"stopOnFailure": {}}, "Failed", "StoppedOnFailure"),
    ],
)
def test_a_set_has_finished_when_every_index_has_an_outcome(
    indices: dict[str, str], fields: dict[str, Any], state: str, reason: str
) -> None:
    status = status_of(decided(run_set(status=known(**indices), **fields)))
    assert (status.state, status.reason, status.done) == (state, reason, "10/10")
    assert is_true(status, "Finished")
    assert is_true(status, "Succeeded") is (state == "Succeeded")


def test_a_set_is_deleted_so_long_after_its_end() -> None:
    view = run_set(status=known(succeeded="0-9"), ttlAfterFinished="1h")
    over = replace(view, status=status_of(decided(view)))
    assert decided(over) == RunSetPlan(wake_at=NOW + 3600)
    assert decide_run_set(RunSetSnapshot(over), Tunables(), NOW + 3600) == RunSetPlan(delete_set=True)


@pytest.mark.parametrize(
    ("view", "mode"),
    [
        (replace(run_set(), deleting=True), Mode.ACTIVE),
        (replace(run_set(), annotations={"lockstep.dev/paused": "true"}), Mode.ACTIVE),
        (run_set(), Mode.REPORT_ONLY),
    ],
)
def test_nothing_is_decided_for_a_set_that_is_left_alone(view: RunSetView, mode: Mode) -> None:
    assert decide_run_set(RunSetSnapshot(view), Tunables(mode=mode), NOW) == RunSetPlan()


def test_the_worst_status_of_ten_thousand_indices_stays_small() -> None:
    view = run_set(indices="0-99998:10", status=TrainingRunSetStatus(observed_generation=1), **AFTER)
    assert view.spec is not None
    indices = sorted(parse_indices(view.spec.indices))
    kinds = [format_ranges(indices[start::4]) for start in range(4)]
    worst = SetIndices(active=kinds[0], succeeded=kinds[1], failed=kinds[2], cancelled=kinds[3])
    assert sum(count_ranges(text) for text in kinds) == 10_000
    written = TrainingRunSetStatus(indices=worst).dump()
    assert len(str(written)) < 64 * 1024
    TrainingRunSetStatus.load(written)


def test_a_set_comes_to_rest_and_ends() -> None:
    world = ArrayWorld()
    world.apply(run_set(maxRunning=3))
    while not is_true(world.sets["sweep"].status, "Finished"):
        world.settle("sweep")
        world.admit(10)
        assert len([run for run in world.runs.values() if run.status.assignment.nodes]) <= 3
        for name, run in list(world.runs.items()):
            if run.status.assignment.nodes:
                world.finish(name)
        world.hear()
        world.look("sweep")
        world.expire()
    assert world.made == [f"sweep-{index}" for index in range(10)]
    assert world.sets["sweep"].status.indices.succeeded == "0-9"


BATCH = {"nodes": 1, "image": "i", "launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}}


def test_an_array_of_batch_jobs_makes_none_before_it_has_a_number() -> None:
    view = run_set(template={"spec": BATCH}, indices="0-1")
    waiting = decided(view)
    assert waiting.take_job_id
    assert (waiting.status, made(waiting)) == (None, [])
    numbered = decided(view, job_id=12)
    assert not numbered.take_job_id
    assert (status_of(numbered).job_id, made(numbered)) == (12, [0, 1])
    known_by = {create.body["metadata"]["annotations"].get("lockstep.dev/array-job") for create in numbered.creates}
    assert known_by == {"job=12 step=1"}
    again = decided(replace(view, status=status_of(numbered)), job_id=13)
    assert again.status is None, "it never changes"


def test_other_arrays_and_those_that_are_cancelled_take_no_number() -> None:
    assert not decided(run_set()).take_job_id
    assert not decided(run_set(template={"spec": BATCH}, cancel=True)).take_job_id
