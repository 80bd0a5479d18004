"""What is written down of an attempt's end, and what the next one begins with."""

from support.world import failed, world_with_gang


def test_the_history_has_no_fewer_steps_than_the_save_that_the_next_attempt_begins_from() -> None:
    w = world_with_gang(2, checkpoint={"shared": {"claimName": "lustre"}})
    w.train("one", 5)
    w.work_reports_only()
    w.now += 20.0
    w.saved["uid-one"].append(8)  # its step was not reported before the end
    w.tell_of_save("one", 8)
    failed(w).reconcile("one")
    ended = w.status("one").attempts[0]
    assert (ended.last_step, ended.steps_lost) == (8, 0)
    w.settle()
    assert w.status("one").attempts[-1].resume_step == 8
