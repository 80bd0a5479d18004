"""All runs by what a cycle does with them, kept up by what has changed since the cycle before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import PreemptionStatus, ReservationStatus
from lockstep.api.recovery_status import ExcludedNode, RecoveryStatus
from lockstep.api.run_status import AdmissionStatus, AssignmentStatus, QueueStatus, ResolvedStatus
from lockstep.core.admission.cache.run_index import HeldNodes, RunIndex, RunRow, with_some, without_some
from lockstep.core.model.assignment import assigned, vacated
from lockstep.core.model.snapshot import RunView
from support.admission import ACCEPTED, FINISHED, NOW, held, run

KEPT = ReservationStatus(time=NOW, deadline=NOW)
NOTICE = PreemptionStatus(by="uid-b", notice_time=NOW, deadline=NOW)
AVOIDS = RecoveryStatus(excluded_nodes=(ExcludedNode(node="n0", reason="x", until=NOW),))
TOLD = QueueStatus(reason="Resources", message="", updated=NOW)
LOST = vacated(assigned(AssignmentStatus(), ["n0", "n1"]), [1], NOW)


def asking(**status: Any) -> RunView:
    return replace(run("a", status=status), annotations={"lockstep.dev/test-only": "true"})


def granted(asked: str, **more: Any) -> RunView:
    """A run that has nodes for an hour at most, was given them when it asked for ``asked``, and asks for an hour."""
    known = AdmissionStatus(time_limit=3600, asked_limit=asked, **more)
    return run("a", status=held("n0") | {"admission": known}, timeLimit="1h")


def lists_of(run_index: RunIndex) -> dict[str, dict[str, RunRow]]:
    return {
        "pending": run_index.pending,
        "asked": run_index.asked,
        "taking": run_index.taking,
        "test-only": run_index.test_only,
        "reserving": run_index.reserving,
        "noticed": run_index.noticed,
        "holding": run_index.holding,
        "relimited": run_index.relimited,
        "unlimited": run_index.unlimited,
        "lacking": run_index.lacking,
        "related": run_index.related,
        "named to Kueue": run_index.named_to_kueue,
        "avoiding": run_index.avoiding,
        "outdated": run_index.outdated,
    }


@pytest.mark.parametrize(
    ("view", "lists"),
    [
        (run("a"), {"pending"}),
        (run("a", singleton="one"), {"pending", "related"}),
        (run("a", dependsOn=[{"name": "b"}]), {"pending", "related"}),
        (run("a", status={"admission": AdmissionStatus(met=("b Succeeded",))}), {"pending", "related"}),
        (run("a", status={"recovery": AVOIDS}), {"pending", "avoiding"}),
        (run("a", status={"reservation": KEPT}), {"pending", "reserving"}),
        (run("a", status={"queue": TOLD}), {"pending"}),
        (run("a", suspend=True), set()),
        (run("a", status={"queue": TOLD}, suspend=True), {"outdated"}),
        (replace(run("a"), spec=None), set()),
        (replace(run("a"), labels={"kueue.x-k8s.io/queue-name": "q"}), {"pending", "named to Kueue"}),
        (asking(), {"asked", "test-only"}),
        (run("a", status=held("n0"), timeLimit="1h"), {"holding", "taking"}),
        (run("a", status=held("n0")), {"holding", "taking", "unlimited"}),
        (run("a", status=held("n0") | {"preemption": NOTICE}), {"holding", "taking", "unlimited", "noticed"}),
        (run("a", 2, status={"assignment": LOST}), {"holding", "taking", "unlimited", "lacking"}),
        (granted("1h"), {"holding", "taking"}),
        (granted("30m"), {"holding", "taking", "relimited"}),
        (granted("1h", limited_by="its queue"), {"holding", "taking", "relimited"}),
        (run("a", status=held("n0") | {"conditions": (ACCEPTED, FINISHED)}), set()),
    ],
)
def test_a_run_is_listed_with_those_of_whom_a_cycle_asks_the_same(view: RunView, lists: set[str]) -> None:
    run_index = RunIndex()
    run_index.update([run("b"), view])
    assert {name for name, rows in lists_of(run_index).items() if "uid-a" in rows} == lists
    run_index.update([])
    assert not any(lists_of(run_index).values())
    assert not run_index.rows
    assert not run_index.by_age


def test_nodes_held_and_runs_pending_are_counted_by_queue_and_gpu_type() -> None:
    def has(name: str, *nodes: str, queue: str = "q", gpu_type: str = "H100") -> RunView:
        return run(name, status=held(*nodes) | {"resolved": ResolvedStatus(gpu_type=gpu_type)}, queue=queue)

    runs = [has("a", "n0", "n1"), has("b", "n2"), has("c", "n3", gpu_type="A100"), run("d", queue="q"), run("e")]
    run_index = RunIndex()
    run_index.update(runs)
    assert run_index.held_in == {("q", "H100"): HeldNodes(2, 3), ("q", "A100"): HeldNodes(1, 1)}
    assert (run_index.pending_in["q"], run_index.pending_in["default"]) == (1, 1)
    run_index.update(runs[1:3])
    assert run_index.held_in == {("q", "H100"): HeldNodes(1, 1), ("q", "A100"): HeldNodes(1, 1)}
    assert run_index.pending_in["q"] == 0


def test_who_came_and_who_is_gone_of_the_pending_is_news_once() -> None:
    first, second = run("a"), run("b")
    again = replace(first, resource_version="8")
    run_index = RunIndex()
    run_index.update([first, second])
    assert [(row.uid, row.gone) for row in run_index.news()] == [("uid-a", False), ("uid-b", False)]
    run_index.update([again, second])
    assert sorted((row.run.resource_version, row.gone) for row in run_index.news()) == [("7", True), ("8", False)]
    run_index.update([again, second])
    assert run_index.news() == []


@pytest.mark.parametrize("before", [[], [run("b", at=2.0)], [run("d", at=9.0), run("c", at=2.0)]])
def test_runs_are_in_the_order_of_their_age_whatever_was_seen_before(before: list[RunView]) -> None:
    runs = [run("young", at=3.0), run("old", at=1.0), run("b", at=2.0), run("a", at=2.0)]
    run_index = RunIndex()
    run_index.update(before)
    run_index.update(runs)
    assert [row.key for row in run_index.by_age] == ["team/old", "team/a", "team/b", "team/young"]


def test_what_was_decided_is_listed_by_age_and_forgotten_with_the_next_cycle() -> None:
    run_index = RunIndex()
    run_index.update([run("young", at=3.0), run("old", at=1.0), run("untouched")])
    for name in ("young", "old"):
        entry = run_index.rows[f"uid-{name}"].entry
        entry.status = changed(entry.status, queue=TOLD)
    assert [entry.run.name for entry in run_index.decided()] == ["old", "young"]
    run_index.forget_decisions()
    assert run_index.decided() == []
    assert run_index.rows["uid-old"].entry.status is run_index.rows["uid-old"].run.status


@pytest.mark.parametrize("many", [1, 150])
def test_rows_are_put_in_and_taken_out_in_order_be_they_few_or_many(many: int) -> None:
    def place(row: RunRow) -> Sequence[object]:
        return row.place

    rows = [RunRow(run(f"r{number:03}", at=float(number // 2))) for number in range(2 * many + 2)]
    some, others = rows[::2], rows[1::2]
    assert with_some([*some], others[::-1], place) == rows
    assert without_some([*rows], others, place) == some


RUNS = st.dictionaries(st.integers(0, 4), st.sampled_from([{}, {"suspend": True}, {"queue": "q"}]))


@given(st.lists(st.tuples(RUNS, st.sets(st.integers(0, 4)), st.booleans()), max_size=5))
def test_whoever_is_told_what_has_changed_knows_what_is_found_by_looking_at_everything(steps: list[Any]) -> None:
    """Something that has not changed may be named as well."""
    told, views = RunIndex(), dict[str, RunView]()
    for wanted, unchanged, say in steps:
        before, views = views, {f"uid-{at}": run(f"{at}", at=float(-at), **spec) for at, spec in wanted.items()}
        views = {uid: before[uid] if before.get(uid) == view else view for uid, view in views.items()}
        named = {uid for uid in {*before, *views} if before.get(uid) is not views.get(uid)}
        named |= {f"uid-{at}" for at in unchanged}
        told.update(views.values(), {uid: views.get(uid) for uid in named} if say else None)
        anew = RunIndex()
        anew.update(views.values())
        assert [row.run for row in told.by_age] == [row.run for row in anew.by_age]
        assert all(told.rows[uid].run is view for uid, view in views.items())
        assert {name: {*rows} for name, rows in lists_of(told).items()} == {
            name: {*rows} for name, rows in lists_of(anew).items()
        }
        assert +told.pending_in == +anew.pending_in


def test_a_view_that_has_not_changed_keeps_what_was_found_of_it() -> None:
    run_index, views = RunIndex(), {"uid-a": run("a"), "uid-b": run("b")}
    run_index.update(views.values())
    rows = dict(run_index.rows)
    run_index.update(views.values(), views | {"uid-b": run("b")})
    assert run_index.rows["uid-a"] is rows["uid-a"]
    assert run_index.rows["uid-b"] is not rows["uid-b"]
