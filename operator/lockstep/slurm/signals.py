"""Signals as Slurm names them, and the notice before a time limit (``--signal``)."""

from __future__ import annotations

import signal
from typing import NamedTuple

DEFAULT_LEAD = 60  # seconds
_MOST_LEAD = 65_535


class Notice(NamedTuple):
    """The signal, sent so many seconds before the limit: to the steps, or to the batch shell alone."""

    signal: int
    lead: int
    shell_only: bool = False
    before_reservation: bool = False


def number(text: str) -> int:
    """Of ``USR1``, ``SIGUSR1`` or ``10``. Raises ValueError."""
    if text.isdigit() and 0 < int(text) < signal.NSIG:
        return int(text)
    name = text.upper()
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name in signal.Signals.__members__:
        return int(signal.Signals[name])
    raise ValueError(f"{text} is no signal")


def notice(text: str) -> Notice:
    """Of ``[R][B][:]SIG[@seconds]``. Raises ValueError."""
    word, at, lead = text.partition("@")
    flags, colon, name = word.rpartition(":")
    if colon and not set(flags.upper()) <= {"B", "R"}:
        raise ValueError(f"{text} is no signal, e.g. B:USR1@120")
    if at and (not lead.isdigit() or int(lead) > _MOST_LEAD):
        raise ValueError(f"@{lead} is no number of seconds up to {_MOST_LEAD}")
    return Notice(number(name), int(lead) if at else DEFAULT_LEAD, "B" in flags.upper(), "R" in flags.upper())
