"""What mpirun prints of ranks that were killed: of MPICH nothing else tells which node they were on."""

from __future__ import annotations

import re
import threading
import time
from typing import Dict, List, Sequence

from lockstep.worker.settings import JSON
from lockstep.worker.steps.told import MPI

_FIRST_WORDS = b"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
_MESSAGE = re.compile(
    rb"^=   (?:RANK (\d{1,9}) )?PID \d{1,9} RUNNING AT ([^\s]{1,255})\n=   (KILLED BY SIGNAL|EXIT CODE): (\d{1,9})\D",
    re.M,
)
_LONGEST = 1024  # bytes of a message
_MOST = 16


class MpiMessages:
    """Looks for them in the command's output. Fed by the threads that pass it on."""

    def __init__(self, nodelist: Sequence[str]) -> None:
        self._nodelist = list(nodelist)
        self._lock = threading.Lock()
        self._begun: Dict[int, bytes] = {}  # by stream: what may be a message's beginning
        self._rows: List[JSON] = []
        self._left = _MOST

    def feed(self, stream: int, data: bytes) -> None:
        """Never blocks."""
        text = self._begun.get(stream, b"") + data
        begins, end = text.rfind(_FIRST_WORDS), 0
        for matched in _MESSAGE.finditer(text) if begins >= 0 else ():
            end = matched.end()
            self._add(matched)
        is_cut = begins >= end and len(text) - begins < _LONGEST
        self._begun[stream] = text[begins:] if begins >= 0 and is_cut else text[end:][-len(_FIRST_WORDS) :]

    def take(self) -> List[JSON]:
        """As rows of stepEnds: new ones."""
        with self._lock:
            taken, self._rows = self._rows, []
        return taken

    def _add(self, matched: "re.Match[bytes]") -> None:
        address = matched.group(2).decode("ascii", "replace")
        if self._left <= 0 or self._nodelist.count(address) != 1:
            return
        self._left -= 1
        status = int(matched.group(4))  # of MPICH's as waitpid has it
        number = status & 0x7F
        code = 0 if number or matched.group(3) != b"EXIT CODE" else status >> 8
        row = {
            "step": MPI if matched.group(1) else "mpirun", "task": int(matched.group(1) or 0), "program": "",
            "code": None if number else code,
            "signal": number or None, "at": time.time(), "asked": False, "stderrTail": "",
            "nodeRank": self._nodelist.index(address),
        }  # fmt: skip
        with self._lock:
            self._rows.append(row)
