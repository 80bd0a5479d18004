"""One order over all queues: classes, age, fair shares, size and niceness."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AdmissionStatus, QueueStatus
from lockstep.core.model.settings import Weights
from support.admission import NOW, reason, run, statuses, world
from support.admission_passes import admitted, passed, queue_of


class TestOrder:
    def test_the_higher_class_goes_first_however_long_others_waited(self) -> None:
        runs = [run("old", 4, at=0.0), run("urgent", 4, at=NOW, priorityClassName="production")]
        plan = passed(world(runs, classes={"production": 1000}))
        assert admitted(plan) == {"urgent"}
        assert reason(plan, "old") == (1, "Resources")

    def test_classes_of_the_clusters_own_pods_do_not_make_all_others_look_alike(self) -> None:
        classes = {"system-node-critical": 2_000_001_000, "production": 1000, "batch": 10}
        plan = passed(world([run("a", 9, priorityClassName="batch"), run("b", 9)], classes=classes))
        assert queue_of(plan, "a").factors["class"] == 1000

    def test_who_used_less_goes_first_and_the_points_are_told(self) -> None:
        runs = [run("greedy", 4, at=1.0), replace(run("modest", 4, at=2.0), namespace="other")]
        shares = {("default", "team", ""): 0.1, ("default", "other", ""): 0.9}
        plan = passed(world(runs, fair_shares=shares))
        assert admitted(plan) == {"modest"}
        assert queue_of(plan, "greedy").factors["fairShare"] == 1000

    def test_who_was_held_back_grows_old_from_then_on(self) -> None:
        released = run("released", 9, status={"queue": QueueStatus(reason="BeginTime", message="")})
        plan = passed(world([released, run("patient", 9, at=NOW - 86_400)]), max_age=86_400.0)
        assert {name: status.queue.factors.get("age") for name, status in statuses(plan).items()} == {
            "released": None,
            "patient": 1000,
        }
        assert statuses(plan)["released"].admission.since == NOW

    @pytest.mark.parametrize(
        ("spec", "annotations"),
        [({"notBefore": "1970-01-02T00:00:00Z"}, {}), ({}, {"lockstep.dev/paused": "true"})],
        ids=["not before", "paused"],
    )
    def test_who_is_held_back_for_a_reason_of_its_own_is_no_older_when_it_is_let_go(
        self, spec: dict[str, Any], annotations: dict[str, str]
    ) -> None:
        waiting = QueueStatus(position=1, reason="Resources", message="")
        view = run("a", 9, status={"queue": waiting, "admission": AdmissionStatus(since=NOW - 500)}, **spec)
        plan = passed(world([replace(view, annotations=annotations)]))
        assert statuses(plan)["a"].admission.since is None

    def test_a_queue_that_is_held_takes_nobodys_age(self) -> None:
        waiting = QueueStatus(position=1, reason="Resources", message="")
        view = run("a", 9, queue="q", status={"queue": waiting, "admission": AdmissionStatus(since=NOW - 500)})
        plan = passed(world([view], queues={"q": {"stopPolicy": "Hold"}}))
        assert (reason(plan, "a")[1], statuses(plan)["a"].admission.since) == ("QueueHeld", NOW - 500)

    def test_nice_gives_points_up(self) -> None:
        runs = [run("nice", 4, at=1.0, nice=500), run("other", 4, at=2.0)]
        assert admitted(passed(world(runs))) == {"other"}

    def test_who_lost_its_nodes_goes_to_the_head_of_its_class_and_not_beyond(self) -> None:
        victim = run("victim", 4, at=3.0)
        admission = changed(victim.status.admission, requeued_for="Preempted")
        victim = replace(victim, status=changed(victim.status, admission=admission))
        waiting = run("waiting", 4, at=NOW - 90 * 86_400)
        urgent = run("urgent", 4, at=4.0, priorityClassName="production")
        classes = {"production": 1000}
        assert admitted(passed(world([waiting, victim], classes=classes))) == {"victim"}
        assert admitted(passed(world([waiting, victim, urgent], classes=classes))) == {"urgent"}

    def test_the_size_factor_counts_either_way(self) -> None:
        runs = [run("large", 4, at=1.0), run("small", 1, at=2.0)]
        weights = Weights(size=1000)
        large = passed(world(runs), weights=weights)
        small = passed(world(runs), weights=weights, prefer_small=True)
        assert (admitted(large), admitted(small)) == ({"large"}, {"small"})
