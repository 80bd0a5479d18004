"""What becomes of nodes that are kept for a run others make room for: notices, the end, the record."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import PreemptionStatus
from lockstep.api.run_status import AssignmentStatus, StopStatus
from lockstep.core.model.admission_settings import Backfill
from lockstep.core.model.assignment import assigned, vacated
from lockstep.core.model.reservation import RESERVATION_KEY, is_unread, lost, named, reservation_of, restored
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Mode
from support.admission import FINISHED, NOW, after, node, pod, run, statuses
from support.preempting import CHECKPOINT, CLASSES, HOUR, WITHIN, cluster, events, passed, reservation, training, urgent
from support.values import not_none


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
        kept = not_none(reservation(plan))
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
        assert told.message == "2 nodes are kept for it, by preemption of team/old"

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
        notice = not_none(statuses(plan)["old"].preemption)
        assert (notice.by, notice.name) == ("uid-urgent", "")
        assert "rivals" not in statuses(plan)["urgent"].queue.model_dump_json()
        assert all("rivals" not in event.note and "team/" not in event.note for w in plan.writes for event in w.events)

    @pytest.mark.parametrize(("visibility", "named"), [("Full", "rivals/old"), ("OwnNamespace", "1 run of other")])
    def test_nor_are_they_told_when_what_was_kept_lapses(self, visibility: str, named: str) -> None:
        old = replace(training("old", "n0", "n1", "n2", "n3"), namespace="rivals")
        snapshot = cluster(old, urgent(), queue={**WITHIN, "visibility": visibility})
        reserved = after(snapshot, passed(snapshot))
        never = cluster(queue={"preemption": {"withinQueue": "Never"}, "visibility": visibility}).queues
        [lapsed] = [write for write in passed(replace(reserved, queues=never)).writes if write.name == "urgent"]
        [told] = [event.note for event in lapsed.events if event.reason == "ReservationLapsed"]
        assert named in told
        written = f"{told}{lapsed.status.model_dump_json()}"
        assert ("rivals" in written) is (visibility == "Full")

    def test_a_run_that_made_room_and_is_back_elsewhere_is_in_nobodys_way(self) -> None:
        old = training("old", "n0", "n1")
        back = training("back", "n2", "n3", since=NOW)
        kept = reservation_of(("n0", "n1"), ("uid-back", "uid-old"), NOW - 60, NOW + HOUR)
        waits = urgent()
        waits = replace(waits, status=changed(waits.status, reservation=kept))
        quotas = {"quotas": [{"gpuType": "Any", "nominalNodes": 3}]}
        plan = passed(cluster(old, back, waits, queue={**WITHIN, **quotas}))
        assert statuses(plan)["urgent"].queue.blocked_by == ("team/old",)
        assert {name for name, status in statuses(plan).items() if status.preemption is not None} == {"old"}

    def test_a_run_that_all_of_its_nodes_are_kept_for_does_not_start_smaller(self) -> None:
        kept = reservation_of(("n0", "n1", "n2", "n3"), ("uid-old",), NOW, NOW + HOUR)
        waits = urgent(4, elastic={"min": 2})
        waits = replace(waits, status=changed(waits.status, reservation=kept))
        plan = passed(cluster(training("old", "n0", "n1", "n2"), waits, nodes=6))
        assert not any(write.nodes for write in plan.writes)

    def test_a_gang_that_was_told_to_make_room_gets_no_node_for_one_that_it_lost(self) -> None:
        notice = PreemptionStatus(by="uid-urgent", notice_time=NOW, deadline=NOW + 60)
        kept = reservation_of(("n0", "n1"), ("uid-old",), NOW, NOW + HOUR)
        waits = replace(urgent(), status=changed(urgent().status, reservation=kept))
        old = training("old", "n0", "n1")
        broken = vacated(old.status.assignment, [1], NOW)
        told = replace(old, status=changed(old.status, assignment=broken, preemption=notice))
        busy = training("busy", "n1", of_class="high")
        assert not any(write.nodes for write in passed(cluster(told, busy, waits, nodes=3)).writes)

    def test_the_write_that_gives_the_nodes_ends_the_reservation(self) -> None:
        kept = reservation_of(("n0", "n1"), ("uid-old",), NOW, NOW + HOUR)
        waits = replace(urgent(), status=changed(urgent().status, reservation=kept))
        plan = passed(cluster(waits))
        assert statuses(plan)["urgent"].assignment.nodes == ("n0", "n1")
        assert statuses(plan)["urgent"].reservation is None
        assert events(plan) == {("urgent", "Admitted")}

    def test_spares_get_neither_nodes_nor_quota_that_are_kept(self) -> None:
        kept = reservation_of(("n0", "n1"), ("uid-old",), NOW, NOW + HOUR)
        waits = replace(urgent(), status=changed(urgent().status, reservation=kept))
        gang = training("gang", "n2", of_class="high", spareNodes=1)
        lacks = assigned(AssignmentStatus(), ("n2",), spares=1)
        gang = replace(gang, status=changed(gang.status, assignment=lacks))

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
        told = replace(old, status=changed(old.status, preemption=notice))
        plan = passed(cluster(told))
        assert statuses(plan)["old"].preemption is None
        assert ("old", "PreemptionWithdrawn") in events(plan)
        stop = StopStatus(reason="Preempted", time=NOW, deadline=NOW + 60)
        stopping = replace(told, status=changed(told.status, stop=stop))
        assert passed(cluster(stopping)).writes == ()

    def test_what_becomes_of_a_write_under_way_is_waited_for(self) -> None:
        notice = PreemptionStatus(by="uid-urgent", notice_time=NOW, deadline=NOW + 60)
        old = training("old", "n0", "n1")
        told = replace(old, status=changed(old.status, preemption=notice))
        snapshot = cluster(told, urgent(), in_flight={"uid-urgent": frozenset({"n2", "n3"})})
        assert "old" not in statuses(passed(snapshot))


LENT = {"cohort": "lab", "quotas": [{"gpuType": "Any", "nominalNodes": 0}], "preemption": {"minRuntime": "0s"}}
OWN = {**LENT, "preemption": {"reclaimWithinCohort": "Any"}}


class TestSeveral:
    """More than one run is having room made for it, each in a queue of its own."""

    def lab(self, *runs: RunView, nominal: int, **more: Any) -> ClusterSnapshot:
        """Queues a and b may have ``nominal`` nodes each, which borrowers of queue lent hold."""
        own = {**OWN, "quotas": [{"gpuType": "Any", "nominalNodes": nominal}]}
        return cluster(*runs, **{"queues": {"a": own, "b": own, "lent": LENT}, "nodes": 6, **more})

    def kept(self, name: str, *nodes: str, victims: tuple[str, ...], since: float) -> RunView:
        """A run of a queue, both called ``name``, that waits for ``victims`` to make room."""
        view = urgent(len(nodes), name=name, queue=name)
        reservation = reservation_of(nodes, tuple(f"uid-{victim}" for victim in victims), since, NOW + HOUR)
        return replace(view, status=changed(view.status, reservation=reservation))

    def told(self, view: RunView, by: str) -> RunView:
        notice = PreemptionStatus(by=f"uid-{by}", notice_time=NOW, deadline=NOW + 420)
        return replace(view, status=changed(view.status, preemption=notice))

    def notices(self, snapshot: ClusterSnapshot) -> set[str]:
        return {name for name, status in statuses(passed(snapshot)).items() if status.preemption is not None}

    def test_none_waits_for_the_victims_of_another_that_nobody_sends_away(self) -> None:
        """Either victim would do for both of them."""
        victims = [training(name, *nodes, queue="lent") for name, nodes in (("v1", ("n0", "n1")), ("v2", ("n2", "n3")))]
        first = self.kept("a", "n4", victims=("v1",), since=NOW - 2)
        second = self.kept("b", "n5", victims=("v2",), since=NOW - 1)
        snapshot = self.lab(*victims, first, second, nominal=2)
        assert self.notices(snapshot) == {"v1"}
        there = replace(snapshot, runs=(victims[1], self.told(victims[0], "a"), first, second))
        assert self.notices(there) == set()

    def test_who_was_told_for_one_run_is_counted_on_by_those_before_it_too(self) -> None:
        first, second = training("v1", "n0", "n1", queue="lent"), training("v2", "n2", "n3", queue="lent")
        earlier = self.kept("b", "n5", victims=("v2",), since=NOW - 2)
        later = self.kept("a", "n4", victims=("v1",), since=NOW - 1)
        assert self.notices(self.lab(self.told(first, "a"), second, earlier, later, nominal=2)) == set()

    def test_nobody_is_sent_away_for_what_a_later_one_is_to_use(self) -> None:
        """Room for one is left, which is for the first of them, once pods on their nodes have ended."""
        large, small = training("v1", "n0", "n1", queue="lent"), training("v2", "n2", queue="lent")
        first = self.kept("a", "n4", victims=("v1",), since=NOW - 2)
        second = self.kept("b", "n5", victims=("v2",), since=NOW - 1)
        gone = run("gone", 3, status={"conditions": (FINISHED,)})
        left = enumerate(("n3", "n4", "n5"))
        pods = [pod(gone, slot, node, deleting=True, killed_at=NOW + 30) for slot, node in left]
        assert self.notices(self.lab(large, small, first, second, gone, nominal=2, pods=pods)) == {"v2"}

    def making_room(self) -> tuple[RunView, RunView, RunView, RunView, ClusterSnapshot]:
        """Run a needs its victim no more: it waits for pods on its nodes to end. Run b could use the victim's."""
        first, victim = (
            self.kept("a", "n4", "n5", victims=("v1",), since=NOW - 2),
            training("v1", "n0", "n1", queue="lent"),
        )
        other, second = training("v2", "n2", queue="lent"), urgent(3, name="b", queue="b", at=NOW + 1)
        protected = training("other", "n3", of_class="high", queue="b")
        gone = run("gone", 2, status={"conditions": (FINISHED,)})
        pods = [pod(gone, slot, node, deleting=True, killed_at=NOW + 30) for slot, node in enumerate(("n4", "n5"))]
        return first, victim, other, second, self.lab(protected, gone, nominal=5, pods=pods)

    def test_nodes_of_a_victim_that_is_not_told_are_promised_to_nobody_else(self) -> None:
        *runs, snapshot = self.making_room()
        snapshot = replace(snapshot, runs=(*snapshot.runs, *runs))
        for _ in range(3):
            plan = passed(snapshot)
            assert not {reason for _, reason in events(plan)} & {"NodesReserved", "ReservationLapsed"}
            snapshot = after(snapshot, plan)
        assert passed(snapshot).writes == ()

    def test_nodes_of_one_that_is_told_are_kept_also_while_it_still_has_them(self) -> None:
        first, victim, other, second, snapshot = self.making_room()
        snapshot = replace(snapshot, runs=(*snapshot.runs, first, self.told(victim, "a"), other, second))
        reserved = after(snapshot, plan := passed(snapshot))
        assert events(plan) == {("b", "NodesReserved")}
        assert events(passed(reserved)) == {("v2", "PreemptionNotice")}


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
        kept = changed(status.reservation, **changes)
        return self.change(snapshot, "urgent", status=changed(status, reservation=kept))

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
        spec = not_none(next(each.spec for each in snapshot.runs if each.name == "urgent"))
        given_up = self.change(snapshot, "urgent", spec=changed(spec, **{field: True}))
        assert self.lapses(given_up)

    def test_when_its_queue_holds_it_or_nobody_is_admitted(self) -> None:
        held_back = replace(self.reserved(), queues=cluster(queue={**WITHIN, "heldRuns": ["team/urgent"]}).queues)
        assert self.lapses(held_back)
        assert self.lapses(self.reserved(), mode=Mode.NO_NEW_ADMISSIONS)

    def test_when_the_rules_of_its_queue_change_before_the_victim_was_told(self) -> None:
        snapshot = self.reserved()
        never = cluster(queue={"preemption": {"withinQueue": "Never"}}).queues
        assert self.lapses(replace(snapshot, queues=never))
        told = after(snapshot, passed(snapshot))
        assert any(each.status.preemption is not None for each in told.runs)
        assert not self.lapses(replace(told, queues=never))

    @pytest.mark.parametrize(
        ("classes", "lapses"),
        [
            ({**CLASSES, "high": 10}, True),  # as low as that of the victim
            ({**CLASSES, "low": 1000}, True),
            ({"high": 1000}, True),  # of the victim's nobody knows any more that it is lower
            ({**CLASSES, "high": 11}, False),
        ],
    )
    def test_when_classes_change_so_that_it_may_not_preempt_the_victim_before_that_was_told(
        self, classes: dict[str, int], lapses: bool
    ) -> None:
        snapshot = self.reserved()
        assert self.lapses(replace(snapshot, priority_classes=classes)) is lapses
        told = after(snapshot, passed(snapshot))
        assert not self.lapses(replace(told, priority_classes=classes))

    def test_when_nobody_can_read_any_more_what_the_victim_is(self) -> None:
        assert self.lapses(self.change(self.reserved(), "old", spec=None, spec_error="x"))

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
        spec = not_none(next(each.spec for each in snapshot.runs if each.name == "urgent"))
        assert self.lapses(self.change(snapshot, "urgent", spec=changed(spec, nodes=3)))

    def test_when_its_record_was_lost(self) -> None:
        assert self.lapses(self.amend(self.reserved(), nodes=(), victims=()))
        assert not self.lapses(self.amend(self.reserved(), nodes=(), config_map="unread"))

    def test_the_later_of_two_that_share_a_node(self) -> None:
        snapshot = self.reserved()
        status = next(each.status for each in snapshot.runs if each.name == "urgent")
        assert status.reservation is not None
        earlier = changed(status.reservation, time=NOW - 1)
        other = urgent(2, name="other")
        other = replace(other, status=changed(other.status, reservation=earlier))
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
        kept = not_none(write.status.reservation)
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
