"""The operator's own writes, delayed, refused and lost, seen late, and cut short: what the API server holds is sound.

Other properties of admission take what is decided for written at once. Here it goes through the store, the queue of
work and the writes under way, as it does in a cluster.
"""

import asyncio
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lockstep.api.base import names
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from support.examples import examples, steps
from support.shaky_api import SETTLES, Api, Fate, Operator, has_ended

NODES = [f"n{number}" for number in range(7)]
CLASSES = {"low": 10, "high": 1000}
NOMINAL = {"own": 3, "lent": 2}
"""Of one cohort, whose quota is less than the nodes; queue free has none."""
QUEUES = ("own", "lent", "free")
RULES = {"withinQueue": "LowerPriority", "reclaimWithinCohort": "Any", "minRuntime": "0s"}
Arrival = tuple[int, str, str, str | None]
ARRIVAL = st.tuples(
    st.integers(1, 3),
    st.sampled_from(["own", "lent", "lent", "free"]),
    st.sampled_from(["low", "high"]),
    st.sampled_from([None, None, "30m", "2h"]),
)
FATES = st.lists(st.sampled_from([*Fate, Fate.SLOW, Fate.SLOW, Fate.UNANSWERED]), min_size=1, max_size=3)
EDITS = st.sampled_from(["end", "end", "fail", "cancel", "suspend", "resume", "longer", "delete"])
LOST = st.lists(st.sampled_from([Fate.SLOW, Fate.SLOW, Fate.UNANSWERED]), min_size=1, max_size=2)
FIRST = st.tuples(st.integers(1, 3), st.sampled_from(QUEUES), st.just("high"), st.none())
RACE = st.tuples(st.just("race"), st.integers(0, 9), LOST, FIRST, st.sampled_from([0, 1, 11]), st.booleans())
REPLACES = st.tuples(st.just("race_with_a_gang"), st.integers(0, 9), LOST, FIRST, st.sampled_from([1, 11]))
MOMENT = st.one_of(
    ARRIVAL.map(lambda arrival: ("arrive", *arrival)),
    st.tuples(st.just("trouble"), FATES),
    st.tuples(st.just("more_trouble"), FATES),
    st.tuples(st.just("request"), st.integers(0, 5), st.booleans()),
    RACE,
    RACE,
    RACE,
    REPLACES,
    st.tuples(st.just("machine"), st.sampled_from(NODES)),
    st.tuples(st.just("watch"), st.sampled_from(["runs", "pods"]), st.integers(1, 4)),
    st.tuples(st.just("hear")),
    st.tuples(st.just("edit"), st.integers(0, 9), EDITS),
    st.tuples(st.just("wait"), st.sampled_from([1, 6, 11, 30])),
)


def holds(status: TrainingRunStatus) -> bool:
    return slots.is_held(status.assignment) and not is_true(status, "Finished")


def used_by(status: TrainingRunStatus) -> int:
    return sum(map(bool, status.assignment.nodes)) + len(slots.lacking(status.assignment))


def nodes_kept_for(view: RunView) -> tuple[str, ...]:
    return view.status.reservation.nodes if view.status.reservation is not None else ()


def victims_of(view: RunView) -> tuple[str, ...]:
    return view.status.reservation.victims if view.status.reservation is not None else ()


class Bookings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.api = Api(NODES)
        self.api.checks = self.check
        self.api.classes = CLASSES
        for name in QUEUES:
            quotas = [{"gpuType": "Any", "nominalNodes": NOMINAL[name]}] if name in NOMINAL else []
            cohort = {"cohort": "lab"} if name in NOMINAL else {}
            self.api.queue(name, quotas=quotas, preemption=RULES, **cohort)
        self.seen = self.given = self.deaths = self.notices = 0
        self.broken: AssertionError | None = None
        self.ever_kept_from: set[tuple[str, str]] = set()
        self.operator = self.of_loop(self.begins())

    async def begins(self) -> Operator:
        return Operator(self.api, Tunables())

    def of_loop(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    # -- what always holds -----------------------------------------------------------------------

    def check(self, name: str, before: RunView) -> None:
        """After every write that the API server takes. Raised there, it would be one of many errors of a write."""
        try:
            self.check_truth(name, before)
        except AssertionError as error:
            self.broken = self.broken or error

    def check_truth(self, name: str, before: RunView) -> None:
        views = {other: self.api.view(other) for other in self.api.runs}
        run, status = views[name], views[name].status
        holding = [view for view in views.values() if holds(view.status)]
        booked = Counter(node for view in holding for node in view.status.assignment.nodes if node)
        assert all(count == 1 for count in booked.values()), f"booked twice: {booked}"
        used = dict.fromkeys(QUEUES, 0)
        for view in holding:
            assert view.spec is not None
            used[view.spec.queue] += used_by(view.status)
        assert used["own"] + used["lent"] <= sum(NOMINAL.values()), f"the cohort is overdrawn: {used}"
        # Of whoever is being written something else may have been decided by now.
        under_way = self.operator.store.writes.is_under_way
        kept = [view for view in views.values() if view.status.reservation is not None and not under_way(view.uid)]
        reserved = [node for view in kept for node in nodes_kept_for(view)]
        assert len(reserved) == len(set(reserved)), "a node is kept for two"
        new = {*status.assignment.nodes} - {*before.status.assignment.nodes} - {""}
        self.given += bool(new)
        for pod in self.api.pods.values() if new else ():
            mine = pod["metadata"]["labels"].get(names.LABEL_RUN_UID) == run.uid
            assert mine or has_ended(pod) or pod["spec"].get("nodeName") not in new, "somebody's pod is there still"
        # A gang that lost a node comes before those who wait.
        for view in kept if not holds(before.status) else ():
            # Nodes may be kept of somebody who had them as far as a pass could know, and is to give them up again.
            if run.uid != view.uid and run.uid not in victims_of(view):
                assert new.isdisjoint(nodes_kept_for(view)), "a node that is kept for another"
        self.ever_kept_from.update((view.uid, victim) for view in views.values() for victim in victims_of(view))
        notice = status.preemption
        if notice is not None and before.status.preemption is None:
            self.notices += 1  # be it late: whom it was for may have started meanwhile
            assert (notice.by, run.uid) in self.ever_kept_from, "somebody is sent away for nobody"
        if holds(before.status) and not holds(status):
            assert before.status.stop is not None or is_true(status, "Finished"), "nodes given back without a stop"

    def settle(self) -> None:
        """Let the operator do what it can with what it knows."""
        self.of_loop(self.api.clock.advance(0.05))
        for error in self.operator.failures:
            raise error
        if self.broken is not None:
            raise self.broken

    # -- what happens ----------------------------------------------------------------------------

    @initialize(filling=st.lists(ARRIVAL, min_size=2, max_size=4))
    def the_cluster_is_filled(self, filling: list[Arrival]) -> None:
        for arrival in filling:
            self.arrive(*arrival)
        for _ in range(4):
            self.hear()

    @rule(moments=st.lists(MOMENT, min_size=5, max_size=14))
    def things_happen(self, moments: list[tuple[Any, ...]]) -> None:
        for what, *details in moments:
            getattr(self, what)(*details)
            self.settle()

    @rule(arriving=st.lists(st.booleans(), max_size=6))
    def the_operator_dies_and_another_begins(self, arriving: list[bool]) -> None:
        """When its lease is over, by when nothing that it sent takes effect any more."""
        self.deaths += 1
        self.of_loop(self.operator.die())
        for request, arrives in zip([*self.api.on_their_way], arriving, strict=False):
            if arrives:
                request.carry_out()
        self.api.drop_late(all_of_them=True)
        self.api.calm_down()
        self.of_loop(self.api.clock.advance(SETTLES))
        self.operator = self.of_loop(self.begins())
        self.settle()

    def trouble(self, fates: list[Fate]) -> None:
        """What the next decisions meet with."""
        self.api.fates_of_decisions.extend(fates)

    def more_trouble(self, fates: list[Fate]) -> None:
        """What the next writes meet with, whatever they are."""
        self.api.fates.extend(fates)

    def arrive(self, nodes: int, queue: str, of_class: str, limit: str | None) -> None:
        fields: dict[str, Any] = {"queue": queue, "priorityClassName": of_class, "worker": "Disabled"}
        fields |= {"nodes": nodes, "image": "i", "command": ["train"]} | ({"timeLimit": limit} if limit else {})
        self.api.apply(f"run{self.seen}", **fields)
        self.seen += 1
        self.operator.hear("runs")

    def race(self, index: int, fates: list[Fate], comes: Arrival, seconds: int, answered: bool) -> None:
        """Nodes come free; whoever is to have them is being written when somebody comes who may go before it."""
        self.trouble(fates)
        self.edit(index, "end")
        self.hear()
        self.hear()
        self.arrive(*comes)
        self.settle()
        self.wait(seconds)
        self.settle()
        self.request(0, answered)

    def race_with_a_gang(self, index: int, fates: list[Fate], comes: Arrival, seconds: int) -> None:
        """Whoever comes is being given nodes when a gang loses one of its own."""
        self.hear()
        self.trouble(fates)
        self.arrive(*comes)
        self.settle()
        self.wait(seconds)
        held = [node for name in self.api.runs for node in self.api.view(name).status.assignment.nodes if node]
        if held and held[index % len(held)] in self.api.nodes:
            self.machine(held[index % len(held)])
            self.hear()
        self.request(0, answered=False)

    def request(self, index: int, answered: bool) -> None:
        """One that is on its way arrives."""
        self.api.arrive(index, answered=answered)

    def watch(self, kind: str, most: int) -> None:
        self.operator.hear(kind, most)

    def hear(self) -> None:
        """Kubelets act, and everything is heard of."""
        self.api.kubelets()
        self.operator.hear("runs")
        self.operator.hear("pods")
        self.settle()

    def edit(self, index: int, what: str) -> None:
        going = [name for name in self.api.runs if not is_true(self.api.view(name).status, "Finished")]
        if going and what == "end":
            self.api.end_pods(going[index % len(going)])
        elif going and what == "fail":
            self.api.fail_pod(going[index % len(going)])
        elif going and what == "delete":
            self.api.delete(going[index % len(going)])
        elif going:
            edit = {"cancel": {"cancel": True}, "suspend": {"suspend": True}, "resume": {"suspend": False}}
            self.api.apply(going[index % len(going)], **edit.get(what, {"timeLimit": "9h"}))

    def machine(self, name: str) -> None:
        """One is gone for good, or another comes in its place."""
        if name in self.api.nodes:
            self.api.lose_node(name)
        else:
            self.api.bring_node(name)
        self.operator.hear("nodes")

    def wait(self, seconds: int) -> None:
        self.of_loop(self.api.clock.advance(seconds))
        self.api.drop_late()

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
        finally:
            self.of_loop(self.operator.die())
            self.loop.close()
        event(f"{min(self.given, 12) // 4 * 4} or more times somebody got nodes")
        event(f"{min(self.deaths, 3)} or more operators died")
        event(f"somebody was sent away: {self.notices > 0}")

    def comes_to_rest(self) -> None:
        """Once the trouble is over nothing stays behind: no booking, and nobody waits without a word."""
        self.api.calm_down()
        for _ in range(12):
            self.wait(int(SETTLES) + 1)
            self.hear()
        assert not self.operator.store.writes.in_flight
        kept = [node for name in self.api.runs for node in nodes_kept_for(self.api.view(name))]
        assert len(kept) == len(set(kept)), "a node stays kept for two"
        for view in map(self.api.view, self.api.runs):
            assert view.spec is not None
            over = is_true(view.status, "Finished") or view.spec.suspend or view.spec.cancel
            assert over or holds(view.status) or view.status.queue.reason, f"{view.name} waits and is not told why"


TestBookings = pytest.mark.slow(Bookings.TestCase)
TestBookings.settings = settings(
    max_examples=examples(40, nightly=100),
    stateful_step_count=steps(5),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
