"""What the side that asks for a step makes of slow screens, of peers that lie, and of its own node's shortages."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.step_gang import StepGang
from lockstep.worker.steps import frames
from lockstep.worker.steps.client import TaskOutcome
from lockstep.worker.steps.streams import Writer
from support.stepping import Asking, Kept, asked, gang_of_steps, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StepGang]:
    with gang_of_steps(tmp_path_factory.mktemp("gang"), 3) as made:
        yield made


class Screen(Kept):
    """Somebody reads it, but not at the moment."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.writes = os.pipe()
        self._writer = Writer(self.writes)
        self._writer.write(bytes(2 << 20))

    def writers(self) -> Sequence[Writer]:
        return [self._writer]

    def close(self) -> None:
        os.close(self._writer.descriptor)
        os.close(self.writes)
        while os.read(self.reads, 1 << 20):
            pass
        os.close(self.reads)


def test_a_node_that_answers_while_nobody_reads_what_others_say_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a node has time to answer, or a client to say something."""
    quick = "from lockstep.worker.steps import frames; frames.SILENT_SECONDS = 2.0"
    monkeypatch.setattr(frames, "PING_SECONDS", 0.2)
    screen = Screen()
    with gang_of_steps(tmp_path, 2, first=quick) as gang:
        asking = Asking(gang.nodes[0].directory, [asked(1, "sh", "-c", "sleep 3; exit 3")], kept=screen, reach=1.0)
        late = time.monotonic() + 4.0
        until(lambda: asking.outcomes or time.monotonic() > late)
        taken = os.read(screen.reads, 1 << 20)
        while len(taken) < 2 << 20:
            taken += os.read(screen.reads, 1 << 20)
        assert asking.wait() == {1: TaskOutcome(3)}
    screen.close()
