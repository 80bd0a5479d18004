"""What an srun that gets a signal does."""

from __future__ import annotations

import signal

from lockstep.worker.steps.slurm import registry
from lockstep.worker.steps.slurm.running import StepOutput

_FORWARDED = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH", "SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGURG")
_ENDING = ("SIGTERM", "SIGHUP", "SIGQUIT")


def keep_messages() -> None:
    """What a listed step is told waits until it is caught: it would end a process that does not."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {registry.HEARS})


def catch(output: StepOutput) -> None:
    """From now on."""
    for name in _FORWARDED:
        signal.signal(getattr(signal, name), lambda number, frame: output.forward(number))
    for name in _ENDING:
        signal.signal(getattr(signal, name), lambda number, frame: output.terminate())
    signal.signal(signal.SIGINT, lambda number, frame: output.interrupt())
    signal.signal(registry.HEARS, lambda number, frame: output.listen())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {registry.HEARS})
