"""What programs of a batch job ask the operator for, as ``scontrol requeue`` does: by files, through their own worker.

A program writes ``<id>.json`` and waits for ``<id>.answer.json``. A request is told in each report until the operator
has answered it, so that neither has to be there at any moment; ids make that the same request.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from typing import Any, Dict, Set

from lockstep.worker.errors import open_plain
from lockstep.worker.settings import JSON

KINDS = ("requeue", "cancel", "hold", "submit")
MAX_ASKS = 4  # told at once
MAX_BYTES = 24 << 10  # of all that is told at once
LOOK_SECONDS = 0.2
_MAX_NAMES = 256  # looked at each time
_MAX_WORDS = 1024
_NAME = re.compile(r"([A-Za-z0-9-]{1,36})\.json")


class Asks:
    """Of one attempt at a time. Used by the main thread only. What is no request is removed."""

    def __init__(self) -> None:
        self.requeued = False  # the operator has agreed that this attempt gives way to another
        self._directory = ""
        self._rows: Dict[str, JSON] = {}
        self._answered: Set[str] = set()
        self._look_at = 0.0  # monotonic

    def begin(self, directory: str) -> None:
        """An attempt, whose programs write there."""
        self.requeued, self._directory, self._rows, self._answered = False, directory, {}, set()

    def end(self) -> None:
        """Nobody waits any more."""
        self._directory, self._rows = "", {}

    def observe(self) -> None:
        """Take up what is new, and forget what nobody waits for."""
        if not self._directory or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            with os.scandir(self._directory) as entries:
                names = sorted(entry.name for entry in itertools.islice(entries, _MAX_NAMES))
        except OSError:
            names = []
        found = {matched[1]: name for name in names for matched in [_NAME.fullmatch(name)] if matched}
        self._rows = {identity: row for identity, row in self._rows.items() if identity in found}
        self._answered &= set(found)
        for identity, name in found.items():
            if identity not in self._rows and identity not in self._answered and len(self._rows) < MAX_ASKS:
                self._read(identity, os.path.join(self._directory, name))

    def _read(self, identity: str, path: str) -> None:
        try:
            with open_plain(path) as stream:
                said = json.loads(stream.read(MAX_BYTES).decode("utf-8"))
            row = {"id": identity, "kind": said["kind"], "body": said["body"]}
            if row["kind"] not in KINDS or not isinstance(row["body"], dict):
                raise ValueError(row["kind"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            with contextlib.suppress(OSError):
                os.unlink(path)
            return
        if len(json.dumps([*self._rows.values(), row])) <= MAX_BYTES:
            self._rows[identity] = row  # else once there is room

    def report(self) -> JSON:
        """What the protocol carries of it."""
        return {"asks": list(self._rows.values())} if self._rows else {}

    def take(self, answers: Any) -> None:
        """What the operator says to them."""
        for said in answers if isinstance(answers, list) else []:
            try:
                identity, agreed, words = said["id"], said["ok"] is True, str(said.get("words", ""))[:_MAX_WORDS]
                number = said.get("jobId")
                row = self._rows.pop(identity)
            except (KeyError, TypeError, AttributeError):
                continue  # of an earlier attempt, or answered already
            self._answered.add(identity)
            self.requeued = self.requeued or (agreed and row["kind"] == "requeue")
            answer: JSON = {"ok": agreed, "words": words}
            if isinstance(number, int):
                answer["jobId"] = number
            self._write(identity, answer)

    def _write(self, identity: str, answer: JSON) -> None:
        path = os.path.join(self._directory, f"{identity}.answer")
        with contextlib.suppress(OSError):  # it asks once more
            with open(path + ".tmp", "w") as stream:
                json.dump(answer, stream)
            os.rename(path + ".tmp", path + ".json")
