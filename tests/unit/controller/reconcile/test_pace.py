"""One run costs only itself: however often it changes and however long it takes, the others are not delayed."""

import gc
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome
from lockstep.controller.kube.workqueue import run_key
from lockstep.controller.reconcile import pace as limits
from lockstep.controller.reconcile.pace import LARGE_GANG, LOOK_SECONDS, RESTS, ProcessorTime, RunPace
from lockstep.controller.runtime.tallies import Tallies
from lockstep.core import decide as core
from lockstep.core.model.plan import Event, Plan
from lockstep.core.model.reasons import ActionWord, EventReason
from lockstep.core.model.snapshot import RunSnapshot
from lockstep.core.model.tunables import Tunables
from support.manual_clock import ManualClock
from support.shaky_api import NAMESPACE, Api, Json, Operator
from support.world import World, node, spec

WILD, CALM = run_key(NAMESPACE, "wild"), run_key(NAMESPACE, "calm")


class Processor:
    """Of the processor, what tests say was used."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Scene:
    """Two runs of one node each. What is decided of one of them is as a test says; ``looks`` at them are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = Api(["n0", "n1", "n2"])
        self.api.queue("default")
        self.operator = Operator(self.api, Tunables())
        self.processor, self.tallies = Processor(), Tallies()
        self.pace = RunPace(self.api.clock, self.tallies, self.processor)
        executor = self.operator.executor
        executor.pace = executor.objects.pace = executor.admissions.pace = self.pace
        self.spoil: Callable[[RunSnapshot, Plan], Plan] = lambda _, plan: plan
        self.looks: list[tuple[str, float]] = []
        self.writes: list[tuple[str, float]] = []
        self.api.checks = lambda name, _: self.writes.append((name, self.api.clock.now()))
        monkeypatch.setattr("lockstep.controller.reconcile.reconcile.decide", self._decide)

    def _decide(self, snapshot: RunSnapshot, tunables: Tunables, now: float) -> Plan:
        self.looks.append((snapshot.run.name, now))
        plan = core.decide(snapshot, tunables, now)
        return self.spoil(snapshot, plan) if snapshot.run.name == "wild" else plan

    async def begin(self, *names: str) -> None:
        for name in names:
            settings: dict[str, Any] = {"queue": "default", "worker": "Disabled", "image": "i", "command": ["train"]}
            self.api.apply(name, nodes=1, **settings)
        await self.live(2)
        self.writes.clear()
        self.looks.clear()

    async def live(self, seconds: float, step: float = 0.5) -> None:
        """Everything is heard of while so much time passes."""
        for _ in range(int(seconds / step)):
            self.api.kubelets()
            for kind in self.api.changes:
                self.operator.hear(kind)
            await self.api.clock.advance(step)
            for error in self.operator.failures:
                raise error


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    scene = Scene(monkeypatch)
    yield scene
    await scene.operator.die()


def never_content(snapshot: RunSnapshot, plan: Plan) -> Plan:
    """Each look finds another status than the one before."""
    told = int(snapshot.run.status.spares or "0")
    return replace(plan, status=changed(plan.status or snapshot.run.status, spares=f"{told + 1}"))


@pytest.mark.slow
async def test_a_run_whose_status_never_comes_to_rest_is_written_at_a_pace_and_to_its_last_change(scene: Scene) -> None:
    await scene.begin("wild")
    scene.spoil = never_content
    scene.operator.queue.add(WILD)
    await scene.live(600)
    assert limits.WRITES_AT_ONCE < len(scene.writes) <= limits.WRITES_AT_ONCE + 10 * limits.WRITES_A_MINUTE + 2
    assert scene.api.view("wild").status.spares == str(len(scene.writes))
    assert scene.tallies.paced["Writes"] > 0
    scene.spoil = lambda snapshot, plan: replace(plan, status=changed(snapshot.run.status, spares="the end"))
    await scene.live(5)
    assert scene.api.view("wild").status.spares == "the end"


async def test_what_admission_cycles_write_of_a_run_counts_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    charged = list[str]()
    monkeypatch.setattr(scene.pace, "wrote", charged.append)
    scene.api.apply("wild", nodes=1, queue="default", worker="Disabled", image="i", command=["train"])
    await scene.live(2)
    assert scene.api.view("wild").status.assignment.nodes
    assert charged == [WILD] * len(scene.writes)


async def test_no_run_waits_for_long_for_what_admission_cycles_write_of_it(scene: Scene) -> None:
    for _ in range(1000):
        scene.pace.wrote_in_cycle(WILD)
    assert 0 < scene.pace.rest(WILD) <= 60 / limits.WRITES_A_MINUTE


@pytest.mark.slow
async def test_it_delays_no_other_run(scene: Scene) -> None:
    await scene.begin("wild")
    scene.spoil = never_content
    scene.operator.queue.add(WILD)
    await scene.live(300)
    scene.api.apply("calm", nodes=1, queue="default", worker="Disabled", image="i", command=["train"])
    await scene.live(2)
    assert any(pod["metadata"]["name"].startswith("calm") for pod in scene.api.pods.values())


@pytest.mark.slow
async def test_a_run_that_waits_says_so_once(scene: Scene) -> None:
    await scene.begin("wild")
    scene.spoil = never_content
    said = scene.operator.said
    scene.operator.queue.add(WILD)
    await scene.live(590)
    assert said == [EventReason.PACED]


@pytest.mark.slow
async def test_one_whose_events_never_end_waits_too(scene: Scene) -> None:
    await scene.begin("wild")
    noise = Event("Warning", EventReason.POD_LOST, ActionWord.REPLACE_POD, "again")
    again = scene.api.clock.now
    scene.spoil = lambda _, plan: replace(plan, events=(noise,) * 5, wake_at=again() + 0.1)
    scene.operator.queue.add(WILD)
    await scene.live(600)
    assert len(scene.looks) <= limits.EVENTS_AT_ONCE + 10 * limits.EVENTS_A_MINUTE + 2
    assert scene.tallies.paced["Events"] > 0


async def test_pods_are_made_at_a_pace_and_a_stop_does_not_wait_for_it(scene: Scene) -> None:
    await scene.begin("wild")
    for _ in range(100):
        scene.pace.made(WILD, 1, 1)
    assert scene.pace.rest_of_pods(WILD) > 60
    scene.api.apply("wild", cancel=True)
    await scene.live(5)
    assert scene.api.view("wild").status.state == "Cancelled"


async def test_pods_that_had_to_wait_are_made_in_the_end(scene: Scene) -> None:
    for _ in range(int(limits.LEAST_GANG * (limits.PODS_AT_ONCE + 1)) + 1):
        scene.pace.made(WILD, 1, 1)
    await scene.begin("wild")
    assert not scene.api.pods
    assert scene.operator.said == [EventReason.PACED]
    await scene.live(60)
    assert len(scene.api.pods) == 1


REFUSALS = [
    ApiError(403, "Forbidden", "exceeded quota"),
    UnknownOutcome("create pods: 500 InternalError: failed calling webhook", 0.0),
]


def refuse(scene: Scene, refusal: KubeError) -> list[str]:
    """All pods are refused from now on, of which the names are returned."""
    asked = list[str]()

    def create(body: Json) -> bytes:
        asked.append(body["metadata"]["name"])
        raise refusal

    scene.api.create_pod = create  # type: ignore[method-assign]
    return asked


async def gang_of_five(scene: Scene) -> None:
    for number in (3, 4):
        scene.api.bring_node(f"n{number}")
    settings: dict[str, Any] = {"queue": "default", "worker": "Disabled", "image": "i", "command": ["train"]}
    scene.api.apply("wild", nodes=5, **settings)
    await scene.live(1)


@pytest.mark.slow
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_pods_that_are_refused_are_not_held_against_a_gang_as_made(scene: Scene, refusal: KubeError) -> None:
    asked = refuse(scene, refusal)
    await gang_of_five(scene)
    await scene.live(600)
    assert len(asked) > 5 * limits.PODS_AT_ONCE
    assert EventReason.PACED not in scene.operator.said
    assert scene.tallies.paced["Pods"] == scene.tallies.paced["Refused"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_run_that_is_looked_at_all_the_time_has_its_pods_refused_at_a_pace(
    scene: Scene, refusal: KubeError
) -> None:
    asked = refuse(scene, refusal)
    await gang_of_five(scene)
    for _ in range(600):
        scene.operator.queue.add(WILD)
        await scene.live(0.5)
    assert 5 * limits.REFUSED_AT_ONCE < len(asked) <= 5 * (limits.REFUSED_AT_ONCE + 5 * limits.REFUSED_A_MINUTE + 1)
    assert scene.operator.said.count(EventReason.PACED) == 1
    assert scene.tallies.paced["Refused"] > 0


@pytest.mark.slow
async def test_a_run_whose_look_took_long_is_looked_at_again_after_a_hundred_times_as_long(scene: Scene) -> None:
    await scene.begin("wild", "calm")

    def slow(_: RunSnapshot, plan: Plan) -> Plan:
        scene.processor.seconds += 2 * LOOK_SECONDS
        return plan

    scene.spoil = slow
    for _ in range(int(3.5 * 2 * LOOK_SECONDS * RESTS)):
        scene.operator.queue.add(WILD)
        scene.operator.queue.add(CALM)
        await scene.live(1)
    at = [when for name, when in scene.looks if name == "wild"]
    assert len(at) == 4
    assert all(later - earlier >= 2 * LOOK_SECONDS * RESTS for earlier, later in pairwise(at))
    assert sum(name == "calm" for name, _ in scene.looks) > 300, "it goes on meanwhile"
    assert scene.tallies.paced["Processor"] == 4
    assert scene.operator.said == [EventReason.PACED]


@pytest.mark.parametrize(("gang", "rests"), [(0, True), (LARGE_GANG, True), (4 * LARGE_GANG, False)])
def test_a_larger_gang_may_take_as_much_longer_as_it_is_larger(gang: int, rests: bool) -> None:
    used = iter([0.0, 2 * LOOK_SECONDS])
    pace = RunPace(ManualClock(), Tallies(), lambda: next(used))
    with pace.measured("run/team/wide", gang):
        pass
    assert (pace.rest("run/team/wide") > 0) is rests


async def test_a_look_that_raises_has_cost_as_much(scene: Scene) -> None:
    await scene.begin("wild")

    def fails(*_: object) -> Plan:
        scene.processor.seconds += 1
        raise AssertionError("not foreseen")

    scene.spoil = fails
    scene.operator.queue.add(WILD)
    await scene.live(50)
    assert len(scene.looks) == 1


def cancels(scene: Scene) -> None:
    scene.api.apply("wild", cancel=True)


def suspends(scene: Scene) -> None:
    scene.api.apply("wild", suspend=True)


def comes_to_its_limit(scene: Scene) -> None:
    scene.api.apply("wild", timeLimit="20s")


def is_deleted(scene: Scene) -> None:
    wild = scene.api.runs["wild"]
    wild["metadata"] |= {"deletionTimestamp": "1970-01-01T00:00:00Z", "finalizers": ["somebody/waits"]}
    scene.api.apply("wild", timeLimit="24h")


ORDERS = [cancels, suspends, comes_to_its_limit, is_deleted]


def takes(scene: Scene, seconds: float) -> Callable[[RunSnapshot, Plan], Plan]:
    def slow(_: RunSnapshot, plan: Plan) -> Plan:
        scene.processor.seconds += seconds
        return plan

    return slow


async def resting(scene: Scene, spoil: Callable[[RunSnapshot, Plan], Plan]) -> None:
    await scene.begin("wild")
    await scene.live(3)
    assert len(scene.api.pods) == 1
    scene.spoil = spoil
    scene.operator.queue.add(WILD)
    await scene.live(1)
    assert scene.pace.rest(WILD) > 60
    scene.looks.clear()


@pytest.mark.parametrize("order", ORDERS)
async def test_a_run_that_rests_obeys_whoever_may_stop_it(scene: Scene, order: Callable[[Scene], None]) -> None:
    await resting(scene, takes(scene, 1.0))
    order(scene)
    await scene.live(40)
    assert not scene.api.pods
    assert not scene.looks, "nothing is decided for it meanwhile"


async def test_one_that_owes_writes_for_minutes_obeys_too(scene: Scene) -> None:
    await scene.begin("wild")
    await scene.live(3)
    for _ in range(limits.WRITES_AT_ONCE + 60):
        scene.pace.wrote(WILD)
    scene.looks.clear()
    scene.api.apply("wild", suspend=True)
    await scene.live(40)
    assert not scene.api.pods
    assert not scene.looks


async def test_a_run_that_rests_is_left_alone_where_nobody_asks_for_anything(scene: Scene) -> None:
    await resting(scene, takes(scene, 1.0))
    scene.writes.clear()
    for _ in range(60):
        scene.operator.queue.add(WILD)
        await scene.live(1)
    assert len(scene.api.pods) == 1
    assert not scene.writes


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 13), (1.0, 1)])
async def test_looks_for_stop_orders_are_seldom_and_rest_as_long_as_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, seconds: float, most: int
) -> None:
    asked = list[float]()

    def obeying(*_: object) -> Plan:
        asked.append(scene.api.clock.now())
        scene.processor.seconds += seconds
        return Plan()

    await resting(scene, takes(scene, 1.0))
    monkeypatch.setattr("lockstep.controller.reconcile.reconcile.obeying_alone", obeying)
    for _ in range(60):
        scene.operator.queue.add(WILD)
        await scene.live(1)
    assert 1 <= len(asked) <= most


@pytest.mark.slow
async def test_what_a_run_has_cost_is_forgotten_with_it(scene: Scene) -> None:
    await scene.begin("wild")
    scene.spoil = never_content
    scene.operator.queue.add(WILD)
    await scene.live(60)
    assert scene.pace.remembered > 0
    scene.api.delete("wild")
    await scene.live(10)
    assert scene.pace.remembered == 0


@pytest.mark.slow
def test_the_collector_of_garbage_is_nobodys_look() -> None:
    processor = ProcessorTime()
    gc.freeze()  # what other tests have left takes far longer to look at
    try:
        kept = [[number] for number in range(300_000)]
        begun = processor()
        for _ in range(5):
            gc.collect()
        took = processor() - begun
    finally:
        gc.unfreeze()
    assert kept
    assert took < 0.05


class MeteredWorld(World):
    """Holds every run to the pace, on the clock of the world."""

    def __init__(self, nodes: int) -> None:
        super().__init__({f"n{number}": node(f"n{number}") for number in range(nodes)})
        self.clock = ManualClock()
        self.pace = RunPace(self.clock, Tallies(), lambda: 0.0)

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        self.clock._now = self.now
        gang = len((plan.status or self.runs[name].status).assignment.nodes)
        if plan.creates:
            self.pace.made(name, len(plan.creates), gang)
        self.pace.count_events(name, len(plan.events), gang)
        assert self.pace.rest(name) == 0
        assert self.pace.rest_of_pods(name) == 0
        super()._execute(name, plan, crash_after)

    def _write_status(self, name: str, status: TrainingRunStatus) -> None:
        """Those of admission cycles too."""
        self.clock._now = self.now
        self.pace.wrote(name)
        super()._write_status(name, status)


def gang(w: MeteredWorld, nodes: int, **fields: object) -> None:
    w.apply("one", spec(nodes, **fields))
    w.settle()
    w.pass_time(4)
    assert sorted(w.children("one")) == list(range(nodes))


def large(w: MeteredWorld) -> None:
    gang(w, 300)


def recovers_again_and_again(w: MeteredWorld) -> None:
    gang(w, 2)
    for _ in range(8):  # within a minute
        w.train("one", 5)
        w.exit_child("one", 0, 1)
        w.pass_time(7)


def loses_half_of_its_nodes(w: MeteredWorld) -> None:
    gang(w, 16)
    for number in range(2):
        w.lose_node(f"n{number}")
        del w.nodes[f"n{number}"]
    w.pass_time(10)


def is_suspended_and_resumed_and_cancelled(w: MeteredWorld) -> None:
    gang(w, 8)
    for _ in range(3):
        for suspended in (True, False):
            w.runs["one"] = replace(w.runs["one"], spec=changed(w.runs["one"].spec, suspend=suspended))
            w.pass_time(10)
    w.runs["one"] = replace(w.runs["one"], spec=changed(w.runs["one"].spec, cancel=True))
    w.pass_time(40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "nodes"),
    [
        (large, 300),
        (recovers_again_and_again, 4),
        (loses_half_of_its_nodes, 24),
        (is_suspended_and_resumed_and_cancelled, 8),
    ],
)
def test_no_honest_gang_is_held_up(history: Callable[[MeteredWorld], None], nodes: int) -> None:
    history(MeteredWorld(nodes))


async def test_progress_that_the_operator_itself_is_to_write_each_second_holds_nobody_up() -> None:
    clock = ManualClock()
    pace = RunPace(clock, Tallies(), progress_write_interval=1.0)
    for _ in range(600):
        pace.wrote(CALM)
        await clock.advance(1)
        assert pace.rest(CALM) == 0
