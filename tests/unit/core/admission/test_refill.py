"""What a gang that has begun gets in addition, for lost nodes, as spares or to grow by, is bound by windows as well."""

from typing import Any

import pytest

import lockstep.core.admission.admit as admission
from lockstep.api.run_status import AssignmentStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.engine.quota import QuotaBook
from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.assignment import assigned, vacated
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, run, statuses, world

HOUR = 3600.0


def window(*nodes: str, start: float = NOW - 60) -> MaintenanceWindow:
    return MaintenanceWindow("firmware", start, HOUR, nodes=frozenset(nodes))


def passed(snapshot: ClusterSnapshot, *windows: MaintenanceWindow, now: float = NOW) -> ClusterPlan:
    return admit(snapshot, Tunables(admission=AdmissionSettings(windows=windows)), now)


def that_lost_n1(**spec: Any) -> RunView:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "n1"]), [1], NOW)
    return run("a", 2, status={"attempt": 1, "last_admitted": NOW, "assignment": lost}, **spec)


def test_a_lost_node_is_replaced_by_one_outside_the_window() -> None:
    plan = passed(world([that_lost_n1()]), window("n1", "n2"))
    assert statuses(plan)["a"].assignment.nodes == ("n0", "n3")


def test_a_gang_waits_where_only_nodes_in_a_window_are_free_and_goes_on_when_it_is_over() -> None:
    snapshot, closed = world([that_lost_n1()]), window("n0", "n1", "n2", "n3")
    plan = passed(snapshot, closed)
    status = statuses(plan)["a"]
    assert status.assignment.nodes == ("n0", "")
    assert (status.queue.reason, status.queue.estimated_start) == ("Window", NOW - 60 + HOUR)
    assert status.queue.message.startswith("the free nodes are in the maintenance window firmware until 1970-01-01T01:")
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW - 60 + HOUR
    later = passed(snapshot, closed, now=NOW - 60 + HOUR)
    assert statuses(later)["a"].assignment.nodes == ("n0", "n1")


def test_a_gang_that_ends_before_the_window_begins_may_have_its_nodes() -> None:
    coming = window("n1", "n2", "n3", start=NOW + 2 * HOUR)
    waits = statuses(passed(world([that_lost_n1()]), coming))["a"]
    assert waits.queue.message.endswith("from 1970-01-01T02:16:40Z on, before the run ends")
    ends = statuses(passed(world([that_lost_n1(timeLimit="1h")]), coming))["a"]
    assert ends.assignment.nodes == ("n0", "n1")


def test_a_gang_takes_what_there_is_outside_and_is_told_that_the_rest_is_closed() -> None:
    lost = vacated(assigned(AssignmentStatus(), ["n0", "x", "y"]), [1, 2], NOW)
    view = run("a", 3, status={"attempt": 1, "last_admitted": NOW, "assignment": lost})
    status = statuses(passed(world([view], 3), window("n2")))["a"]
    assert status.assignment.nodes == ("n0", "n1", "")
    assert status.queue.reason == "Window"


def test_what_lacks_with_or_without_the_window_is_told_as_lacking() -> None:
    status = statuses(passed(world([that_lost_n1()], 1), window("n0")))["a"]
    assert status.queue.reason == "Resources"


def test_spares_are_found_outside_the_window_or_not_at_all() -> None:
    wanted = [run("a", 2, spareNodes=1)]
    assert statuses(passed(world(wanted), window("n2")))["a"].assignment.nodes == ("n0", "n1", "n3")
    assert statuses(passed(world(wanted, 3), window("n2")))["a"].assignment.nodes == ("n0", "n1", "")


def with_a_vacant_spare(name: str, held: str) -> RunView:
    assignment = assigned(AssignmentStatus(), [held], spares=1)
    return run(name, 1, status={"attempt": 1, "last_admitted": NOW, "assignment": assignment}, spareNodes=1)


@pytest.mark.parametrize(("free", "most"), [(0, 1), (2, 3)])
def test_quotas_are_counted_once_for_all_spares_and_again_after_each_that_was_found(
    free: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[QuotaBook] = []

    def counted(*of: Any) -> QuotaBook:
        made.append(QuotaBook(*of))
        return made[-1]

    monkeypatch.setattr(admission, "QuotaBook", counted)
    runs = [with_a_vacant_spare(f"r{number}", f"n{number}") for number in range(5)]
    found = statuses(admission.admit(world(runs, 5 + free), Tunables(), NOW)).values()
    assert sum(all(each.assignment.nodes) for each in found) == free
    assert 0 < len(made) <= most
