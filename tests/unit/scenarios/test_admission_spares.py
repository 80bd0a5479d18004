"""Spares at admission: on nodes that nobody else gets, and never before somebody who waits."""

from typing import Any

from lockstep.api.run_status import AssignmentStatus
from lockstep.core.model.assignment import assigned
from lockstep.core.model.snapshot import RunView
from support.admission import run, statuses, world
from support.admission_passes import passed


def test_spares_are_not_found_on_nodes_that_another_run_gets_in_the_same_pass() -> None:
    plan = passed(world([run("a", 2, spareNodes=2), run("b", 2, at=1.0)], 5))
    nodes = [name for status in statuses(plan).values() for name in status.assignment.nodes if name]
    assert len(nodes) == len(set(nodes)) == 5


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
