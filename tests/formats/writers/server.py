"""Runs one library's saves and loads in processes that can be killed: imported once, forked for each call.

    python -m writers.server hf

Requests and replies are JSON lines on stdin and stdout. A request is `{"call", "root", …}`. With `crash: {rank, event}`
that process is killed just before its event-th change to a name below the root; with `delay` as well, all of them are
killed so many seconds after it, wherever they are then. A reply is `{"codes", "result", "error", "output", "events"}`,
the last one being the changes that each process made: crashes are aimed by it.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import writers

CALL_SECONDS = 400.0  # on a busy machine; nothing here takes more than seconds of work
CHANGES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def main() -> None:
    # What the library prints must not get among the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    library = importlib.import_module(f"writers.{sys.argv[1]}")
    libraries = {name: importlib.metadata.version(name) for name in library.LIBRARIES}
    print(json.dumps({"form": library.FORM, "world": library.WORLD, "libraries": libraries}), file=replies)
    for line in sys.stdin:
        print(json.dumps(answer(library, json.loads(line))), file=replies)
    os._exit(0)  # taking down so many modules takes long, and nothing of it is needed


def answer(library: ModuleType, request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lockstep-formats-") as scratch:
        world = request.get("world", library.WORLD)
        alarm, ring = os.pipe()
        children = [fork(library, request, rank, world, Path(scratch), ring) for rank in range(world)]
        os.close(ring)
        codes = wait(children, alarm, request.get("crash", {}).get("delay", 0.0))
        os.close(alarm)
        results = [json.loads(text) if (text := read(scratch, rank, "result")) else {} for rank in range(world)]
        failed = [rank for rank, code in enumerate(codes) if code > 0]
        import_here({name for found in results for name in found.get("modules", ())})
        return {
            "codes": codes,
            "result": results[0].get("result"),
            "error": next((found["error"] for found in results if "error" in found), ""),
            "output": read(scratch, failed[0] if failed else 0, "output")[-4000:],
            "events": [found.get("events", 0) for found in results],
        }


def read(scratch: str, rank: int, name: str) -> str:
    path = Path(scratch, f"{name}-{rank}")
    return path.read_text(errors="replace") if path.exists() else ""


def import_here(names: set[str]) -> None:
    """Imports what a call has imported late: thousands of modules, else once more in every process of every call."""
    for name in sorted(names - sys.modules.keys()):
        with contextlib.suppress(Exception):  # some are made, not imported
            importlib.import_module(name)


def fork(library: ModuleType, request: dict[str, Any], rank: int, world: int, scratch: Path, ring: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)  # some libraries write from processes of their own: they die together
        output = os.open(scratch / f"output-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(WRITER_RANK=str(rank), WRITER_WORLD=str(world), WRITER_STORE=str(scratch / "store"))
        writers.size = request.get("size", 1)
        found = carry_out(library, request, rank, ring)
        Path(scratch, f"result-{rank}").write_text(json.dumps(found))
        status = 1 if "error" in found else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def carry_out(library: ModuleType, request: dict[str, Any], rank: int, ring: int) -> dict[str, Any]:
    arguments = {key: request[key] for key in ("steps", "step", "generation") if key in request}
    crash = request.get("crash", {"rank": -1})
    count = watch_changes(
        request["root"], crash["event"] if crash["rank"] == rank else 0, ring if "delay" in crash else -1
    )
    known = set(sys.modules)
    try:
        result = getattr(library, request["call"])(Path(request["root"]), **arguments)
        return {"result": result, "events": count(), "modules": [*(sys.modules.keys() - known)]}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:2000], "events": count()}


def watch_changes(root: str, fatal: int, ring: int) -> Callable[[], int]:
    """Counts the changes to names below root. At the fatal one (0: none) the process dies, or rings to be killed."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in CHANGES or not changes(event, arguments, root):
            return
        seen += 1
        if seen == fatal:
            if ring < 0:
                os.killpg(0, signal.SIGKILL)
            os.write(ring, b"!")

    sys.addaudithook(hook)
    return lambda: seen


def changes(event: str, arguments: tuple[Any, ...], root: str) -> bool:
    if event == "open":
        name, _, flags = arguments
        return isinstance(name, (str, bytes)) and bool(flags & (os.O_WRONLY | os.O_RDWR)) and below(name, root)
    return any(isinstance(name, (str, bytes)) and below(name, root) for name in arguments)


def below(name: str | bytes, root: str) -> bool:
    return os.fsdecode(name).startswith(root)


def wait(children: list[int], alarm: int, delay: float) -> list[int]:
    """Exit codes by rank. All are killed when one of them failed, so long after the alarm, and at the latest."""
    running = {os.pidfd_open(pid): pid for pid in children}
    codes: dict[int, int] = {}
    deadline = time.monotonic() + CALL_SECONDS
    while running:
        ready, _, _ = select.select([*running, alarm], [], [], max(0.0, deadline - time.monotonic()))
        if alarm in ready:
            ready.remove(alarm)
            if os.read(alarm, 1):
                deadline = time.monotonic() + delay
        for descriptor in ready:
            pid = running.pop(descriptor)
            os.close(descriptor)
            end(pid)
            codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if time.monotonic() >= deadline or any(codes.values()):
            for pid in running.values():
                end(pid)
    return [codes[pid] for pid in children]


def end(pid: int) -> None:
    """Kills what is left of a child's group. Before it is waited for: until then the number is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
