"""The tests' end of `writers.server`: one library, imported once, asked many times."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve().parent
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "PYTHONWARNINGS": "ignore",
    "PYTHONDONTWRITEBYTECODE": "",  # else they are compiled at every start, half a minute of work in all
}


class LibraryError(Exception):
    """The library refused, or what it loaded is not the state of one save."""


class KilledError(Exception):
    """A process of the library was killed, as asked."""


class Library:
    """A library that saves and loads in processes of its own. A context, as those must end."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "writers.server", self.name], cwd=HERE, env={**os.environ, **QUIET},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        hello = self._reply()
        self.form: str = hello["form"]
        self.world: int = hello["world"]
        self.versions: dict[str, str] = hello["libraries"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._server.stdout.close()

    def save(self, root: Path, *steps: int, generation: int = 1, **options: Any) -> list[int]:
        """Saves, and returns how many changes to names each process made. Raises LibraryError, KilledError."""
        events: list[int] = self._ask(call="save", root=str(root), steps=steps, generation=generation, **options)[
            "events"
        ]
        return events

    def load(self, root: Path, step: int, **options: Any) -> int:
        """The stamp that the library's loader finds in that step. Raises LibraryError."""
        found: int = self._ask(call="load", root=str(root), step=step, **options)["result"]
        return found

    def resume(self, root: Path) -> tuple[int, int]:
        """(step, stamp) of what the library resumes from when left alone. Raises LibraryError."""
        step, stamp = self._ask(call="resume", root=str(root))["result"]
        return step, stamp

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        reply = self._reply()
        if "crash" in request and any(code == -9 for code in reply["codes"]):
            raise KilledError
        if any(reply["codes"]):
            raise LibraryError(f"{reply['error']}\n{reply['output']}")
        return reply

    def _reply(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise LibraryError(
                f"{self.name} ended with {self._server.wait(30)}; see python -m writers.server {self.name}"
            )
        reply: dict[str, Any] = json.loads(line)
        return reply
