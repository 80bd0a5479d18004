"""Asking the operator for something, through this node's worker: by a file, and waiting for the one that answers."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import NamedTuple

from lockstep.worker.launchers import slurm
from lockstep.worker.settings import JSON
from lockstep.worker.steps.asks import MAX_BYTES

ANSWER_SECONDS = 60.0
LOOK_SECONDS = 0.05


class AskedError(Exception):
    """Nobody has answered, or it cannot be asked; the words say why, as Slurm has them."""


class OperatorsWord(NamedTuple):
    """What the operator says."""

    agreed: bool
    words: str
    job: int = 0


def ask(directory: str, kind: str, body: JSON, seconds: float = ANSWER_SECONDS) -> OperatorsWord:
    """``directory``: of the certificates. Raises AskedError."""
    identity = os.urandom(16).hex()
    path = os.path.join(os.path.dirname(directory), slurm.ASKS, identity)
    text = json.dumps({"kind": kind, "body": body})
    if len(text) > MAX_BYTES - 1024:
        raise AskedError(f"it is larger than the {MAX_BYTES - 1024} bytes that can be asked for from inside a job")
    try:
        with open(path + ".tmp", "w") as stream:
            stream.write(text)
        os.rename(path + ".tmp", path + ".json")
    except OSError as error:
        raise AskedError(f"Unable to contact slurm controller ({error.strerror})") from None
    try:
        return _awaited(path + ".answer.json", time.monotonic() + seconds)
    finally:
        for name in (path + ".json", path + ".answer.json"):
            with contextlib.suppress(OSError):
                os.unlink(name)


def _awaited(path: str, until: float) -> OperatorsWord:
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(path) as stream:
                said = json.load(stream)
            return OperatorsWord(said["ok"] is True, str(said["words"]), int(said.get("jobId", 0)))
        time.sleep(LOOK_SECONDS)
    raise AskedError("Unable to contact slurm controller (connect failure)")
