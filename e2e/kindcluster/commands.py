"""Runs other programs: their output to a log, and the end of it into the error."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kindcluster.errors import KindClusterError

Report = Callable[[str], None]
_TAIL = 25  # lines of a failed program that are shown


def run(
    argv: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
) -> None:
    """Run a program, its output appended to `log`. Raises KindClusterError with its last lines."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        code = subprocess.run(
            [str(word) for word in argv],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])
        raise KindClusterError(f"`{' '.join(map(str, argv))}` ended with {code} (log {log}):\n{tail}")


def output(argv: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> str:
    """What a program writes to standard output. Raises KindClusterError with its standard error."""
    answer = subprocess.run(
        [str(word) for word in argv],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise KindClusterError(
            f"`{' '.join(map(str, argv))}` ended with {answer.returncode}: {answer.stderr.strip() or answer.stdout}"
        )
    return answer.stdout


@contextmanager
def told(report: Report, what: str) -> Iterator[None]:
    """Report `what` before the block, and after it how long that took; blocks may overlap."""
    report(f"{what} ...")
    begun = time.monotonic()
    yield
    report(f"{what}: {time.monotonic() - begun:.0f} s")
