"""One order over all queues: priority, quotas, backfill, windows, and what everybody who waits is told."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import AdmissionStatus, AssignmentStatus, QueueStatus, ResolvedStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.queueing.order import Order, Points
from lockstep.core.model.admission_settings import AdmissionSettings, Backfill, MaintenanceWindow
from lockstep.core.model.assignment import assigned, vacated
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.settings import Weights
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, node, reason, run, statuses, world

HOUR = 3600.0
GPU_TYPES = {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100"}}


def passed(snapshot: ClusterSnapshot, now: float = NOW, **settings: Any) -> ClusterPlan:
    return admit(snapshot, Tunables(gpu_types=GPU_TYPES, admission=AdmissionSettings(**settings)), now)


def holding(name: str, *nodes: str, since: float = NOW, limit: int | None = None, **spec: Any) -> RunView:
    """A run that has nodes since ``since``, with ``limit`` seconds of time."""
    view = run(name, len(nodes), status={**held(*nodes), "last_admitted": since}, **spec)
    admission = changed(view.status.admission, time_limit=limit)
    return replace(view, status=changed(view.status, admission=admission))


def admitted(plan: ClusterPlan) -> set[str]:
    return {write.name for write in plan.writes if write.nodes}


def queue_of(plan: ClusterPlan, name: str) -> Any:
    return statuses(plan)[name].queue


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


class TestBackfill:
    """Four nodes, two of them taken for another hour; the head needs all four."""

    def cluster(self, *runs: RunView) -> ClusterSnapshot:
        return world([holding("running", "n0", "n1", limit=3600), run("head", 4, at=1.0, timeLimit="2h"), *runs])

    def test_who_ends_before_the_heads_promised_start_may_go_ahead(self) -> None:
        plan = passed(self.cluster(run("short", 2, at=2.0, timeLimit="59m"), run("long", 1, at=3.0, timeLimit="61m")))
        assert admitted(plan) == {"short"}
        assert statuses(plan)["short"].admission.backfilled
        assert reason(plan, "long") == (2, "Priority")
        assert queue_of(plan, "long").message == "behind team/head"

    def test_the_head_is_told_when_it_starts_and_what_that_rests_on(self) -> None:
        told = queue_of(passed(self.cluster()), "head")
        assert told.estimated_start == NOW + HOUR
        assert "uses its whole time limit" in told.assumption
        assert told.blocked_by == ("team/running",)

    def test_nobody_knows_when_a_run_without_a_limit_ends(self) -> None:
        snapshot = world([holding("running", "n0", "n1"), run("head", 4, at=1.0)])
        told = queue_of(passed(snapshot), "head")
        assert told.estimated_start is None
        assert "no time limit" in told.assumption

    def test_conservative_backfill_protects_the_second_in_line_too(self) -> None:
        runs = (run("second", 2, at=2.0, timeLimit="3h"), run("third", 2, at=3.0, timeLimit="3h", nice=1))
        snapshot = world([holding("running", "n0", "n1", "n2", limit=3600), *runs, run("later", 1, at=4.0)])
        easy = passed(snapshot)
        assert reason(easy, "second") == (1, "Resources")
        conservative = passed(snapshot, backfill=Backfill.CONSERVATIVE)
        assert reason(conservative, "third")[1] in ("Resources", "Priority")
        assert statuses(conservative)["third"].queue.estimated_start is not None

    def test_without_backfill_nobody_overtakes_in_its_queue(self) -> None:
        plan = passed(self.cluster(run("short", 2, at=2.0, timeLimit="5m")), backfill=Backfill.DISABLED)
        assert admitted(plan) == set()
        assert reason(plan, "short") == (2, "Priority")

    def test_a_run_that_may_be_cut_gets_as_much_time_as_there_is(self) -> None:
        plan = passed(self.cluster(run("flexible", 2, at=2.0, timeLimit="8h", minTimeLimit="30m")))
        assert admitted(plan) == {"flexible"}
        assert statuses(plan)["flexible"].admission.time_limit == 3600

    def test_what_was_used_before_a_suspension_is_not_given_again(self) -> None:
        used = run("used", 2, at=2.0, timeLimit="90m", status={"held_seconds": 2400})
        plan = passed(self.cluster(used))
        assert admitted(plan) == {"used"}
        assert statuses(plan)["used"].admission.time_limit == 5400

    def test_a_deadline_that_cannot_be_met_is_said_and_holds_up_nobody(self) -> None:
        late = run("late", 3, at=1.0, timeLimit="2h", deadline="1970-01-01T03:00:00Z")
        plan = passed(world([holding("running", "n0", "n1", limit=3600), late, run("next", 2, at=2.0)]))
        assert reason(plan, "late")[1] == "DeadlineUnreachable"
        assert admitted(plan) == {"next"}


class TestWindows:
    def window(self, start: float = NOW + HOUR, **more: Any) -> MaintenanceWindow:
        return MaintenanceWindow("firmware", start, 1800.0, **more)

    def test_nothing_starts_that_would_overrun_a_window(self) -> None:
        """With the time that its stop may take: 300 s for its ranks, and 30 s each for workers and pods."""
        snapshot = world([run("long", 2, timeLimit="2h"), run("short", 2, at=1.0, timeLimit="54m")])
        plan = passed(snapshot, windows=(self.window(),))
        assert admitted(plan) == {"short"}
        told = queue_of(plan, "long")
        assert (told.reason, told.estimated_start) == ("Window", NOW + 1.5 * HOUR)
        assert told.message.startswith("with a time limit of 2h and a stop that may take 6m it would overrun")
        assert "maintenance window firmware, which begins at 1970-01-01T01:16:40Z" in told.message
        assert admitted(passed(world([run("a", 2, timeLimit="54m1s")]), windows=(self.window(),))) == set()

    @pytest.mark.parametrize("starts", [NOW - 60, NOW + 60])
    def test_while_nodes_are_kept_for_one_that_is_what_is_told(self, starts: float) -> None:
        plan = passed(world([run("a", 4, timeLimit="10m")]), windows=(self.window(starts, nodes=frozenset({"n0"})),))
        assert queue_of(plan, "a").message == "needs 4 nodes, 3 fit: 1 kept free for maintenance (n0)"

    def test_a_window_of_some_nodes_leaves_the_others_alone(self) -> None:
        plan = passed(world([run("long", 2)]), windows=(self.window(nodes=frozenset({"n0", "n1"})),))
        assert statuses(plan)["long"].assignment.nodes == ("n2", "n3")

    def test_nodes_are_given_again_when_the_window_is_over_and_the_pass_wakes_for_it(self) -> None:
        snapshot = world([run("a", 4, timeLimit="10m")])
        during = passed(snapshot, windows=(self.window(NOW - 60),))
        assert admitted(during) == set()
        assert during.wake_at is not None
        assert during.wake_at <= NOW + 1740
        assert admitted(passed(snapshot, NOW + 1740, windows=(self.window(NOW - 60),))) == {"a"}

    def test_a_window_that_comes_again_is_kept_free_each_time(self) -> None:
        weekly = self.window(NOW - 7 * 86_400 + HOUR, every=7 * 86_400.0)
        assert admitted(passed(world([run("long", 1, timeLimit="2h")]), windows=(weekly,))) == set()
        assert admitted(passed(world([run("short", 1, timeLimit="50m")]), windows=(weekly,))) == {"short"}

    def test_what_runs_is_stopped_for_no_window(self) -> None:
        snapshot = world([holding("running", "n0", "n1")])
        assert passed(snapshot, windows=(self.window(NOW - 60),)).writes == ()


class TestQuotas:
    def queues(self, **research: Any) -> dict[str, Any]:
        quotas = [{"gpuType": "Any", "nominalNodes": 2, **research}]
        return {
            "research": {"cohort": "lab", "quotas": quotas},
            "product": {"cohort": "lab", "quotas": [{"gpuType": "Any", "nominalNodes": 2}]},
        }

    def test_unused_nodes_of_the_cohort_may_be_borrowed_up_to_the_limit(self) -> None:
        runs = [
            run("a", 2, queue="research"),
            run("b", 1, at=1.0, queue="research"),
            run("c", 1, at=2.0, queue="research"),
        ]
        plan = passed(world(runs, queues=self.queues(borrowingLimit=1)))
        assert admitted(plan) == {"a", "b"}
        told = queue_of(plan, "c")
        assert told.reason == "Quota"
        assert told.message == ("queue research uses 3 of its 2 nodes and 1 that it may borrow; the run needs 1")

    def test_the_cohort_never_uses_more_than_all_its_queues_have(self) -> None:
        runs = [run(f"r{i}", 1, at=float(i), queue="research") for i in range(5)]
        plan = passed(world(runs, 8, queues=self.queues()))
        assert len(admitted(plan)) == 4
        assert "cohort lab has 0 of 4 shared nodes left" in queue_of(plan, "r4").message

    def test_nodes_of_types_that_the_queue_has_no_quota_for_are_told_as_such(self) -> None:
        nodes = [node(f"a{i}", labels={"gpu": "a100"}) for i in range(4)]
        nodes += [node(f"h{i}", labels={"gpu": "h100"}) for i in range(2)]
        queues = {"q": {"quotas": [{"gpuType": "H100", "nominalNodes": 4}]}}
        runs = [run("first", 2, queue="default", placement={"gpuTypes": ["H100"]}), run("next", 2, at=1.0, queue="q")]
        told = queue_of(passed(world(runs, nodes, queues=queues)), "next")
        assert told.message == "needs 2 nodes, 0 fit: 2 booked by runs, 4 without H100 GPUs"
        told = queue_of(passed(world([run("big", 3, queue="q")], nodes, queues=queues)), "big")
        assert (told.reason, "the cluster has no more" in told.message) == ("Placement", True)

    @pytest.mark.parametrize(("borrowing", "nodes", "most"), [(None, 5, 4), (1, 4, 3), (0, 3, 2)])
    def test_a_run_that_no_quota_would_ever_hold_is_told_so(self, borrowing: int | None, nodes: int, most: int) -> None:
        plan = passed(world([run("big", nodes, queue="research")], 8, queues=self.queues(borrowingLimit=borrowing)))
        assert f"the run needs {nodes}, and can never have more than {most}" in queue_of(plan, "big").message
        plan = passed(world([run("fits", most, queue="research")], 8, queues=self.queues(borrowingLimit=borrowing)))
        assert admitted(plan) == {"fits"}

    def test_a_run_with_nodes_that_names_another_queue_takes_nothing_of_its_quota(self) -> None:
        queues = {"theirs": {"quotas": [{"gpuType": "Any", "nominalNodes": 2}]}}
        status = held("n0", "n1") | {"resolved": ResolvedStatus(queue="default")}
        runs = [run("elsewhere", 2, status=status, queue="theirs"), run("next", 2, at=1.0, queue="theirs")]
        assert admitted(passed(world(runs, 4, queues=queues))) == {"next"}

    def test_a_queue_gets_types_in_the_order_of_its_quotas(self) -> None:
        nodes = [node(f"a{i}", labels={"gpu": "a100"}) for i in range(2)]
        nodes += [node(f"h{i}", labels={"gpu": "h100"}) for i in range(2)]
        quotas = [{"gpuType": "H100", "nominalNodes": 1}, {"gpuType": "A100", "nominalNodes": 2}]
        runs = [run("one", 1, queue="q"), run("two", 1, at=1.0, queue="q")]
        plan = passed(world(runs, nodes, queues={"q": {"quotas": quotas}}))
        placed = {name: (s.assignment.nodes, s.resolved.gpu_type) for name, s in statuses(plan).items()}
        assert placed == {"one": (("h0",), "H100"), "two": (("a0",), "A100")}

    def test_a_type_without_quota_is_said(self) -> None:
        nodes = [node(f"h{i}", labels={"gpu": "h100"}) for i in range(2)]
        runs = [run("one", 1, queue="q", placement={"gpuTypes": ["H100"]})]
        plan = passed(world(runs, nodes, queues={"q": {"quotas": [{"gpuType": "A100", "nominalNodes": 2}]}}))
        assert "queue q has no quota for GPU type H100" in queue_of(plan, "one").message

    def test_quotas_of_no_type_that_there_is_are_said(self) -> None:
        nodes = [node(f"h{i}", labels={"gpu": "h100"}) for i in range(2)]
        queues = {"q": {"quotas": [{"gpuType": "*", "nominalNodes": 2}]}}
        told = queue_of(passed(world([run("one", 1, queue="q")], nodes, queues=queues)), "one")
        assert told.reason == "Placement"
        assert "queue q has quotas of * alone, and no node is of such a type" in told.message

    def test_what_an_admission_may_have_got_whose_outcome_is_not_known_counts(self) -> None:
        quotas = {"q": {"quotas": [{"gpuType": "Any", "nominalNodes": 2}]}}
        runs = [run("unknown", 2, queue="q"), run("next", 1, at=1.0, queue="q")]
        in_flight = {"uid-unknown": frozenset({"n0", "n1"})}
        plan = passed(world(runs, queues=quotas, in_flight=in_flight))
        assert admitted(plan) == set()
        assert queue_of(plan, "next").message == "queue q uses 2 of its 2 nodes; the run needs 1"

    def test_a_lost_node_counts_while_nobody_knows_whether_another_one_was_replaced(self) -> None:
        status = held("n0", "n1", "n2")
        status["assignment"] = vacated(status["assignment"], [1, 2], NOW - 10)
        runs = [run("gang", 3, status=status), run("late", at=1.0)]
        queues = {"default": {"quotas": [{"gpuType": "Any", "nominalNodes": 3}]}}
        plan = admit(world(runs, 4, queues=queues, in_flight={"uid-gang": frozenset({"n1"})}), Tunables(), NOW)
        assert reason(plan, "late") == (1, "Quota")

    def test_a_lost_node_counts_until_it_is_replaced_which_nobody_refuses(self) -> None:
        status = held("n0", "n1", "n2")
        status["assignment"] = vacated(status["assignment"], [2], NOW - 10)
        gang = run("gang", 3, status=status, placement={"excludeNodes": ["n3"]})
        queues = {"default": {"quotas": [{"gpuType": "Any", "nominalNodes": 3}]}}
        snapshot = world([gang, run("late", at=1.0)], [node(name) for name in ("n0", "n1", "n3")], queues=queues)
        plan = admit(snapshot, Tunables(), NOW)
        assert reason(plan, "late") == (1, "Quota")
        healed = replace(after(snapshot, plan), nodes={**snapshot.nodes, "n4": node("n4")})
        assert statuses(admit(healed, Tunables(), NOW))["gang"].assignment.nodes == ("n0", "n1", "n4")

    def test_spares_are_counted_and_left_out_where_the_quota_ends(self) -> None:
        quotas = {"q": {"quotas": [{"gpuType": "Any", "nominalNodes": 3}]}}
        plan = passed(world([run("a", 2, queue="q", spareNodes=2)], 8, queues=quotas))
        assert len([name for name in statuses(plan)["a"].assignment.nodes if name]) == 3


class TestHolds:
    @pytest.mark.parametrize(
        ("spec", "queue", "expected", "words"),
        [
            ({"priorityClassName": "nope"}, {}, "PriorityClassNotFound", "no PriorityClass nope"),
            (
                {"priorityClassName": "production"},
                {"allowedPriorityClasses": ["batch"]},
                "PriorityClassNotAllowed",
                "it allows batch",
            ),
            ({}, {"namespaceSelector": {"matchLabels": {"team": "x"}}}, "NamespaceNotAllowed", "namespaceSelector"),
            ({}, {"heldRuns": ["team/a"]}, "HeldByAdministrator", "heldRuns"),
            ({}, {"limits": {"maxTimeLimit": "1h"}}, "TimeLimitTooLong", "at most 1h"),
            ({"timeLimit": "2h"}, {"limits": {"maxTimeLimit": "1h"}}, "TimeLimitTooLong", "at most 1h"),
            (
                {},
                {"limits": {"maxTimeLimit": "1h", "defaultTimeLimit": "9h"}},
                "TimeLimitTooLong",
                "of 9h, the default",
            ),
            ({"notBefore": "1970-01-01T01:00:00Z"}, {}, "BeginTime", "notBefore"),
            ({"deadline": "1970-01-01T01:00:00Z"}, {}, "DeadlineUnreachable", "needs spec.timeLimit"),
            ({"dependsOn": [{"name": "first"}]}, {}, "Dependency", "no run first"),
        ],
    )
    def test_who_is_held_is_told_why_and_stands_in_nobodys_way(
        self, spec: dict[str, Any], queue: dict[str, Any], expected: str, words: str
    ) -> None:
        runs = [run("a", 4, queue="q", **spec), run("z", 4, at=NOW)]
        plan = passed(world(runs, queues={"q": queue}, classes={"production": 1000}))
        assert reason(plan, "a") == (0, expected)
        assert words in queue_of(plan, "a").message
        assert admitted(plan) == {"z"}

    def test_a_queue_whose_gpu_hours_are_used_up_waits_or_is_warned(self) -> None:
        warned = {"gpuHoursPerDay": 1, "onGpuHours": "Warn"}
        queues = {"q": {"limits": {"gpuHoursPerDay": 100}}, "w": {"limits": warned}}
        runs = [run("a", queue="q"), run("b", queue="w")]
        plan = passed(world(runs, queues=queues, gpu_hours={"q": 100, "w": 5}))
        assert reason(plan, "a") == (0, "GpuHoursLimit")
        assert "used 100 GPU-hours in the last 24 hours; it may use 100" in queue_of(plan, "a").message
        (write,) = [write for write in plan.writes if write.name == "b"]
        assert [event.reason for event in write.events] == ["Admitted", "GpuHoursLimit"]
        assert admitted(passed(world(runs, queues=queues, gpu_hours={"q": 99}))) == {"a", "b"}

    def test_a_queue_whose_gpu_hours_are_not_known_admits_nobody_whom_the_limit_would_hold(self) -> None:
        warned = {"gpuHoursPerDay": 1, "onGpuHours": "Warn"}
        queues = {"q": {"limits": {"gpuHoursPerDay": 100}}, "w": {"limits": warned}, "free": {}}
        runs = [run("a", queue="q"), run("b", queue="w"), run("c", queue="free")]
        snapshot = world(runs, queues=queues)
        plan = passed(snapshot)
        assert admitted(plan) == {"b", "c"}
        assert reason(plan, "a") == (0, "GpuHoursUnknown")
        assert "queue q has a limit on GPU-hours" in queue_of(plan, "a").message
        memory = CycleMemory()
        admit(snapshot, Tunables(), NOW, memory)
        assert admitted(admit(replace(snapshot, gpu_hours={"q": 0}), Tunables(), NOW, memory)) == {"a", "b", "c"}

    def test_only_so_many_runs_of_a_queue_wait(self) -> None:
        runs = [run(f"r{i}", 9, at=float(i), queue="q") for i in range(3)]
        plan = passed(world(runs, queues={"q": {"limits": {"maxPendingRuns": 2}}}))
        assert reason(plan, "r2") == (0, "PendingRunsLimit")

    def test_a_chain_of_runs_goes_one_after_the_other(self) -> None:
        snapshot = world([run("a"), run("b", at=1.0, singleton="w"), run("c", at=2.0, singleton="w")])
        plan = passed(snapshot)
        assert admitted(plan) == {"a", "b"}
        assert reason(plan, "c") == (0, "Singleton")

    def test_a_queues_own_default_and_longest_limit_bound_what_is_granted(self) -> None:
        limits = {"defaultTimeLimit": "1h", "maxTimeLimit": "2h"}
        runs = [run("a", queue="q"), run("b", at=1.0, queue="q", timeLimit="9h", minTimeLimit="1h")]
        plan = passed(world(runs, queues={"q": {"limits": limits}}))
        granted = {name: status.admission.time_limit for name, status in statuses(plan).items()}
        assert granted == {"a": 3600, "b": 7200}

    def test_a_shortest_limit_beyond_the_queues_longest_is_not_cut_further(self) -> None:
        runs = [run("a", queue="q", timeLimit="48h", minTimeLimit="24h")]
        plan = passed(world(runs, queues={"q": {"limits": {"maxTimeLimit": "12h"}}}))
        told = queue_of(plan, "a")
        assert told.reason == "TimeLimitTooLong"
        assert told.message == "takes no time limit below spec.minTimeLimit, 24h; queue q allows at most 12h"


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


def test_what_a_pass_remembers_of_a_run_goes_with_the_run() -> None:
    memory = CycleMemory()
    runs = [run(f"r{number}", 8) for number in range(3)]
    admit(world(runs), Tunables(), NOW, memory)
    assert set(memory.run_index.rows) == {"uid-r0", "uid-r1", "uid-r2"}
    admit(world(runs[:1]), Tunables(), NOW, memory)
    assert set(memory.run_index.rows) == {"uid-r0"}


def test_spares_are_not_found_on_nodes_that_another_run_gets_in_the_same_pass() -> None:
    plan = passed(world([run("a", 2, spareNodes=2), run("b", 2, at=1.0)], 5))
    nodes = [name for status in statuses(plan).values() for name in status.assignment.nodes if name]
    assert len(nodes) == len(set(nodes)) == 5


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


class TestSparesAndWhoWaits:
    """A spare is worth less than the start of anybody who waits."""

    wants = run("wants", 4, at=2.0)

    def trains(self, *nodes: str, **spec: Any) -> RunView:
        status = {"attempt": 1, "assignment": assigned(AssignmentStatus(), nodes, spares=2)}
        return run("trains", len(nodes), status=status, spareNodes=2, **spec)

    def test_no_spare_takes_a_node_that_the_first_of_those_who_wait_is_to_have(self) -> None:
        plan = passed(world([self.trains("n0", "n1"), self.wants], 4))
        assert "trains" not in statuses(plan)

    def test_a_node_that_would_not_do_for_it_may_be_a_spare(self) -> None:
        wants = run("wants", 3, at=2.0, placement={"nodes": ["n1", "n2", "n3"]})
        plan = passed(world([self.trains("n0", "n1"), wants], 5))
        assert statuses(plan)["trains"].assignment.nodes == ("n0", "n1", "n4", "")

    def test_no_spare_takes_the_quota_either(self) -> None:
        quota = {"cohort": "lab", "quotas": [{"gpuType": "Any", "nominalNodes": 2}]}
        wants = run("wants", 2, at=2.0, queue="p", placement={"nodes": ["n0", "n2"]})
        plan = passed(world([self.trains("n0", "n1", queue="q"), wants], 6, queues={"q": quota, "p": quota}))
        assert "trains" not in statuses(plan)

    def test_without_anybody_who_waits_it_gets_its_spares(self) -> None:
        plan = passed(world([self.trains("n0", "n1")], 4))
        assert statuses(plan)["trains"].assignment.nodes == ("n0", "n1", "n2", "n3")
