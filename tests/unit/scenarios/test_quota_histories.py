"""Random runs in queues that lend, borrow, preempt and are edited, under an operator that dies: quotas always hold."""

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from support.dying_world import DyingWorld
from support.examples import examples, steps
from support.world import node, spec

NAMES = [f"n{i}" for i in range(10)]
CLASSES = {"low": 10, "high": 1000}
QUEUES = ("own", "lent", "alone")
CHECKPOINT = {"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}
RULES = {"withinQueue": "LowerPriority", "reclaimWithinCohort": "Any", "minRuntime": "0s"}


def used_by(status: TrainingRunStatus) -> int:
    """Nodes that count against the quota: a lost one is within it until it is replaced or given up."""
    return sum(map(bool, status.assignment.nodes)) + len(slots.lacking(status.assignment))


@dataclass
class Queued(DyingWorld):
    """Holds every write that gives somebody nodes against the rules of the queues as they are then."""

    given: int = 0

    def _written(self, name: str, before: TrainingRunStatus) -> None:
        self.check_bookings()
        if used_by(self.status(name)) > used_by(before):
            self.given += 1
            self._check_quota(name, is_new=not slots.is_held(before.assignment))

    def _check_quota(self, name: str, *, is_new: bool) -> None:
        """By the words of docs/admission.md, and nothing of the engine."""
        view = self.runs[name]
        assert view.spec is not None
        queue = self.queues[view.spec.queue].spec
        [own] = queue.quotas
        used, runs = self._usage()
        if is_new and queue.limits.max_running_runs is not None:
            assert runs[view.spec.queue] <= queue.limits.max_running_runs, "too many runs"
        mine = used[view.spec.queue]
        if queue.cohort is None:
            assert mine <= own.nominal_nodes, "beyond its quota"
            return
        if own.borrowing_limit is not None:
            assert mine <= own.nominal_nodes + own.borrowing_limit, "beyond what it may borrow"
        pool = pooled = 0
        guaranteed = {}
        for other, each in self.queues.items():
            if each.spec.cohort == queue.cohort:
                [quota] = each.spec.quotas
                lends = quota.nominal_nodes if quota.lending_limit is None else quota.lending_limit
                guaranteed[other] = max(0, quota.nominal_nodes - lends)
                pool += quota.nominal_nodes - guaranteed[other]
                pooled += max(0, used[other] - guaranteed[other])
        assert pooled <= pool or mine <= guaranteed[view.spec.queue], "the cohort is overdrawn"

    def _usage(self) -> tuple[dict[str, int], dict[str, int]]:
        used, runs = dict.fromkeys(QUEUES, 0), dict.fromkeys(QUEUES, 0)
        for view in self.runs.values():
            if not is_true(view.status, "Finished") and slots.is_held(view.status.assignment):
                assert view.spec is not None
                used[view.spec.queue] += used_by(view.status)
                runs[view.spec.queue] += 1
        return used, runs


ARRIVAL = st.tuples(
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from(QUEUES),
    st.sampled_from(sorted(CLASSES)),
    st.sampled_from(["plain", "spare", "spare", "elastic"]),
)
AMOUNT = st.sampled_from([None, 0, 1, 3])


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.w = Queued({name: node(name) for name in NAMES}, format="TorchDCP", listens=True)
        self.w.classes = CLASSES
        for name in QUEUES:
            self.edit(name, 3, None, None, True, 2 if name == "lent" else None)
        self.seen = 0

    def edit(
        self, name: str, nominal: int, borrowing: int | None, lending: int | None, joined: bool, most: int | None
    ) -> None:
        quota: dict[str, Any] = {"gpuType": "Any", "nominalNodes": nominal}
        quota |= {} if borrowing is None else {"borrowingLimit": borrowing}
        quota |= {} if lending is None else {"lendingLimit": min(lending, nominal)}
        cohort = {"cohort": "lab"} if joined and name != "alone" else {}
        if not cohort:
            quota = {"gpuType": "Any", "nominalNodes": nominal}
        limits = {"limits": {"maxRunningRuns": most}} if most is not None else {}
        self.w.queue(name, quotas=[quota], preemption=RULES, **cohort, **limits)

    def chosen(self, index: int) -> str | None:
        there = sorted(name for name, view in self.w.runs.items() if not is_true(view.status, "Finished"))
        return there[index % len(there)] if there else None

    @initialize(filling=st.lists(ARRIVAL, min_size=3, max_size=5))
    def the_queues_are_filled(self, filling: list[tuple[int, str, str, str]]) -> None:
        self.arrive(filling)

    @rule(arrivals=st.lists(ARRIVAL, min_size=1, max_size=3))
    def runs_arrive(self, arrivals: list[tuple[int, str, str, str]]) -> None:
        self.arrive(arrivals)

    def arrive(self, arrivals: list[tuple[int, str, str, str]]) -> None:
        for nodes, queue, of_class, kind in arrivals:
            more: dict[str, Any] = {"spareNodes": 1} if kind == "spare" else {}
            more |= {"elastic": {"min": 1, "growAfter": "1m"}} if kind == "elastic" else {}
            fields = {"queue": queue, "priorityClassName": of_class, "checkpoint": CHECKPOINT}
            self.w.apply(f"run{self.seen}", spec(nodes, **fields, **more))
            self.seen += 1
        self.w.settle(rounds=8)

    @rule(
        name=st.sampled_from(QUEUES),
        nominal=st.integers(0, 5),
        borrowing=AMOUNT,
        lending=AMOUNT,
        joined=st.booleans(),
        most=st.sampled_from([None, None, 1, 2]),
    )
    def a_queue_is_edited(
        self, name: str, nominal: int, borrowing: int | None, lending: int | None, joined: bool, most: int | None
    ) -> None:
        self.edit(name, nominal, borrowing, lending, joined, most)
        self.w.settle(rounds=8)

    @rule(index=st.integers(0, 9), what=st.sampled_from(["end", "cancel", "suspend", "resume"]))
    def a_run_is_over_or_paused(self, index: int, what: str) -> None:
        name = self.chosen(index)
        if name is None:
            return
        view = self.w.runs[name]
        assert view.spec is not None
        if what == "end":
            for rank in range(slots.world(view.status.assignment)):
                self.w.exit_child(name, rank, 0)
        else:
            change = {"cancel": True} if what == "cancel" else {"suspend": what == "suspend"}
            self.w.apply(name, changed(view.spec, **change))
        self.w.settle(rounds=8)

    @rule(name=st.sampled_from(NAMES))
    def a_node_goes_or_comes(self, name: str) -> None:
        if name in self.w.nodes:
            self.w.lose_node(name)
            del self.w.nodes[name]
        else:
            for key, pod in list(self.w.pods.items()):
                if pod.node == name:
                    del self.w.pods[key]
            self.w.silent_nodes.discard(name)
            self.w.nodes[name] = node(name)
        self.w.settle(rounds=8)

    @rule(writes=st.integers(0, 5))
    def the_operator_is_to_die(self, writes: int) -> None:
        self.w.dies_in = writes

    @rule(seconds=st.sampled_from([5, 70, 400]))
    def time_goes_by(self, seconds: int) -> None:
        self.w.pass_time(seconds, step=35)

    def teardown(self) -> None:
        event(f"{min(self.w.given, 12) // 3 * 3} or more times somebody got nodes")


TestQuotas = pytest.mark.slow(Histories.TestCase)
TestQuotas.settings = settings(
    max_examples=examples(60), stateful_step_count=steps(12), deadline=None, suppress_health_check=list(HealthCheck)
)
