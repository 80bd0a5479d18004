"""What an srun that gets a signal does."""

from __future__ import annotations

import contextlib
import signal
from typing import Any, Callable, Dict, Sequence

from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.running import StepOutput

_FORWARDED = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGURG")
_ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")


def keep_messages() -> None:
    """What a listed step is told waits until it is caught: it would end a process that does not."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {registry.HEARS})


def ignore(numbers: Sequence[int]) -> None:
    """From now on."""
    for number in numbers:
        with contextlib.suppress(OSError, ValueError):  # some are the C library's own
            signal.signal(number, signal.SIG_IGN)


def catch(output: StepOutput, ignored: Sequence[int] = ()) -> None:
    """From now on, but for those that are ignored."""
    calls: Dict[int, Callable[[int, Any], None]] = {
        **{getattr(signal, name): lambda number, frame: output.forward(number) for name in _FORWARDED},
        **{getattr(signal, name): lambda number, frame: output.terminate() for name in _ENDING},
        signal.SIGINT: lambda number, frame: output.interrupt(),
    }
    for number, call in calls.items():
        if number not in ignored:
            signal.signal(number, call)
    signal.signal(registry.HEARS, lambda number, frame: output.listen())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {registry.HEARS})
