"""Maintenance windows bind what Kueue admits as they bind everybody else."""

from dataclasses import replace

import pytest

from lockstep.core.admission.admit import admit
from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.tunables import Tunables
from support.kueue_double import HOSTNAME
from support.kueue_world import KueueWorld, kueue_world, phase

HOUR, START = 3600.0, 1_000_000.0
HOSTS = {"levels": (HOSTNAME,)}


def world_with(*windows: MaintenanceWindow, **pool: object) -> KueueWorld:
    """Nodes n0 to n3; the windows begin so many seconds from now."""
    world = kueue_world(**pool)
    world.now = START
    moved = tuple(replace(window, start=START + window.start) for window in windows)
    world.tunables = Tunables(admission=AdmissionSettings(windows=moved))
    return world


def window(start: float = -60.0, seconds: float = 1800.0, **more: object) -> MaintenanceWindow:
    return MaintenanceWindow("firmware", start, seconds, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("pool", [{}, HOSTS], ids=["ours to choose", "named by Kueue"])
def test_nothing_that_kueue_admits_starts_in_a_window_and_the_pass_wakes_at_its_end(pool: dict[str, object]) -> None:
    world = world_with(window(), **pool)
    world.queue_up()
    queue = world.status("run").queue
    assert phase(world) is Phase.PENDING
    assert world.told("Admitted")[0] == "True"
    assert (queue.reason, queue.estimated_start) == ("Window", START + 1740)
    assert "in the maintenance window firmware, which is over at" in queue.message
    wake_at = admit(world.cluster_snapshot(), world.tunables, world.now).wake_at
    assert wake_at == START + 1740
    world.now = wake_at
    world.settle()
    assert phase(world) is Phase.RUNNING
    assert world.status("run").queue.reason == ""


@pytest.mark.parametrize("pool", [{}, HOSTS], ids=["ours to choose", "named by Kueue"])
def test_a_run_that_would_overrun_the_beginning_of_a_window_waits_until_it_is_over(pool: dict[str, object]) -> None:
    world = world_with(window(HOUR), **pool)
    world.queue_up(timeLimit="2h")
    queue = world.status("run").queue
    assert (phase(world), queue.reason, queue.estimated_start) == (Phase.PENDING, "Window", START + 1.5 * HOUR)
    assert "with a time limit of 2h and a stop that may take 6m it would overrun the maintenance" in queue.message


def test_a_run_that_ends_before_the_window_starts() -> None:
    world = world_with(window(HOUR))
    world.queue_up(timeLimit="53m")
    assert phase(world) is Phase.RUNNING


def test_a_run_that_may_be_cut_starts_with_the_time_that_is_left() -> None:
    world = world_with(window(HOUR))
    world.queue_up(timeLimit="3h", minTimeLimit="30m")
    assert phase(world) is Phase.RUNNING
    granted = world.status("run").admission.time_limit
    assert granted is not None
    assert HOUR - 420 < granted <= HOUR - 360


def test_nodes_outside_the_window_are_taken_where_they_are_ours_to_choose() -> None:
    world = world_with(window(nodes=frozenset({"n0", "n1"})))
    world.queue_up()
    assert world.status("run").assignment.nodes == ("n2", "n3")


def test_nodes_that_kueue_names_are_used_when_only_others_have_a_window() -> None:
    world = world_with(window(nodes=frozenset({"n2", "n3"})), **HOSTS)
    world.queue_up()
    assert world.status("run").assignment.nodes == ("n0", "n1")


def test_what_runs_already_is_stopped_for_no_window() -> None:
    world = kueue_world()
    world.queue_up()
    world.tunables = Tunables(admission=AdmissionSettings(windows=(window(world.now - 1),)))
    world.settle()
    assert phase(world) is Phase.RUNNING


def test_the_first_window_after_which_its_nodes_are_free_for_long_enough_is_named_as_the_start() -> None:
    world = world_with(window(), window(2400.0), **HOSTS)
    world.queue_up(timeLimit="20m")
    assert world.status("run").queue.estimated_start == START + 4200


def test_nodes_that_it_cannot_have_anyhow_are_told_before_a_window() -> None:
    world = world_with(window(), **HOSTS)
    world.nodes["n0"] = replace(world.nodes["n0"], allocatable={})
    world.queue_up()
    assert world.status("run").queue.reason == "KueueAssignment"


def test_it_starts_on_the_nodes_whose_window_is_over_first() -> None:
    early = MaintenanceWindow("cables", -60.0, 600.0, nodes=frozenset({"n2", "n3"}))
    world = world_with(window(nodes=frozenset({"n0", "n1"})), early)
    world.queue_up()
    wake_at = admit(world.cluster_snapshot(), world.tunables, world.now).wake_at
    assert wake_at == START + 540
    world.now = wake_at
    world.settle()
    assert world.status("run").assignment.nodes == ("n2", "n3")


@pytest.mark.slow
@pytest.mark.parametrize("pool", [{}, HOSTS], ids=["ours to choose", "named by Kueue"])
def test_a_lost_node_is_not_replaced_by_one_in_a_window_until_it_is_over(pool: dict[str, object]) -> None:
    world = world_with(window(0.0, nodes=frozenset({"n2", "n3"})), **pool)
    world.queue_up()
    assert world.status("run").assignment.nodes == ("n0", "n1")
    world.fail_node("n1")
    world.double.unhealthy.add("n1")
    world.pass_time(600, 10)
    assert world.status("run").assignment.nodes == ("n0", "")
    assert world.status("run").queue.reason == "Window"
    world.pass_time(1500, 10)
    assert world.status("run").assignment.nodes[1] in {"n2", "n3"}
    assert phase(world) is Phase.RUNNING
