"""Sessions serve one step after the other, and nothing of one is left in the next."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.proc import children, is_alive, open_files
from harness.step_gang import StepGang
from lockstep.worker.steps.client import TaskOutcome
from lockstep.worker.steps.kept import MOST_KEPT
from support.stepping import Asking, asked, gang_of_steps, run, shell, until

pytestmark = pytest.mark.process

MANY = 20
SAYS_WHAT_IT_FINDS = """
import json, os, signal
streams = {name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)}
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
print(os.getppid(), json.dumps([os.getcwd(), dict(os.environ), sorted(streams), len(blocked)]))
"""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path, 1) as made:
        yield made


def sessions(gang: StepGang) -> set[int]:
    """PIDs of the server's children."""
    server = gang.nodes[0].server
    assert server is not None
    return set(children(server.pid))


def test_the_next_step_is_served_by_the_same_process_and_finds_nothing_of_the_one_before(
    gang: StepGang, tmp_path: Path
) -> None:
    finds, served = set(), set()
    elsewhere = asked(0, "sh", "-c", "exit 3", directory=str(tmp_path), environment={"PATH": os.environ["PATH"]})
    for _ in range(MANY):
        parent, found = run(gang, asked(0, sys.executable, "-ISc", SAYS_WHAT_IT_FINDS)).out(0).split(b" ", 1)
        served.add(int(parent))
        finds.add(found)
        assert run(gang, elsewhere).outcomes == {0: TaskOutcome(3)}
    assert len(finds) == 1
    assert len(served) <= MOST_KEPT


def test_a_session_that_served_many_steps_holds_no_more_than_after_the_first(gang: StepGang) -> None:
    for _ in range(MOST_KEPT * MANY):
        assert run(gang, shell(0, "cat; echo out; echo err >&2; exit 5", stdin=True)).outcomes == {0: TaskOutcome(5)}
    until(lambda: (held := [open_files(session) for session in sessions(gang)]) and max(held) < MANY)


def test_signals_reach_the_tasks_of_a_later_step(gang: StepGang) -> None:
    for _ in range(3):
        asking = Asking(gang.nodes[0].directory, [shell(0, "trap 'exit 7' USR1; echo r; while :; do sleep 0.05; done")])
        until(lambda asking=asking: asking.out() == b"r\n")
        asking.step.signal(signal.SIGUSR1)
        assert asking.wait() == {0: TaskOutcome(7)}
    assert len(sessions(gang)) <= MOST_KEPT


def test_a_session_that_was_killed_meanwhile_costs_nobody_a_step(gang: StepGang) -> None:
    for _ in range(5):
        run(gang, asked(0, "true"))
        for session in sessions(gang):
            os.kill(session, signal.SIGKILL)
        assert run(gang, asked(0, "true")).outcomes == {0: TaskOutcome(0)}


def test_a_session_that_is_free_ends_by_a_signal_as_any_process(gang: StepGang) -> None:
    run(gang, asked(0, "true"))
    (session,) = sessions(gang)

    def ended() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(session, signal.SIGTERM)  # while it still serves, it is not meant
        return not is_alive(session)

    until(ended)


def test_steps_side_by_side_have_sessions_of_their_own_and_few_are_kept(gang: StepGang) -> None:
    many = [Asking(gang.nodes[0].directory, [shell(0, "echo r; exec sleep 1000")]) for _ in range(5)]
    for asking in many:
        until(lambda asking=asking: asking.out() == b"r\n")
    assert len(sessions(gang)) == 5
    for asking in many:
        asking.step.end(1.0)
        asking.wait()
    until(lambda: len(sessions(gang)) <= MOST_KEPT)
    assert run(gang, asked(0, "true")).outcomes == {0: TaskOutcome(0)}


def test_what_a_step_left_behind_keeps_its_session_from_serving_another(gang: StepGang, tmp_path: Path) -> None:
    leaves = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' < /dev/null > /dev/null 2>&1 &"
    assert run(gang, shell(0, leaves)).outcomes == {0: TaskOutcome(0)}
    (first,) = sessions(gang)
    assert run(gang, asked(0, "true")).outcomes == {0: TaskOutcome(0)}
    assert first in sessions(gang)
    assert len(sessions(gang)) == 2
    left = int((tmp_path / "pid").read_text())
    os.kill(left, signal.SIGKILL)
    until(lambda: not is_alive(left))
