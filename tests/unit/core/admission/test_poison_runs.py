"""A run that no pass can be decided with holds up nobody but itself."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.admission import engine_adapter, poison_runs
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.gang_pods import GangPodIndex
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.poison_runs import AGAIN, admit_isolating_failures
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, NodeView, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, node, pod, run, statuses, world


def broken(view: RunView) -> RunView:
    """The same with a spec such as no validation lets pass, so that a pass stumbles over it."""
    assert view.spec is not None
    return replace(view, spec=changed(view.spec, nodes="three"))


def test_everybody_else_is_admitted_and_the_run_is_told() -> None:
    snapshot = world([run("a", 1), broken(run("b", 1)), run("c", 2), broken(run("d", 1)), run("e", 1)])
    with pytest.raises(TypeError):
        admit(snapshot, Tunables(), NOW)
    memory = CycleMemory()
    plan = admit_isolating_failures(snapshot, Tunables(), NOW, memory)
    told = statuses(plan)
    assert {name: len(status.assignment.nodes) for name, status in told.items()} == {
        "a": 1,
        "c": 2,
        "e": 1,
        "b": 0,
        "d": 0,
    }
    for name in ("b", "d"):
        assert told[name].queue.reason == WaitReason.UNDECIDABLE
        assert "TypeError" in told[name].queue.message
    assert plan.wake_at is not None
    assert plan.wake_at <= NOW + AGAIN
    assert admit_isolating_failures(after(snapshot, plan), Tunables(), NOW + 1, memory).writes == ()


def test_a_run_that_is_mended_is_admitted() -> None:
    memory, good = CycleMemory(), run("a", 1)
    admit_isolating_failures(world([broken(good)]), Tunables(), NOW, memory)
    plan = admit_isolating_failures(world([good]), Tunables(), NOW + 1, memory)
    assert statuses(plan)["a"].assignment.nodes
    assert memory.excluded_runs == {}


@pytest.mark.parametrize("changes", [Changes(), Changes({}, {}, ())])
def test_it_is_tried_again_as_what_a_pass_fails_by_may_be_of_the_moment(
    monkeypatch: pytest.MonkeyPatch, changes: Changes
) -> None:
    """Although nothing of it has changed."""
    tried = []

    def fail_at_first(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> ClusterPlan:
        if now < NOW + AGAIN and any(view.name == "a" and view.spec for view in snapshot.runs):
            tried.append(now)
            raise ArithmeticError
        return admit(snapshot, tunables, now, memory)

    monkeypatch.setattr(poison_runs, "admit", fail_at_first)
    memory, snapshot = CycleMemory(), replace(world([run("a", 1), run("b", 9)]), changes=changes)
    for now in (NOW, NOW + 1, NOW + AGAIN - 1):
        assert (
            statuses(admit_isolating_failures(snapshot, Tunables(), now, memory))["a"].queue.reason
            == WaitReason.UNDECIDABLE
        )
    assert set(tried) == {NOW}
    assert statuses(admit_isolating_failures(snapshot, Tunables(), NOW + AGAIN, memory))["a"].assignment.nodes


def test_passes_that_fail_altogether_lose_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One does as a run is left out, another as it is tried again; nothing of it changes all the while."""
    memory, snapshot = CycleMemory(), replace(world([run("a", 1), run("b", 9)]), changes=Changes({}, {}, ()))

    def fail(those: ClusterSnapshot, tunables: Tunables, now: float, used: CycleMemory) -> ClusterPlan:
        if now > NOW or any(view.name == "a" and view.spec for view in those.runs):
            raise ArithmeticError
        plan = admit(those, tunables, now, used)
        if used is memory:
            raise ArithmeticError
        return plan

    monkeypatch.setattr(poison_runs, "admit", fail)
    for now in (NOW, NOW + AGAIN):
        with pytest.raises(ArithmeticError):
            admit_isolating_failures(snapshot, Tunables(), now, memory)
    monkeypatch.setattr(poison_runs, "admit", admit)
    plan = admit_isolating_failures(snapshot, Tunables(), NOW + AGAIN, memory)
    assert statuses(plan)["a"].assignment.nodes


def test_who_depends_on_it_is_not_told_that_it_is_gone() -> None:
    waits: dict[str, Any] = {"dependsOn": [{"name": "a"}], "onUnsatisfiable": "Fail"}
    snapshot = world([broken(run("a", 1)), run("b", 1, **waits)])
    told = statuses(admit_isolating_failures(snapshot, Tunables(), NOW, CycleMemory()))["b"]
    assert told.queue.reason == "Dependency"
    assert "a" in told.queue.message
    assert not told.assignment.nodes


def raising(of: Callable[..., Any], meets: Callable[[Any], bool]) -> Callable[..., Any]:
    """``of``, but that it raises for what ``meets``."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if any(meets(argument) for argument in args):
            raise ArithmeticError
        return of(*args, **kwargs)

    return wrapped


def is_poison(argument: Any) -> bool:
    """The run, or something of a cycle that has it, says what the cycle stumbles over."""
    view = getattr(argument, "run", argument)
    return isinstance(view, RunView) and view.spec is not None and view.spec.image == "poison"


ASSIGNED = held("n0", "n1")["assignment"]
BOUNDED: dict[str, Any] = {
    "quotas": [{"gpuType": "Any", "nominalNodes": 6}],
    "preemption": {"withinQueue": "LowerPriority"},
}
CLASSES = {"high": 100, "low": 1}
LIMIT = "1h"


def poisonous(**more: Any) -> RunView:
    return run(
        "a", 2, queue="q", image="poison", priorityClassName="low", timeLimit=LIMIT, status=held("n0", "n1") | more
    )


PLACES = [
    ("lockstep.core.admission.engine_adapter._counted", {}),  # the use of quotas
    ("lockstep.core.admission.engine_adapter.ends_by", {}),
    ("lockstep.core.admission.preemption_candidates.victim_of", {}),
    ("lockstep.core.admission.preemption_candidates.goes_anyway", {}),
    ("lockstep.core.admission.cache.run_index.holds_nodes", {}),  # the row of the run
    ("lockstep.core.admission.cache.run_index.lacks_nodes", {}),
    (
        "lockstep.core.admission.admit.replace_lost_nodes",
        {"assignment": changed(ASSIGNED, vacant=(1,), nodes=("n0", ""))},
    ),
    ("lockstep.core.admission.extensions._allowed", {}),
]


@pytest.mark.parametrize(("place", "status"), PLACES, ids=[place.rpartition(".")[2] for place, _ in PLACES])
def test_one_that_holds_nodes_keeps_them_and_its_quota_and_the_others_are_admitted(
    monkeypatch: pytest.MonkeyPatch, place: str, status: dict[str, Any]
) -> None:
    bad = poisonous(**status)
    if "extensions" in place:
        bad = replace(bad, spec=changed(bad.spec, time_limit="2h"))
    runs = [
        bad,
        run("b", 1, queue="q", priorityClassName="high"),
        run("c", 4, queue="q", priorityClassName="high", at=1.0),
    ]
    runs += [run("d", 1, at=2.0), run("e", 10, at=3.0)]
    snapshot = world(runs, 9, queues={"q": BOUNDED}, classes=CLASSES)
    module, _, name = place.rpartition(".")
    of = getattr(importlib.import_module(module), name)
    monkeypatch.setattr(place, raising(of, is_poison))
    with pytest.raises(ArithmeticError):
        admit(snapshot, Tunables(), NOW)
    memory = CycleMemory()
    plan = admit_isolating_failures(snapshot, Tunables(), NOW, memory)
    assert {*memory.excluded_runs} == {"uid-a"}
    told = statuses(plan)
    assert len(told["b"].assignment.nodes) == len(told["d"].assignment.nodes) == 1
    given = {node for name, written in told.items() if name != "a" for node in written.assignment.nodes}
    assert not given & {node for node in bad.status.assignment.nodes if node}
    assert told["c"].queue.reason != WaitReason.UNDECIDABLE
    assert told["c"].reservation is None, "nobody is sent away for it who is not known"
    assert told["a"].queue.reason == WaitReason.UNDECIDABLE
    assert "keeps its nodes" in told["a"].queue.message
    assert told["a"] == changed(bad.status, queue=told["a"].queue), "nothing else of it is written"
    following = admit_isolating_failures(after(snapshot, plan), Tunables(), NOW + 1, memory)
    assert "a" not in statuses(following)


def test_what_an_opaque_run_holds_counts_in_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    of = engine_adapter.ends_by
    monkeypatch.setattr(engine_adapter, "ends_by", raising(of, is_poison))
    runs = [poisonous(), run("b", 5, queue="q")]
    snapshot = world(runs, 9, queues={"q": BOUNDED}, classes=CLASSES)
    told = statuses(admit_isolating_failures(snapshot, Tunables(), NOW, CycleMemory()))
    assert told["b"].queue.reason == "Quota"
    assert not told["b"].assignment.nodes


def test_one_that_holds_nodes_is_decided_again_once_it_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    of = engine_adapter.ends_by
    monkeypatch.setattr(engine_adapter, "ends_by", raising(of, is_poison))
    memory, snapshot = CycleMemory(), world([poisonous(), run("b", 9)], queues={"q": BOUNDED}, classes=CLASSES)
    snapshot = after(snapshot, admit_isolating_failures(snapshot, Tunables(), NOW, memory))
    mended = replace(snapshot.runs[0], spec=changed(snapshot.runs[0].spec, image="image"))
    plan = admit_isolating_failures(replace(snapshot, runs=(mended, snapshot.runs[1])), Tunables(), NOW + 1, memory)
    assert memory.excluded_runs == {}
    assert statuses(plan)["a"].queue.reason == ""


@pytest.mark.parametrize("culprit", ["victim", "preemptor"])
def test_of_two_that_a_cycle_fails_with_together_the_one_to_blame_is_set_aside(
    monkeypatch: pytest.MonkeyPatch, culprit: str
) -> None:
    """Each is tried against many others."""
    victims = [run(f"v{n}", 1, status=held(f"n{n}")) for n in range(12)]
    preemptors = [run(f"p{n}", 1, at=n) for n in range(12)]

    def fail(snapshot: ClusterSnapshot, tunables: Tunables, now: float, memory: CycleMemory) -> ClusterPlan:
        known = {view.name for view in snapshot.runs if view.spec is not None and not view.unread}
        one, many = ("v3", "p") if culprit == "victim" else ("p3", "v")
        if one in known and any(name.startswith(many) for name in known):
            raise ArithmeticError
        return ClusterPlan()

    monkeypatch.setattr(poison_runs, "admit", fail)
    memory = CycleMemory()
    admit_isolating_failures(world([*victims, *preemptors], 12), Tunables(), NOW, memory)
    blamed = {"victim": {"uid-v3"}, "preemptor": {"uid-p3"}}[culprit]
    assert {*memory.excluded_runs} >= blamed
    assert len(memory.excluded_runs) <= 2


def odd_node(name: str) -> NodeView:
    odd: Any = ["no", "map"]
    return replace(node(name), labels=odd)


def test_a_node_that_every_cycle_fails_with_is_given_to_nobody() -> None:
    snapshot = world([run("a", 1), run("b", 2)], [node("n0"), odd_node("n1"), node("n2"), node("n3")])
    with pytest.raises(Exception, match="list"):
        admit(snapshot, Tunables(), NOW)
    memory = CycleMemory()
    told = statuses(admit_isolating_failures(snapshot, Tunables(), NOW, memory))
    assert {*memory.excluded_objects} == {("nodes", "n1")}
    assert {n for status in told.values() for n in status.assignment.nodes} == {"n0", "n2", "n3"}


def test_a_pod_that_every_cycle_fails_with_keeps_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = run("gone", 1)
    pods = [pod(gone, 1, "n3"), pod(gone, 0, "n1", message="poison")]
    of = GangPodIndex._count
    monkeypatch.setattr(GangPodIndex, "_count", raising(of, lambda it: getattr(it, "message", "") == "poison"))
    snapshot = world([run("a", 1), run("b", 1), run("c", 1)], 4, pods=pods)
    with pytest.raises(ArithmeticError):
        admit(snapshot, Tunables(), NOW)
    memory = CycleMemory()
    told = statuses(admit_isolating_failures(snapshot, Tunables(), NOW, memory))
    assert {*memory.excluded_objects} == {("pods", "gone-0-1")}
    assert {n for status in told.values() for n in status.assignment.nodes} == {"n0", "n2"}


def test_a_queue_that_every_cycle_fails_with_admits_nobody_and_the_others_do() -> None:
    runs = [run("a", 1, queue="q"), run("b", 1, queue="p"), run("c", 1), run("d", 1, queue="q", status=held("n0"))]
    snapshot = world(runs, 4, queues={"q": BOUNDED, "p": {}})
    odd: Any = 3
    snapshot = replace(snapshot, queues={**snapshot.queues, "q": replace(snapshot.queues["q"], spec=odd)})
    with pytest.raises(AttributeError):
        admit(snapshot, Tunables(), NOW)
    memory = CycleMemory()
    plan = admit_isolating_failures(snapshot, Tunables(), NOW, memory)
    told = statuses(plan)
    assert told["a"].queue.reason == WaitReason.UNDECIDABLE
    assert told["b"].assignment.nodes
    assert told["c"].assignment.nodes
    assert "d" not in told
    assert [write.name for write in plan.queues] == ["p"]
    assert {*memory.excluded_objects} == {("trainingqueues", "q")}


@pytest.mark.slow
def test_a_search_among_many_runs_costs_so_many_cycles_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many it is to find: beyond, the rest of their namespace waits."""
    good, bad = [run(f"g{n}") for n in range(50)], run("b")
    bad = replace(bad, namespace="hostile", spec=changed(bad.spec, image="poison"))
    many = [replace(bad, name=f"b{n}", uid=f"uid-b{n}") for n in range(1_000)]
    tried = []

    def fail(snapshot: ClusterSnapshot, *_: object) -> ClusterPlan:
        tried.append(snapshot)
        if any(map(is_poison, snapshot.runs)):
            raise ArithmeticError
        return ClusterPlan()

    monkeypatch.setattr(poison_runs, "admit", fail)
    memory = CycleMemory()
    admit_isolating_failures(world([*many, *good]), Tunables(), NOW, memory)
    assert len(tried) <= 180
    assert {entry.run.namespace for entry in memory.excluded_runs.values()} == {"hostile"}
    assert len(memory.excluded_runs) == 1_000


def test_those_that_are_tried_again_in_vain_cost_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it after a while, or since somebody edits them again and again."""
    bad = [poisonous(), replace(run("b", image="poison"), annotations={"a": "b"})]
    snapshot, tried, of = world([*bad, *(run(f"g{n}") for n in range(100))]), [], poison_runs.admit

    def fail(those: ClusterSnapshot, *rest: Any) -> ClusterPlan:
        tried.append(those)
        if any(map(is_poison, those.runs)):
            raise ArithmeticError
        return of(those, *rest)

    monkeypatch.setattr(poison_runs, "admit", fail)
    memory = CycleMemory()
    admit_isolating_failures(snapshot, Tunables(), NOW, memory)
    assert {*memory.excluded_runs} == {"uid-a", "uid-b"}
    edited = replace(snapshot, runs=(bad[0], replace(bad[1], annotations={}), *snapshot.runs[2:]))
    for moment, seen in ((NOW + 1, edited), (NOW + 2 * AGAIN, edited)):
        tried.clear()
        admit_isolating_failures(seen, Tunables(), moment, memory)
        assert {*memory.excluded_runs} == {"uid-a", "uid-b"}
        assert len(tried) <= 5
    mended = replace(edited, runs=(bad[0], run("b"), *snapshot.runs[2:]))
    admit_isolating_failures(mended, Tunables(), NOW + 4 * AGAIN, memory)
    assert {*memory.excluded_runs} == {"uid-a"}, "nobody is set aside for another"


def test_a_cycle_that_failed_leaves_nothing_half_done_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it fails with may be what the cycle before kept."""
    memory = CycleMemory()
    kept = memory.run_index

    def fail(those: ClusterSnapshot, tunables: Tunables, now: float, used: CycleMemory) -> ClusterPlan:
        if used.run_index is kept:
            raise KeyError
        return admit(those, tunables, now, used)

    monkeypatch.setattr(poison_runs, "admit", fail)
    plan = admit_isolating_failures(world([run("a", 1)]), Tunables(), NOW, memory)
    assert statuses(plan)["a"].assignment.nodes
    assert memory.excluded_runs == {}
