"""Random arrivals of runs with classes, in queues with quotas that borrow from each other: what always holds."""

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.conditions import is_true
from lockstep.core.plan import Plan, StatusWrite
from support.world import World, node, spec

CLASSES = {"low": 10, "middle": 100, "high": 1000}
NODES = 5
NOMINAL = {"own": 3, "lent": 2, "free": 0}
"""Own nodes of the queues; ``free`` has no quotas, and so no part in the cohort."""
CHECKPOINT = {"shared": {"claimName": "lustre"}, "gracePeriod": "60s"}


class DiedError(Exception):
    """The operator's process ends here."""


@dataclass
class Shared(World):
    """Holds every write against the bookings and the quotas; its operator may die instead of one."""

    dies_in: int | None = None
    made: int = 0
    """Reservations so far."""

    def _write_status(self, name: str, status: TrainingRunStatus) -> None:
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                raise DiedError
        self.made += status.reservation is not None and self.status(name).reservation is None
        super()._write_status(name, status)
        self._check()

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        try:
            return super().reconcile(name, crash_after=crash_after)
        except DiedError:
            self.crash()
            return Plan()

    def admit(self, *, crash_after: int | None = None) -> tuple[StatusWrite, ...]:
        try:
            return super().admit(crash_after=crash_after)
        except DiedError:
            self.crash()
            return ()

    def holding(self) -> dict[str, list[str]]:
        """The nodes of every run that has not ended."""
        return {
            name: [each for each in view.status.assignment.nodes if each]
            for name, view in self.runs.items()
            if not is_true(view.status, "Finished")
        }

    def _check(self) -> None:
        booked = [each for nodes in self.holding().values() for each in nodes]
        assert len(booked) == len(set(booked)), "a node is booked twice"
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
ARRIVAL = st.tuples(st.just("arrive"), st.integers(1, 4), st.sampled_from(["low", "middle", "high", "high"]), QUEUES)
FILLING = st.lists(st.tuples(st.just("arrive"), st.integers(1, 3), st.just("low"), QUEUES), min_size=2, max_size=4)
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
        nodes, of_class, queue = details
        w.apply(f"run{seen}", spec(nodes, queue=queue, priorityClassName=of_class, checkpoint=CHECKPOINT))
    elif kind == "die":
        w.dies_in = details[0]
    elif kind == "wait":
        w.pass_time(details[0], step=350)
    elif w.runs:
        name = sorted(w.runs)[details[0] % len(w.runs)]
        view = w.runs[name]
        assert view.spec is not None
        if kind == "cancel":
            w.apply(name, view.spec.model_copy(update={"cancel": True}))
        else:
            for rank in range(view.spec.nodes):
                w.exit_child(name, rank, 0)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
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
