"""Signals as Slurm names them, and the notice before a time limit (``--signal``)."""

from __future__ import annotations

from typing import Mapping, NamedTuple

# Those of Linux, where jobs run, whatever system the command line is typed on.
NUMBERS: Mapping[str, int] = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10,
    "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20,
    "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29,
    "PWR": 30, "SYS": 31,
}  # fmt: skip
WORDS: Mapping[int, str] = {
    1: "Hangup", 2: "Interrupt", 3: "Quit", 4: "Illegal instruction", 5: "Trace/breakpoint trap", 6: "Aborted",
    7: "Bus error", 8: "Floating point exception", 9: "Killed", 10: "User defined signal 1",
    11: "Segmentation fault", 12: "User defined signal 2", 13: "Broken pipe", 14: "Alarm clock", 15: "Terminated",
    24: "CPU time limit exceeded", 25: "File size limit exceeded", 31: "Bad system call",
}  # fmt: skip
"""As strsignal() says it."""
HIGHEST, FIRST_REAL_TIME = 64, 34
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
    if text.isdecimal() and len(text) <= 2 and 0 < int(text) <= HIGHEST:
        return int(text)
    name = text.upper()
    found = NUMBERS.get(name[3:] if name.startswith("SIG") else name)
    if found is None:
        raise ValueError(f"{text} is no signal")
    return found


def words(wanted: int) -> str:
    """What a shell says of a process that it ended."""
    if wanted in WORDS:
        return WORDS[wanted]
    real_time = wanted - FIRST_REAL_TIME
    return f"Real-time signal {real_time}" if real_time >= 0 else f"Unknown signal {wanted}"


def notice(text: str) -> Notice:
    """Of ``[R][B][:]SIG[@seconds]``. Raises ValueError."""
    word, at, lead = text.partition("@")
    flags, colon, name = word.rpartition(":")
    if colon and not set(flags.upper()) <= {"B", "R"}:
        raise ValueError(f"{text} is no signal, e.g. B:USR1@120")
    if at and (not lead.isdigit() or int(lead) > _MOST_LEAD):
        raise ValueError(f"@{lead} is no number of seconds up to {_MOST_LEAD}")
    return Notice(number(name), int(lead) if at else DEFAULT_LEAD, "B" in flags.upper(), "R" in flags.upper())
