"""A simulated worker keeps the protocol's promises."""

from __future__ import annotations

from localcluster.simworker import SimWorker, Training

NOW = 1000.0


def worker(**training) -> SimWorker:
    return SimWorker("run-uid", 0, 1, "pod-uid", Training(step_seconds=1.0, total_steps=10, **training))


def reply(phase: str, attempt: int, *, epoch=(1, 0), rank: int = 0, resume=None) -> dict:
    start = {"attempt": attempt, "resume": resume} if phase == "Run" else None
    return {
        "epoch": list(epoch),
        "revision": 7,
        "heartbeatSeconds": 3.0,
        "phase": phase,
        "attempt": attempt,
        "rank": rank,
        "start": start,
    }


def released(attempt: int = 1, rank: int = 0, resume=None, **training) -> SimWorker:
    sim = worker(**training)
    sim.obey(reply("Prepare", attempt), 4242, NOW)
    sim.obey(reply("Run", attempt, rank=rank, resume=resume), 0, NOW)
    return sim


def test_it_stands_at_the_barrier_after_a_new_registration():
    sim = worker()
    sim.must_register = False
    sim.obey(reply("Prepare", 1), 4242, NOW)
    assert (sim.phase, sim.ready_for, sim.port, sim.must_register) == ("Ready", 1, 4242, True)


def test_it_runs_no_attempt_it_has_not_prepared():
    sim = worker()
    sim.obey(reply("Run", 1), 0, NOW)
    assert (sim.phase, sim.attempt) == ("Preparing", 0)


def test_it_runs_no_attempt_twice():
    sim = released()
    sim.advance(NOW + 10)
    assert (sim.phase, sim.exit["code"]) == ("Exited", 0)
    sim.obey(reply("Run", 1), 0, NOW + 11)
    sim.obey(reply("Prepare", 1), 0, NOW + 11)
    assert (sim.phase, sim.attempt, sim.ready_for) == ("Exited", 1, 0)


def test_it_ignores_a_leader_that_was_replaced():
    sim = released()
    sim.obey(reply("Stop", 1, epoch=(2, 0)), 0, NOW + 1)
    assert sim.exit["reason"] == "StoppedOnRequest"
    sim.obey(reply("Prepare", 2, epoch=(1, 9)), 4242, NOW + 2)
    assert sim.phase == "Exited"


def test_holding_changes_nothing():
    sim = released()
    sim.obey(reply("Hold", 0), 0, NOW + 1)
    assert (sim.phase, sim.attempt) == ("Running", 1)


def test_progress_goes_on_from_the_step_resumed_from():
    sim = released(resume={"tier": "shared", "step": 4, "path": "/x"})
    progress = sim.report(NOW + 2.5, 0, 0)["progress"]
    assert (progress["step"], progress["at"], progress["totalSteps"]) == (6, NOW + 2, 10)
    assert sim.ends_at() == NOW + 6


def test_the_rank_told_to_fail_fails_and_the_others_hang():
    failing = released(rank=2, exit_rank=2, exit_step=3)
    failing.advance(NOW + 3)
    assert (failing.phase, failing.exit["code"], failing.exit["at"]) == ("Exited", 1, NOW + 3)
    peer = released(rank=0, exit_rank=2, exit_step=3)
    peer.advance(NOW + 100)
    assert peer.phase == "Running"
    assert peer.report(NOW + 100, 0, 0)["progress"]["step"] == 3


def test_the_next_attempt_does_not_fail_again():
    sim = released(attempt=2, rank=2, exit_rank=2, exit_step=3)
    sim.advance(NOW + 10)
    assert sim.exit["code"] == 0


def test_a_running_worker_polls_for_a_heartbeat_and_one_at_the_barrier_for_longer():
    assert worker().poll_seconds == 15.0
    assert released().poll_seconds == 3.0


def test_complete_ends_it():
    sim = released()
    sim.obey(reply("Complete", 1), 0, NOW)
    assert sim.is_complete


def test_a_rank_told_to_fail_several_times_does_so_in_one_attempt_after_the_other():
    def end_of(attempt: int) -> int:
        sim = released(attempt=attempt, rank=2, exit_rank=2, exit_step=3, exit_times=2)
        sim.advance(NOW + 20)
        return sim.exit["code"]

    assert [end_of(attempt) for attempt in (1, 2, 3)] == [1, 1, 0]


def test_every_attempt_saves_its_first_step_and_what_was_saved_is_found_and_read_at_the_next_barrier():
    sim = released(saves=True)
    assert sim.report(NOW, 0, 0)["newCheckpoints"] == sim.inventory
    sim.obey(reply("Prepare", 2), 0, NOW + 1)
    (row,) = sim.inventory
    assert (row["step"], row["attempt"], row["verdict"]) == (1, 1, "Valid")
    sim.obey(reply("Prepare", 2) | {"verify": {"tier": "shared", "path": row["path"]}}, 0, NOW + 2)
    assert sim.report(NOW + 2, 0, 0)["verified"][0]["path"] == row["path"]


def test_a_save_that_is_asked_for_is_done_once_at_its_step():
    sim = released(saves=True)
    wish = {"save": {"id": "s1", "atStep": 4}}
    sim.obey(reply("Run", 1) | wish, 0, NOW + 2)
    sim.advance(NOW + 3)
    assert (sim.saved, sim.report(NOW + 3, 0, 0)["listens"]) == ("", True)
    sim.advance(NOW + 5)
    report = sim.report(NOW + 5, 0, 0)
    assert (report["saved"], [row["step"] for row in report["newCheckpoints"]]) == ("s1", [4])
    sim.obey(reply("Run", 1) | wish, 0, NOW + 6)
    sim.advance(NOW + 8)
    assert sim.report(NOW + 8, 0, 0)["newCheckpoints"] == report["newCheckpoints"]


def test_who_saves_nothing_does_not_listen():
    sim = released()
    sim.obey(reply("Run", 1) | {"save": {"id": "s1", "atStep": 0}}, 0, NOW + 2)
    sim.advance(NOW + 5)
    assert (sim.report(NOW + 5, 0, 0)["listens"], sim.saved) == (False, "")
