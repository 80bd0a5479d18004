"""Runs that only ask when they would start: they are told, get nothing, and change nothing for anybody else."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, Condition, TrialStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.decide import decide
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.assignment import assigned
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, DryRunResult, Leadership, PodPhase, RunSnapshot, RunView
from lockstep.core.model.test_only import KEPT, is_test_only
from lockstep.core.model.tunables import Tunables
from support.admission import ACCEPTED, FINISHED, NOW, after, held, pod, run, statuses, world
from support.values import not_none

ASKS = {names.ANNOTATION_TEST_ONLY: "true"}
HOUR = 3600.0


def trial(name: str = "trial", nodes: int = 1, at: float = NOW, **spec: Any) -> RunView:
    return replace(run(name, nodes, at=at, **spec), annotations=ASKS)


def holding(name: str, *nodes: str, limit: int | None = None, **spec: Any) -> RunView:
    view = run(name, len(nodes), status={**held(*nodes), "last_admitted": NOW}, **spec)
    admission = changed(view.status.admission, time_limit=limit)
    return replace(view, status=changed(view.status, admission=admission))


def passed(snapshot: ClusterSnapshot, now: float = NOW, **settings: Any) -> ClusterPlan:
    return admit(snapshot, Tunables(admission=AdmissionSettings(**settings)), now)


def answer(snapshot: ClusterSnapshot, name: str = "trial", **settings: Any) -> TrialStatus:
    told = statuses(passed(snapshot, **settings))[name].test_only
    assert told is not None
    return told


def test_with_free_nodes_it_would_start_now_and_is_told_where() -> None:
    plan = passed(world([trial(nodes=2)]))
    (write,) = plan.writes
    told = write.status.test_only
    assert told is not None
    assert (told.start, told.nodes, told.reason) == (NOW, ("n0", "n1"), "")
    assert write.nodes == frozenset()
    assert write.status.attempt == 0
    assert write.status.assignment.nodes == ()
    assert write.status.queue.reason == "TestOnly"


def test_it_comes_after_everybody_who_waits() -> None:
    snapshot = world([holding("a", "n0", "n1", "n2", limit=3600), run("head", 4, timeLimit="2h"), trial(nodes=4)])
    told = answer(snapshot)
    assert told.start == NOW + 3 * HOUR
    assert told.nodes == ("n0", "n1", "n2", "n3")
    assert "uses its whole time limit" in told.assumption
    assert told.reason in ("Resources", "Priority")


def test_it_would_be_backfilled_like_anybody_else() -> None:
    snapshot = world([holding("a", "n0", "n1", "n2", limit=3600), run("head", 4, timeLimit="2h")])
    short, long = trial("short", timeLimit="1h"), trial("long", timeLimit="2h")
    assert answer(replace(snapshot, runs=(*snapshot.runs, short)), "short").start == NOW
    assert answer(replace(snapshot, runs=(*snapshot.runs, long)), "long").start == NOW + 3 * HOUR


def test_a_higher_class_would_put_it_in_front() -> None:
    runs = [holding("a", "n0", "n1", "n2", limit=3600), run("head", 4, timeLimit="2h")]
    told = answer(world([*runs, trial(nodes=4, priorityClassName="urgent")], classes={"urgent": 10}))
    assert told.start == NOW + HOUR
    assert told.priority >= 100_000


def test_nobody_knows_the_start_behind_a_run_without_a_time_limit() -> None:
    told = answer(world([holding("a", "n0", "n1", "n2", "n3"), trial()]))
    assert told.start is None
    assert told.nodes == ()
    assert "no time limit" in told.assumption


def test_who_can_never_start_is_told_so_and_not_behind_whom_it_is() -> None:
    told = answer(world([holding("a", "n0", "n1", "n2", "n3"), run("head", 4), trial(nodes=9)]))
    assert (told.reason, told.start) == ("Placement", None)
    assert "needs 9 nodes" in told.message


@pytest.mark.parametrize(
    ("spec", "queue", "expected", "words"),
    [
        ({"nodes": 9}, {}, "Placement", "needs 9 nodes"),
        ({}, {"stopPolicy": "Hold"}, "QueueHeld", "admits nothing"),
        ({"nodes": 3}, {"limits": {"maxNodesPerRun": 2}}, "NodesPerRunLimit", "at most 2"),
        ({"nodes": 3}, {"quotas": [{"gpuType": "Any", "nominalNodes": 2}]}, "QuotaTooSmall", "its 2 nodes"),
        ({"dependsOn": [{"name": "first"}]}, {}, "Dependency", "no run first"),
        ({"priorityClassName": "nope"}, {}, "PriorityClassNotFound", "no PriorityClass nope"),
        ({"singleton": "w"}, {}, "Singleton", "old comes first"),
        ({}, {"limits": {"maxPendingRuns": 1}}, "PendingRunsLimit", "at most 1 run wait"),
    ],
)
def test_why_it_would_not_start_at_all_is_said(
    spec: dict[str, Any], queue: dict[str, Any], expected: str, words: str
) -> None:
    other = run("old", 9, queue="q", singleton="w")
    told = answer(world([other, trial(queue="q", **spec)], queues={"q": queue}))
    assert (told.reason, told.start, told.nodes) == (expected, None, ())
    assert words in told.message


PLACEHOLDERS = {"lockstep-placeholder": -10}


@pytest.mark.parametrize(
    ("spec", "queue", "classes", "may"),
    [
        ({"gpusPerNode": 0}, {}, PLACEHOLDERS, True),
        ({"gpusPerNode": 0}, {"quotas": [{"gpuType": "Any", "nominalNodes": 9}]}, PLACEHOLDERS, True),
        ({"gpusPerNode": 0}, {"scaleUp": "Disabled"}, PLACEHOLDERS, False),
        ({"gpusPerNode": 0}, {}, {}, False),
        ({}, {}, PLACEHOLDERS, False),
        ({"gpusPerNode": 0, "placement": {"nodes": ["x"]}}, {}, PLACEHOLDERS, False),
        ({"gpusPerNode": 0, "nodes": 999}, {}, PLACEHOLDERS, False),
    ],
    ids=["asks", "with quota", "asks for none", "without the class", "of any GPUs", "of these nodes", "too many"],
)
def test_one_for_which_nodes_may_be_made_starts_when_nobody_knows_and_not_never(
    spec: dict[str, Any], queue: dict[str, Any], classes: dict[str, int], may: bool
) -> None:
    asked = trial(**{"nodes": 9, "queue": "q", **spec})
    snapshot = world([asked, run("old", 9, queue="q")], queues={"q": {"scaleUp": "Enabled", **queue}}, classes=classes)
    told = answer(snapshot)
    assert (told.reason, told.start) == ("Placement", None)
    assert told.assumption == ("not known: it rests on nodes that an autoscaler may make for it" if may else "")


def test_a_begin_time_is_kept() -> None:
    told = answer(world([trial(notBefore="1970-01-01T01:00:00Z")]))
    assert (told.reason, told.start, told.nodes) == ("BeginTime", HOUR, ("n0",))


def test_only_one_that_never_had_nodes_asks() -> None:
    assert is_test_only(trial())
    assert not is_test_only(run("a"))
    assert not is_test_only(replace(holding("a", "n0"), annotations=ASKS))
    requeued = run("a", status={"attempt": 1, "assignment": AssignmentStatus()})
    assert not is_test_only(replace(requeued, annotations=ASKS))
    assert not is_test_only(replace(trial(), annotations={names.ANNOTATION_TEST_ONLY: "false"}))


def test_an_answer_is_given_once_for_each_generation() -> None:
    snapshot = world([trial()])
    answered = after(snapshot, passed(snapshot))
    assert passed(answered, NOW + 5).writes == ()
    (view,) = answered.runs
    accepted = changed(ACCEPTED, observed_generation=2)
    edited = replace(view, generation=2, status=changed(view.status, conditions=(accepted,)))
    assert len(passed(replace(answered, runs=(edited,)), NOW + 5).writes) == 1
    unseen = replace(edited, generation=3)
    assert passed(replace(answered, runs=(unseen,)), NOW + 5).writes == ()


def test_whether_it_is_suspended_does_not_matter() -> None:
    assert answer(world([trial(suspend=True)])).start == NOW


def test_once_the_annotation_is_gone_it_is_a_run_like_any_other() -> None:
    snapshot = world([trial()])
    (view,) = after(snapshot, passed(snapshot)).runs
    (write,) = passed(replace(snapshot, runs=(replace(view, annotations={}),))).writes
    assert write.nodes == {"n0"}


def test_many_are_answered_a_few_at_a_time() -> None:
    snapshot = world([trial(f"t{number}") for number in range(20)])
    plan = passed(snapshot)
    assert 0 < len(plan.writes) < 20
    assert NOW <= not_none(plan.wake_at) < NOW + 1
    for _ in range(3):
        snapshot = after(snapshot, plan)
        plan = passed(snapshot)
    assert plan.writes == ()


def test_answers_take_a_small_part_of_the_time_however_many_wait_and_ask_again_and_again() -> None:
    """What a cycle does is bounded, and so is when it is done again, whoever has cycles run meanwhile."""
    crowd = [run(f"w{number}", 2, at=float(number)) for number in range(3000)]
    snapshot, memory = (
        world([holding("a", "n0"), *crowd, *(trial(f"t{number}") for number in range(8))], 1),
        CycleMemory(),
    )
    plans = [admit(snapshot, Tunables(), NOW + number / 10, memory) for number in range(21)]
    answered = [sum(status.test_only is not None for status in statuses(plan).values()) for plan in plans]
    assert 0 < answered[0] <= 4
    assert answered[1:6] == [0] * 5
    assert not_none(plans[1].wake_at) <= NOW + 1.5
    assert answered[0] < sum(answered) <= 3 * answered[0], "and it goes on, once or twice in two seconds"


def test_whoever_asks_again_and_again_keeps_nobody_else_from_an_answer() -> None:
    """Eight of a namespace are older, and edited as soon as they are answered."""
    older = [trial(f"t{number}", at=NOW - 9) for number in range(20)]
    mine = replace(trial("mine", at=NOW - 1), namespace="other")
    snapshot, memory = world([*older, mine]), CycleMemory()
    for number in range(2):
        plan = admit(snapshot, Tunables(), NOW + number, memory)
        if "mine" in statuses(plan):
            return
        runs = (
            replace(view, generation=2 + number, status=changed(view.status, conditions=(accepted_as(2 + number),)))
            if view.status.test_only is not None
            else view
            for view in after(snapshot, plan).runs
        )
        snapshot = replace(snapshot, runs=tuple(runs))
    raise AssertionError("it was never answered")


def accepted_as(generation: int) -> Condition:
    return changed(ACCEPTED, observed_generation=generation)


def test_names_of_other_namespaces_are_told_only_where_the_queue_allows_it() -> None:
    other = replace(holding("secret", "n0", "n1", "n2", "n3", limit=60), namespace="rivals")
    waiting = replace(run("hidden", 4), namespace="rivals")
    snapshot = world([other, waiting, trial(queue="q")], queues={"q": {"visibility": "OwnNamespace"}})
    told = answer(snapshot).model_dump_json()
    assert "secret" not in told
    assert "hidden" not in told


@given(st.data())
def test_nobody_else_notices(data: st.DataObject) -> None:
    """The plan without those who ask is the plan with them, but for their answers."""

    def some(name: str, *, asks: bool) -> RunView:
        spec: dict[str, Any] = {
            "queue": data.draw(st.sampled_from(["default", "q"])),
            "singleton": data.draw(st.sampled_from([None, "w"])),
            "timeLimit": data.draw(st.sampled_from([None, "1h", "5h"])),
            "spareNodes": data.draw(st.integers(0, 1)),
        }
        depends = data.draw(st.sampled_from(["", "r0", "t0"]))
        spec |= {"dependsOn": [{"name": depends}]} if depends not in ("", name) else {}
        spec = {field: value for field, value in spec.items() if value is not None}
        view = run(name, data.draw(st.integers(1, 5)), at=float(data.draw(st.integers(0, 900))), **spec)
        return replace(view, annotations=ASKS) if asks else view

    runs = [holding("busy", "n0", "n1", limit=7200)]
    runs += [some(f"r{number}", asks=False) for number in range(data.draw(st.integers(0, 4)))]
    trials = [some(f"t{number}", asks=True) for number in range(data.draw(st.integers(1, 4)))]
    queues = {"q": {"quotas": [{"gpuType": "Any", "nominalNodes": 3}], "limits": {"maxPendingRuns": 2}}}
    alone, together = passed(world(runs, queues=queues)), passed(world([*runs, *trials], queues=queues))
    asked = {view.uid for view in trials}
    assert tuple(write for write in together.writes if write.uid not in asked) == alone.writes
    answers = [write for write in together.writes if write.uid in asked]
    assert len(answers) == len(trials)
    assert not any(write.nodes or write.status.attempt for write in answers)


def decided(view: RunView, now: float, **more: Any) -> Any:
    snapshot = RunSnapshot(
        run=view,
        pods=more.get("pods", ()),
        reports={},
        nodes={},
        leadership=Leadership(0.0),
        dry_run=DryRunResult(view.generation, more.get("taken", True), "no", now),
    )
    return decide(snapshot, Tunables(), now)


def answered(view: RunView) -> RunView:
    return replace(view, status=changed(view.status, test_only=TrialStatus(at=NOW)))


class TestForgetting:
    def test_it_gets_no_pods_and_goes_ten_minutes_after_its_answer(self) -> None:
        view = answered(trial())
        early = decided(view, NOW + KEPT - 1)
        assert not early.delete_run
        assert early.wake_at == NOW + KEPT
        late = decided(view, NOW + KEPT)
        assert late.delete_run
        assert (early.creates, late.creates, late.deletes) == ((), (), ())

    def test_without_an_answer_it_stays(self) -> None:
        assert not decided(trial(), NOW + 10 * KEPT).delete_run

    def test_a_refusal_and_an_end_are_answers_as_well(self) -> None:
        refused = trial()
        no = Condition(type="Accepted", status="False", reason="PodRefused", last_transition_time=NOW)
        refused = replace(refused, status=changed(refused.status, conditions=(no,)))
        assert decided(refused, NOW + KEPT, taken=False).delete_run
        ended = trial()
        over = changed(FINISHED, last_transition_time=NOW)
        ended = replace(ended, status=changed(ended.status, conditions=(ACCEPTED, over)))
        assert not decided(ended, NOW + KEPT - 1).delete_run
        assert decided(ended, NOW + KEPT).delete_run

    def test_a_run_that_had_nodes_is_deleted_for_no_annotation(self) -> None:
        for status in ({"attempt": 1}, {"assignment": assigned(AssignmentStatus(), ["n0"])}):
            view = answered(trial())
            view = replace(view, status=changed(view.status, **status))
            assert not decided(view, NOW + 10 * KEPT).delete_run

    def test_a_lost_status_deletes_nothing_that_has_pods(self) -> None:
        view = answered(trial())
        for phase in PodPhase:
            plan = decided(view, NOW + 10 * KEPT, pods=(pod(view, 0, "n0", phase),))
            assert not plan.delete_run

    def test_what_it_could_never_do_in_time_does_not_end_it(self) -> None:
        view = trial(timeLimit="1h", deadline="1970-01-01T00:10:00Z")
        plan = decided(view, NOW)
        assert not any(c.type == "Finished" and c.status == "True" for c in plan.status.conditions)


@pytest.mark.parametrize(
    ("spec", "limits", "told"),
    [
        ({"timeLimit": "4m"}, {}, (240, None, 216)),
        ({"timeLimit": "1h", "checkpoint": {"shared": {"claimName": "lustre"}}}, {}, (3600, 3000, 3540)),
        ({}, {"defaultTimeLimit": "30m"}, (1800, None, 1740)),
        ({}, {}, (None, None, None)),
    ],
)
def test_it_is_told_when_it_would_be_asked_to_save_and_when_it_would_be_told_to_end(
    spec: dict[str, Any], limits: dict[str, str], told: tuple[int | None, ...]
) -> None:
    found = answer(world([trial(**spec)], queues={"default": {"limits": limits}}))
    assert (found.time_limit, found.save_after, found.end_after) == told
