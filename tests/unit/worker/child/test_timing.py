"""What the worker measures of a program."""

import pytest

from lockstep.worker.child.timing import Timing


def stepped(timing: Timing, times: list[float], first: int = 1) -> None:
    for step, at in enumerate(times, first):
        timing.reached(step, at, at)


def steady(count: int, seconds: float = 1.0, begin: float = 10.0) -> list[float]:
    return [begin + seconds * index for index in range(count)]


def test_until_the_first_step_it_is_starting() -> None:
    timing = Timing(100.0)
    assert timing.report()["section"] == "Init"
    timing.reached(1, 1000.0, 130.0)
    report = timing.report()
    assert (report["section"], report["longestInit"]) == ("Step", 30.0)


def test_the_first_five_intervals_tell_nothing_of_the_others() -> None:
    timing = Timing(0.0)
    stepped(timing, [10.0, 70.0, 80.0, 81.0, 82.0, 83.0])
    assert timing.report()["intervals"] == 0
    timing.reached(7, 85.0, 85.0)
    report = timing.report()
    assert (report["intervals"], report["longest"], report["step"]) == (1, 2.0, 2.0)


def test_only_the_last_hundred_intervals_count() -> None:
    timing = Timing(0.0)
    times = steady(10)
    times += [times[-1] + 50.0 + index for index in range(150)]
    stepped(timing, times)
    report = timing.report()
    assert (report["intervals"], report["longest"]) == (100, 1.0)


def test_steps_reported_in_tens_have_an_interval_of_ten_steps_and_a_time_of_one() -> None:
    timing = Timing(0.0)
    for index in range(20):
        timing.reached(10 * index, 5.0 + 30.0 * index, 5.0 + 30.0 * index)
    report = timing.report()
    assert (report["longest"], report["step"]) == (30.0, 3.0)


def test_a_save_that_the_program_tells_of_is_a_section_of_its_own() -> None:
    timing = Timing(0.0)
    times = steady(20)
    stepped(timing, times)
    begin = times[-1]
    timing.enters("Save", begin)
    assert timing.report()["section"] == "Save"
    timing.enters("Step", begin + 60.0)
    timing.reached(21, begin + 61.0, begin + 61.0)
    timing.committed(begin + 300.0)
    report = timing.report()
    assert (report["section"], report["saveBlock"], report["longestSave"], report["persist"]) == ("Step", 60, 60, 300)
    assert report["longest"] == 1.0  # the interval with the save is no step


def test_without_a_word_of_the_program_the_interval_of_a_commit_held_the_save() -> None:
    timing = Timing(0.0)
    times = steady(20)
    times += [times[-1] + 9.0, times[-1] + 10.0]
    stepped(timing, times)
    timing.committed(times[-2] - 0.5)
    report = timing.report()
    assert (report["saveBlock"], report["longestSave"], report["persist"]) == (8.0, 9.0, 8.5)
    assert report["longest"] == 9.0  # nothing tells this save from a step while it lasts


def test_a_commit_after_the_last_step_is_judged_with_the_next() -> None:
    timing = Timing(0.0)
    times = steady(20)
    stepped(timing, times)
    timing.committed(times[-1] + 4.0)
    assert timing.report()["saveBlock"] == 0.0
    timing.reached(21, times[-1] + 6.0, times[-1] + 6.0)
    assert timing.report()["saveBlock"] == 5.0


def test_a_save_seen_on_disk_lasts_until_the_next_step() -> None:
    timing = Timing(0.0)
    stepped(timing, steady(3))
    timing.save_seen()
    assert timing.report()["section"] == "Save"
    timing.reached(4, 21.0, 21.0)
    assert timing.report()["section"] == "Step"


def test_a_step_back_and_a_clock_that_jumps_make_no_interval() -> None:
    timing = Timing(0.0)
    times = steady(10)
    stepped(timing, times)
    before = timing.report()["intervals"]
    timing.reached(3, times[-1] + 1, times[-1] + 1)
    timing.reached(4, 5.0, times[-1] + 2)
    assert timing.report()["intervals"] == before


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_by_an_hour_makes_no_step_of_an_hour_and_measuring_goes_on(jump: float) -> None:
    timing = Timing(0.0)
    times = steady(20)
    stepped(timing, times)
    before = timing.report()
    for count in range(1, 11):
        now = times[-1] + count
        timing.reached(20 + count, now + jump, now)
    after = timing.report()
    assert after["longest"] == before["longest"] == 1.0
    assert after["intervals"] == before["intervals"] + 9
