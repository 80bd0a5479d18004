"""Which run of those that wait sends whom away, pass by pass."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.checkpoint_status import Candidate, CheckpointStatus
from lockstep.api.preemption_status import PreemptionStatus, ReservationStatus
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import AssignmentStatus, ProgressStatus, StopStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.settings import AdmissionSettings, Backfill, MaintenanceWindow
from lockstep.core.assignment import assigned, vacated
from lockstep.core.plan import ClusterPlan
from lockstep.core.reservation import RESERVATION_KEY, is_unread, lost, named, reservation_of, restored
from lockstep.core.snapshot import ClusterSnapshot, RunView
from lockstep.core.tunables import Mode, Tunables
from support.admission import ACCEPTED, FINISHED, NOW, after, held, node, pod, run, statuses, world

HOUR = 3600.0
CLASSES = {"low": 10, "middle": 100, "high": 1000}
WITHIN = {"preemption": {"withinQueue": "LowerPriority"}}
CHECKPOINT = {"shared": {"claimName": "lustre"}, "gracePeriod": "2m"}


def passed(snapshot: ClusterSnapshot, now: float = NOW, mode: Mode = Mode.ACTIVE, **settings: Any) -> ClusterPlan:
    return admit(snapshot, Tunables(mode=mode, admission=AdmissionSettings(**settings)), now)


def training(
    name: str,
    *nodes: str,
    of_class: str | None = "low",
    since: float = NOW - HOUR,
    saved: float | None = None,
    **spec: Any,
) -> RunView:
    """A run that has trained since ``since`` and saved at ``saved``."""
    latest = (Candidate(tier="shared", step=7, time=saved),) if saved is not None else ()
    status = {
        **held(*nodes),
        "last_admitted": since,
        "attempts": (AttemptStatus(number=1, started_at=since),),
        "checkpoint": CheckpointStatus(latest=latest),
    }
    return run(name, len(nodes), at=since, status=status, priorityClassName=of_class, **spec)


def urgent(nodes: int = 2, of_class: str = "high", name: str = "urgent", at: float = NOW, **spec: Any) -> RunView:
    return run(name, nodes, at=at, priorityClassName=of_class, **spec)


def cluster(*runs: RunView, nodes: Any = 4, queue: Mapping[str, Any] = WITHIN, **more: Any) -> ClusterSnapshot:
    return world(runs, nodes, **{"queues": {"default": queue}, "classes": CLASSES, **more})


def reservation(plan: ClusterPlan, name: str = "urgent") -> ReservationStatus | None:
    written = statuses(plan).get(name)
    return written.reservation if written is not None else None


def victims(snapshot: ClusterSnapshot, now: float = NOW, **settings: Any) -> tuple[str, ...]:
    """Whom the run sends away, by name; nobody: empty."""
    found = reservation(passed(snapshot, now, **settings))
    return tuple(uid.removeprefix("uid-") for uid in found.victims) if found is not None else ()


def events(plan: ClusterPlan) -> set[tuple[str, str]]:
    return {(write.name, event.reason) for write in plan.writes for event in write.events}


class TestWhoGoes:
    def test_the_run_that_saved_most_lately_goes(self) -> None:
        dear = training("dear", "n0", "n1", saved=NOW - 3000)
        cheap = training("cheap", "n2", "n3", saved=NOW - 60)
        assert victims(cluster(dear, cheap, urgent())) == ("cheap",)

    def test_work_since_the_attempt_began_counts_where_nothing_was_saved_and_no_more_than_that(self) -> None:
        fresh = training("fresh", "n0", "n1", since=NOW - 700, saved=NOW - 90_000)
        old = training("old", "n2", "n3", since=NOW - HOUR)
        assert victims(cluster(fresh, old, urgent())) == ("fresh",)

    def test_what_it_takes_to_start_again_counts_for_every_node(self) -> None:
        slow = training("slow", "n0", saved=NOW - 10)
        slow = replace(slow, status=slow.status.model_copy(update={"progress": ProgressStatus(longest_init=2000)}))
        quick = training("quick", "n1", saved=NOW - 600)
        assert victims(cluster(slow, quick, urgent(1), nodes=2)) == ("quick",)

    @pytest.mark.parametrize(
        ("queue", "of_class", "expected"),
        [
            ({}, "high", ()),
            (WITHIN, "high", ("old",)),
            (WITHIN, "low", ()),
            (WITHIN, None, ()),
            ({"preemption": {"reclaimWithinCohort": "Any"}}, "high", ()),
        ],
    )
    def test_only_as_the_queue_allows_and_only_a_lower_class(
        self, queue: dict[str, Any], of_class: str | None, expected: tuple[str, ...]
    ) -> None:
        old = training("old", "n0", "n1", "n2", "n3")
        assert victims(cluster(old, run("urgent", 2, at=NOW, priorityClassName=of_class), queue=queue)) == expected

    def test_a_run_whose_class_nobody_knows_any_more_stays(self) -> None:
        old = training("old", "n0", "n1", "n2", "n3", of_class="gone")
        assert victims(cluster(old, urgent())) == ()

    def test_a_negative_class_is_none_as_in_the_order(self) -> None:
        old = training("old", "n0", "n1", "n2", "n3", of_class="spare")
        assert victims(cluster(old, run("urgent", 2, at=NOW), classes={**CLASSES, "spare": -5})) == ()

    def test_a_run_has_its_nodes_for_a_while_and_the_pass_comes_back_when_that_is_over(self) -> None:
        snapshot = cluster(training("old", "n0", "n1", "n2", "n3", since=NOW - 599), urgent())
        plan = passed(snapshot)
        assert reservation(plan) is None
        assert plan.wake_at == NOW + 1
        assert victims(snapshot, NOW + 1) == ("old",)

    def test_the_protection_is_that_of_the_victims_own_queue(self) -> None:
        old = training("old", "n0", "n1", "n2", "n3", since=NOW - 700)
        queue = {"preemption": {"withinQueue": "LowerPriority", "minRuntime": "1h"}}
        assert victims(cluster(old, urgent(), queue=queue)) == ()

    @pytest.mark.parametrize(
        "change",
        [
            {"annotations": {"lockstep.dev/paused": "true"}},
            {"deleting": True},
        ],
    )
    def test_who_would_not_answer_a_notice_is_not_chosen(self, change: dict[str, Any]) -> None:
        still = replace(training("still", "n0", "n1"), **change)
        busy = training("busy", "n2", "n3", of_class="high")
        assert victims(cluster(still, busy, urgent())) == ()

    def test_a_run_that_stops_already_is_waited_for_and_nobody_else_goes(self) -> None:
        stop = StopStatus(reason="Cancelled", time=NOW - 10, deadline=NOW + 20)
        leaving = training("leaving", "n0", "n1")
        leaving = replace(leaving, status=leaving.status.model_copy(update={"stop": stop}))
        snapshot = cluster(leaving, training("other", "n2", "n3"), urgent())
        assert victims(snapshot) == ()
        assert victims(snapshot, NOW + 200) == ("other",)  # it is overdue

    def test_nodes_of_a_run_that_stops_already_are_kept_with_those_of_the_others(self) -> None:
        stop = StopStatus(reason="Suspended", time=NOW - 10, deadline=NOW + 900)
        leaving = training("leaving", "n0")
        leaving = replace(leaving, status=leaving.status.model_copy(update={"stop": stop}))
        snapshot = cluster(leaving, training("other", "n1"), urgent(), nodes=2)
        plan = passed(snapshot)
        kept = reservation(plan)
        assert kept is not None
        assert (kept.victims, kept.deadline) == (("uid-other",), NOW + 900 + 120)
        told = statuses(passed(after(snapshot, plan)))
        assert told["other"].preemption is not None
        assert told["urgent"].queue.reason == "Preempting"

    def test_a_run_that_is_suspended_while_paused_is_not_waited_for(self) -> None:
        still = training("still", "n0", "n1", suspend=True)
        moving = cluster(still, training("other", "n2", "n3"), urgent())
        assert victims(moving) == ()
        paused = replace(still, annotations={"lockstep.dev/paused": "true"})
        assert victims(replace(moving, runs=(paused, *moving.runs[1:]))) == ("other",)

    def test_pods_that_are_just_ending_are_waited_for_as_long_as_their_grace_lasts(self) -> None:
        gone = run("gone", 2)
        pods = [pod(gone, slot, f"n{slot}", deleting=True, killed_at=NOW + 30) for slot in range(2)]
        snapshot = cluster(training("other", "n2", "n3"), urgent(), pods=pods)
        assert victims(snapshot) == ()
        assert victims(snapshot, NOW + 100) == ("other",)

    def test_no_more_runs_go_than_are_needed_beside_the_free_nodes(self) -> None:
        snapshot = cluster(training("one", "n0"), training("two", "n1"), urgent(3))
        assert len(victims(snapshot)) == 1

    def test_only_the_first_of_a_queue_sends_anybody_away_and_one_at_a_time(self) -> None:
        runs = [
            training("a", "n0", "n1"),
            training("b", "n2", "n3"),
            urgent(2),
            urgent(2, "middle", "second", NOW - 50),
        ]
        plan = passed(cluster(*runs))
        assert reservation(plan) is not None
        assert reservation(plan, "second") is None
        again = passed(after(cluster(*runs), plan))
        assert reservation(again, "second") is None

    def test_two_queues_make_their_reservations_one_after_the_other_without_sharing_anything(self) -> None:
        queues = {"default": WITHIN, "other": WITHIN}
        runs = [
            training("a", "n0", "n1"),
            training("b", "n2", "n3", queue="other"),
            urgent(2),
            urgent(2, name="second", at=NOW - 1, queue="other"),
        ]
        snapshot = cluster(*runs, queues=queues)
        for _ in range(2):
            snapshot = after(snapshot, passed(snapshot))
        kept = {view.name: view.status.reservation for view in snapshot.runs if view.status.reservation is not None}
        assert {name: (set(each.nodes), each.victims) for name, each in kept.items()} == {
            "urgent": ({"n0", "n1"}, ("uid-a",)),
            "second": ({"n2", "n3"}, ("uid-b",)),
        }

    def test_while_the_cluster_itself_looks_broken_nobody_goes(self) -> None:
        assert victims(cluster(training("old", "n0", "n1", "n2", "n3"), urgent(), disruption="many nodes")) == ()

    def test_nobody_goes_for_a_start_that_a_maintenance_window_would_forbid_by_then(self) -> None:
        snapshot = cluster(training("old", "n0", "n1", "n2", "n3"), urgent(timeLimit="1h"))
        soon = MaintenanceWindow("firmware", NOW + 3700, 600.0)
        later = MaintenanceWindow("firmware", NOW + 5000, 600.0)
        assert victims(snapshot, windows=(soon,)) == ()
        assert victims(snapshot, windows=(later,)) == ("old",)

    def test_nobody_goes_for_a_run_that_could_not_meet_its_deadline_by_then(self) -> None:
        old = training("old", "n0", "n1", "n2", "n3")
        late = urgent(timeLimit="1h", deadline="1970-01-01T01:20:00Z")  # it would have to start by NOW + 200 s
        assert victims(cluster(old, late)) == ()

    def test_nodes_that_were_promised_to_a_run_before_it_are_left_alone(self) -> None:
        """The first in order is of a queue that may not preempt, and was told when it starts."""
        ends = training("ends", "n0", "n1", of_class="low", timeLimit="2h")
        queues = {"default": WITHIN, "first": {}}
        first = urgent(4, name="first", at=NOW - 500, queue="first", timeLimit="1h")
        other = training("other", "n2", "n3", of_class="low", timeLimit="2h")
        assert victims(cluster(ends, other, first, urgent(timeLimit="9h"), queues=queues)) == ()
        unknown = [replace(each, spec=each.spec.model_copy(update={"time_limit": None})) for each in (ends, other)]  # type: ignore[union-attr]
        assert victims(cluster(*unknown, first, urgent(), queues=queues)) != ()

    def test_nodes_that_are_not_ready_are_no_reason_to_go(self) -> None:
        nodes = [node(f"n{index}", ready=False, ready_changed_at=NOW - 60) for index in range(4)]
        assert victims(cluster(training("old", "n0", "n1", "n2", "n3"), urgent(), nodes=nodes)) == ()

    def test_a_queue_has_one_reservation_whoever_comes_before_the_run_that_has_it(self) -> None:
        runs = [training("a", "n0", "n1"), training("b", "n2", "n3"), urgent(2)]
        snapshot = cluster(*runs)
        snapshot = after(snapshot, passed(snapshot))
        before = replace(snapshot, runs=(*snapshot.runs, urgent(2, name="before", at=NOW - 9)))
        assert reservation(passed(before), "before") is None

    def test_a_run_that_can_start_smaller_does_not_send_anybody_away(self) -> None:
        small = urgent(4, elastic={"min": 2})
        plan = passed(cluster(training("old", "n0", "n1"), small))
        assert statuses(plan)["urgent"].assignment.nodes == ("n2", "n3")

    def test_free_nodes_are_not_given_to_those_after_it_while_it_has_others_make_room(self) -> None:
        old, short = training("old", "n0"), run("short", 1, at=NOW, timeLimit="5m")
        first = run("first", 1, at=NOW - 1, priorityClassName="high")
        snapshot = cluster(old, short, first, urgent(2), nodes=3)
        plan = passed(snapshot)
        kept = reservation(plan)
        assert kept is not None
        assert {write.name for write in plan.writes if write.nodes} == {"first"}
        assert set(kept.nodes) | set(statuses(plan)["first"].assignment.nodes) == {"n0", "n1", "n2"}
        assert plan.wake_at == NOW
        later = passed(after(snapshot, plan))
        assert not any(write.nodes for write in later.writes)
        assert statuses(later)["old"].preemption is not None


class TestLater:
    """Those in the way are protected for a while yet."""

    old = training("old", "n0", since=NOW - 100)  # its queue's minRuntime is 10 minutes
    first = urgent(2, at=NOW - 5)

    def passed_with(self, *more: RunView, now: float = NOW, **kwargs: Any) -> ClusterPlan:
        return passed(cluster(self.old, self.first, *more, **{"nodes": 2, **kwargs}), now)

    def test_it_is_told_whom_it_preempts_when_and_when_it_starts(self) -> None:
        plan = self.passed_with()
        told = statuses(plan)["urgent"].queue
        assert (told.reason, told.blocked_by) == ("Resources", ("team/old",))
        assert told.assumption.startswith("it preempts team/old at 1970-01-01T00:25:00Z, by when they had their nodes")
        assert told.estimated_start == NOW + 500 + Tunables().deadlines.stop + 120
        assert plan.wake_at is not None
        assert plan.wake_at <= NOW + 500
        assert victims(cluster(self.old, self.first, nodes=2), NOW + 500) == ("old",)

    @pytest.mark.parametrize(("limit", "starts"), [("8m", True), ("9m", False), (None, False)])
    def test_who_comes_later_starts_on_these_nodes_only_if_it_ends_before(
        self, limit: str | None, starts: bool
    ) -> None:
        plan = self.passed_with(run("later", 1, at=NOW, **({"timeLimit": limit} if limit else {})))
        assert bool(statuses(plan)["later"].assignment.nodes) is starts
        if not starts:
            assert statuses(plan)["later"].queue.blocked_by == ("team/urgent",)

    def test_other_nodes_are_anybodys(self) -> None:
        first = urgent(2, at=NOW - 5, placement={"nodes": ["n0", "n1"]})
        plan = passed(cluster(self.old, first, run("later", 1, at=NOW), nodes=3))
        assert statuses(plan)["later"].assignment.nodes == ("n2",)
        assert statuses(plan)["urgent"].queue.assumption.startswith("it preempts team/old")

    def test_the_quota_is_kept_from_then_on_as_well(self) -> None:
        queue = {**WITHIN, "quotas": [{"gpuType": "Any", "nominalNodes": 2}]}
        later = [run(f"later-{limit}", 1, at=NOW, timeLimit=limit) for limit in ("9m", "8m")]
        plan = self.passed_with(*later, nodes=4, queue=queue)
        assert {write.name for write in plan.writes if write.nodes} == {"later-8m"}

    def test_nothing_is_kept_for_a_run_that_starts_as_soon_without(self) -> None:
        ends = training("ends", "n1", of_class="high", since=NOW - 3000, timeLimit="55m")  # 300 s are left
        soon = replace(self.old, spec=self.old.spec.model_copy(update={"time_limit": "8m"}))  # type: ignore[union-attr]
        told = statuses(passed(cluster(soon, ends, self.first, nodes=2)))["urgent"].queue
        assert told.estimated_start == NOW + 380
        assert "preempts" not in told.assumption

    def test_a_run_of_the_same_class_whose_end_is_known_is_waited_for(self) -> None:
        ends = training("ends", "n1", of_class="high", since=NOW - 3000, timeLimit="60m")  # 600 s are left
        told = statuses(passed(cluster(self.old, ends, self.first, nodes=2)))["urgent"].queue
        assert told.assumption.startswith("it preempts team/old at 1970-01-01T00:26:40Z")

    def test_a_node_that_is_held_by_no_more_than_a_pod_of_a_run_that_is_over_is_counted_on(self) -> None:
        over = run("over", status={"conditions": (ACCEPTED, FINISHED)})
        snapshot = cluster(self.old, self.first, over, pods=[pod(over, 0, "n1")], nodes=2)
        assert statuses(passed(snapshot))["urgent"].queue.assumption.startswith("it preempts team/old")

    @pytest.mark.parametrize("why", ["copied label", "held", "unsettled"])
    def test_a_node_that_is_held_by_somebody_else_is_not_counted_on(self, why: str) -> None:
        over = run("over", status={"conditions": (ACCEPTED, FINISHED)})
        pods = [replace(pod(over, 0, "n1"), owner_uid="")] if why == "copied label" else [pod(over, 0, "n1")]
        more = [training("other", "n1", of_class="high")] if why == "held" else []
        in_flight = {}
        if why == "unsettled":
            starting = run("starting", at=NOW - 50)
            pods, more, in_flight = [pod(starting, 0, "n1")], [starting], {"uid-starting": frozenset({"n1"})}
        snapshot = cluster(self.old, self.first, over, *more, pods=pods, nodes=2, in_flight=in_flight)
        assert "preempts" not in statuses(passed(snapshot))["urgent"].queue.assumption

    def test_a_trial_is_told_that_it_would_not_start_there(self) -> None:
        asks = replace(run("asks", 1, at=NOW), annotations={"lockstep.dev/test-only": "true"})
        answer = statuses(self.passed_with(asks))["asks"].test_only
        assert answer is not None
        assert answer.start != NOW


class TestCohorts:
    def queues(self, reclaim: str = "Any", **more: Any) -> dict[str, Any]:
        def quota(nodes: int) -> list[dict[str, Any]]:
            return [{"gpuType": "Any", "nominalNodes": nodes}]

        return {
            "own": {"cohort": "lab", "quotas": quota(2), "preemption": {"reclaimWithinCohort": reclaim}, **more},
            "lent": {"cohort": "lab", "quotas": quota(2)},
        }

    def test_what_was_lent_comes_back_from_whoever_borrows(self) -> None:
        borrower = training("borrower", "n0", "n1", "n2", "n3", of_class="high", queue="lent")
        mine = urgent(2, "low", queue="own")
        assert victims(cluster(borrower, mine, queues=self.queues())) == ("borrower",)
        assert victims(cluster(borrower, mine, queues=self.queues("LowerPriority"))) == ()
        assert victims(cluster(borrower, urgent(3, "low", queue="own"), queues=self.queues())) == ()

    def test_a_quota_that_lacks_is_freed_although_nodes_are_free(self) -> None:
        borrower = training("borrower", "n0", "n1", queue="lent")
        more = training("more", "n2", "n3", of_class="high", queue="lent")
        snapshot = cluster(borrower, more, urgent(2, "low", queue="own"), nodes=8, queues=self.queues())
        first = passed(snapshot)
        told = after(snapshot, first)
        assert reservation(first) is not None
        assert {name for name, status in statuses(passed(told)).items() if status.preemption is not None} == {
            uid.removeprefix("uid-")
            for uid in reservation(first).victims  # type: ignore[union-attr]
        }

    def test_two_queues_take_back_what_is_theirs_from_two_borrowers(self) -> None:
        queues = self.queues()
        queues["third"] = queues["own"]
        queues["lent"] = {"cohort": "lab", "quotas": [{"gpuType": "Any", "nominalNodes": 0}]}
        snapshot = cluster(
            training("b1", "n0", "n1", queue="lent"),
            training("b2", "n2", "n3", queue="lent"),
            urgent(2, "low", queue="own", placement={"nodes": ["n4", "n5"]}),
            urgent(2, "low", "also", queue="third", placement={"nodes": ["n6", "n7"]}),
            nodes=8,
            queues=queues,
        )
        for _ in range(2):
            snapshot = after(snapshot, passed(snapshot))
        kept = [view.status.reservation for view in snapshot.runs if view.status.reservation is not None]
        assert sorted(uid for each in kept for uid in each.victims) == ["uid-b1", "uid-b2"]
        snapshot = after(snapshot, passed(snapshot))
        told = {view.name: view.status.preemption.by for view in snapshot.runs if view.status.preemption is not None}
        assert len(told) == len(set(told.values())) == 2

    def test_nobody_goes_for_quota_that_is_promised_to_a_run_before_it(self) -> None:
        """The first in order waits for nodes that come free in an hour; its quota is free already."""
        queues = self.queues() | {"first": self.queues()["lent"], "default": {}}
        busy = training("busy", "n3", timeLimit="2h")
        first = urgent(2, "middle", "first", queue="first", placement={"nodes": ["n3", "n4"]}, timeLimit="1h")
        small = training("small", "n1", queue="lent", timeLimit="9h")
        large = training("large", "n0", "n2", "n6", queue="lent", timeLimit="9h", saved=NOW)
        mine = urgent(2, "low", queue="own", timeLimit="9h", placement={"nodes": ["n1", "n5"]})
        snapshot = cluster(busy, small, large, mine, nodes=7, queues=queues)
        assert victims(snapshot) == ("small",)
        assert set(victims(replace(snapshot, runs=(*snapshot.runs, first)))) == {"small", "large"}

    @pytest.mark.parametrize(("count", "starts"), [(1, True), (2, False)])
    def test_quota_that_is_kept_is_counted_once_beside_what_is_still_used(self, count: int, starts: bool) -> None:
        """Of five nodes three are used now, and four by the other one later: one is anybody's at any time."""
        queues = self.queues()
        queues["own"]["quotas"] = [{"gpuType": "Any", "nominalNodes": 4}]
        queues["lent"]["quotas"] = [{"gpuType": "Any", "nominalNodes": 1}]
        mine = urgent(4, "low", queue="own", placement={"nodes": ["n0", "n1", "n2", "n3"]})
        snapshot = cluster(training("borrower", "n0", "n1", "n2", queue="lent"), mine, nodes=8, queues=queues)
        reserved = after(snapshot, passed(snapshot))
        assert reserved.runs[1].status.reservation is not None
        later = run("later", count, at=NOW + 1, queue="own")
        plan = passed(replace(reserved, runs=(*reserved.runs, later)))
        assert {write.name for write in plan.writes if write.nodes} == ({"later"} if starts else set())

    def test_quota_that_is_kept_for_a_run_goes_to_nobody_else(self) -> None:
        snapshot = cluster(
            training("borrower", "n0", "n1", queue="lent"),
            training("more", "n2", "n3", queue="lent"),
            urgent(2, "low", queue="own"),
            nodes=8,
            queues=self.queues(),
        )
        reserved = after(snapshot, passed(snapshot))
        [gone] = reserved.runs[2].status.reservation.victims  # type: ignore[union-attr]
        runs = [view for view in reserved.runs if view.uid != gone] + [run("z", 2, at=NOW + 1, queue="lent")]
        plan = passed(replace(reserved, runs=tuple(runs)))
        assert {write.name for write in plan.writes if write.nodes} == {"urgent"}


class TestNotices:
    def reserved(self, **more: Any) -> ClusterSnapshot:
        snapshot = cluster(
            training("old", "n0", "n1", "n2", "n3", checkpoint=CHECKPOINT, saved=NOW - 9), urgent(), **more
        )
        return after(snapshot, passed(snapshot))

    def test_the_first_pass_writes_the_reservation_alone(self) -> None:
        snapshot = cluster(training("old", "n0", "n1", "n2", "n3", checkpoint=CHECKPOINT), urgent())
        plan = passed(snapshot)
        assert set(statuses(plan)) == {"urgent"}
        assert ("urgent", "NodesReserved") in events(plan)
        kept = reservation(plan)
        assert kept is not None
        assert kept.deadline == NOW + 120 + 300 + 120

    def test_the_next_pass_tells_the_victim_until_when_and_for_whom(self) -> None:
        plan = passed(self.reserved(), NOW + 1)
        notice = statuses(plan)["old"].preemption
        assert notice == PreemptionStatus(
            reason="WithinQueue",
            by="uid-urgent",
            name="team/urgent",
            notice_time=NOW + 1,
            deadline=NOW + 421,
            saved_at_least=7,
        )
        assert ("old", "PreemptionNotice") in events(plan)
        told = statuses(plan)["urgent"].queue
        assert (told.reason, told.blocked_by) == ("Preempting", ("team/old",))
        assert told.message == "2 nodes are kept for it, for which team/old make room"

    def test_who_waits_is_told_when_its_nodes_are_free_at_the_latest(self) -> None:
        snapshot = self.reserved()
        told = after(snapshot, passed(snapshot))
        assert statuses(passed(told, NOW + 61))["urgent"].queue.estimated_start == NOW + 420

    def test_deciding_again_after_the_notice_changes_nothing(self) -> None:
        snapshot = self.reserved()
        told = after(snapshot, passed(snapshot))
        told = after(told, passed(told))
        assert passed(told).writes == ()
        assert "old" not in statuses(passed(told, NOW + 5))

    def test_names_of_other_namespaces_are_told_only_where_the_queue_allows_it(self) -> None:
        queue = {**WITHIN, "visibility": "OwnNamespace"}
        old = replace(training("old", "n0", "n1", "n2", "n3"), namespace="rivals")
        snapshot = cluster(old, urgent(), queue=queue)
        reserved = after(snapshot, passed(snapshot))
        plan = passed(reserved)
        notice = statuses(plan)["old"].preemption
        assert notice is not None
        assert (notice.by, notice.name) == ("uid-urgent", "")
        assert "rivals" not in statuses(plan)["urgent"].queue.model_dump_json()
        assert all("rivals" not in event.note and "team/" not in event.note for w in plan.writes for event in w.events)

    def test_a_run_that_made_room_and_is_back_elsewhere_is_in_nobodys_way(self) -> None:
        old = training("old", "n0", "n1")
        back = training("back", "n2", "n3", since=NOW)
        kept = reservation_of(("n0", "n1"), ("uid-back", "uid-old"), NOW - 60, NOW + HOUR)
        waits = urgent()
        waits = replace(waits, status=waits.status.model_copy(update={"reservation": kept}))
        quotas = {"quotas": [{"gpuType": "Any", "nominalNodes": 3}]}
        plan = passed(cluster(old, back, waits, queue={**WITHIN, **quotas}))
        assert statuses(plan)["urgent"].queue.blocked_by == ("team/old",)
        assert {name for name, status in statuses(plan).items() if status.preemption is not None} == {"old"}

    def test_a_run_that_all_of_its_nodes_are_kept_for_does_not_start_smaller(self) -> None:
        kept = reservation_of(("n0", "n1", "n2", "n3"), ("uid-old",), NOW, NOW + HOUR)
        waits = urgent(4, elastic={"min": 2})
        waits = replace(waits, status=waits.status.model_copy(update={"reservation": kept}))
        plan = passed(cluster(training("old", "n0", "n1", "n2"), waits, nodes=6))
        assert not any(write.nodes for write in plan.writes)

    def test_a_gang_that_was_told_to_make_room_gets_no_node_for_one_that_it_lost(self) -> None:
        notice = PreemptionStatus(by="uid-urgent", notice_time=NOW, deadline=NOW + 60)
        kept = reservation_of(("n0", "n1"), ("uid-old",), NOW, NOW + HOUR)
        waits = replace(urgent(), status=urgent().status.model_copy(update={"reservation": kept}))
        old = training("old", "n0", "n1")
        broken = vacated(old.status.assignment, [1], NOW)
        told = replace(old, status=old.status.model_copy(update={"assignment": broken, "preemption": notice}))
        busy = training("busy", "n1", of_class="high")
        assert not any(write.nodes for write in passed(cluster(told, busy, waits, nodes=3)).writes)

    def test_the_write_that_gives_the_nodes_ends_the_reservation(self) -> None:
        kept = reservation_of(("n0", "n1"), ("uid-old",), NOW, NOW + HOUR)
        waits = replace(urgent(), status=urgent().status.model_copy(update={"reservation": kept}))
        plan = passed(cluster(waits))
        assert statuses(plan)["urgent"].assignment.nodes == ("n0", "n1")
        assert statuses(plan)["urgent"].reservation is None
        assert events(plan) == {("urgent", "Admitted")}

    def test_spares_get_neither_nodes_nor_quota_that_are_kept(self) -> None:
        kept = reservation_of(("n0", "n1"), ("uid-old",), NOW, NOW + HOUR)
        waits = replace(urgent(), status=urgent().status.model_copy(update={"reservation": kept}))
        gang = training("gang", "n2", of_class="high", spareNodes=1)
        lacks = assigned(AssignmentStatus(), ("n2",), spares=1)
        gang = replace(gang, status=gang.status.model_copy(update={"assignment": lacks}))

        def quota(nodes: int) -> dict[str, Any]:
            return {**WITHIN, "quotas": [{"gpuType": "Any", "nominalNodes": nodes}]}

        plan = passed(cluster(gang, waits, queue=quota(3)))
        assert {write.name for write in plan.writes if write.nodes} == {"urgent"}
        first = run("first", 1, at=NOW - 9, priorityClassName="high", spareNodes=1)
        plan = passed(cluster(training("old", "n0", "n1"), first, waits, queue=quota(5)))
        assert [name for name in statuses(plan)["first"].assignment.nodes if name] == ["n2"]

    def test_the_estimate_of_others_counts_on_those_who_were_told(self) -> None:
        snapshot = self.reserved()
        told = after(snapshot, passed(snapshot))
        behind = urgent(2, "low", "behind", NOW + 1)
        plan = passed(replace(told, runs=(*told.runs, behind)), NOW + 1)
        assert statuses(plan)["behind"].queue.estimated_start == NOW + 420

    def test_while_the_cluster_looks_broken_the_notice_waits(self) -> None:
        broken = replace(self.reserved(), leadership=replace(self.reserved().leadership, disruption="many nodes"))
        assert statuses(passed(broken)).get("old") is None

    def test_a_notice_that_nobody_stands_behind_is_withdrawn_unless_the_stop_has_begun(self) -> None:
        notice = PreemptionStatus(by="uid-urgent", notice_time=NOW, deadline=NOW + 60)
        old = training("old", "n0", "n1", "n2", "n3")
        told = replace(old, status=old.status.model_copy(update={"preemption": notice}))
        plan = passed(cluster(told))
        assert statuses(plan)["old"].preemption is None
        assert ("old", "PreemptionWithdrawn") in events(plan)
        stop = StopStatus(reason="Preempted", time=NOW, deadline=NOW + 60)
        stopping = replace(told, status=told.status.model_copy(update={"stop": stop}))
        assert passed(cluster(stopping)).writes == ()

    def test_what_becomes_of_a_write_under_way_is_waited_for(self) -> None:
        notice = PreemptionStatus(by="uid-urgent", notice_time=NOW, deadline=NOW + 60)
        old = training("old", "n0", "n1")
        told = replace(old, status=old.status.model_copy(update={"preemption": notice}))
        snapshot = cluster(told, urgent(), in_flight={"uid-urgent": frozenset({"n2", "n3"})})
        assert "old" not in statuses(passed(snapshot))


class TestLapse:
    def reserved(self, **changes: Any) -> ClusterSnapshot:
        snapshot = cluster(training("old", "n0", "n1", "n2", "n3"), urgent())
        return replace(after(snapshot, passed(snapshot)), **changes)

    def change(self, snapshot: ClusterSnapshot, name: str, **changes: Any) -> ClusterSnapshot:
        runs = [replace(each, **changes) if each.name == name else each for each in snapshot.runs]
        return replace(snapshot, runs=tuple(runs))

    def amend(self, snapshot: ClusterSnapshot, **changes: Any) -> ClusterSnapshot:
        status = next(each.status for each in snapshot.runs if each.name == "urgent")
        assert status.reservation is not None
        kept = status.reservation.model_copy(update=changes)
        return self.change(snapshot, "urgent", status=status.model_copy(update={"reservation": kept}))

    def lapses(self, snapshot: ClusterSnapshot, now: float = NOW, **more: Any) -> bool:
        plan = passed(snapshot, now, **more)
        gone = ("urgent", "ReservationLapsed") in events(plan)
        notices = [status.preemption for status in statuses(plan).values() if status.preemption is not None]
        assert not gone or all(notice.by != "uid-urgent" for notice in notices)
        return gone

    def test_one_that_stands_is_kept(self) -> None:
        assert not self.lapses(self.reserved())

    @pytest.mark.parametrize("field", ["cancel", "suspend"])
    def test_when_the_run_is_given_up(self, field: str) -> None:
        snapshot = self.reserved()
        spec = next(each.spec for each in snapshot.runs if each.name == "urgent")
        assert spec is not None
        given_up = self.change(snapshot, "urgent", spec=spec.model_copy(update={field: True}))
        assert self.lapses(given_up)

    def test_when_its_queue_holds_it_or_nobody_is_admitted(self) -> None:
        held_back = replace(self.reserved(), queues=cluster(queue={**WITHIN, "heldRuns": ["team/urgent"]}).queues)
        assert self.lapses(held_back)
        assert self.lapses(self.reserved(), mode=Mode.NO_NEW_ADMISSIONS)

    def test_when_a_node_of_it_is_gone_or_cordoned(self) -> None:
        snapshot = self.reserved()
        without = {name: view for name, view in snapshot.nodes.items() if name != "n0"}
        assert self.lapses(replace(snapshot, nodes=without))
        cordoned = {**snapshot.nodes, "n0": replace(snapshot.nodes["n0"], unschedulable=True)}
        assert self.lapses(replace(snapshot, nodes=cordoned))

    def test_when_its_nodes_did_not_come_free_in_time_which_a_new_leader_counts_anew(self) -> None:
        snapshot = self.reserved()
        assert not self.lapses(snapshot, NOW + 420)
        assert self.lapses(snapshot, NOW + 421)
        new_leader = replace(snapshot, leadership=replace(snapshot.leadership, since=NOW + 400))
        assert not self.lapses(new_leader, NOW + 421)
        assert self.lapses(new_leader, NOW + 821)

    def test_when_the_run_asks_for_something_else(self) -> None:
        snapshot = self.reserved()
        spec = next(each.spec for each in snapshot.runs if each.name == "urgent")
        assert spec is not None
        assert self.lapses(self.change(snapshot, "urgent", spec=spec.model_copy(update={"nodes": 3})))

    def test_when_its_record_was_lost(self) -> None:
        assert self.lapses(self.amend(self.reserved(), nodes=(), victims=()))
        assert not self.lapses(self.amend(self.reserved(), nodes=(), config_map="unread"))

    def test_the_later_of_two_that_share_a_node(self) -> None:
        snapshot = self.reserved()
        status = next(each.status for each in snapshot.runs if each.name == "urgent")
        assert status.reservation is not None
        earlier = status.reservation.model_copy(update={"time": NOW - 1})
        other = urgent(2, name="other")
        other = replace(other, status=other.status.model_copy(update={"reservation": earlier}))
        assert self.lapses(replace(snapshot, runs=(*snapshot.runs, other)))

    def test_not_because_somebody_before_it_in_the_order_came(self) -> None:
        first = urgent(2, name="first", at=NOW - 5)
        snapshot = self.reserved()
        assert not self.lapses(replace(snapshot, runs=(*snapshot.runs, first)))
        assert not self.lapses(replace(snapshot, runs=(*snapshot.runs, first)), backfill=Backfill.DISABLED)


class TestRecord:
    def test_a_large_reservation_lies_in_a_config_map_that_is_written_before(self) -> None:
        nodes = [node(f"a-node-of-a-long-name-{index:05}") for index in range(600)]
        snapshot = cluster(training("old", *(view.name for view in nodes)), urgent(600), nodes=nodes)
        plan = passed(snapshot)
        [write] = plan.writes
        [config_map] = write.config_maps
        kept = write.status.reservation
        assert kept is not None
        assert (kept.config_map, len(kept.nodes)) == (config_map.name, 600)
        in_status = named(kept)
        assert (in_status.nodes, in_status.victims) == ((), ())
        assert is_unread(in_status)
        assert restored(in_status, config_map.body["data"][RESERVATION_KEY]) == kept
        with pytest.raises(ValueError, match="does not hold the reservation"):
            restored(in_status, '{"nodes": ["n0"], "victims": []}')
        assert not is_unread(lost(in_status))

    def test_a_small_one_lies_in_status(self) -> None:
        kept = reservation_of(("n0",), ("uid",), 1.0, 2.0)
        assert named(kept) is kept
