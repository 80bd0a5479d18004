"""Matches a user's patterns in a process of its own: a regular expression can take for ever, and holds the interpreter.

Run as ``python -I -B -c <this file>``. stdin: one line of JSON ``[{"name", "pattern"}, …]``, then lines of
``<unix seconds> <line>``. stdout: a line of JSON for each rule's first match, ``{"name", "at", "text"}``, and for each
pattern that is given up, ``{"problem"}``. Of one with ``"steps": true``, which is that of ``spec.progress``, a line for
each match, ``{"at", "step", "loss", "total"}``. Ends with its stdin, or when no pattern is left.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import Any, Dict, Match, Optional, Pattern, Set

LINE_SECONDS = 0.05  # of the processor, for one pattern on one line: a busy node is not the pattern's fault
SLOW_LINES = 3  # after so many a pattern is given up
MAX_VALUE = 32  # characters of a step, a loss, a total


class _TooSlowError(Exception):
    pass


def main() -> None:
    """Until stdin ends."""
    signal.signal(signal.SIGVTALRM, _interrupt)
    source, sink = sys.stdin.buffer, sys.stdout
    patterns: Dict[str, Pattern[str]] = {}
    called: Dict[str, str] = {}
    steps: Set[str] = set()
    slow: Dict[str, int] = {}

    def tell(**what: Any) -> None:
        sink.write(json.dumps(what) + "\n")
        sink.flush()

    for rule in json.loads(source.readline().decode("utf-8")):
        name = rule["name"]
        of_steps = rule.get("steps") is True
        called[name] = "spec.progress.pattern" if of_steps else f"the pattern of rule {name}"
        try:
            pattern = re.compile(rule["pattern"])
        except (re.error, RecursionError, OverflowError) as error:
            tell(problem=f"{called[name]} is not understood: {error}")
            continue
        if of_steps and "step" not in pattern.groupindex:
            tell(problem=f"{called[name]} has no group (?P<step>…)")
        else:
            patterns[name] = pattern
            steps.update([name] if of_steps else [])
    while patterns:
        line = source.readline()
        if not line:
            return
        at, _, text = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
        for name, pattern in list(patterns.items()):
            try:
                found = _search(pattern, text)
            except _TooSlowError:
                slow[name] = slow.get(name, 0) + 1
                if slow[name] >= SLOW_LINES:
                    del patterns[name]
                    tell(problem=f"{called[name]} takes too long and is given up")
                continue
            if found and name in steps:
                groups = found.groupdict()
                tell(at=float(at), **{key: (groups.get(key) or "")[:MAX_VALUE] for key in ("step", "loss", "total")})
            elif found:
                del patterns[name]
                tell(name=name, at=float(at), text=text)


_searching = False


def _search(pattern: Pattern[str], text: str) -> Optional[Match[str]]:
    """Raises _TooSlowError."""
    global _searching
    _searching = True
    signal.setitimer(signal.ITIMER_VIRTUAL, LINE_SECONDS)
    try:
        return pattern.search(text)
    finally:
        _searching = False  # an alarm from now on is late and means nothing
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _interrupt(number: int, frame: Any) -> None:
    if _searching:
        raise _TooSlowError


if __name__ == "__main__":
    main()
