"""What is said to have ended an attempt: what is looked for, what comes late, and what the history keeps."""

from support.recovering import RUN, fail, state, status, train, training
from support.values import not_none
from support.world import spec, world


def test_the_history_tells_evidence_action_and_price() -> None:
    w = training()
    train(w, 7, saving=False)
    fail(w, 1, stderr="RuntimeError: bad batch")
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.action, first.charged) == ("Application", 1, "RestartInPlace", True)
    assert (first.last_step, first.steps_lost) == (17, 7)
    assert "RuntimeError: bad batch" in first.message
    assert "all ranks start again where they are" in first.message
    assert status(w).attempts[1].resume_tier == "shared"


def test_the_last_words_of_the_rank_that_failed_first_outlive_its_pod() -> None:
    w = training()
    fail(w, 1, stderr="x" * 5000 + "\nRuntimeError: boom\n")
    told = status(w).attempts[0].stderr
    assert told.endswith("x\nRuntimeError: boom")
    assert len(told) == 1000
    train(w, 10)
    w.lose_node("n1")
    w.pass_time(60, step=2)
    assert (status(w).attempts[1].cause, status(w).attempts[1].stderr) == ("NodeLost", "")


def test_a_rank_heard_of_late_that_failed_earlier_is_the_cause_after_all() -> None:
    w = training()
    w.now += 5.0
    w.exit_child(RUN, 2, 1, stderr="RuntimeError: a")
    w.work()
    w.exit_child(RUN, 1, 134, late=-1.0)  # it took its time to tell
    w.reconcile(RUN)
    w.settle()
    first = status(w).attempts[0]
    assert (first.rank, first.exit_code, first.victims) == (1, 134, "2")
    assert [one.node for one in status(w).recovery.first_failures] == ["n1"]
    assert [root.root for root in status(w).recovery.roots] == ["exit 134"]
    assert status(w).recovery.consecutive_no_progress == 0, "what was saved is progress"


def test_a_rank_named_too_early_is_cleared_at_the_barrier() -> None:
    w = training()
    train(w, 5, saving=False)
    w.now += 5.0
    w.exit_child(RUN, 2, 1, stderr="RuntimeError: a")
    w.work()
    w.reconcile(RUN)
    assert status(w).attempts[0].rank == 2
    w.end_child(RUN, 1, 1, signs=("Xid:79",), late=-1.0)  # still dying when the others were told to restart
    first = status(w).attempts[0]
    assert (first.rank, first.cause) == (1, "Hardware")
    assert "at first rank 2 was named" in first.message
    assert "n1" not in status(w).assignment.nodes
    assert [entry.node for entry in status(w).recovery.excluded_nodes] == ["n1"]
    assert set(w.children(RUN).values()) == {2}


def test_a_complaint_about_a_peer_waits_a_moment_for_that_peers_word() -> None:
    w = training()
    w.now += 5.0
    w.exit_child(RUN, 0, 1, signs=("NCCL:RemoteError",))
    w.directives_reach = 0
    w.silent_nodes.add("n2")  # its report is late
    w.work()
    w.reconcile(RUN)
    assert status(w).attempt == 1
    w.exit_child(RUN, 2, 139, late=0.5)
    w.silent_nodes.clear()
    w.directives_reach = None
    w.now += 1.0
    w.settle()
    assert (status(w).attempts[0].rank, status(w).attempts[0].victims) == (2, "0")


def test_ranks_that_fail_at_the_same_time_are_said_to_be_tied_and_none_is_blamed() -> None:
    w = training()
    w.now += 5.0
    for rank in (0, 1, 2):
        w.exit_child(RUN, rank, 1, stderr="ValueError: bad batch", late=rank / 100)
    w.settle()
    first = status(w).attempts[0]
    assert "which was first cannot be told" in first.message
    assert status(w).recovery.first_failures == ()


def test_a_node_whose_silence_is_established_after_the_end_is_its_cause_after_all() -> None:
    w = training(step=0)
    w.lose_node("n2")
    w.now += 1.0
    w.exit_child(RUN, 0, 1, stderr="RuntimeError: a")
    w.work()
    w.reconcile(RUN)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, status(w).recovery.consecutive_no_progress) == ("Application", 0, 1)
    w.node_not_ready("n2")
    w.pass_time(20, step=2)
    first = status(w).attempts[0]
    assert (first.cause, first.rank, first.node, first.action) == ("NodeLost", 2, "n2", "Replace")
    assert "; then rank 0 on n0 ended" in first.message
    assert not first.charged
    assert status(w).recovery.consecutive_no_progress == 0
    assert [(one.node, one.cause) for one in status(w).recovery.first_failures] == [("n2", "NodeLost")]
    assert status(w).recovery.roots == ()


def test_a_node_lost_while_the_gang_gathers_is_not_the_cause_of_the_end_before() -> None:
    w = training(step=0)
    w.end_child(RUN, 0, 1, stderr="RuntimeError: a")
    assert status(w).attempt == 2
    w.exit_child(RUN, 0, 1, stderr="RuntimeError: a")
    w.directives_reach = 0  # nobody hears that it is to start again
    w.settle()
    w.pass_time(20, step=2)
    w.fail_node("n2")
    w.pass_time(30, step=2)
    second = status(w).attempts[1]
    assert (second.cause, second.rank, second.charged) == ("Application", 0, True)
    assert status(w).recovery.consecutive_no_progress == 2


def test_a_clock_that_is_far_ahead_holds_up_no_verdict() -> None:
    w = training(checkpoint=None, step=0)
    w.now += 5.0
    w.exit_child(RUN, 1, 3, late=10_000.0)
    w.pass_time(20, step=2)
    assert (state(w), status(w).reason) == ("Failed", "ProcessFailed")
    ended = not_none(status(w).attempts[0].ended_at)
    assert ended <= w.now


def test_workers_are_told_what_to_look_for_before_they_start() -> None:
    rules = [
        {"name": "fabric", "logPattern": "link flapped", "action": "ReplaceNode"},
        {"name": "data", "exitCodes": [42], "action": "Stop"},
    ]
    w = world(1)
    w.roll_out("one", spec(1, recovery={"rules": rules}, progress={"pattern": "at (?P<step>[0-9]+)"}))
    assert w.directives["uid-one"].watch == (("fabric", "link flapped"),)
    assert w.directives["uid-one"].progress_pattern == "at (?P<step>[0-9]+)"
