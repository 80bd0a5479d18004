"""One running container: a process behind the launcher script."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.processnodes import launcher
from localcluster.processnodes.errors import StartError

Json = dict[str, Any]


@dataclass(frozen=True)
class Container:
    """A started command. ``pid`` is its PID on this machine; inside it is 1."""

    pid: int
    _launcher: asyncio.subprocess.Process

    async def wait(self) -> int:
        """The exit code, 128 + N after signal N."""
        code = await self._launcher.wait()
        return code if code >= 0 else 128 - code

    def send(self, number: signal.Signals) -> None:
        # Until the launcher has been waited for, the PID can't have been given to another process.
        if self._launcher.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


async def start(spec: Json) -> Container:
    """Run a container (the spec is described in launcher.py). Raises StartError."""
    told, tells = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *launcher_command("run", str(os.getpid()), str(tells)),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(tells,),
        )
    finally:
        os.close(tells)
    assert process.stdin is not None
    process.stdin.write(json.dumps(spec).encode())
    process.stdin.close()
    try:
        lines = await asyncio.to_thread(_read_all, told)
    except asyncio.CancelledError:
        process.kill()  # and with it what it started
        raise
    messages: Json = {}
    for line in lines.splitlines():
        messages |= json.loads(line)
    if "error" in messages or "pid" not in messages:
        await process.wait()
        raise StartError(messages.get("error", "the launcher ended without a word"))
    return Container(messages["pid"], process)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


def launcher_command(*arguments: str) -> list[str]:
    """The launcher as a command of its own: isolated, and without site-packages to start fast."""
    return [sys.executable, "-I", "-S", "-B", launcher.__file__, *arguments]


def in_user_namespace() -> bool:
    """True when root here is an ordinary user outside."""
    return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]


def processes_in_network(pid: int) -> list[int]:
    """Every process in the network namespace of ``pid``, except ``pid`` itself."""
    namespace = os.readlink(f"/proc/{pid}/ns/net")
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != pid:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{entry}/ns/net") == namespace:
                    found.append(int(entry))
    return found


def stop_all(pid: int) -> None:
    """SIGSTOP every process in the network namespace of ``pid``, also those forked meanwhile."""
    stopped: set[int] = set()
    while True:
        new = set(processes_in_network(pid)) - stopped
        if not new:
            return
        send_all(new, signal.SIGSTOP)
        stopped |= new


def send_all(pids: "set[int] | list[int]", number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
