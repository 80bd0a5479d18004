"""Whether somebody wanted a process to end, or it failed by itself just before."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.step_gang import StepGang
from lockstep.worker.steps.client import RunningStep, TaskOutcome
from support.stepping import Asking, gang_of_steps, shell, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path_factory.mktemp("gang"), 2) as made:
        yield made


@pytest.mark.parametrize(
    "ends", [lambda step: step.end(10.0), lambda step: step.signal(signal.SIGTERM)], ids=["an end", "a signal"]
)
def test_a_process_that_had_failed_before_it_was_to_end_has_failed_by_itself(
    gang: StepGang, tmp_path: Path, ends: Callable[[RunningStep], None]
) -> None:
    """Its session, which is slow, hears of both at once."""
    said = f"echo $PPID; until [ -e {tmp_path}/fails ]; do sleep 0.02; done; exit 7"
    asking = Asking(gang.nodes[0].directory, [shell(1, said)])
    session = int(until(lambda: asking.out(1)))
    os.kill(session, signal.SIGSTOP)
    (tmp_path / "fails").touch()
    ended = Path(f"/proc/{asking.kept.pids[1]}/stat")
    until(lambda: ended.read_text().rpartition(")")[2].split()[0] == "Z")
    ends(asking.step)
    [node] = asking.step._nodes
    until(lambda: not asking.step._calls and node._channel is not None and not node._channel.unsent)
    os.kill(session, signal.SIGCONT)
    assert asking.wait() == {1: TaskOutcome(7)}
    (row,) = until(gang.nodes[1].ends)
    assert (row["code"], row["asked"]) == (7, False)
