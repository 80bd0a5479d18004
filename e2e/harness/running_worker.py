"""The worker as a real process, with real children."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.fake_operator import DEADLINE, FakeOperator
from lockstep.controller.workers.worker_archive import worker_archive

RUN_UID = "0d8f5f6e-1111-2222-3333-444455556666"
# The interpreter of the user's image, which may be an old one.
PYTHON = os.environ.get("LOCKSTEP_WORKER_PYTHON", sys.executable)


def until(condition: Callable[[], Any]) -> Any:
    """The condition's value once it is true."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("the condition did not come true in time")


class RunningWorker:
    """A worker process with its own scratch and checkpoint tiers. ``wrapper``: what to start it in."""

    def __init__(
        self, directory: Path, operator: FakeOperator, command: list[str], wrapper: Sequence[str] = (), **environ: str
    ) -> None:
        self.directory = directory
        self.operator = operator
        self.scratch = directory / "scratch"
        self.shared = directory / "shared"
        self.local = directory / "local"
        for path in (self.scratch, self.shared, self.local):
            path.mkdir(exist_ok=True)
        self.token = directory / "token"
        self.token.write_text("first\n")
        checkpoint = {"format": "Auto", "shared": str(self.shared), "local": str(self.local), "runUid": RUN_UID}
        environment = {
            "PATH": os.environ["PATH"], "LOCKSTEP_OPERATOR_URL": operator.url, "LOCKSTEP_NAMESPACE": "team",
            "LOCKSTEP_RUN": "hello", "LOCKSTEP_RUN_UID": RUN_UID, "LOCKSTEP_SLOT": "0", "LOCKSTEP_INCARNATION": "1",
            "LOCKSTEP_POD_UID": "pod-1", "LOCKSTEP_NODE_NAME": "node-a", "LOCKSTEP_HOST_IP": "127.0.0.1",
            "LOCKSTEP_CHECKPOINT_CONFIG": json.dumps(checkpoint), "LOCKSTEP_SCRATCH": str(self.scratch),
            "LOCKSTEP_TOKEN_FILE": str(self.token), "LOCKSTEP_CA_FILE": str(operator.ca_file),
            "LOCKSTEP_TERMINATION_LOG": str(directory / "termination-log"), **environ,
        }  # fmt: skip
        program = directory / "worker.pyz"
        program.write_bytes(worker_archive())
        self.out, self.err = directory / "stdout", directory / "stderr"
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [*wrapper, PYTHON, "-I", "-B", str(program), "--", *command], env=environment, stdout=out, stderr=err
            )

    def wait(self) -> int:
        return self.process.wait(DEADLINE)

    def stderr(self) -> str:
        return self.err.read_text()

    def kill(self) -> None:
        """The worker, then what it started: that outlives it where no container ends with it."""
        self.process.kill()
        self.process.wait()
        until(self._is_all_gone)

    def _is_all_gone(self) -> bool:
        """Kills what is not: a program that was just being started may show itself only now."""
        left = list(self._started())
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _started(self) -> Iterator[int]:
        """Processes that got this worker's directories in their environment."""
        for process in Path("/proc").glob("[0-9]*"):
            # Of another user, or gone.
            with contextlib.suppress(OSError):
                if os.fsencode(self.scratch) in (process / "environ").read_bytes():
                    yield int(process.name)


LaunchWorker = Callable[..., RunningWorker]
"""``launch(*command, wrapper=(), **environ)`` starts one."""


def ready(operator: FakeOperator, attempt: int, **where: Any) -> dict[str, Any]:
    operator.desire("Prepare", attempt, **where)
    return operator.wait_for(lambda state: state["readyFor"] == attempt)


def run_attempt(operator: FakeOperator, attempt: int, **start: Any) -> None:
    """Releases an attempt once the worker is ready for it."""
    ready(operator, attempt)
    operator.run(attempt, **start)


def exited(operator: FakeOperator, attempt: int) -> dict[str, Any]:
    return operator.wait_for(lambda state: state["phase"] == "Exited" and state["attempt"] == attempt)


def pid_in(path: Path) -> int:
    return int(until(lambda: path.exists() and path.read_text().strip()))


def commit_shared(worker: RunningWorker, attempt: int, step: int, data: bytes, crc: int | None = None) -> Path:
    directory = worker.shared / RUN_UID / f"a{attempt}" / f"step-{step}"
    directory.mkdir(parents=True)
    (directory / "weights.bin").write_bytes(data)
    crc = zlib.crc32(data) if crc is None else crc
    manifest = {
        "format": "lockstep/1", "runUID": RUN_UID, "attempt": attempt, "step": step, "world": 1,
        "files": [{"name": "weights.bin", "bytes": len(data), "crc32": f"{crc:08x}"}],
    }  # fmt: skip
    (directory / "manifest.tmp").write_text(json.dumps(manifest))
    (directory / "manifest.tmp").rename(directory / "manifest.json")
    return directory
