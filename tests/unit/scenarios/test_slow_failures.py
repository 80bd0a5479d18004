"""Hangs, diverging losses and stragglers: failures that nobody reports."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lockstep.api.base.changes import changed
from lockstep.api.recovery_status import FirstFailure
from lockstep.core.failures.causes import Evidence
from lockstep.core.failures.divergence import judge_divergence
from lockstep.core.failures.hangs import COLLECT_SECONDS, Hang, judge_hang, longest_known, suspected
from lockstep.core.failures.stack_groups import StackGroup, grouped
from lockstep.core.failures.stragglers import judge_straggler
from lockstep.core.model.conditions import find
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.worker_report import ProgressReport, Sign, StackReport, TimingReport, WorkerPhase
from lockstep.core.run.handover import Handover
from lockstep.core.run.progress_record import record_longest
from lockstep.core.run.recovery import recover
from support.world import World
from support.world import running as gang

STEADY = TimingReport(section="Step", step=10.0, longest=30.0, intervals=50)


def running(ranks: int = 4, **fields: object) -> World:
    return gang(ranks, **fields)


def looked_at(
    w: World, after: float, every: Mapping[str, Any], by_rank: Mapping[int, Mapping[str, Any]] | None = None
) -> PlanBuilder:
    """The run ``after`` seconds, with each rank's report changed as said and just received."""
    now = w.now + after
    snapshot = w.snapshot("one")
    reports = {
        slot: replace(report, **{"received_at": now, **every, **(by_rank or {}).get(slot, {})})
        for slot, report in snapshot.reports.items()
    }
    return PlanBuilder(RunContext(replace(snapshot, reports=reports), w.tunables, now))


def hung(plan: PlanBuilder) -> Evidence | None:
    return judge_hang(plan).evidence


def stepped(w: World, step: int = 20, **more: Any) -> dict[str, Any]:
    return {"progress": ProgressReport(step, w.now), "timing": STEADY, **more}


def test_a_gang_whose_steps_come_at_their_pace_is_not_hung() -> None:
    w = running()
    assert hung(looked_at(w, 119.0, stepped(w))) is None


def test_stacks_are_asked_for_shortly_before_the_time_is_over_and_the_same_ones_by_every_leader() -> None:
    w = running()
    early, late, later = (looked_at(w, after, stepped(w)) for after in (119.0, 121.0, 140.0))
    asked = [judge_hang(builder) for builder in (early, late, later)]
    assert asked == [Hang(), Hang("a1-Step-20"), Hang("a1-Step-20")]


def test_a_hang_waits_a_bounded_time_for_the_stacks_of_ranks_that_do_not_answer() -> None:
    w = running()
    assert hung(looked_at(w, 151.0, stepped(w))) is None
    assert hung(looked_at(w, 150.0 + COLLECT_SECONDS, stepped(w))) is not None


def test_the_rank_that_stands_elsewhere_is_named_with_its_node() -> None:
    w = running()
    waiting = {"stacks": StackReport("a1-Step-20", "python: all_reduce (dist.py:10)")}
    reading = {"stacks": StackReport("a1-Step-20", "python: read (data.py:77)")}
    builder = looked_at(w, 151.0, stepped(w, **waiting), {2: reading})
    found = hung(builder)
    assert found is not None
    assert (found.kind, found.slot, found.node, found.at) == ("Hang", 2, "n2", w.now)
    assert "rank 2 is in python: read (data.py:77), ranks 0-1,3 are in python: all_reduce" in found.message
    assert "no step for 2m31s after step 20 (limit 2m30s: 5 x the longest of 30 s" in found.message
    stacks = builder.config_maps[0]
    assert stacks.name.endswith("-stacks-1")
    entry = builder.attempt_entry(1)
    assert entry is not None
    assert entry.stacks == stacks.name


def test_where_no_rank_stands_out_none_is_blamed() -> None:
    w = running()
    alike = {"stacks": StackReport("a1-Step-20", "python: all_reduce (dist.py:10)")}
    found = hung(looked_at(w, 151.0, stepped(w, **alike)))
    assert found is not None
    assert found.tied == (1, 2, 3)
    assert "no rank stands out" in found.message


def test_a_suspect_that_was_one_before_takes_all_that_stand_out_with_it_from_their_nodes() -> None:
    w = running(12)
    waiting = {"stacks": StackReport("a1-Step-20", "python: all_reduce (dist.py:10)")}
    reading = {"stacks": StackReport("a1-Step-20", "python: read (data.py:77)")}
    before = (FirstFailure(node="n5", time=w.now - 60.0),)
    w.amend("one", recovery=changed(w.status("one").recovery, first_failures=before))
    builder = looked_at(w, 151.0, stepped(w, **waiting), {3: reading, 5: reading})
    recover(builder, Handover())
    assert (builder.status.attempts[-1].node, builder.status.attempts[-1].action) == ("n3", "Replace")
    assert [slot for slot, name in enumerate(builder.status.assignment.nodes) if not name] == [3, 5]


def test_more_suspects_than_may_be_excluded_within_an_hour_keep_their_nodes() -> None:
    w = running(40)
    waiting = {"stacks": StackReport("a1-Step-20", "python: all_reduce (dist.py:10)")}
    reading = {"stacks": StackReport("a1-Step-20", "python: read (data.py:77)")}
    odd = dict.fromkeys(range(30, 40), reading)
    suspected_before = tuple(FirstFailure(node=f"n{i}", time=w.now - 60.0) for i in range(30, 40))
    w.amend("one", recovery=changed(w.status("one").recovery, first_failures=suspected_before))
    builder = looked_at(w, 151.0, stepped(w, **waiting), odd)
    recover(builder, Handover())
    last = builder.status.attempts[-1]
    assert (last.cause, last.action) == ("Hang", "RestartInPlace")
    assert "4 are the most, and these would be 10" in last.message
    assert all(builder.status.assignment.nodes)


@pytest.mark.parametrize(
    ("steps", "texts", "expected"),
    [
        ({0: 9, 1: 9, 2: 9, 3: 8}, {}, (3,)),
        ({0: 9, 1: 9, 2: 8, 3: 8}, {}, ()),
        ({0: 9, 1: 9}, {0: "a", 1: "b"}, ()),
        (
            {0: 9, 1: 9, 2: 9, 3: 9},
            {0: "x", 1: "x", 2: "x", 3: "python [stopped by a signal]: in do_signal_stop"},
            (3,),
        ),
        ({0: 9}, {0: "python [stopped by a signal]: nothing is known"}, (0,)),
    ],
)
def test_the_suspects_are_the_few_that_differ(
    steps: dict[int, int], texts: dict[int, str], expected: tuple[int, ...]
) -> None:
    assert suspected(steps, grouped(texts))[0] == expected


def test_stacks_that_differ_in_addresses_alone_are_one_group() -> None:
    assert [group.ranks for group in grouped({0: "f 0x7f01 pid 123", 1: "f 0x8f02 pid 4567", 2: "g 0x1 pid 123"})] == [
        (0, 1),
        (2,),
    ]
    assert StackGroup((0,), "a\nb").innermost == "a"


@pytest.mark.parametrize(
    ("setting", "silent", "after", "is_hung"),
    [
        ("10s", False, 9.0, False),
        ("10s", False, 26.0, True),
        ("Disabled", False, 1e6, False),
        ("Adaptive", True, 1e6, False),
        ("Adaptive", False, 1e6, True),
    ],
)
def test_the_setting_decides_and_a_worker_that_is_not_heard_is_no_evidence(
    setting: str, silent: bool, after: float, is_hung: bool
) -> None:
    w = running(recovery={"hangTimeout": setting})
    builder = looked_at(w, after, stepped(w), {1: {"received_at": w.now}} if silent else {})
    assert (hung(builder) is not None) is is_hung


def test_before_two_steps_were_seen_nothing_is_a_hang() -> None:
    w = running(recovery={"hangTimeout": "10s"})
    nothing = {"progress": None, "timing": TimingReport(section="Init")}
    first = {"progress": ProgressReport(1, w.now), "timing": TimingReport(section="Step")}
    assert hung(looked_at(w, 1e6, nothing)) is None
    assert hung(looked_at(w, 1e6, first)) is None


def test_a_restart_that_never_reaches_its_first_step_is_measured_by_earlier_starts() -> None:
    w = running()
    builder = looked_at(w, 1.0, {**stepped(w), "timing": structs.replace(STEADY, longest_init=100.0)})
    w._store(replace(w.runs["one"], status=record_longest(builder.status, *longest_known(builder))))
    nothing = {"progress": None, "timing": TimingReport(section="Init")}
    assert hung(looked_at(w, 499.0, nothing)) is None
    found = hung(looked_at(w, 516.0, nothing))
    assert found is not None
    assert "5 x the 1m40s it took before" in found.message


@pytest.mark.parametrize(
    ("longest_save", "limit"),
    [(100.0, 500.0), (1.0, 150.0), (0.0, 2700.0)],  # five times the longest save, or step; bounded while none is known
)
def test_a_save_under_way_has_the_time_that_saves_take(longest_save: float, limit: float) -> None:
    w = running()
    saving = {"timing": structs.replace(STEADY, section="Save", longest_save=longest_save)}
    assert hung(looked_at(w, limit + COLLECT_SECONDS - 1.0, stepped(w) | saving)) is None
    assert hung(looked_at(w, limit + COLLECT_SECONDS, stepped(w) | saving)) is not None


def test_a_new_leader_gives_workers_time_to_be_heard() -> None:
    w = running()
    w.leader_since = w.now + 1000.0
    assert hung(looked_at(w, 1001.0, stepped(w))) is None
    assert hung(looked_at(w, 1000.0 + 60.0, stepped(w))) is not None


def test_the_pace_of_a_new_attempt_replaces_the_old_one_once_it_speaks_for_itself() -> None:
    w = running()
    slow = looked_at(w, 1.0, {"timing": structs.replace(STEADY, longest=300.0)})
    assert longest_known(slow)[0] == 300
    w._store(replace(w.runs["one"], status=record_longest(slow.status, *longest_known(slow))))
    few = looked_at(w, 1.0, {"timing": structs.replace(STEADY, longest=5.0, intervals=3)})
    enough = looked_at(w, 1.0, {"timing": structs.replace(STEADY, longest=5.0)})
    assert longest_known(few)[0] == 300
    assert longest_known(enough)[0] == 5


@given(after=st.floats(0, 1e5), later=st.floats(0, 1e5), longest=st.floats(0.1, 1e4))
def test_another_step_never_makes_a_hang(after: float, later: float, longest: float) -> None:
    w = running(2)
    timing = structs.replace(STEADY, longest=longest)
    before = hung(looked_at(w, after, {"progress": ProgressReport(20, w.now), "timing": timing}))
    newer = ProgressReport(21, w.now + min(after, later))
    found = hung(looked_at(w, after, {"progress": newer, "timing": timing}))
    assert found is None or before is not None


def sign(kind: str, w: World, step: int, later: float = 0.0) -> dict[str, Any]:
    return {"signs": (Sign(kind, w.now + later, step, "loss nan"),)}


def test_the_first_rank_whose_loss_is_no_number_is_named_and_ties_are_said() -> None:
    w = running()
    builder = looked_at(
        w, 5.0, stepped(w), {1: sign("Loss:NaN", w, 31), 2: sign("Loss:NaN", w, 30), 3: sign("Loss:NaN", w, 30, 1.0)}
    )
    found = judge_divergence(builder)
    assert isinstance(found, Evidence)
    assert (found.kind, found.slot, found.tied) == ("NaN", 2, (3,))
    assert "at step 30 on rank 2 (n2)" in found.message


@pytest.mark.parametrize("loss", ["nan", "NaN", "inf", "-Infinity"])
def test_a_loss_in_the_progress_that_is_no_number_is_enough(loss: str) -> None:
    w = running()
    found = judge_divergence(looked_at(w, 5.0, {"progress": ProgressReport(7, w.now, loss=loss)}))
    assert found is not None
    assert found.kind == "NaN"


@pytest.mark.parametrize("loss", ["", "2.31", "n/a"])
def test_a_loss_that_is_a_number_or_unreadable_is_no_evidence(loss: str) -> None:
    w = running()
    assert judge_divergence(looked_at(w, 5.0, {"progress": ProgressReport(7, w.now, loss=loss)})) is None


def test_a_nan_can_be_ignored() -> None:
    w = running(recovery={"onNaN": "Ignore"})
    assert judge_divergence(looked_at(w, 5.0, stepped(w), {1: sign("Loss:NaN", w, 31)})) is None


def test_a_loss_spike_is_reported_unless_a_roll_back_is_asked_for() -> None:
    reports = running()
    builder = looked_at(reports, 5.0, stepped(reports), {0: sign("Loss:Spike", reports, 31)})
    assert judge_divergence(builder) is None
    condition = find(builder.status, "Diverging")
    assert condition is not None
    assert condition.status == "True"
    rolls_back = running(recovery={"onLossSpike": "RollBack"})
    found = judge_divergence(looked_at(rolls_back, 5.0, stepped(rolls_back), {0: sign("Loss:Spike", rolls_back, 31)}))
    assert found is not None
    assert found.kind == "LossSpike"


def straggler_after(w: World, minutes: int, steps: Mapping[int, float]) -> tuple[Evidence | None, PlanBuilder]:
    """Looked at each minute, with each rank's usual step time."""
    by_rank = {rank: {"timing": structs.replace(STEADY, step=seconds)} for rank, seconds in steps.items()}
    for minute in range(minutes + 1):
        builder = looked_at(w, 60.0 * minute, stepped(w), by_rank)
        found = judge_straggler(builder)
        w._store(replace(w.runs["one"], status=builder.status))
    return found, builder


def test_a_rank_that_stays_slow_is_reported_with_its_pace() -> None:
    w = running()
    _, early = straggler_after(w, 2, {3: 20.0})
    assert find(early.status, "Straggling") is None
    found, builder = straggler_after(running(), 3, {3: 20.0})
    assert found is None
    condition = find(builder.status, "Straggling")
    assert condition is not None
    assert "rank 3 on n3 keeps 50 % of the pace" in condition.message


def test_ranks_that_are_all_alike_are_no_evidence() -> None:
    _, builder = straggler_after(running(), 5, dict.fromkeys(range(4), 20.0))
    assert find(builder.status, "Straggling") is None
    assert builder.status.recovery.straggler is None


@pytest.mark.parametrize(
    ("total", "interval", "is_replaced"),
    [(10_000, 0, True), (25, 0, False), (20 + 40, 0, True), (20 + 40, 300, False)],  # 40 steps of 20 s, half of it lost
)
def test_a_straggler_is_replaced_only_when_that_pays(total: int, interval: int, is_replaced: bool) -> None:
    w = running(recovery={"onStraggler": "Replace"})
    view = w.runs["one"]
    progress = changed(view.status.progress, step=20, total_steps=total)
    cadence = changed(view.status.checkpoint.cadence, interval=interval)
    checkpoint = changed(view.status.checkpoint, cadence=cadence)
    w._store(replace(view, status=changed(view.status, progress=progress, checkpoint=checkpoint)))
    found, _ = straggler_after(w, 3, {3: 20.0})
    assert (found is not None) is is_replaced


def test_a_rank_that_has_ended_keeps_the_others_from_being_judged() -> None:
    w = running()
    builder = looked_at(w, 1e6, stepped(w), {1: {"phase": WorkerPhase.EXITED}})
    assert hung(builder) is None


def test_stacks_that_answer_an_earlier_question_name_nobody() -> None:
    w = running()
    stale = {"stacks": StackReport("a1-Step-10", "python: read (data.py:77)")}
    fresh = {"stacks": StackReport("a1-Step-20", "python: all_reduce (dist.py:10)")}
    found = hung(looked_at(w, 150.0 + COLLECT_SECONDS, stepped(w, **fresh), {2: stale}))
    assert found is not None
    assert found.tied == (1, 2, 3)


def test_the_first_step_is_waited_for_from_when_the_last_rank_began() -> None:
    w = running(recovery={"hangTimeout": "1h"})
    w.train("one", 5)
    begun = w.status("one").attempts[-1].started_at
    assert begun is not None
    nothing = {"progress": None, "timing": TimingReport(section="Init", intervals=1)}
    late = {1: {**nothing, "since": begun + 600.0}}
    assert hung(looked_at(w, begun + 3600.0 + 300.0 - w.now, nothing, late)) is None
    assert hung(looked_at(w, begun + 3600.0 + 600.0 + COLLECT_SECONDS - w.now, nothing, late)) is not None


def test_what_a_rank_says_of_an_earlier_attempt_is_no_evidence_of_its_pace() -> None:
    w = running()
    slow = {"timing": structs.replace(STEADY, step=30.0)}
    assert straggling_slot(looked_at(w, 1.0, stepped(w), {3: slow})) == 3
    assert straggling_slot(looked_at(w, 1.0, stepped(w), {3: {**slow, "attempt": 0}})) is None


def test_a_rank_of_few_measured_steps_keeps_all_from_being_compared() -> None:
    w = running()
    slow, short = ({"timing": structs.replace(STEADY, step=30.0, intervals=n)} for n in (20, 19))
    assert straggling_slot(looked_at(w, 1.0, stepped(w), {3: slow})) == 3
    assert straggling_slot(looked_at(w, 1.0, stepped(w), {3: short})) is None


def straggling_slot(builder: PlanBuilder) -> int | None:
    judge_straggler(builder)
    known = builder.status.recovery.straggler
    return known.slot if known is not None else None


def test_a_rank_that_ended_stands_out_in_a_hang_and_no_node_is_blamed_for_it() -> None:
    w = running(recovery={"hangTimeout": "30s"})
    w.exit_child("one", 1, 0)
    w.work_reports_only()
    w.reconcile("one")
    found = hung(looked_at(w, 300.0, stepped(w)))
    assert found is not None
    assert "rank 1 ended with code 0" in found.message
    assert "no rank stands out" not in found.message
    assert (found.slots, len(found.tied)) == ((), 2)
