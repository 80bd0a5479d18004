"""A pending run that is edited keeps its place until it is judged as it is now, and not for ever."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import ScaleUpStatus
from lockstep.core.admission.admit import admit
from lockstep.core.model.conditions import find
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import EDIT_GRACE, ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, reason, run, statuses, with_limit, world
from support.admission_passes import admitted, holding
from support.preempting import CHECKPOINT, cluster, events, passed, training, urgent
from support.values import not_none


def edited(snapshot: ClusterSnapshot, name: str, at: float = NOW, **spec: Any) -> ClusterSnapshot:
    """A moment after `kubectl patch`: nobody has judged it yet."""
    runs = tuple(
        replace(each, generation=each.generation + 1, spec=changed(not_none(each.spec), **spec))
        if each.name == name
        else each
        for each in snapshot.runs
    )
    return replace(snapshot, runs=runs, edited={f"uid-{name}": at})


def judged(snapshot: ClusterSnapshot, name: str, verdict: str = "True") -> ClusterSnapshot:
    def told(view: RunView) -> RunView:
        before = not_none(find(view.status, ConditionType.ACCEPTED))
        now = changed(before, status=verdict, observed_generation=view.generation)
        return replace(view, status=changed(view.status, conditions=(now,)))

    return replace(snapshot, runs=tuple(told(each) if each.name == name else each for each in snapshot.runs))


class TestOrder:
    """Two nodes, of which one is busy for half a minute more; the first needs both."""

    big = run("big", 2, at=1.0)
    small = run("small", 1, at=2.0, timeLimit="100h")

    def snapshot(self) -> ClusterSnapshot:
        seen = world([holding("busy", "n1", limit=30), self.big, self.small], 2)
        return after(seen, passed(seen))

    def test_nobody_behind_it_gets_what_it_is_promised(self) -> None:
        snapshot = edited(self.snapshot(), "big", ttl_after_finished="1h")
        plan = passed(snapshot, NOW + 1)
        assert not admitted(plan)
        assert not statuses(plan), "nobody is told anything new"

    def test_nodes_that_come_free_meanwhile_are_kept_for_it_and_it_starts_once_it_is_judged(self) -> None:
        free = edited(world([self.big, self.small], 2), "big", ttl_after_finished="1h")
        assert not admitted(passed(free, NOW + 1))
        assert admitted(passed(judged(free, "big"), NOW + 2)) == {"big"}

    def test_a_smaller_size_that_it_could_have_at_once_is_kept_for_it_too(self) -> None:
        elastic = run("elastic", 4, at=1.0, elastic={"min": 1})
        snapshot = world([elastic, self.small, run("other", 1, at=3.0)], 3)
        assert admitted(passed(snapshot)) == {"elastic"}
        assert not admitted(passed(edited(snapshot, "elastic", ttl_after_finished="1h"), NOW + 1))

    def test_what_it_does_not_need_is_anybodys(self) -> None:
        snapshot = edited(world([self.big, self.small], 3), "big", ttl_after_finished="1h")
        assert admitted(passed(snapshot, NOW + 1)) == {"small"}
        assert admitted(passed(edited(snapshot, "big", nodes=3), NOW + 1)) == set(), "it wants three by now"

    def test_with_a_verdict_against_it_the_next_ones_have_its_place(self) -> None:
        snapshot = judged(edited(self.snapshot(), "big", ttl_after_finished="1h"), "big", "False")
        assert admitted(passed(snapshot, NOW + 1)) == {"small"}

    def test_a_spec_that_cannot_be_read_keeps_no_place(self) -> None:
        snapshot = edited(self.snapshot(), "big", ttl_after_finished="1h")
        runs = tuple(replace(each, spec_error="x") if each.name == "big" else each for each in snapshot.runs)
        assert admitted(passed(replace(snapshot, runs=runs), NOW + 1)) == {"small"}

    @pytest.mark.parametrize("kind", ["containers", "initContainers"])
    def test_requests_that_are_no_quantities_keep_no_place_and_fail_nothing(self, kind: str) -> None:
        beside = {"spec": {kind: [{"name": "x", "resources": {"requests": {"cpu": "lots"}}}]}}
        snapshot = edited(self.snapshot(), "big", pod_template=beside)
        assert admitted(passed(snapshot, NOW + 1)) == {"small"}

    def test_the_place_is_kept_no_longer_than_the_grace_from_the_first_edit_on(self) -> None:
        snapshot = edited(self.snapshot(), "big", ttl_after_finished="1h")
        plan = passed(snapshot, NOW + EDIT_GRACE - 1)
        assert not admitted(plan)
        assert not_none(plan.wake_at) <= NOW + EDIT_GRACE
        plan = passed(snapshot, NOW + EDIT_GRACE)
        assert admitted(plan) == {"small"}
        assert reason(plan, "big") == (0, "NotJudged")

    def test_of_an_edit_that_nobody_saw_a_new_leader_counts_from_its_beginning(self) -> None:
        snapshot = replace(edited(self.snapshot(), "big", ttl_after_finished="1h"), edited={})
        assert admitted(passed(snapshot, NOW + 1)) == {"small"}, "the one who leads has seen all of late"
        new_leader = replace(snapshot, leadership=replace(snapshot.leadership, since=NOW))
        assert not admitted(passed(new_leader, NOW + 1))
        assert admitted(passed(new_leader, NOW + EDIT_GRACE)) == {"small"}


class TestPreemption:
    old = training("old", "n0", "n1", "n2", "n3", checkpoint=CHECKPOINT)

    def reserved(self) -> ClusterSnapshot:
        snapshot = cluster(self.old, urgent())
        return after(snapshot, passed(snapshot))

    def test_what_is_kept_for_it_stays_and_who_was_told_is_not_told_otherwise(self) -> None:
        snapshot = self.reserved()
        told = after(snapshot, passed(snapshot))
        assert any(each.status.preemption is not None for each in told.runs)
        plan = passed(edited(told, "urgent", ttl_after_finished="1h"), NOW + 1)
        assert not events(plan)
        assert not statuses(plan)

    def test_nobody_is_told_to_leave_for_it_before_it_is_judged(self) -> None:
        snapshot = edited(self.reserved(), "urgent", ttl_after_finished="1h")
        assert not events(passed(snapshot, NOW + 1))
        assert ("old", "PreemptionNotice") in events(passed(judged(snapshot, "urgent"), NOW + 2))

    @pytest.mark.parametrize(
        ("verdict", "now", "why"),
        [
            ("False", NOW + 1, "as it is now it is not accepted"),
            ("Unknown", NOW + 1, "it does not wait any more"),
            (None, NOW + EDIT_GRACE, "held back (NotJudged)"),
        ],
    )
    def test_it_lapses_with_a_verdict_against_it_or_after_the_grace_and_says_why(
        self, verdict: str | None, now: float, why: str
    ) -> None:
        snapshot = edited(self.reserved(), "urgent", ttl_after_finished="1h")
        plan = passed(judged(snapshot, "urgent", verdict) if verdict else snapshot, now)
        [note] = [event.note for write in plan.writes for event in write.events if event.reason == "ReservationLapsed"]
        assert why in note

    def test_it_lapses_once_another_number_of_nodes_is_asked_for(self) -> None:
        assert ("urgent", "ReservationLapsed") in events(passed(edited(self.reserved(), "urgent", nodes=3), NOW + 1))

    def test_none_is_made_meanwhile_and_nobody_gets_the_nodes_that_it_would_be_made_of(self) -> None:
        """One node is free, and two would be had by preemption: had the next one got it, that would be protected."""
        old = training("old", "n0", "n1")
        snapshot = cluster(old, urgent(3), run("later", 1, at=NOW), nodes=3)
        assert ("urgent", "NodesReserved") in events(passed(snapshot))
        unjudged = edited(snapshot, "urgent", ttl_after_finished="1h")
        plan = passed(unjudged, NOW + 1)
        assert not events(plan)
        assert not admitted(plan)
        assert ("urgent", "NodesReserved") in events(passed(judged(unjudged, "urgent"), NOW + 2))

    def test_nobody_of_its_queue_preempts_in_its_stead(self) -> None:
        second = urgent(2, name="second", at=NOW + 1)
        snapshot = cluster(self.old, urgent(), second)
        assert not events(passed(edited(snapshot, "urgent", ttl_after_finished="1h"), NOW + 1))

    @pytest.mark.parametrize("free", [0, 1, 2])
    def test_no_cycle_is_due_for_it_before_it_is_judged(self, free: int) -> None:
        old = with_limit(training("old", "n0", "n1"), None)
        snapshot = edited(cluster(old, urgent(2), nodes=2 + free), "urgent", ttl_after_finished="1h")
        assert not_none(passed(snapshot, NOW + 1).wake_at) >= NOW + EDIT_GRACE

    def test_from_when_it_may_preempt_later_nobody_else_is_on_its_nodes(self) -> None:
        old = with_limit(training("old", "n0", since=NOW - 100), None)
        snapshot = cluster(old, urgent(2, at=NOW - 5), run("later", 1, at=NOW, timeLimit="9m"), nodes=2)
        assert not admitted(passed(snapshot))
        assert not admitted(passed(edited(snapshot, "urgent", ttl_after_finished="1h"), NOW + 1))


class TestScaleUp:
    def looked(self, snapshot: ClusterSnapshot, now: float = NOW) -> ClusterPlan:
        return admit(snapshot, Tunables(scale_up=ScaleUpSettings(provisioning_requests=True, served=True)), now)

    def asking(self) -> ClusterSnapshot:
        waits = run("waits", 2, gpusPerNode=8, queue="up")
        snapshot = world([waits], 0, queues={"up": {"scaleUp": "Enabled"}})
        return after(snapshot, self.looked(snapshot))

    def scale_up(self, snapshot: ClusterSnapshot) -> ScaleUpStatus | None:
        [view] = after(snapshot, self.looked(snapshot, NOW + 1)).runs
        return view.status.scale_up

    def test_what_was_asked_for_stays_as_long_as_the_same_nodes_are_wanted(self) -> None:
        snapshot = edited(self.asking(), "waits", ttl_after_finished="1h")
        assert not_none(self.scale_up(snapshot)).nodes == 2
        assert not_none(self.scale_up(judged(snapshot, "waits"))).nodes == 2
        assert not_none(self.scale_up(edited(snapshot, "waits", nodes=3))).nodes == 0

    def test_it_is_taken_back_after_the_grace(self) -> None:
        snapshot = edited(self.asking(), "waits", at=NOW - EDIT_GRACE, ttl_after_finished="1h")
        assert not_none(self.scale_up(snapshot)).nodes == 0

    def test_nobody_begins_to_ask_before_it_is_judged(self) -> None:
        waits = run("waits", 2, gpusPerNode=8, queue="up")
        snapshot = edited(world([waits], 0, queues={"up": {"scaleUp": "Enabled"}}), "waits", ttl_after_finished="1h")
        assert self.scale_up(snapshot) is None
