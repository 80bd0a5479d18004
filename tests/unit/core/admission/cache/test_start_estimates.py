"""Estimates are worked out a few in a pass, and each counts from when it is known."""

from collections.abc import Callable, Iterator

from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.cache.start_estimates import LIVES, SHARE, STEP, StartEstimates
from lockstep.core.admission.engine.cycle_result import Estimate
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, held, run, statuses, world

Begin = Callable[[], Iterator[tuple[str, Estimate]]]


def jobs(starts: dict[str, float | None]) -> Begin:
    return lambda: ((uid, Estimate(1, start)) for uid, start in starts.items())


def never() -> Iterator[tuple[str, Estimate]]:
    raise AssertionError("nothing is due")


def test_each_look_works_out_a_share_and_comes_back_for_the_rest() -> None:
    start_estimates = StartEstimates(share=2)
    found = jobs({"a": 1.0, "b": 2.0, "c": 3.0})
    assert start_estimates.refresh(100.0, found) == {"a": 1.0, "b": 2.0}
    assert start_estimates.wake_at == 100.0 + STEP
    assert start_estimates.refresh(101.0, never) == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert start_estimates.wake_at == 100.0 + LIVES


def test_an_estimate_counts_until_a_newer_one_is_known_or_nobody_waits_for_it() -> None:
    start_estimates = StartEstimates(share=1)
    for now in (0.0, 1.0, 2.0, 3.0):
        start_estimates.refresh(now, jobs({"a": 10.0, "b": 20.0, "gone": 30.0}))
    assert start_estimates.refresh(3.5, never) == {"a": 10.0, "b": 20.0, "gone": 30.0}
    later = jobs({"a": None, "b": 25.0})
    assert start_estimates.refresh(40.0, later) == {"b": 20.0, "gone": 30.0}
    assert start_estimates.refresh(41.0, never) == {"b": 25.0, "gone": 30.0}
    assert start_estimates.refresh(42.0, never) == {"b": 25.0}


def test_without_a_share_all_are_worked_out_at_once() -> None:
    found = jobs({f"r{number}": float(number) for number in range(100)})
    assert len(StartEstimates(share=None).refresh(0.0, found)) == 100


def test_estimates_are_worked_out_anew_when_they_are_old_or_time_went_back() -> None:
    start_estimates = StartEstimates(share=None)
    start_estimates.refresh(100.0, jobs({"a": 1.0}))
    assert start_estimates.refresh(100.0 + LIVES - 1, never) == {"a": 1.0}
    assert start_estimates.refresh(100.0 + LIVES, jobs({"a": 2.0})) == {"a": 2.0}
    assert start_estimates.refresh(50.0, jobs({"a": 3.0})) == {"a": 3.0}


def test_who_took_long_rests_as_long() -> None:
    start_estimates = StartEstimates(share=1)
    all_of_them = jobs({f"r{number}": float(number) for number in range(40)})
    for now in range(41):
        start_estimates.refresh(float(now), all_of_them)
    assert start_estimates.wake_at == 80.0
    assert len(start_estimates.refresh(79.0, never)) == 40


def test_a_long_queue_is_told_its_starts_within_a_few_passes() -> None:
    """None of them twice for the first time, and as a pass that is asked once tells them."""
    waiting = [run(f"r{number}", 4, at=float(number), timeLimit="1h") for number in range(2 * SHARE)]
    busy = run("busy", 4, status={**held("n0", "n1", "n2", "n3"), "last_admitted": NOW}, timeLimit="1h")
    snapshot, memory = world([busy, *waiting]), CycleMemory()
    at_once = {
        name: status.queue.estimated_start for name, status in statuses(admit(snapshot, Tunables(), NOW)).items()
    }
    first = statuses(admit(snapshot, Tunables(), NOW, memory))
    known = [name for name, status in first.items() if status.queue.estimated_start is not None]
    assert len(known) == SHARE
    for step in range(1, 4):
        last = statuses(admit(snapshot, Tunables(), NOW + step, memory))
    assert {name: status.queue.estimated_start for name, status in last.items()} == at_once
    assert all(at_once.values())


def test_who_is_one_of_a_few_is_told_its_start_with_the_cycle_that_first_sees_it() -> None:
    start_estimates = StartEstimates()
    assert start_estimates.refresh(100.0, jobs({"a": 1.0})) == {"a": 1.0}
    assert start_estimates.wake_at == 100.0 + LIVES  # and nobody is woken for it
    assert start_estimates.refresh(101.0, jobs({"a": 3.0, "b": 2.0})) == {"a": 3.0, "b": 2.0}
    many = {f"r{number}": float(number) for number in range(SHARE)}
    start_estimates.refresh(102.0, jobs(many))
    start_estimates.refresh(103.0, never)
    assert start_estimates.refresh(104.0, never) == many


def test_a_new_run_behind_others_knows_its_start_at_once() -> None:
    busy = run("busy", 4, status={**held("n0", "n1", "n2", "n3"), "last_admitted": NOW}, timeLimit="1h")
    first, memory = run("first", 4, timeLimit="1h"), CycleMemory()
    admit(world([busy, first]), Tunables(), NOW, memory)
    both = world([busy, first, run("second", 4, at=1.0, timeLimit="1h")])
    assert statuses(admit(both, Tunables(), NOW + 1, memory))["second"].queue.estimated_start == NOW + 7200
