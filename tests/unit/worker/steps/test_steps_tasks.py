"""A process that cannot be held to its step is none."""

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.worker.steps import tasks
from lockstep.worker.steps.request import RefusedError
from support.stepping import asked

pytestmark = pytest.mark.process


@pytest.mark.parametrize("call", [1, 2, 3])
def test_what_was_started_with_the_last_descriptors_ends_and_is_refused(
    monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    plain: Callable[[int], int] = os.dup
    left = [call]
    started: list[subprocess.Popen[bytes]] = []

    class Seen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    def dup(descriptor: int) -> int:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return plain(descriptor)

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(subprocess, "Popen", Seen)
    monkeypatch.setattr(os, "dup", dup)
    request = asked(0, "sleep", "1000", stdin=True)
    with pytest.raises(RefusedError) as refused:
        tasks.RunningTask(request, request.tasks[0], dict(os.environ), set())
    assert refused.value.args[:2] == (125, "ProcessNotStarted")
    (process,) = started
    assert process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()
    assert os.listdir("/proc/self/fd") == before
