"""How the worker steers the program: a control file it reads, and files in which it answers."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Optional

from lockstep.worker.errors import open_plain, trouble
from lockstep.worker.settings import JSON

VERSION = 1
MAX_SAVED_BYTES = 4096  # looked at of the file of ids: its end


class ControlFile:
    """The control file of one attempt, replaced atomically; docs/worker.md describes its content."""

    def __init__(self, path: str, saved_path: str, attempt: int) -> None:
        self._path, self._saved_path = path, saved_path
        self._content: JSON = {"version": VERSION, "attempt": attempt, "save": None, "stop": None, "cadence": None}
        self._written: Optional[str] = None
        self.problem = ""  # why the program could not be told

    def write(self, save: Optional[JSON], stop_at: Optional[float], cadence: Optional[JSON]) -> None:
        """Tell the program, unless it has been told. Times are on this machine's clock. Never raises OSError."""
        stop = None if stop_at is None else {"at": round(stop_at, 3)}
        text = json.dumps(dict(self._content, save=save, stop=stop, cadence=cadence))
        if text == self._written:
            return
        try:
            with open(self._path + ".tmp", "w") as stream:
                stream.write(text)
            os.rename(self._path + ".tmp", self._path)
        except OSError as error:
            self.problem = trouble(error)
        else:
            self._written, self.problem = text, ""

    def is_read(self) -> bool:
        """The program has asked, so it will see a request to save."""
        return os.path.exists(self._path + ".read")

    def has_stopped_it(self) -> bool:
        """The program was told that it is about to be stopped, so that an exit with code 0 is no completion."""
        return os.path.exists(self._path + ".stopped")

    def saved(self) -> str:
        """Id of the last save that the program took up; empty when there was none."""
        with contextlib.suppress(OSError), open_plain(self._saved_path) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - MAX_SAVED_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
            return lines[-1].strip()[:64] if lines else ""
        return ""
