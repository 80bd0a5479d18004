"""Random arrivals of runs with classes, in queues with quotas that borrow from each other: what always holds."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.conditions import is_true
from support.dying_world import DyingWorld
from support.examples import examples
from support.world import node, spec

CLASSES = {"low": 10, "middle": 100, "high": 1000}
NODES = 8
NOMINAL = {"own": 3, "lent": 2, "free": 0}
"""Own nodes of the queues; ``free`` has no quotas, and so no part in the cohort."""
COHORT = ("own", "lent")
CHECKPOINT = {"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}


@dataclass
class Shared(DyingWorld):
    """Holds every write against the bookings and the quotas."""

    made: int = 0
    """Reservations so far."""

    def _written(self, name: str, before: TrainingRunStatus) -> None:
        status = self.status(name)
        self.made += status.reservation is not None and before.reservation is None
        self._check()
        if given := set(status.assignment.nodes) - set(before.assignment.nodes):
            self._check_promises(name, given)

    def _check(self) -> None:
        self.check_bookings()
        used = dict.fromkeys(NOMINAL, 0)
        for name, nodes in self.holding().items():
            view = self.runs[name]
            assert view.spec is not None
            used[view.spec.queue] += len(nodes)
        assert used["own"] + used["lent"] <= NOMINAL["own"] + NOMINAL["lent"], "the cohort is overdrawn"
        reserved = [
            each
            for view in self.runs.values()
            if view.status.reservation is not None and not is_true(view.status, "Finished")
            for each in view.status.reservation.nodes
        ]
        assert len(reserved) == len(set(reserved)), "a node is kept for two"

    def _check_promises(self, name: str, given: set[str]) -> None:
        """``name`` got nothing that others are to have for whom somebody makes room: no node and no quota."""
        promised = {
            other: view
            for other, view in self.runs.items()
            if other != name and view.status.reservation is not None and not is_true(view.status, "Finished")
        }
        used, going = 0, set[str]()
        for view in promised.values():
            assert view.spec is not None
            assert view.status.reservation is not None
            assert given.isdisjoint(view.status.reservation.nodes), "a node that was kept for another"
            going |= set(view.status.reservation.victims)
            used += view.spec.nodes if view.spec.queue in COHORT else 0
        for other, nodes in self.holding().items():
            view = self.runs[other]
            assert view.spec is not None
            used += len(nodes) if view.uid not in going and view.spec.queue in COHORT else 0
        assert used <= sum(NOMINAL.values()), "quota that was kept for another"


def shared(reclaim: str, min_runtime: str) -> Shared:
    w = Shared({f"n{i}": node(f"n{i}") for i in range(NODES)}, listens=True)
    w.classes = CLASSES
    rules = {"withinQueue": "LowerPriority", "minRuntime": min_runtime}
    for name in ("own", "lent"):
        quotas = [{"gpuType": "Any", "nominalNodes": NOMINAL[name]}]
        w.queue(name, cohort="lab", quotas=quotas, preemption={**rules, "reclaimWithinCohort": reclaim})
    w.queue("free", preemption=rules)
    return w


QUEUES = st.sampled_from(sorted(NOMINAL))
LIMITS = st.sampled_from([None, None, None, None, "1m", "1h"])
CLASS = st.sampled_from(["low", "middle", "high", "high"])
ARRIVAL = st.tuples(st.just("arrive"), st.integers(1, 4), CLASS, QUEUES, LIMITS)
FILLING = st.lists(
    st.tuples(st.just("arrive"), st.integers(1, 3), st.just("low"), QUEUES, st.none()), min_size=2, max_size=4
)
HISTORY = st.lists(
    st.one_of(
        ARRIVAL,
        ARRIVAL,
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("die"), st.integers(0, 6)),
        st.tuples(st.just("wait"), st.sampled_from([1, 700])),
    ),
    min_size=3,
    max_size=9,
)


def happen(w: Shared, what: tuple[Any, ...], seen: int) -> None:
    kind, *details = what
    if kind == "arrive":
        nodes, of_class, queue, limit = details
        fields = {"timeLimit": limit} if limit is not None else {}
        w.apply(f"run{seen}", spec(nodes, queue=queue, priorityClassName=of_class, checkpoint=CHECKPOINT, **fields))
    elif kind == "die":
        w.dies_in = details[0]
    elif kind == "wait":
        w.pass_time(details[0], step=350)
    elif w.runs:
        name = sorted(w.runs)[details[0] % len(w.runs)]
        view = w.runs[name]
        assert view.spec is not None
        if kind == "cancel":
            w.apply(name, changed(view.spec, cancel=True))
        else:
            for rank in range(view.spec.nodes):
                w.exit_child(name, rank, 0)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    filling=FILLING,
    history=HISTORY,
    reclaim=st.sampled_from(["Never", "LowerPriority", "Any"]),
    protected=st.sampled_from(["0s", "10m"]),
)
def test_nobody_is_booked_twice_and_no_run_is_sent_away_more_often_than_others_came_that_may(
    filling: list[tuple[Any, ...]], history: list[tuple[Any, ...]], reclaim: str, protected: str
) -> None:
    w = shared(reclaim, protected)
    for seen, what in enumerate([*filling, *history]):
        happen(w, what, seen)
        w.settle(rounds=8)
    w.pass_time(3000, step=500)

    assert w.made <= 2 * len(w.runs), "reservations come and go"
    event(f"{w.made} reservations")
    held = sum(1 for nodes in w.holding().values() if nodes)
    event(f"{held} hold nodes, {len(w.holding()) - held} wait")
    for name, view in w.runs.items():
        status, wants = view.status, view.spec
        assert wants is not None
        assert (status.reservation, status.preemption, status.stop) == (None, None, None), name
        mine = CLASSES[wants.priority_class_name or ""]
        may = 0
        for other in w.runs.values():
            assert other.spec is not None
            same = other.spec.queue == wants.queue
            above = CLASSES[other.spec.priority_class_name or ""] > mine
            may += other is not view and (above if same else wants.queue != "free" and other.spec.queue != "free")
        assert status.admission.preemptions <= may, name
        if status.admission.preemptions:
            event(f"somebody was sent away {status.admission.preemptions} times")
        start = status.start
        if status.admission.preemptions and start is not None and status.checkpoint.latest:
            assert start.resume is not None, "it began from nothing although it had saved"
    rest = {name: view.resource_version for name, view in w.runs.items() if w.holding().get(name)}
    w.admit()
    assert {name: view.resource_version for name, view in w.runs.items() if w.holding().get(name)} == rest


MIN_RUNTIME = 600.0
STEP = 50.0
AT_ONCE = 3 * STEP
"""As long as it takes to save and stop where nothing takes time, in passes."""
LOWER = st.sampled_from(["low", "middle"])
ENDLESS = st.tuples(st.integers(2, 3), LOWER, st.just("own"), st.none())
SHORT = st.tuples(st.integers(1, 2), LOWER, st.just("own"), st.sampled_from(["2m", "5m", "1h"]))


@pytest.mark.slow
@settings(max_examples=examples(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.tuples(ENDLESS, SHORT, SHORT),
    nodes=st.integers(4, 5),
    later=st.lists(st.one_of(SHORT, SHORT, SHORT, ENDLESS), min_size=8, max_size=16),
)
@example(  # one ends before its time, and its pod is there for a moment longer
    before=((2, "low", "own", None), (2, "low", "own", "2m"), (1, "low", "own", "2m")),
    nodes=5,
    later=[(2, "low", "own", "2m"), (1, "low", "own", "5m"), (2, "middle", "own", None), (1, "low", "own", "1h")],
)
def test_who_may_send_others_away_waits_no_longer_than_they_are_protected_and_take_to_go_whoever_comes_meanwhile(
    before: tuple[tuple[Any, ...], ...], nodes: int, later: list[tuple[Any, ...]]
) -> None:
    w = shared("Any", f"{MIN_RUNTIME:.0f}s")
    for seen, arrival in enumerate(before):
        happen(w, ("arrive", *arrival), seen)
        w.pass_time(STEP, step=STEP)
    w.apply("urgent", spec(nodes, queue="own", priorityClassName="high", checkpoint=CHECKPOINT))
    came, arrivals, told = w.now, iter(later), set[float]()
    since = [w.status(name).last_admitted or came for name, held in w.holding().items() if held]
    protected_until = max(since) + MIN_RUNTIME
    while not w.status("urgent").assignment.nodes:
        assert w.now <= protected_until + AT_ONCE, "who was there when it came is protected no more"
        arrival = next(arrivals, None)
        if arrival is not None:
            happen(w, ("arrive", *arrival), len(w.runs))
        w.pass_time(STEP, step=STEP)
        told |= {at for at in [w.status("urgent").queue.estimated_start] if at is not None}
    event(f"waited {(w.now - came) // 300 * 300:.0f} s")
    assert w.now <= max(told, default=w.now) + STEP, "later than it was ever told"
