"""Runs as the engine knows them: who waits for which nodes for how long, and who holds which until when."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import CheckpointStatus, DivergedSaves, QuarantinedCheckpoint, SavedCheckpoint
from lockstep.api.preemption_status import PreemptionStatus, ReservationStatus
from lockstep.api.recovery_status import AttemptStatus, ExcludedNode, RecoveryStatus
from lockstep.api.run_status import (
    AdmissionStatus,
    AssignmentStatus,
    KueueStatus,
    LeavingStatus,
    ResolvedStatus,
    StopStatus,
)
from lockstep.core.admission.cache.entry import Entry
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cycle_state import CycleState
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job
from lockstep.core.admission.engine_adapter import (
    ENDING,
    ends_by,
    group_of,
    job_of,
    left_no_type,
    lengths_of,
    other_jobs,
    running_jobs,
    running_of,
    unsettled,
)
from lockstep.core.model.assignment import assigned, vacated
from lockstep.core.model.snapshot import ClusterSnapshot, NodeView, PodPhase, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import ACCEPTED, FINISHED, NOW, held, node, pod, run, world

HOUR = 3600.0
GPU_TYPES = {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100"}}
MIXED = [node(f"{gpu}-{number}", labels={"gpu": gpu}) for gpu in ("a100", "h100") for number in (0, 1)]


def cycle(*runs: RunView, nodes: list[NodeView] | int = 4, **more: Any) -> CycleState:
    snapshot = world(runs, nodes, **more)
    return CycleState(snapshot, Tunables(gpu_types=GPU_TYPES), NOW, CycleMemory())


def job(view: RunView, nodes: list[NodeView] | int = 4, **more: Any) -> Job:
    state = cycle(view, nodes=nodes, **more)
    return job_of(state.run_index.rows[view.uid], state)


@pytest.mark.parametrize(
    ("spec", "limits", "used", "lengths"),
    [
        ({}, {}, 0, (NO_LIMIT, NO_LIMIT)),
        ({}, {}, 600, (NO_LIMIT, NO_LIMIT)),
        ({"timeLimit": "2h"}, {}, 0, (2 * HOUR, 2 * HOUR)),
        ({"timeLimit": "2h"}, {}, 3600, (HOUR, HOUR)),
        ({"timeLimit": "2h"}, {}, 7199, (60.0, 60.0)),
        ({"timeLimit": "40s"}, {}, 0, (40.0, 40.0)),
        ({"timeLimit": "40s"}, {}, 39, (40.0, 40.0)),
        ({"timeLimit": "90s", "minTimeLimit": "30s"}, {}, 0, (30.0, 90.0)),
        ({"timeLimit": "2h", "minTimeLimit": "1h"}, {}, 0, (HOUR, 2 * HOUR)),
        ({"timeLimit": "2h", "minTimeLimit": "1h"}, {}, 3600, (60.0, HOUR)),
        ({"timeLimit": "2h"}, {"maxTimeLimit": "1h"}, 0, (HOUR, HOUR)),
        ({}, {"maxTimeLimit": "1h"}, 0, (HOUR, HOUR)),
        ({}, {"defaultTimeLimit": "1h", "maxTimeLimit": "2h"}, 0, (HOUR, HOUR)),
        ({"timeLimit": "2h"}, {"defaultTimeLimit": "1h"}, 0, (2 * HOUR, 2 * HOUR)),
    ],
)
def test_a_job_takes_what_is_left_of_the_time_that_its_run_and_its_queue_allow(
    spec: dict[str, Any], limits: dict[str, Any], used: int, lengths: tuple[float, float]
) -> None:
    view = run("a", status={"held_seconds": used}, **spec)
    state = cycle(view, queues={"default": {"limits": limits}})
    queue = state.snapshot.queues["default"].spec
    assert lengths_of(Entry(view, view.status), queue) == lengths
    found = job_of(state.run_index.rows["uid-a"], state)
    assert (found.shortest, found.duration) == lengths


@pytest.mark.parametrize(
    ("spec", "quotas", "options"),
    [
        ({}, [], ["any"]),
        ({"placement": {"gpuTypes": ["H100"]}}, [], ["h100"]),
        ({}, ["H100"], ["h100"]),
        ({}, ["H100", "A100"], ["h100", "a100"]),
        ({}, ["H100", "Any"], ["h100", "a100"]),
        ({}, ["Any"], ["any"]),
        ({}, ["B200"], []),
        ({"placement": {"gpuTypes": ["A100"]}}, ["H100"], ["a100"]),
    ],
)
def test_a_job_may_have_nodes_of_the_types_that_it_or_its_queue_names_in_that_order(
    spec: dict[str, Any], quotas: list[str], options: list[str]
) -> None:
    queue = {"quotas": [{"gpuType": gpu_type, "nominalNodes": 2} for gpu_type in quotas]}
    view = run("a", 2, **spec)
    state = cycle(view, nodes=MIXED, queues={"default": queue})
    eligible = {gpu: state.index.with_labels({"gpu": gpu}) for gpu in ("a100", "h100")}
    eligible["any"] = state.index.everything
    row = state.run_index.rows["uid-a"]
    assert [option.eligible for option in job_of(row, state).options] == [eligible[name] for name in options]
    assert bool(left_no_type(row.entry, row.terms, state)) is not bool(options)


KEPT = ReservationStatus(time=NOW, deadline=NOW)
ELASTIC = {"elastic": {"min": 1}}


def saved_by(*nodes: int, **checkpoint: Any) -> dict[str, Any]:
    """Attempt 1 had the first of these numbers of nodes, and each of them saved in a tier."""
    attempts = tuple(AttemptStatus(number=at, nodes=count) for at, count in enumerate(nodes, start=1))
    latest = tuple(SavedCheckpoint(tier=f"tier-{at.number}", step=9, attempt=at.number) for at in attempts)
    return {"attempts": attempts, "checkpoint": CheckpointStatus(**{"latest": latest} | checkpoint)}


DOUBTED = QuarantinedCheckpoint(tier="shared", step=9, attempt=1, reason="x", time=NOW)
OF_ATTEMPT_1 = SavedCheckpoint(tier="shared", step=9, attempt=1)
OF_NOBODY = SavedCheckpoint(tier="shared", step=9)
ORIGIN = ResolvedStatus(start_root="/shared-checkpoints/other")


@pytest.mark.parametrize(
    ("view", "sizes"),
    [
        (run("a", 4), [(4, False)]),
        (run("a", 3, **ELASTIC), [(3, False)]),
        (run("a", 4, **ELASTIC), [(4, False), (3, True)]),
        (run("a", 4, elastic={"min": 2, "multipleOf": 2}), [(4, False), (2, True)]),
        (run("a", 4, elastic={"min": 4}), [(4, False)]),
        (run("a", 4, status={"reservation": KEPT}, **ELASTIC), [(4, False)]),
        (run("a", 4, status=saved_by(4), **ELASTIC), [(4, False)]),
        (run("a", 4, status=saved_by(3), **ELASTIC), [(4, False), (3, True)]),
        (run("a", 4, status=saved_by(2), **ELASTIC), [(4, False), (2, True)]),
        (run("a", 4, status=saved_by(2, 2), **ELASTIC), [(4, False), (2, True)]),
        (run("a", 4, status=saved_by(2, 3), **ELASTIC), [(4, False)]),
        (run("a", 4, status=saved_by(3), elastic={"min": 2, "multipleOf": 2}), [(4, False)]),
        (run("a", 4, status=saved_by(3), elastic={"min": 4}), [(4, False)]),
        (run("a", 4, status=saved_by(3, latest=(OF_NOBODY,)), **ELASTIC), [(4, False)]),
        (run("a", 4, status=saved_by(3, ceiling=8), **ELASTIC), [(4, False)]),
        (run("a", 4, status=saved_by(3, quarantined=(DOUBTED,)), **ELASTIC), [(4, False)]),
        *(
            (run("a", 4, status=saved_by(3, latest=(OF_ATTEMPT_1,), diverged=(wrong,)), **ELASTIC), sizes)
            for wrong, sizes in (
                (DivergedSaves(step=9, attempt=1), [(4, False)]),
                (DivergedSaves(step=10, attempt=1), [(4, False), (3, True)]),
            )
        ),
        (run("a", 4, status={"resolved": ORIGIN}, **ELASTIC), [(4, False)]),
        (run("a", 4, status={"resolved": ORIGIN, **saved_by(3)}, **ELASTIC), [(4, False), (3, True)]),
    ],
)
def test_an_elastic_run_may_start_with_what_is_free_or_else_with_as_many_as_saved_what_it_has(
    view: RunView, sizes: list[tuple[int, bool]]
) -> None:
    """Of four nodes one is somebody's."""
    found = job(view, 4, pods=[pod(run("gone"), 0, "n0")]).options
    assert [(option.count, option.fallback) for option in found] == sizes


AVOIDS = RecoveryStatus(excluded_nodes=(ExcludedNode(node="n0", reason="x"),))


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (run("b", 2), True),
        (run("b", 2, nice=5), True),
        (run("b", 3), False),
        (run("b", 2, queue="q"), False),
        (run("b", 2, timeLimit="1h"), False),
        (run("b", 2, deadline="2030-01-01T00:00:00Z"), False),
        (run("b", 2, placement={"excludeNodes": ["n0"]}), False),
        (run("b", 2, status={"recovery": AVOIDS}), False),
        (run("b", 2, **ELASTIC), False),
    ],
)
def test_runs_that_ask_for_the_same_are_one_group(other: RunView, alike: bool) -> None:
    first = run("a", 2)
    state = cycle(first, other, queues={"q": {}})
    groups = [group_of(Entry(view, view.status), state) for view in (first, other)]
    assert (groups[0] is groups[1]) is alike


GRANTED = AdmissionStatus(time_limit=3600)
STOPS = StopStatus(reason="x", time=NOW, deadline=NOW + 30)
NOTICE = PreemptionStatus(by="uid-b", notice_time=NOW, deadline=NOW + 40)


@pytest.mark.parametrize(
    ("status", "ends", "limited"),
    [
        ({}, NOW - 100 + NO_LIMIT, False),
        ({"admission": GRANTED}, NOW - 100 + 3600, True),
        ({"admission": GRANTED, "held_seconds": 600}, NOW - 100 + 3000, True),
        ({"admission": GRANTED, "held_seconds": 9999}, NOW - 100 - 6399, True),
        ({"admission": GRANTED, "stop": STOPS}, NOW + 30, True),
        ({"stop": STOPS}, NOW + 30, True),
        ({"preemption": NOTICE}, NOW + 40, True),
        ({"preemption": NOTICE, "stop": STOPS}, NOW + 30, True),
        ({"admission": GRANTED, "last_admitted": None}, NOW + 3600, True),
    ],
)
def test_a_run_holds_its_nodes_until_its_time_limit_or_its_stop(
    status: dict[str, Any], ends: float, limited: bool
) -> None:
    view = run("a", status={**held("n0", "n1"), "last_admitted": NOW - 100, "admission": AdmissionStatus()} | status)
    found = running_of(view, cycle(view), NOW)
    assert (found.ends, found.limited, found.count) == (ends, limited, 2)
    assert ends_by(view, 60, NOW) == (NOW if "last_admitted" in status else NOW - 100) + 60 - view.status.held_seconds


@pytest.mark.parametrize(
    ("status", "ends", "limited"),
    [
        ({"last_admitted": NOW - 3600 - 59}, NOW - 59, True),
        ({"last_admitted": NOW - 3600 - 60}, NOW + NO_LIMIT, False),
        ({"last_admitted": NOW - 9000, "stop": STOPS}, NOW + 30, True),
        ({"stop": changed(STOPS, deadline=NOW - 59)}, NOW - 59, True),
        ({"stop": changed(STOPS, deadline=NOW - 60)}, NOW + NO_LIMIT, False),
        ({"preemption": changed(NOTICE, deadline=NOW - 60)}, NOW + NO_LIMIT, False),
    ],
)
def test_who_is_long_overdue_is_counted_on_no_more(status: dict[str, Any], ends: float, limited: bool) -> None:
    view = run("a", status={**held("n0", "n1"), "last_admitted": NOW - 100, "admission": GRANTED} | status)
    memory = CycleMemory()
    for now in (NOW - 100.0, NOW):  # what was found of it before is remembered
        [found] = running_jobs(CycleState(world([view]), Tunables(), now, memory))
    assert (found.ends, found.limited) == (ends, limited)


def test_lost_nodes_count_for_the_quota_and_what_kueue_reserved_for_none() -> None:
    lost = run("a", 2, status={"assignment": vacated(assigned(AssignmentStatus(), ["n0", "n1"]), [1], NOW)})
    kueues = run("b", status=held("n2") | {"kueue": KueueStatus(queue="q")})
    state = cycle(lost, kueues)
    found = [running_of(view, state, NOW) for view in (lost, kueues)]
    assert [(each.queue, each.count, each.nodes.bit_count()) for each in found] == [("default", 2, 1), ("", 1, 1)]


def test_a_write_under_way_uses_what_it_may_have_got() -> None:
    state = cycle(run("a", 2), run("b"), nodes=MIXED, in_flight={"uid-a": frozenset({"h100-0", "h100-1"})})
    [found] = unsettled(state, NOW)
    assert (found.uid, found.gpu_type, found.count, found.limited) == ("uid-a", "H100", 2, False)
    assert state.index.names(found.nodes) == ("h100-0", "h100-1")
    assert not [*unsettled(cycle(run("a")), NOW)]


GONE = run("gone")
AWAY = replace(node("n0"), ready=False, ready_changed_at=NOW - 100)


@pytest.mark.parametrize(
    ("snapshot", "left"),
    [
        (world([run("a", status=held("n0"))]), []),
        (world([], pods=[pod(GONE, 0, "n0")]), [("n0", NOW + NO_LIMIT, False)]),
        (world([], pods=[pod(GONE, 0, "n0", deleting=True)]), [("n0", NOW + ENDING, True)]),
        (world([], pods=[pod(GONE, 0, "n0", deleting=True, killed_at=NOW + 30)]), [("n0", NOW + 30 + ENDING, True)]),
        (world([], pods=[pod(GONE, 0, "n0", deleting=True, killed_at=NOW - ENDING)]), [("n0", NOW + NO_LIMIT, False)]),
        (world([], in_flight={"uid-b": frozenset({"n1"})}), [("n1", NOW + NO_LIMIT, False)]),
        (world([], [AWAY, node("n1")]), [("n0", NOW + 800, True)]),
        (world([], [replace(AWAY, ready_changed_at=NOW - 900), node("n1")]), []),
    ],
)
def test_nodes_that_nobody_known_holds_are_held_by_somebody_all_the_same(
    snapshot: ClusterSnapshot, left: list[tuple[str, float, bool]]
) -> None:
    state = CycleState(snapshot, Tunables(), NOW, CycleMemory())
    known = [running_of(view, state, NOW) for view in snapshot.runs]
    found = [*other_jobs(state, known, NOW)]
    assert [(*state.index.names(each.nodes), each.ends, each.limited) for each in found] == left


LEAVES = LeavingStatus(nodes=2, until=NOW + 40)
OVER = {**held("n0", "n1"), "conditions": (ACCEPTED, FINISHED)}


@pytest.mark.parametrize(
    ("status", "phase", "left"),
    [
        ({"leaving": LEAVES}, PodPhase.PENDING, [("uid-a", ("n0",), NOW + 40 + ENDING, True)]),
        ({}, PodPhase.RUNNING, [("uid-a", ("n0",), NOW + NO_LIMIT, False)]),
        (
            {"leaving": changed(LEAVES, until=NOW - ENDING)},
            PodPhase.RUNNING,
            [("uid-a", ("n0",), NOW + NO_LIMIT, False)],
        ),
        ({"leaving": LEAVES}, PodPhase.FAILED, []),
    ],
)
def test_a_run_that_has_ended_is_named_for_what_its_pods_hold_and_is_nobody_who_could_be_stopped(
    status: dict[str, Any], phase: PodPhase, left: list[tuple[str, tuple[str, ...], float, bool]]
) -> None:
    over = run("a", 2, status=OVER | status)
    state = cycle(over, pods=[pod(over, 0, "n0", phase)])
    found = [*other_jobs(state, [], NOW)]
    assert [(each.left_by, state.index.names(each.nodes), each.ends, each.limited) for each in found] == left
    assert {(each.uid, each.queue, each.count) for each in found} <= {("", "", 0)}


def test_what_is_kept_for_debugging_counts_in_the_quotas_of_its_queue() -> None:
    kept = {"leaving": LEAVES, "recovery": RecoveryStatus(debug_until=NOW + 10)}
    over = run("a", 2, status=OVER | kept | {"resolved": ResolvedStatus(gpu_type="H100")}, queue="q")
    state = cycle(over, pods=[pod(over, 0, "n0"), pod(over, 1, "n1")])
    (found,) = other_jobs(state, [], NOW)
    assert (found.uid, found.queue, found.gpu_type, found.count) == ("", "q", "H100", 2)


def test_a_deadline_is_the_latest_end_of_its_job() -> None:
    spec = job(run("a", deadline="1970-01-01T01:00:00Z", timeLimit="10m"))
    assert (spec.latest_end, spec.latest_start) == (HOUR, HOUR - 600)
