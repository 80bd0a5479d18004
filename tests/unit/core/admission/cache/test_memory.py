"""What cycles remember spares work and decides nothing: with and without it the same is decided."""

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.crowd import with_changes
from bench.forgetful import SettledEstimates, anew
from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission import admit as admitting
from lockstep.core.admission import scheduling
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache import pending_queue as line
from lockstep.core.admission.cache import status_throttle
from lockstep.core.admission.cache.ledger import Ledger, taken
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.run_index import RunRow
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.node_set import EMPTY
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.settings import Weights
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, NodeFailure, PodPhase, RunView
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.placement.node_index import NodeIndex
from support.admission import NOW, after, node, pod, run, statuses, world
from support.examples import examples

WEIGHTS = Weights(priority_class=1000, age=1000, fair_share=1000)
TUNABLES = Tunables(
    admission=AdmissionSettings(WEIGHTS, max_age=2000, admissions=3, told_per_pass=4, told_per_second=0.3)
)
QUEUES = {
    "a": {"cohort": "c", "quotas": [{"gpuType": "Any", "nominalNodes": 3}]},
    "b": {"cohort": "c", "quotas": [{"gpuType": "Any", "nominalNodes": 2}], "limits": {"maxTimeLimit": "2h"}},
}
CLASSES = {"high": 100, "low": 1}
Change = Callable[[ClusterSnapshot, Random], ClusterSnapshot]


@pytest.fixture(autouse=True, scope="module")
def _few_are_near() -> Iterator[None]:
    """The third in line is far from the head of its queue."""
    with patch.object(status_throttle, "NEAR", 2):
        yield


def fresh_run(chance: Random, now: float) -> RunView:
    fields: dict[str, object] = {
        "queue": chance.choice(["default", "a", "b", "nowhere"]),
        "priorityClassName": chance.choice([None, "high", "low"]),
        "timeLimit": chance.choice([None, "1h", "3h"]),
        "dependsOn": chance.choice([[], [], [{"name": "r0"}]]),
        "singleton": chance.choice([None, None, "one"]),
        "notBefore": chance.choice([None, None, "1970-01-01T00:20:00Z"]),
        "elastic": chance.choice([None, None, {"min": 1}]),
        "gpusPerNode": chance.choice([None, 8, 16]),
    }
    nodes = chance.randint(1, 4)
    if nodes == 1:
        del fields["elastic"]
    wanted = {name: value for name, value in fields.items() if value is not None}
    return run(f"r{chance.randrange(10**9)}", nodes, at=now, **wanted)


def arrive(snapshot: ClusterSnapshot, chance: Random) -> ClusterSnapshot:
    return replace(snapshot, runs=(*snapshot.runs, fresh_run(chance, NOW + chance.randrange(100))))


def leave(snapshot: ClusterSnapshot, chance: Random) -> ClusterSnapshot:
    if not snapshot.runs:
        return snapshot
    gone = chance.choice(snapshot.runs)
    return replace(snapshot, runs=tuple(view for view in snapshot.runs if view is not gone))


def edit(snapshot: ClusterSnapshot, chance: Random) -> ClusterSnapshot:
    """A label of a run's namespace, an annotation, or a queue."""
    match chance.randrange(6):
        case 0:
            queues = dict(snapshot.queues)
            changes = {
                "stopPolicy": chance.choice(["None", "None", "Hold"]),
                "visibility": chance.choice(["Full", "OwnNamespace"]),
                "preemption": {"withinQueue": chance.choice(["Never", "LowerPriority"]), "minRuntime": "1m"},
                "limits": {"maxPendingRuns": chance.choice([1, 3, 50]), "gpuHoursPerDay": 5, "onGpuHours": "Block"},
            }
            queues["a"] = replace(queues["a"], spec=TrainingQueueSpec.model_validate({**QUEUES["a"], **changes}))
            return replace(snapshot, queues=queues)
        case 4:
            return replace(snapshot, gpu_hours={name: chance.randrange(10) for name in ("a", "b")})
        case 5:
            runs = tuple(edited(view, chance) if chance.random() < 0.3 else view for view in snapshot.runs)
            times = {view.uid: NOW + chance.randrange(100) for view in runs if view.generation > 1}
            return replace(snapshot, runs=runs, edited=times)
        case 1:
            return replace(snapshot, priority_classes={**CLASSES, "high": chance.choice([0, 2, 200])})
        case 2:
            shares = {("a", "team", ""): chance.random(), ("default", "team", ""): chance.random()}
            return replace(snapshot, fair_shares=shares)
        case _:
            words = {"lockstep.dev/paused": chance.choice(["true", "false"])}
            runs = tuple(replace(view, annotations=words) if chance.random() < 0.3 else view for view in snapshot.runs)
            return replace(snapshot, runs=runs)


def edited(view: RunView, chance: Random) -> RunView:
    """Another wish, another queue, or done with."""
    assert view.spec is not None
    change: dict[str, object] = chance.choice(
        [{"nodes": chance.randint(1, 4), "elastic": None}, {"queue": "b"}, {"suspend": True}, {"time_limit": "2h"}]
    )
    generation = view.generation + (chance.random() < 0.5)  # it is to be judged, and never is
    return replace(view, generation=generation, spec=changed(view.spec, **change), deleting=chance.random() < 0.2)


def shake_nodes(snapshot: ClusterSnapshot, chance: Random) -> ClusterSnapshot:
    nodes = dict(snapshot.nodes)
    name = chance.choice([*nodes])
    match chance.randrange(4):
        case 0:
            nodes[name] = replace(nodes[name], ready=not nodes[name].ready, ready_changed_at=NOW)
        case 1:
            failures = [NodeFailure(f"team/{i}", NOW - chance.randrange(86_400), "Crash") for i in range(2)]
            nodes[name] = replace(nodes[name], failures=tuple(failures), suspect="yes")
        case 2:
            new = node(f"n{chance.randrange(100)}")
            nodes[new.name] = new
        case _:
            nodes[name] = replace(nodes[name], unschedulable=not nodes[name].unschedulable)
    return replace(snapshot, nodes=nodes)


def shake_pods(snapshot: ClusterSnapshot, chance: Random) -> ClusterSnapshot:
    pods = {one.uid: one for one in snapshot.gang_pods if chance.random() < 0.7}
    for view in snapshot.runs:
        if chance.random() < 0.2:
            phase = chance.choice([PodPhase.RUNNING, PodPhase.FAILED])
            where = chance.choice([*snapshot.nodes])
            new = pod(view, 0, where, phase, deleting=chance.random() < 0.5)
            pods[new.uid] = new
    return replace(snapshot, gang_pods=tuple(pods.values()))


def carried_out(snapshot: ClusterSnapshot, plan: ClusterPlan) -> ClusterSnapshot:
    """Runs that nothing was written of are the same objects as before, as they are in the operator's store."""
    written = statuses(plan)
    runs = (replace(view, status=written[view.name]) if view.name in written else view for view in snapshot.runs)
    told = {write.name: replace(snapshot.queues[write.name], status=write.status) for write in plan.queues}
    return replace(snapshot, runs=tuple(runs), queues={**snapshot.queues, **told})


def reorder(snapshot: ClusterSnapshot, chance: Random) -> ClusterSnapshot:
    """The same runs, heard of in another order."""
    return replace(snapshot, runs=tuple(chance.sample(snapshot.runs, len(snapshot.runs))))


CHANGES: list[Change] = [arrive, arrive, leave, edit, shake_nodes, shake_pods, reorder]


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_a_pass_that_remembers_decides_as_one_that_does_not(seed: int, steps: int) -> None:
    chance, memory, now = Random(seed), CycleMemory(), NOW
    snapshot = seen = world([fresh_run(chance, NOW) for _ in range(6)], 5, queues=QUEUES, classes=CLASSES)
    for _ in range(steps):
        for _ in range(chance.randrange(3)):
            snapshot = chance.choice(CHANGES)(snapshot, chance)
        if chance.random() < 0.2 and snapshot.runs:
            snapshot = replace(snapshot, in_flight={chance.choice(snapshot.runs).uid: frozenset(["n1"])})
        now += chance.choice([0.0, 1.0, 40.0, 700.0, 90_000.0, -5.0])
        tunables = replace(TUNABLES, mode=chance.choice([Mode.ACTIVE] * 5 + [Mode.NO_NEW_ADMISSIONS]))
        said = with_changes(seen, snapshot) if chance.random() < 0.7 else replace(snapshot, changes=Changes())
        snapshot = seen = said
        plan = admit(snapshot, tunables, now, memory)
        assert plan == admit(snapshot, tunables, now, anew(memory))
        snapshot = carried_out(snapshot, plan)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.sampled_from(["hold_of", "backfill", "queue_writes"]))
@example(466_759, "queue_writes")  # two wait their turn that the cluster is too small for, and others end
@example(95, "backfill")
def test_a_pass_that_broke_off_leaves_nothing_behind(seed: int, where: str) -> None:
    chance, memory, now = Random(seed), CycleMemory(), NOW
    module = {"hold_of": line, "backfill": scheduling, "queue_writes": admitting}[where]
    snapshot = world([fresh_run(chance, NOW) for _ in range(12)], 2, queues=QUEUES, classes=CLASSES)
    for _ in range(6):
        snapshot = chance.choice(CHANGES)(snapshot, chance)
        now += chance.choice([1.0, 700.0])
        if chance.random() < 0.5:
            shares = {(queue, "team", ""): chance.random() for queue in ("a", "b", "default")}
            snapshot = replace(snapshot, fair_shares=shares)  # some are to overtake others
            calls, most, works = count(), chance.randrange(8), getattr(module, where)

            def breaks(*args: Any, works: Any = works, calls: Any = calls, most: int = most, **more: Any) -> Any:
                if where != "hold_of" or next(calls) >= most:  # rather in the middle of them
                    raise RuntimeError(where)
                return works(*args, **more)

            with pytest.MonkeyPatch.context() as patch, suppress(RuntimeError):
                patch.setattr(module, where, breaks)
                admit(snapshot, TUNABLES, now, memory)
            now += 1.0
        plan = admit(snapshot, TUNABLES, now, memory)
        assert plan == admit(snapshot, TUNABLES, now, anew(memory))
        snapshot = carried_out(snapshot, plan)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["come", "go", "wait"]), max_size=8), st.integers(0, 2**32))
def test_a_pass_over_runs_that_nothing_holds_back_decides_as_one_that_remembers_nothing(
    events: list[str], seed: int
) -> None:
    """Then the line of one cycle is the very line of the next, but for who comes and goes."""
    chance, memory, now = Random(seed), CycleMemory(), NOW
    snapshot = world([run(f"a{at}", 2, at=NOW + at, queue=chance.choice("ab")) for at in range(6)], 3, queues=QUEUES)
    for at, event in enumerate(events):
        if event == "come":
            new = run(f"b{at}", chance.randint(1, 2), at=now, queue=chance.choice("ab"))
            snapshot = replace(snapshot, runs=(*snapshot.runs, new))
        elif event == "go":
            snapshot = leave(snapshot, chance)
        now += 1.0
        plan = admit(snapshot, TUNABLES, now, memory)
        assert plan == admit(snapshot, TUNABLES, now, anew(memory))
        snapshot = carried_out(snapshot, plan)


def test_what_a_pass_remembers_of_a_run_goes_with_the_run() -> None:
    memory = CycleMemory()
    runs = [run(f"r{number}", 8) for number in range(3)]
    admit(world(runs), Tunables(), NOW, memory)
    assert set(memory.run_index.rows) == {"uid-r0", "uid-r1", "uid-r2"}
    admit(world(runs[:1]), Tunables(), NOW, memory)
    assert set(memory.run_index.rows) == {"uid-r0"}


def test_those_that_are_gone_are_not_kept_for_when_they_would_have_been_judged() -> None:
    memory, tunables = CycleMemory(), Tunables(admission=AdmissionSettings(changed(WEIGHTS, age=0)))
    for at in range(300):  # each is held until some day, and replaced by another
        held = run(f"r{at}", 1, notBefore="2030-01-01T00:00:00Z")
        admit(world([held], 1), tunables, NOW + at, memory)
    gc.collect()
    assert sum(isinstance(thing, RunRow) for thing in gc.get_objects()) < 150


def test_who_has_an_estimate_no_more_is_found_to_have_none() -> None:
    memory, now = CycleMemory(start_estimates=SettledEstimates(NOW, {"uid-c": NOW + 60})), NOW
    snapshot = world([run("a", 3, timeLimit="1h"), run("b", 3), run("c", 3)], 3)
    for _ in range(4):  # until nobody is to be told anything
        now += 1.0
        snapshot = carried_out(snapshot, admit(snapshot, TUNABLES, now, memory))
    row = memory.run_index.rows["uid-c"]
    assert row.reported is not None
    assert row.reported.start == NOW + 60
    memory.start_estimates = SettledEstimates(NOW, {})
    admit(snapshot, TUNABLES, now + 1, memory)
    assert row.reported.start is None


NODES = [node(f"n{number}") for number in range(4)]


@pytest.mark.parametrize(
    ("then", "now", "suspects", "rules_hold", "nodes_hold"),
    [
        (world([], NODES), NOW, {}, True, True),
        (world([run("a")], NODES), NOW + 9, {}, True, True),
        (world([], NODES), NOW - 1, {}, False, False),
        (world([], NODES, queues={"q": {}}), NOW, {}, False, False),
        (world([], NODES, classes={"high": 1}), NOW, {}, False, False),
        (world([], NODES[:3]), NOW, {}, False, False),
        (world([], [*NODES[:3], node("n3", labels={"new": "label"})]), NOW, {}, True, False),
        (world([], NODES), NOW, {"n0": "failed twice"}, True, False),
    ],
)
def test_what_was_found_out_counts_until_what_it_rests_on_changes(
    then: ClusterSnapshot, now: float, suspects: dict[str, str], rules_hold: bool, nodes_hold: bool
) -> None:
    memory, found = CycleMemory(), list[list[object]]()
    for snapshot, at, known in ((world([], NODES), NOW, {}), (then, now, suspects)):
        memory.observe(snapshot, TUNABLES, at)
        memory.observe_nodes(NodeIndex.from_nodes(snapshot.nodes, {}, {}, {}, memory.index), known, EMPTY)
        found.append([each("key", object) for each in (memory.by_rules, memory.by_nodes)])
    before, after_it = found
    assert [one is other for one, other in zip(before, after_it, strict=True)] == [rules_hold, nodes_hold]


@given(st.integers(0, 2**32))
def test_what_is_taken_is_the_same_by_name_and_as_sets(seed: int) -> None:
    chance, memory = Random(seed), CycleMemory()
    snapshot = world([fresh_run(chance, NOW) for _ in range(6)], 5)
    for _ in range(4):
        snapshot = after(snapshot, admit(snapshot, TUNABLES, NOW))
        snapshot = shake_pods(snapshot, chance)
        if chance.random() < 0.5:
            snapshot = replace(snapshot, in_flight={"uid-r1": frozenset(["n1", "gone"])})
        index = NodeIndex.from_nodes(snapshot.nodes, {}, {}, {})
        ledger = Ledger.from_snapshot(snapshot)
        booked, ending = taken(snapshot, memory.observe(snapshot, TUNABLES, NOW), index, memory.pods)
        assert set(index.names(booked)) == ledger.booked_nodes & snapshot.nodes.keys()
        assert set(index.names(ending)) == ledger.ending & snapshot.nodes.keys()
