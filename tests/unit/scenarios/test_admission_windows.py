"""Maintenance windows: what does not start before one, and what is told meanwhile."""

from typing import Any

import pytest

from lockstep.core.model.admission_settings import MaintenanceWindow
from support.admission import NOW, run, statuses, world
from support.admission_passes import HOUR, admitted, holding, passed, queue_of


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
