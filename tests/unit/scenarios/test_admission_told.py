"""What everybody who waits is told, how often, and whose names are in it."""

from dataclasses import replace

import pytest

from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.queueing.order import Order, Points
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.settings import Weights
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, reason, run, statuses, world
from support.admission_passes import admitted, holding, passed, queue_of


class TestTelling:
    def test_names_of_other_namespaces_are_told_only_where_the_queue_allows_it(self) -> None:
        other = replace(holding("secret", "n0", "n1", "n2", "n3", limit=60), namespace="rivals")
        runs = [other, run("a", 4, queue="q")]
        full = queue_of(passed(world(runs, queues={"q": {}})), "a")
        own = queue_of(passed(world(runs, queues={"q": {"visibility": "OwnNamespace"}})), "a")
        assert full.blocked_by == ("rivals/secret",)
        assert own.blocked_by == ()
        assert "secret" not in own.model_dump_json()

    def test_runs_of_a_queue_that_names_nobody_are_named_to_their_own_namespace_alone(self) -> None:
        secret = replace(holding("secret", "n0", "n1", "n2", "n3", limit=60, queue="private"), namespace="rivals")
        queues = {"q": {}, "private": {"visibility": "OwnNamespace"}}
        runs = [secret, run("a", 4, queue="q"), replace(run("b", 4, queue="q"), namespace="rivals")]
        plan = passed(world(runs, queues=queues))
        assert "secret" not in queue_of(plan, "a").model_dump_json()
        assert "rivals/secret" in queue_of(plan, "b").blocked_by

    def test_a_pass_that_changes_nothing_writes_nothing(self) -> None:
        snapshot = world([holding("running", "n0", "n1", limit=3600), run("head", 4, at=1.0), run("b", 3, at=2.0)])
        plan = passed(snapshot)
        assert admitted(plan) == set()
        assert len(plan.writes) == 2
        again = passed(after(snapshot, plan), NOW + 1)
        assert again.writes == ()

    def test_a_new_position_is_told_at_most_once_a_minute_and_a_new_reason_at_once(self) -> None:
        runs = [holding("running", "n0", limit=3600), run("a", 4, at=1.0), run("b", 4, at=2.0), run("c", 4, at=3.0)]
        snapshot = after(world(runs), passed(world(runs)))
        without_a = replace(snapshot, runs=tuple(view for view in snapshot.runs if view.name != "a"))
        soon = passed(without_a, NOW + 5)
        assert "c" not in statuses(soon)
        assert soon.wake_at is not None
        assert soon.wake_at <= NOW + 60
        assert queue_of(passed(without_a, NOW + 60), "c").position == 2
        held_now = replace(without_a, queues=world([], queues={"default": {"stopPolicy": "Hold"}}).queues)
        assert reason(passed(held_now, NOW + 5), "c") == (0, "QueueHeld")

    def test_points_that_have_moved_are_told_again_however_little_else_is_new(self) -> None:
        """A run that waits for a day hears what its place is made of by then, a few dozen times at most."""
        settings, memory = AdmissionSettings(), CycleMemory()
        trains = run("trains", 4, status={**held("n0", "n1", "n2", "n3"), "last_admitted": NOW})
        snapshot, now, share, written = world([trains, run("waits", 4, at=NOW)]), NOW, 1.0, 0
        for step in range(24 * 12):
            now += 300
            share = max(0.0, share - 0.01) if step < 200 else 1.0
            snapshot = replace(snapshot, fair_shares={("default", "team", ""): share})
            plan = admit(snapshot, Tunables(admission=settings), now, memory)
            if plan.writes:  # else the run is the same object as before
                snapshot, written = after(snapshot, plan), written + 1
            told = snapshot.runs[1].status.queue
            assert told.updated is not None
            points = Order(settings, {}, 4, now).points(snapshot.runs[1], share)
            assert now - told.updated < 900 or not points.have_moved(told.factors, settings.weights)
            assert told.priority == sum(told.factors.values())
        assert 10 < written < 30

    @pytest.mark.parametrize(
        ("told", "misled"),
        [
            ({"class": 50_000, "age": 500, "fairShare": 5_000, "size": 50, "nice": -7}, False),
            ({"class": 45_000, "age": 450, "fairShare": 5_500, "size": 50, "nice": -7}, False),
            ({"class": 44_999, "age": 500, "fairShare": 5_000, "size": 50, "nice": -7}, True),
            ({"class": 50_000, "age": 449, "fairShare": 5_000, "size": 50, "nice": -7}, True),
            ({"class": 50_000, "age": 500, "fairShare": 5_501, "size": 50, "nice": -7}, True),
            ({"class": 50_000, "age": 500, "fairShare": 5_000, "size": 56, "nice": -7}, True),
            ({"class": 50_000, "age": 500, "fairShare": 5_000, "size": 50, "nice": -6}, True),
            ({"class": 50_000, "age": 500, "size": 50, "nice": -7}, True),
        ],
    )
    def test_points_mislead_when_a_factor_has_moved_by_a_twentieth_of_its_weight(
        self, told: dict[str, int], misled: bool
    ) -> None:
        assert Points(50_000, 500, 5_000, 50, 7).have_moved(told, Weights(size=100)) is misled

    def test_a_pass_tells_a_bounded_number_and_comes_back_for_the_others(self) -> None:
        runs = [run(f"r{i}", 9, at=float(i)) for i in range(6)]
        plan = passed(world(runs), told_per_pass=4)
        assert len(plan.writes) == 4
        assert plan.wake_at == NOW + 1


class TestNews:
    def test_that_a_start_is_known_or_is_no_more_is_told_at_once(self) -> None:
        waits, other = run("a", 4), holding("trains", "n0", "n1", "n2", "n3")
        memory, unknown = CycleMemory(), world([waits, other])
        settings = Tunables(admission=AdmissionSettings(told_every=60.0))
        snapshot = after(unknown, admit(unknown, settings, NOW, memory))
        assert snapshot.runs[0].status.queue.estimated_start is None
        limited = replace(snapshot, runs=(snapshot.runs[0], holding("trains", "n0", "n1", "n2", "n3", limit=3600)))
        plan = admit(limited, settings, NOW + 1, memory)
        assert queue_of(plan, "a").estimated_start == NOW + 3600
        known = after(limited, plan)
        moved = holding("trains", "n0", "n1", "n2", "n3", limit=7200)
        assert "a" not in statuses(admit(replace(known, runs=(known.runs[0], moved)), settings, NOW + 2, memory))
        endless = admit(replace(known, runs=(known.runs[0], other)), settings, NOW + 40, memory)
        assert queue_of(endless, "a").estimated_start is None


def test_what_a_clock_that_was_ahead_has_told_is_told_anew_at_once() -> None:
    """The next leader's clock is ten minutes behind: what changes in these is no older than what was said last."""
    told = QueueStatus(position=3, reason="Resources", message="needs 4 nodes", updated=NOW + 600)
    held_back = QueueStatus(reason="Dependency", message="another one", updated=NOW + 600)
    head, child = (
        run("head", 4, status={"queue": told}),
        run("child", status={"queue": held_back}, dependsOn=[{"name": "x"}]),
    )
    snapshot = world([holding("running", "n0", limit=3600), head, child])
    plan = passed(snapshot)
    assert (queue_of(plan, "head").position, queue_of(plan, "head").updated) == (1, NOW)
    assert queue_of(plan, "child").message.startswith("no run x")
    again = passed(after(snapshot, plan), NOW + 1)
    assert not again.writes
