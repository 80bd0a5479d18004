"""What TrainingQueues say of themselves, and how often."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_status import LeavingStatus, ResolvedStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.queue_status import counted
from lockstep.core.model.conditions import find
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import CLOSED_QUEUE, ClusterSnapshot, Lag, RunView
from lockstep.core.model.tunables import Mode, Tunables
from support.admission import FINISHED, NOW, held, node, run, world
from support.admission import after as runs_after
from support.values import not_none

GPU_TYPES = {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100"}}
SETTINGS = Tunables(gpu_types=GPU_TYPES)


def nodes(count: int, gpu: str = "h100") -> list[Any]:
    return [node(f"{gpu}-{index}", labels={"gpu": gpu}) for index in range(count)]


def holding(name: str, *on: str, gpu_type: str = "H100", **spec: Any) -> RunView:
    status = {**held(*on), "last_admitted": NOW, "resolved": ResolvedStatus(gpu_type=gpu_type, nodes=len(on))}
    return run(name, len(on), status=status, **spec)


def passed(snapshot: ClusterSnapshot, now: float = NOW, **changes: Any) -> ClusterPlan:
    return admit(snapshot, replace(SETTINGS, **changes), now)


def after(snapshot: ClusterSnapshot, plan: ClusterPlan) -> ClusterSnapshot:
    """The snapshot once runs and queues are written."""
    told = {write.name: write.status for write in plan.queues}
    queues = {name: replace(view, status=told.get(name, view.status)) for name, view in snapshot.queues.items()}
    return replace(runs_after(snapshot, plan), queues=queues)


def told(plan: ClusterPlan, name: str = "q") -> TrainingQueueStatus:
    return next(write.status for write in plan.queues if write.name == name)


def condition(status: TrainingQueueStatus, kind: str) -> tuple[str, str]:
    found = not_none(find(status, kind))
    return found.status, found.reason


class TestFigures:
    def test_what_is_kept_for_debugging_is_in_use(self) -> None:
        over = holding("one", "h100-0", "h100-1", queue="q")
        kept = changed(over.status.recovery, debug_until=NOW + 9)
        leaving = LeavingStatus(nodes=2, until=NOW + 9)
        conditions = (*over.status.conditions, FINISHED)
        over = replace(over, status=changed(over.status, recovery=kept, leaving=leaving, conditions=conditions))
        status = told(passed(world([over], nodes(4), queues={"q": {}})))
        assert (status.running, status.nodes_in_use) == (1, 2)
        assert counted("q", [over]).nodes_in_use == 2

    def test_a_queue_tells_who_waits_who_runs_and_on_how_many_nodes_as_the_pass_leaves_it(self) -> None:
        runs = [run("fits", 2, queue="q"), run("waits", 3, queue="q"), run("elsewhere", 1)]
        status = told(passed(world(runs, nodes(4), queues={"q": {}})))
        assert (status.pending, status.running, status.nodes_in_use) == (1, 1, 2)
        assert status.updated == NOW

    def test_held_runs_wait_too_and_finished_and_suspended_ones_do_not(self) -> None:
        runs = [run("held", 2, queue="q", notBefore="2030-01-01T00:00:00Z"), run("off", 2, queue="q", suspend=True)]
        status = told(passed(world(runs, nodes(4), queues={"q": {}})))
        assert (status.pending, status.running) == (1, 0)

    def test_usage_follows_the_entries_of_the_quotas_and_says_what_is_borrowed(self) -> None:
        quotas = [{"gpuType": "A100", "nominalNodes": 4}, {"gpuType": "H100", "nominalNodes": 2}]
        queues = {"q": {"cohort": "c", "quotas": quotas}, "other": {"cohort": "c", "quotas": quotas}}
        runs = [holding("a", "h100-0", "h100-1", "h100-2", queue="q")]
        status = told(passed(world(runs, nodes(4), queues=queues)))
        assert [(row.gpu_type, row.nodes, row.borrowed) for row in status.usage] == [("A100", 0, 0), ("H100", 3, 1)]

    def test_a_slot_whose_node_is_lost_uses_none(self) -> None:
        view = holding("a", "h100-0", "h100-1", queue="q")
        lost = changed(view.status.assignment, nodes=("h100-0", ""), vacant=(1,))
        view = replace(view, status=changed(view.status, assignment=lost))
        assert told(passed(world([view], nodes(1), queues={"q": {}}))).nodes_in_use == 1

    def test_types_without_an_entry_of_their_own_are_counted_as_any(self) -> None:
        quotas = [{"gpuType": "H100", "nominalNodes": 1}, {"gpuType": "Any", "nominalNodes": 1}]
        runs = [
            holding("a", "h100-0", queue="q"),
            holding("b", "x-0", queue="q", gpu_type="A100"),
            holding("c", "x-1", queue="q", gpu_type=""),
        ]
        status = told(passed(world(runs, [*nodes(1), *nodes(2, "x")], queues={"q": {"quotas": quotas}})))
        assert [(row.gpu_type, row.nodes, row.borrowed) for row in status.usage] == [("H100", 1, 0), ("Any", 2, 1)]

    def test_a_queue_without_quotas_borrows_nothing(self) -> None:
        runs = [holding("a", "h100-0", queue="q"), holding("b", "x-0", queue="q", gpu_type="")]
        status = told(passed(world(runs, [*nodes(1), *nodes(1, "x")], queues={"q": {}})))
        assert [(row.gpu_type, row.nodes, row.borrowed) for row in status.usage] == [("Other", 1, 0), ("H100", 1, 0)]

    def test_gpu_hours_are_told_once_they_are_known_and_kept_when_they_are_not(self) -> None:
        snapshot = world([], nodes(1), queues={"q": {}})
        assert told(passed(snapshot)).gpu_hours_last_day is None
        known = replace(snapshot, gpu_hours={"q": 7})
        assert told(passed(known)).gpu_hours_last_day == 7
        later = after(known, passed(known))
        forgotten = replace(later, gpu_hours={}, runs=(run("new", 9, queue="q"),))
        assert told(passed(forgotten, NOW + 10)).gpu_hours_last_day == 7

    def test_a_zero_is_written(self) -> None:
        assert TrainingQueueStatus().dump()["pending"] == 0


class TestHowOften:
    def test_a_second_pass_over_the_same_says_nothing(self) -> None:
        snapshot = world([run("a", 1, queue="q")], nodes(2), queues={"q": {}})
        once = after(snapshot, passed(snapshot))
        again = passed(once, NOW + 60)
        assert again.queues == ()
        assert again.wake_at is None

    def test_new_figures_wait_until_ten_seconds_have_passed_and_the_pass_comes_back_for_them(self) -> None:
        snapshot = world([], nodes(2), queues={"q": {}})
        once = after(snapshot, passed(snapshot))
        changed = replace(once, runs=(run("a", 1, queue="q"),))
        soon = passed(changed, NOW + 4)
        assert soon.queues == ()
        assert soon.wake_at == NOW + 10
        assert told(passed(changed, NOW + 10)).running == 1

    def test_in_an_overload_figures_wait_for_forty_seconds_and_verdicts_do_not(self) -> None:
        snapshot = world([], nodes(2), queues={"q": {}})
        snapshot = replace(snapshot, leadership=replace(snapshot.leadership, lag=Lag(loop=1.0)))
        once = after(snapshot, passed(snapshot))
        changed = replace(once, runs=(run("a", 1, queue="q"),))
        later = passed(changed, NOW + 30)
        assert (later.queues, later.wake_at) == ((), NOW + 40)
        assert told(passed(changed, NOW + 40)).running == 1
        stopped = with_spec(once, {"stopPolicy": "Hold"})
        assert condition(told(passed(stopped, NOW + 1)), "Active") == ("False", "Hold")

    def test_gpu_hours_alone_bring_no_pass_back(self) -> None:
        snapshot = world([], nodes(2), queues={"q": {}})
        once = replace(after(snapshot, passed(snapshot)), gpu_hours={"q": 3})
        assert passed(once, NOW + 4).wake_at is None
        assert told(passed(once, NOW + 10)).gpu_hours_last_day == 3

    def test_a_changed_verdict_is_told_at_once(self) -> None:
        snapshot = world([], nodes(2), queues={"q": {}})
        once = after(snapshot, passed(snapshot))
        stopped = with_spec(once, {"stopPolicy": "Hold"})
        assert condition(told(passed(stopped, NOW + 1)), "Active") == ("False", "Hold")

    def test_a_clock_that_was_set_back_keeps_nobody_waiting(self) -> None:
        snapshot = world([], nodes(2), queues={"q": {}})
        once = after(snapshot, passed(snapshot, NOW + 3600))
        changed = replace(once, runs=(run("a", 1, queue="q"),))
        assert told(passed(changed)).updated == NOW

    def test_a_new_generation_is_acknowledged_at_once(self) -> None:
        snapshot = world([], nodes(2), queues={"q": {}})
        once = after(snapshot, passed(snapshot))
        queues = {"q": replace(once.queues["q"], generation=2)}
        status = told(passed(replace(once, queues=queues), NOW + 1))
        assert status.observed_generation == 2
        assert {each.observed_generation for each in status.conditions} == {2}


def with_spec(snapshot: ClusterSnapshot, spec: dict[str, Any]) -> ClusterSnapshot:
    view = replace(snapshot.queues["q"], spec=TrainingQueueSpec.model_validate(spec))
    return replace(snapshot, queues={"q": view})


class TestActive:
    @pytest.mark.parametrize(
        ("policy", "runs", "mode", "expected"),
        [
            ("None", [], Mode.ACTIVE, ("True", "Admitting")),
            ("Hold", [], Mode.ACTIVE, ("False", "Hold")),
            ("HoldAndDrain", [holding("a", "h100-0", queue="q")], Mode.ACTIVE, ("False", "Draining")),
            ("HoldAndDrain", [run("a", 1, queue="q")], Mode.ACTIVE, ("False", "Drained")),
            ("None", [], Mode.NO_NEW_ADMISSIONS, ("False", "NoNewAdmissions")),
            ("Hold", [], Mode.REPORT_ONLY, ("False", "ReportOnly")),
        ],
    )
    def test_a_queue_says_whether_it_admits(
        self, policy: str, runs: list[RunView], mode: Mode, expected: tuple[str, str]
    ) -> None:
        snapshot = world(runs, nodes(2), queues={"q": {"stopPolicy": policy}})
        assert condition(told(passed(snapshot, mode=mode)), "Active") == expected

    def test_one_that_cannot_be_read_says_so_and_what_holds_meanwhile(self) -> None:
        snapshot = world([run("a", 1, queue="q")], nodes(2), queues={"q": {}})
        unread = replace(snapshot.queues["q"], spec_error="spec: words")
        status = told(passed(replace(snapshot, queues={"q": unread})))
        assert (condition(status, "Active"), status.running) == (("True", "Admitting"), 1), "what could be read holds"
        assert condition(status, "Valid") == ("False", "InvalidSpec")
        assert not_none(find(status, "Valid")).message == "spec: words; until it is corrected, the spec before it holds"
        closed = replace(unread, spec=CLOSED_QUEUE)
        plan = passed(replace(snapshot, queues={"q": closed}))
        assert (condition(told(plan), "Active"), told(plan).running) == (("False", "InvalidSpec"), 0)
        assert not_none(find(told(plan), "Valid")).message == "spec: words; until it is corrected, nothing is admitted"

    def test_since_when_it_does_moves_only_when_it_flips(self) -> None:
        snapshot = world([holding("a", "h100-0", queue="q")], nodes(2), queues={"q": {"stopPolicy": "HoldAndDrain"}})
        once = after(snapshot, passed(snapshot))
        drained = told(passed(replace(once, runs=()), NOW + 20))
        found = not_none(find(drained, "Active"))
        assert (found.reason, found.last_transition_time) == ("Drained", NOW)


QUOTA = {"gpuType": "H100", "nominalNodes": 4}
ANYTHING = {"gpuType": "Any", "nominalNodes": 4}


class TestMistakes:
    @pytest.mark.parametrize(
        ("queues", "reason", "field", "remedy"),
        [
            ({"q": {"quotas": [{**QUOTA, "gpuType": "H1OO"}]}}, "UnknownGpuType", "spec.quotas[H1OO].gpuType", "A100"),
            (
                {
                    "q": {"cohort": "c", "quotas": [{**QUOTA, "lendingLimit": 5}]},
                    "r": {"cohort": "c", "quotas": [QUOTA]},
                },
                "LendingLimitTooHigh",
                "spec.quotas[H100].lendingLimit",
                "lower it",
            ),
            (
                {"q": {"limits": {"defaultTimeLimit": "2d", "maxTimeLimit": "24h"}}},
                "DefaultTimeLimitTooLong",
                "spec.limits.defaultTimeLimit",
                "shorten it",
            ),
            ({"q": {"cohort": "c", "quotas": [QUOTA]}}, "CohortOfOne", "spec.cohort", "correct the name"),
            (
                {
                    "q": {"cohort": "c", "quotas": [{**QUOTA, "borrowingLimit": 2}]},
                    "r": {"cohort": "c", "quotas": [{**QUOTA, "gpuType": "A100"}]},
                },
                "NothingToBorrow",
                "spec.quotas[H100].borrowingLimit",
                "leave borrowingLimit out",
            ),
            (
                {"q": {"cohort": "c", "quotas": [ANYTHING]}, "r": {"cohort": "c", "quotas": [QUOTA, ANYTHING]}},
                "QuotasApart",
                "spec.quotas[Any]",
                "name these here too",
            ),
            ({"q": {"allowedPriorityClasses": ["hgih"]}}, "PriorityClassNotFound", "allowedPriorityClasses", "hgih"),
        ],
    )
    def test_a_queue_that_makes_no_sense_says_which_field_and_what_to_write(
        self, queues: dict[str, Any], reason: str, field: str, remedy: str
    ) -> None:
        status = told(passed(world([], nodes(2), queues=queues, classes={"high": 1})))
        assert condition(status, "Valid") == ("False", reason)
        assert condition(status, "Active") == ("True", "Admitting")
        found = not_none(find(status, "Valid"))
        assert field in found.message
        assert remedy in found.message

    @pytest.mark.parametrize(
        "queues",
        [
            {"q": {}},
            {"q": {"quotas": [QUOTA, ANYTHING]}},
            {
                "q": {"cohort": "c", "quotas": [{**QUOTA, "lendingLimit": 4, "borrowingLimit": 1}]},
                "r": {"cohort": "c", "quotas": [QUOTA]},
            },
            {"q": {"cohort": "c", "quotas": [QUOTA, ANYTHING]}, "r": {"cohort": "c", "quotas": [QUOTA]}},
            {"q": {"cohort": "c", "quotas": [{**QUOTA, "borrowingLimit": 0}]}, "r": {"cohort": "c", "quotas": [QUOTA]}},
            {"q": {"allowedPriorityClasses": ["high"]}},
        ],
    )
    def test_a_queue_that_makes_sense_is_valid(self, queues: dict[str, Any]) -> None:
        status = told(passed(world([], nodes(2), queues=queues, classes={"high": 1})))
        assert condition(status, "Valid") == ("True", "Valid")


@pytest.mark.parametrize(
    ("runs", "figures"),
    [
        ([], (0, 0, 0)),
        ([run("a"), holding("b", "h100-0", "h100-1")], (1, 1, 2)),
        ([run("a", queue="other"), holding("b", "h100-0", queue="other")], (0, 0, 0)),
        ([run("a", suspend=True)], (0, 0, 0)),
    ],
)
def test_a_queue_without_an_object_is_counted_from_its_runs(runs: list[RunView], figures: tuple[int, int, int]) -> None:
    found = counted("default", runs)
    assert (found.pending, found.running, found.nodes_in_use) == figures
