"""Quotas of queues: what they hold, lend and borrow, and what counts towards them."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.run_status import ResolvedStatus
from lockstep.core.admission.admit import admit
from lockstep.core.model.assignment import vacated
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, node, reason, run, statuses, world
from support.admission_passes import admitted, passed, queue_of


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
