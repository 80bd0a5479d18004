"""What those who wait are told, and when each of them is to be told something."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_status import AdmissionStatus, QueueStatus, ResolvedStatus
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.pending_status import write_queue_status
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import Lag, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, after, held, node, reason, run, statuses, world
from support.preempting import passed

HOUR = 3600.0


def has(name: str, *nodes: str, limit: str | None = "1h") -> RunView:
    """A run that has nodes, for one hour from now on unless it has no ``limit``."""
    spec = {"timeLimit": limit} if limit else {}
    return run(name, len(nodes), status=held(*nodes) | {"last_admitted": NOW}, **spec)


def told(plan: ClusterPlan, name: str = "a") -> QueueStatus:
    return statuses(plan)[name].queue


@pytest.mark.parametrize(
    ("runs", "queue", "word", "message", "blockers", "start"),
    [
        ([has("r", "n0")], {}, "Resources", "needs 4 nodes, 3 fit: 1 booked", ("team/r",), NOW + HOUR),
        ([has("r", "n0", limit=None)], {}, "Resources", "needs 4 nodes, 3 fit: 1 booked", ("team/r",), None),
        ([has("r", "n0"), run("first", 4, at=-1.0)], {}, "Priority", "behind team/first", ("team/first",), None),
        (
            [has("r", "n0")],
            {"limits": {"maxRunningRuns": 1}},
            "RunningRunsLimit",
            "queue default lets at most 1 run hold nodes",
            ("team/r",),
            NOW + HOUR,
        ),
        (
            [],
            {"quotas": [{"gpuType": "Any", "nominalNodes": 3}]},
            "QuotaTooSmall",
            "queue default uses 0 of its 3 nodes; the run needs 4, and can never have more than 3",
            (),
            None,
        ),
        ([], {"stopPolicy": "Hold"}, "QueueHeld", "queue default admits nothing: its stopPolicy is Hold", (), None),
    ],
)
def test_a_run_that_waits_is_told_what_lacks_who_has_it_and_when_it_starts(
    runs: list[RunView], queue: dict[str, Any], word: str, message: str, blockers: tuple[str, ...], start: float | None
) -> None:
    """It asks for all four nodes."""
    status = told(passed(world([*runs, run("a", 4)], queues={"default": queue})))
    assert status.reason == word
    assert status.message.startswith(message)
    assert status.blocked_by == blockers
    assert word == "Priority" or status.estimated_start == start


TYPES = {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100"}}
ONLY_A100 = {"placement": {"gpuTypes": ["A100"]}}


@pytest.mark.parametrize(
    ("spec", "a100", "h100", "word", "message"),
    [
        ({}, 3, 3, "QuotaTooSmall", "queue default uses 1 of its 3 A100 nodes; the run needs 4, and can never have"),
        ({}, 3, 4, "Quota", "queue default uses 1 of its 4 H100 nodes; the run needs 4"),
        ({}, 4, 3, "Quota", "queue default uses 1 of its 4 A100 nodes; the run needs 4"),
        (ONLY_A100, 3, 4, "QuotaTooSmall", "queue default uses 1 of its 3 A100 nodes; the run needs 4, and can never"),
        (ONLY_A100, 0, 4, "QuotaTooSmall", "queue default has no quota for GPU type A100"),
        ({"elastic": {"min": 3}}, 3, 3, "Quota", "queue default uses 1 of its 3 A100 nodes"),
        ({"elastic": {"min": 4}, "nodes": 5}, 3, 3, "QuotaTooSmall", "queue default uses 1 of its 3 A100 nodes"),
    ],
)
def test_a_quota_in_use_is_waited_for_and_one_that_would_never_hold_the_run_is_too_small(
    spec: dict[str, Any], a100: int, h100: int, word: str, message: str
) -> None:
    """Of all types that it may have, and of an elastic gang in its smallest size. One node of each is held."""
    nodes = [node(f"{kind}-{at}", labels={"gpu": kind}) for kind in ("a100", "h100") for at in range(6)]
    quotas = [{"gpuType": kind, "nominalNodes": count} for kind, count in (("A100", a100), ("H100", h100)) if count]
    holders = [
        run(kind, status=held(f"{kind.lower()}-0") | {"resolved": ResolvedStatus(generation=1, gpu_type=kind)})
        for kind in TYPES
    ]
    snapshot = world([*holders, run("a", **{"nodes": 4} | spec)], nodes, queues={"default": {"quotas": quotas}})
    status = told(admit(snapshot, Tunables(gpu_types=TYPES), NOW))
    assert (status.reason, status.message[: len(message)]) == (word, message)


@pytest.mark.parametrize(
    ("nodes", "spec", "word"),
    [
        (4, {}, "Resources"),
        (3, {}, "Placement"),
        (4, {"placement": {"excludeNodes": ["n0"]}}, "Placement"),
        ([node("n0"), node("n1"), node("n2"), replace(node("n3"), unschedulable=True)], {}, "Resources"),
    ],
)
def test_what_an_idle_and_healthy_cluster_would_lack_too_is_a_matter_of_placement(
    nodes: Any, spec: dict[str, Any], word: str
) -> None:
    plan = passed(world([has("r", "n0"), run("a", 4, **spec)], nodes))
    assert told(plan).reason == word


AWAY = {"allocatable": {"cpu": 192_000, "memory": 2**41, "nvidia.com/gpu": 0}, "withheld": {"nvidia.com/gpu": 8}}


@pytest.mark.parametrize("spec", [{}, {"gpusPerNode": 8}], ids=["all GPUs", "eight"])
@pytest.mark.parametrize(
    ("others", "word"),
    [
        ([], "DevicesNotOffered"),
        ([has("r", "n0")], "DevicesNotOffered"),  # nor would it start were that one to end
        ([run("first", 4, at=-1.0)], "DevicesNotOffered"),
    ],
    ids=["alone", "beside another", "behind another"],
)
def test_a_run_that_waits_for_gpus_that_are_away_is_told_the_nodes(
    spec: dict[str, Any], others: list[RunView], word: str
) -> None:
    nodes = [node("n0"), node("n1"), node("n2"), node("n3", **AWAY)]
    status = told(passed(world([*others, run("a", 4, **spec)], nodes)))
    assert status.reason == word
    assert "1 offering no nvidia.com/gpu now (n3: its device plugin or driver is away)" in status.message


def test_a_run_whose_gpus_are_back_starts_with_all_of_them_and_none_without_before() -> None:
    snapshot = world([run("a", 4)], [node(f"n{number}", **AWAY) for number in range(4)])
    waits = after(snapshot, passed(snapshot))
    assert waits.runs[0].status.resolved.generation == 0
    back = replace(waits, nodes={f"n{number}": node(f"n{number}") for number in range(4)})
    resolved = statuses(passed(back))["a"].resolved
    assert (resolved.gpus_per_node, resolved.unused_gpus) == (8, "")


def test_a_run_that_could_start_if_another_ended_waits_for_that_and_not_for_gpus_that_are_away() -> None:
    nodes = [node("n0"), node("n1"), node("n2"), node("n3", **AWAY)]
    assert told(passed(world([has("r", "n0"), run("a", 3)], nodes))).reason == "Resources"


def test_positions_are_counted_by_queue_and_whoever_is_held_back_has_none() -> None:
    waiting = [run("a", 4, at=1.0), run("b", 4, at=2.0), run("c", 4, at=3.0, queue="q")]
    begins = run("later", 4, at=0.0, notBefore=to_rfc3339(NOW + 5))
    plan = passed(world([has("r", "n0"), begins, *waiting], queues={"default": {}, "q": {}}))
    assert {name: reason(plan, name)[0] for name in ("a", "b", "c", "later")} == {"a": 1, "b": 2, "c": 1, "later": 0}


def test_who_was_told_is_told_again_when_it_is_due_and_not_before() -> None:
    snapshot = world([has("r", "n0", limit=None), run("a", 4, at=1.0)])
    knows = after(snapshot, passed(snapshot))
    assert not statuses(passed(knows, NOW + 1))
    better = replace(knows, runs=(has("r", "n0", "n1", limit=None), knows.runs[1]))
    soon = passed(better, NOW + 1)
    assert not statuses(soon)
    assert soon.wake_at is not None
    assert soon.wake_at <= NOW + 10
    assert not statuses(passed(better, NOW + 9))
    assert told(passed(better, NOW + 10)).message.startswith("needs 4 nodes, 2 fit")


def test_amounts_that_two_runs_of_a_queue_are_told_are_of_one_moment() -> None:
    quota: dict[str, Any] = {"default": {"quotas": [{"gpuType": "Any", "nominalNodes": 4}]}}
    nodes = [node(f"n{number}") for number in range(8)]
    first = world([has("r", "n0", "n1", "n2", limit=None), run("q2", 2, at=1.0)], nodes, queues=quota)
    plan = passed(first)
    assert "uses 3 of its 4 nodes" in told(plan, "q2").message
    backfilled = replace(first, runs=(*after(first, plan).runs, has("q4", "n3", limit=None)))
    assert not statuses(passed(backfilled, NOW + 2)), "words about amounts alone come now and then"
    comes = replace(backfilled, runs=(*backfilled.runs, run("q6", 1, at=3.0)))
    assert not statuses(passed(comes, NOW + 0.5)).keys() - {"q6"}, "nobody is told more than once a second"
    both = passed(comes, NOW + 2)
    for name in ("q2", "q6"):
        assert "uses 4 of its 4 nodes" in told(both, name).message


def test_no_more_runs_are_told_in_one_cycle_than_the_settings_say() -> None:
    waiting = [run(f"w{number}", 4, at=float(number)) for number in range(5)]
    plan = passed(world([has("r", "n0"), *waiting]), told_per_pass=3)
    assert sorted(statuses(plan)) == ["w0", "w1", "w2"]
    assert plan.wake_at == NOW + 1


def test_in_an_overload_fewer_are_told_and_the_others_later() -> None:
    waiting = [run(f"w{number}", 4, at=float(number)) for number in range(12)]
    snapshot = world([has("r", "n0"), *waiting])
    slow = replace(snapshot, leadership=replace(snapshot.leadership, lag=Lag(write=2.0)))
    plan = passed(slow, told_per_pass=8)
    assert sorted(statuses(plan)) == ["w0", "w1"]
    assert plan.wake_at == NOW + 4


@pytest.mark.parametrize(
    ("before", "word", "position", "start", "since", "first_estimate"),
    [
        (AdmissionStatus(), WaitReason.RESOURCES, 1, None, 5.0, None),
        (AdmissionStatus(), WaitReason.RESOURCES, 1, 77.9, 5.0, 77.0),
        (AdmissionStatus(), WaitReason.QUEUE_HELD, 0, None, None, None),
        (AdmissionStatus(since=7.0), WaitReason.RESOURCES, 1, None, 7.0, None),
        (AdmissionStatus(since=7.0), WaitReason.QUEUE_HELD, 0, None, 7.0, None),
        (AdmissionStatus(since=7.0), WaitReason.PAUSED, 0, None, None, None),
        (AdmissionStatus(since=7.0), WaitReason.HELD_BY_ADMINISTRATOR, 0, None, None, None),
        (AdmissionStatus(since=7.0), WaitReason.BEGIN_TIME, 0, None, None, None),
        (AdmissionStatus(since=7.0), WaitReason.DEPENDENCY, 0, None, None, None),
        (AdmissionStatus(since=7.0), WaitReason.SINGLETON, 0, None, None, None),
        (AdmissionStatus(since=7.0, requeued_for="Preempted"), WaitReason.PAUSED, 0, None, 7.0, None),
        (AdmissionStatus(), WaitReason.BEGIN_TIME, 0, 77.9, None, None),
        (AdmissionStatus(), WaitReason.NODES_REFUSE_PODS, 0, 77.9, None, None),
        (AdmissionStatus(since=7.0), WaitReason.ADMISSION_REFUSED, 0, 77.9, 7.0, None),
        (AdmissionStatus(first_estimate=9.0), WaitReason.RESOURCES, 1, 77.0, 5.0, 9.0),
    ],
)
def test_a_run_grows_older_while_it_waits_for_its_turn_and_its_first_estimate_is_kept(
    before: AdmissionStatus,
    word: WaitReason,
    position: int,
    start: float | None,
    since: float | None,
    first_estimate: float | None,
) -> None:
    view = run("a", at=5.0, status={"admission": before})
    entry = Entry(view, view.status)
    entry.reason, entry.position = PendingReason(word, "", start=start), position
    write_queue_status(entry, QueueStatus(reason=word), NOW)
    assert entry.status.queue.reason == word
    admission = entry.status.admission
    assert (admission.since, admission.first_estimate) == (since, first_estimate)


def test_who_waits_for_nothing_any_more_is_told_nothing_but_that() -> None:
    view = run("a", status={"queue": QueueStatus(reason="Resources"), "admission": AdmissionStatus(since=7.0)})
    entry = Entry(view, view.status)
    write_queue_status(entry, QueueStatus(), NOW)
    assert entry.status == changed(view.status, queue=QueueStatus())
