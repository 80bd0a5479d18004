"""Who takes no part in a pass, by its own spec or the limits of its queue, and is told why."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, reason, run, statuses, world
from support.admission_passes import admitted, passed, queue_of


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
