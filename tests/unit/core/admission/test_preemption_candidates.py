"""Which run of those that wait sends whom away, pass by pass."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ProgressStatus, StopStatus
from lockstep.core.model.admission_settings import MaintenanceWindow
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.admission import ACCEPTED, FINISHED, NOW, after, node, pod, run, statuses, with_limit
from support.preempting import (
    CHECKPOINT,
    CLASSES,
    HOUR,
    WITHIN,
    cluster,
    passed,
    reservation,
    training,
    urgent,
    victims,
)
from support.values import not_none

SAVES_FOR_YEARS = CHECKPOINT | {"gracePeriod": "3650d"}


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
        slow = replace(slow, status=changed(slow.status, progress=ProgressStatus(longest_init=2000)))
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
            {"unread": True},
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
        leaving = replace(leaving, status=changed(leaving.status, stop=stop))
        snapshot = cluster(leaving, training("other", "n2", "n3"), urgent())
        assert victims(snapshot) == ()
        assert victims(snapshot, NOW + 200) == ("other",)  # it is overdue

    def test_nodes_of_a_run_that_stops_already_are_kept_with_those_of_the_others(self) -> None:
        stop = StopStatus(reason="Suspended", time=NOW - 10, deadline=NOW + 900)
        leaving = training("leaving", "n0")
        leaving = replace(leaving, status=changed(leaving.status, stop=stop))
        snapshot = cluster(leaving, training("other", "n1"), urgent(), nodes=2)
        plan = passed(snapshot)
        kept = not_none(reservation(plan))
        assert (kept.victims, kept.deadline) == (("uid-other",), NOW + 900 + 120)
        told = statuses(passed(after(snapshot, plan)))
        assert told["other"].preemption is not None
        assert told["urgent"].queue.reason == "Preempting"

    def test_a_run_that_is_suspended_and_cannot_be_told_is_not_waited_for(self) -> None:
        still = training("still", "n0", "n1", suspend=True)
        moving = cluster(still, training("other", "n2", "n3"), urgent())
        assert victims(moving) == ()
        deaf = replace(still, unread=True)
        assert victims(replace(moving, runs=(deaf, *moving.runs[1:]))) == ("other",)

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

    @pytest.mark.parametrize(
        "slow",
        [
            training("slow", "n4", checkpoint=SAVES_FOR_YEARS, queue="other"),
            training("slow", "n4", checkpoint=SAVES_FOR_YEARS, of_class="high"),
        ],
        ids=["of another queue", "of no lower class"],
    )
    def test_how_long_somebody_takes_to_go_who_cannot_be_sent_away_keeps_nobody_else(self, slow: RunView) -> None:
        old = with_limit(training("old", "n0", "n1", "n2", "n3"), "2h")
        later = MaintenanceWindow("firmware", NOW + 5000, 600.0)
        for wanting in (urgent(timeLimit="1h"), urgent(timeLimit="1h", deadline="1970-01-01T10:00:00Z")):
            snapshot = cluster(old, slow, wanting, nodes=5)
            assert victims(snapshot, windows=(later,)) == ("old",)

    def test_of_those_that_may_go_only_who_is_gone_before_the_deadline_is_sent_away(self) -> None:
        cheap = training("cheap", "n2", "n3", saved=NOW - 60, checkpoint=SAVES_FOR_YEARS)
        old = with_limit(training("old", "n0", "n1"), "2h")
        assert victims(cluster(old, cheap, urgent(timeLimit="1h"))) == ("cheap",)
        wanting = urgent(timeLimit="1h", deadline="1970-01-01T02:20:00Z")
        assert victims(cluster(old, cheap, wanting)) == ("old",)

    def test_nodes_that_were_promised_to_a_run_before_it_are_left_alone(self) -> None:
        """The first in order is of a queue that may not preempt, and was told when it starts."""
        ends = training("ends", "n0", "n1", of_class="low", timeLimit="2h")
        queues = {"default": WITHIN, "first": {}}
        first = urgent(4, name="first", at=NOW - 500, queue="first", timeLimit="1h")
        other = training("other", "n2", "n3", of_class="low", timeLimit="2h")
        assert victims(cluster(ends, other, first, urgent(timeLimit="9h"), queues=queues)) == ()
        unknown = [with_limit(each, None) for each in (ends, other)]
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
        kept = not_none(reservation(plan))
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

    def test_where_the_pass_was_cut_those_beyond_are_asked_before_anybody_starts_there(self) -> None:
        """The one that fills the first look may not start after all, and the second look comes to others."""
        limited = {"timeLimit": "9m"}
        fills = urgent(1, at=NOW, name="fills", placement={"nodes": ["n1"]}, **limited)
        other = training("other", "n2", since=NOW - 100, queue="other")
        second = urgent(2, "middle", "second", queue="other", placement={"nodes": ["n2", "n3"]})
        late = urgent(1, "low", "late", queue="other", placement={"nodes": ["n3"]}, **limited)
        first = urgent(2, at=NOW - 5, placement={"nodes": ["n0", "n1"]})
        queues = {"default": WITHIN, "other": WITHIN}
        snapshot = cluster(self.old, other, first, fills, second, late, queues=queues)
        plan = passed(snapshot, admissions=1)
        assert {write.name for write in plan.writes if write.nodes} == set()
        assert statuses(plan)["second"].queue.assumption.startswith("it preempts team/other")
        assert statuses(plan)["late"].queue.blocked_by == ("team/second",)

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
        soon = with_limit(self.old, "8m")
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
        answer = not_none(statuses(self.passed_with(asks))["asks"].test_only)
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

    @pytest.mark.parametrize("private", ["own", "lent"])
    def test_across_queues_names_are_told_only_where_both_allow_it(self, private: str) -> None:
        queues = self.queues()
        borrower = replace(training("borrower", "n0", "n1", "n2", "n3", queue="lent"), namespace="rivals")
        for visibility, told in (("Full", "team/urgent"), ("OwnNamespace", "")):
            queues[private]["visibility"] = visibility
            snapshot = cluster(borrower, urgent(2, "low", queue="own"), queues=queues)
            first = passed(snapshot)
            plan = passed(after(snapshot, first))
            notice = not_none(statuses(plan)["borrower"].preemption)
            assert notice.name == told
            said = [statuses(first)["urgent"].queue.model_dump_json(), statuses(plan)["borrower"].model_dump_json()]
            said += [event.note for each in (first, plan) for write in each.writes for event in write.events]
            heard = {name for name in ("rivals/", "team/") if any(name in words for words in said)}
            assert heard == ({"rivals/", "team/"} if told else set())

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
