"""What the program's processes are doing when no step comes any more."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import Collection, Counter, Dict, List, NamedTuple, Tuple

from lockstep.worker.child.processes import RANK_HOLDER, STEP_SERVER, Process, catches, other_processes, output_of

DIGEST = 2048  # characters
SECONDS = 10.0  # for all processes together
ANSWER_SECONDS = 2.0  # for processes to write down where they stand
PY_SPY_SECONDS = 4.0
MAX_PROCESSES = 64
MAX_DUMP = 1 << 18  # characters in the log, of all processes together
MAX_OF_ONE = 1 << 15
FRAMES = 6  # of a stack in the digest
STACK_SIGNAL = int(signal.SIGRTMIN) + 9  # as in lockstep_training

_FRAME = re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+) in (.+)')
_PY_SPY_FRAME = re.compile(r"^\s+(\S+) \((?:[^)]*/)?([^)/:]+):(\d+)\)")
_STATES = {"T": "stopped by a signal", "t": "stopped by a debugger", "D": "in an uninterruptible wait"}


class StackDump(NamedTuple):
    """``text`` for the report: alike on ranks that stand alike, so no ids or addresses. ``dump`` for the log."""

    text: str
    dump: str


def take_stacks(prefix: str, *, leave_out: Collection[int] = ()) -> StackDump:
    """Of all processes but the worker's own: it, ``leave_out`` and those that hold steps.

    ``prefix``: of the files of those that offer their stacks.

    Takes at most about ten seconds. A process is only sent a signal that it catches for this purpose.
    """
    deadline = time.monotonic() + SECONDS
    ours = (STEP_SERVER, RANK_HOLDER)
    others = (process for process in other_processes() if process.name not in ours and process.pid not in leave_out)
    processes = list(others)[:MAX_PROCESSES]
    offered = _offered(prefix, processes)
    counts: Counter[str] = collections.Counter()
    dump: List[str] = []
    for process in processes:
        text, frames = offered.get(process.pid, ""), ""
        if text:
            frames = _frames_of_faulthandler(text)
        elif process.state not in _STATES and time.monotonic() < deadline - PY_SPY_SECONDS:
            text = _by_py_spy(process.pid)
            frames = _frames_of_py_spy(text)
        if not frames:
            text, frames = _by_proc(process, text)
        state = f" [{_STATES[process.state]}]" if process.state in _STATES else ""
        counts[f"{process.name}{state}: {frames or 'nothing is known'}"] += 1
        dump.append(f"process {process.pid} {process.name} (state {process.state})\n{text[:MAX_OF_ONE].rstrip()}\n")
    # Those that are stopped come first: the cut must not lose them.
    ordered = sorted(counts.items(), key=lambda item: ("[" not in item[0], -item[1], item[0]))
    lines = [f"{count} x {line}" if count > 1 else line for line, count in ordered]
    return StackDump("\n".join(lines)[:DIGEST] or "no process runs", "".join(dump)[:MAX_DUMP])


def forget_the_dead(prefix: str) -> None:
    """Remove the files of processes that have ended: every fork of a data loader makes one. Never raises OSError."""
    directory, name = os.path.split(prefix)
    with contextlib.suppress(OSError):
        for pid in (each[len(name) + 1 :] for each in os.listdir(directory) if each.startswith(name + ".")):
            if re.match(r"[1-9]\d{0,8}$", pid):
                try:
                    os.kill(int(pid), 0)
                except ProcessLookupError:
                    os.unlink(f"{prefix}.{pid}")
                except OSError:
                    continue


def _offered(prefix: str, processes: List[Process]) -> Dict[int, str]:
    """What processes with a Python fault handler write when asked."""
    asked: Dict[int, Tuple[str, int]] = {}
    for process in processes:
        path = f"{prefix}.{process.pid}"
        with contextlib.suppress(OSError):
            size = os.stat(path).st_size
            if catches(process.pid, STACK_SIGNAL) and process.state != "T":
                asked[process.pid] = (path, size)
                os.kill(process.pid, STACK_SIGNAL)
    written: Dict[int, str] = {}
    sizes: Dict[int, int] = {}
    deadline = time.monotonic() + ANSWER_SECONDS
    while len(written) < len(asked) and time.monotonic() < deadline:
        time.sleep(0.05)
        for pid, (path, before) in asked.items():
            with contextlib.suppress(OSError):
                size = os.stat(path).st_size
                if pid not in written and size > before and sizes.get(pid) == size:  # it has stopped growing
                    with open(path, "rb") as stream:
                        stream.seek(before)
                        written[pid] = stream.read(MAX_OF_ONE).decode("utf-8", "replace")
                sizes[pid] = size
    return written


def _frames_of_faulthandler(text: str) -> str:
    """The main thread is the last one; its innermost frame the first."""
    stanzas = [stanza for stanza in re.split(r"\n\s*\n", text) if _FRAME.search(stanza)]
    frames = _FRAME.findall(stanzas[-1]) if stanzas else []
    return " < ".join(f"{name} ({file}:{line})" for file, line, name in frames[:FRAMES])


def _frames_of_py_spy(text: str) -> str:
    stanzas = [stanza for stanza in text.split("\nThread ") if "MainThread" in stanza.partition("\n")[0]]
    lines = (stanzas[0] if stanzas else text).splitlines()
    frames = [matched.groups() for matched in map(_PY_SPY_FRAME.match, lines) if matched]
    return " < ".join(f"{name} ({file}:{line})" for name, file, line in frames[:FRAMES])


def _by_py_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    try:
        return output_of([program, "dump", "--pid", str(pid)], PY_SPY_SECONDS).decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""  # no right to look inside, or it is stuck: /proc remains


def _by_proc(process: Process, text: str) -> Tuple[str, str]:
    """What the kernel tells: (all threads, where the main thread waits)."""
    parts: List[str] = [text] if text else []
    where = ""
    directory = f"/proc/{process.pid}/task"
    with contextlib.suppress(OSError):
        for thread in sorted(os.listdir(directory), key=int)[:MAX_PROCESSES]:
            facts = {name: _read(f"{directory}/{thread}/{name}") for name in ("comm", "wchan", "stack")}
            state = re.search(r"^State:\s*(.+)$", _read(f"{directory}/{thread}/status"), re.MULTILINE)
            words = f"thread {thread} {facts['comm']} {state.group(1) if state else ''} wchan={facts['wchan']}"
            parts.append("\n".join(filter(None, (words, facts["stack"]))))
            if int(thread) == process.pid:
                kernel = re.findall(r"\] (\w+)", facts["stack"])[:FRAMES]
                waits = facts["wchan"] if facts["wchan"] not in ("", "0") else ""
                where = " < ".join(kernel) or (f"in {waits}" if waits else "")
    return "\n".join(parts), where


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as stream:
        return stream.read(8192).decode("utf-8", "replace").strip()
    return ""
