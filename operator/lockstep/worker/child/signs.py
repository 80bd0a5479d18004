"""What the program's stderr tells of a failure, line by line, while it comes."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import queue
import re
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Pattern, Sequence, Tuple

from lockstep.worker.child.sign_words import MAX_LINE, SIGN_WORDS
from lockstep.worker.output import log_line
from lockstep.worker.settings import JSON

MAX_SIGNS = 16
MAX_TEXT = 256
QUEUED_CHUNKS = 64  # of at most 64 KiB: what is more is passed on, and not looked at
LAST_LOOK_SECONDS = 1.0

SIGN_LIVES = 900.0  # seconds after which a sign explains no end any more, and gives way to a newer one
NOT_A_NUMBER = "Loss:NaN"
LOSS_SPIKE = "Loss:Spike"
MESSAGE = "Message"  # what the program left as its termination message
PATTERN_PROBLEM = "Watch:Problem"
CORRUPT = "Checkpoint:Corrupt"
UNREADABLE = "Checkpoint:Unreadable"  # it may be another file, or another's fault
_FIRST_EVER = (NOT_A_NUMBER, CORRUPT)  # what counts is when it began

_XID = re.compile(rb"NVRM: Xid \([^)]*\): (\d{1,4})")
_SXID = re.compile(rb"SXid \([^)]*\): (\d{1,6})")
_PLAIN: Sequence[Tuple[str, Pattern[bytes]]] = [
    (kind, re.compile(pattern))
    for kind, pattern in (  # the narrower comes first: a line is one sign
        ("CUDA:OutOfMemory", rb"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
        ("CUDA:OutOfMemory", rb"OutOfMemoryError: |RESOURCE_EXHAUSTED: Out of memory"),
        ("CUDA:Ecc", rb"(?i:uncorrectable ECC error)|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable"),
        ("CUDA:NvLink", rb"(?i:uncorrectable NVLink error|cuda_?error_?nvlink_?uncorrectable)"),
        ("NCCL:Timeout", rb"Watchdog caught collective operation timeout|Timeout at NCCL work"),
        ("NCCL:Timeout", rb"NCCL operation[^\n]{0,200} timed out"),
        ("NCCL:RemoteError", rb"ncclRemoteError|NCCL[^\n]{0,200}remote process exited or there was a network error"),
        ("NCCL:SystemError", rb"ncclSystemError"),
        ("NCCL:Internal", rb"ncclInternalError"),
        ("CUDA:Error", rb"CUDA error: |CUDA_ERROR_[A-Z]|cudaError[A-Z]|ncclUnhandledCudaError"),
        ("Storage:NoSpace", rb"No space left on device|Disk quota exceeded"),
        ("Storage:IO", rb"Input/output error|Stale file handle|Remote I/O error|Read-only file system"),
        ("Storage:IO", rb"Transport endpoint is not connected"),
        ("Rendezvous:Timeout", rb"RendezvousTimeoutError|DistStoreError|DistNetworkError|Barrier timed out"),
        ("Rendezvous:Timeout", rb"client socket has timed out after"),
        ("Rendezvous:Timeout", rb"DEADLINE_EXCEEDED: (?i:barrier|[^\n]{0,80}connect)"),
        ("JAX:PeerLost", rb"JAX distributed service detected fatal errors"),
        ("Kubernetes:NoToken", rb"Service token file does not exist"),
        ("Port:InUse", rb"Address already in use|EADDRINUSE"),
        ("Import:Error", rb"^(?:\[[^\]]{1,32}\]:? ?)?(?:ModuleNotFoundError|ImportError): "),
    )
]
# An exception, behind what torchrun, Ray and srun put in front of lines. What a program goes on without is mostly told
# within a line.
_RAISED = (
    rb"^(?:\[[^\]]{1,32}\]:? ?|\(\w{1,64} pid=\d{1,10}[^)]{0,64}\) |\d{1,6}: )*"
    rb"(?:[\w.]{1,64}Error: (?:\[[^\]]{1,32}\] )?)?"
)
# Of what reads checkpoints, which may leave out what it read …
_OF_READERS = re.compile(
    rb"PytorchStreamReader failed|SafetensorError|CheckpointException|Weights only load failed"
    rb"|invalid header or archive is corrupted|[Tt]he file might be corrupted"
)
# … of what reads all sorts of files …
_OF_ANY = re.compile(
    rb"UnpicklingError|BadZipFile|Ran out of input|Unable to load weights|DATA_LOSS|CRC-32C|[Cc]hecksum mismatch"
)
# … and of a file that is not there, which a program may look for in vain in every save.
_MISSING = re.compile(_RAISED + rb"(?:FileNotFoundError|NOT_FOUND): ")
# Pickles and archives, such as a scheduler's state in a save, whose errors name no file.
_NAMELESS = re.compile(_RAISED + rb"(?:[\w.]*UnpicklingError: |EOFError: Ran out of input|(?:[\w.]+\.)?BadZipFile: )")
_PATH = re.compile(rb"(?<![\w.])/[\w.+-]+/[^\s'\"]*")
_SOURCE = re.compile(rb"\.(?:py|pyx|c|cc|cpp|cu|h|hpp|rs)\b")


class Signs:
    """The signs of one attempt: of each kind the first that is not stale, at most sixteen. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: Dict[str, JSON] = {}
        self.step = 0  # the last one done

    def add(self, kind: str, at: float, text: str, step: Optional[int] = None) -> None:
        """Keep it, unless there is one of its kind that still holds."""
        sign = {"kind": kind[:64], "at": at, "step": self.step if step is None else step, "text": text[:MAX_TEXT]}
        with self._lock:
            stale = [old for old in self._found if old not in _FIRST_EVER and at - self._found[old]["at"] > SIGN_LIVES]
            if kind in stale or (stale and len(self._found) >= MAX_SIGNS):
                del self._found[kind if kind in stale else stale[0]]
            if len(self._found) < MAX_SIGNS:
                self._found.setdefault(kind, sign)

    def add_message(self, message: str, loaded: str) -> None:
        """What a program left as its last words: kept as they are, and each line for what it tells (``sign_of``)."""
        now = time.time()
        for line in message.splitlines():
            kind = sign_of(line.encode("utf-8", "replace")[:MAX_LINE], loaded)
            if kind:
                self.add(kind, now, line)
        self.add(MESSAGE, now, message)

    def report(self) -> List[JSON]:
        """Earliest first, as the protocol carries them."""
        with self._lock:
            return sorted(self._found.values(), key=lambda sign: float(sign["at"]))


def sign_of(line: bytes, loaded: str) -> str:
    """The kind of sign that a line of stderr is; empty for most. ``loaded``: path of the checkpoint that is being
    loaded, or empty."""
    for prefix, pattern in (("Xid", _XID), ("SXid", _SXID)):
        matched = pattern.search(line)
        if matched:
            return f"{prefix}:{int(matched.group(1))}"
    for kind, pattern in _PLAIN:
        if pattern.search(line):
            return kind
    return _sign_of_loading(line, loaded) if loaded else ""


def _sign_of_loading(line: bytes, loaded: str) -> str:
    """Data sets, tokenizers and base models are read at a start as well, by the same libraries."""
    if re.search(rb"(?<![\w.-])" + re.escape(os.fsencode(loaded)) + rb"(?![\w-]|\.\w)", line):
        if _OF_READERS.search(line) or _OF_ANY.search(line):
            return CORRUPT
        return UNREADABLE if _MISSING.search(line) else ""
    names_another = any(not _SOURCE.search(path) for path in _PATH.findall(line))
    return UNREADABLE if (_OF_READERS.search(line) or _NAMELESS.search(line)) and not names_another else ""


class StderrReader:
    """Looks at the program's stderr in a thread of its own, so that nothing it meets ever delays the output."""

    def __init__(self, signs: Signs, rules: Sequence[JSON], loaded: Callable[[], str]) -> None:
        self._signs, self._loaded = signs, loaded
        self._chunks: queue.Queue[Optional[Tuple[float, bytes]]] = queue.Queue(QUEUED_CHUNKS)
        self._partial, self._cut = b"", False  # a line begun; and whether its end is to be passed over
        self._given_up = False
        self.passed_over = 0  # bytes
        self._rules = RuleMatcher(signs, rules) if rules else None
        self._thread: Optional[threading.Thread] = None  # there is none before the program writes something

    @property
    def helper(self) -> int:
        """PID of the process that matches the user's patterns, or 0."""
        return self._rules.pid if self._rules else 0

    def feed(self, data: bytes) -> None:
        """Never blocks. Called by one thread only."""
        try:
            self._chunks.put_nowait((time.time(), data))
        except queue.Full:
            self.passed_over += len(data)
        if self._thread is None:
            self._begin()

    def finish(self) -> None:
        """Look at what is left, bounded; afterwards there is neither a thread nor a process."""
        deadline = time.monotonic() + LAST_LOOK_SECONDS
        if self._thread is None and not self._chunks.empty():
            self._begin()  # the program, which is gone, may have had all threads that there was room for
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._chunks.put(None, timeout=LAST_LOOK_SECONDS)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self._given_up = True
        if self._rules:
            self._rules.finish(max(0.1, deadline - time.monotonic()))

    def _begin(self) -> None:
        thread = threading.Thread(target=self._read, daemon=True)
        with contextlib.suppress(RuntimeError):  # no room for another thread: there may be with the next words
            thread.start()
            self._thread = thread

    def _read(self) -> None:
        while not self._given_up:
            entry = self._chunks.get()
            if entry is None:
                break
            self._look_at(*entry)
        self._look_at(time.time(), b"\n")  # the last line may lack its end

    def _look_at(self, at: float, data: bytes) -> None:
        text = self._partial + data.replace(b"\r", b"\n")
        if self._rules is None and not any(word in text for word in SIGN_WORDS):
            text = text[max(0, text.rfind(b"\n")) :]  # a flood of lines that tell nothing costs next to nothing
        lines = text.split(b"\n")
        rest = lines.pop()
        if lines and self._cut:
            lines[0], self._cut = b"", False
        if len(rest) > MAX_LINE:
            if not self._cut:
                lines.append(rest)
            rest, self._cut = b"", True
        self._partial = b"" if self._cut else rest
        for line in lines:
            if not line:
                continue
            line = line[:MAX_LINE]
            if any(word in line for word in SIGN_WORDS):
                kind = sign_of(line, self._loaded())
                if kind:
                    self._signs.add(kind, at, line.decode("utf-8", "replace"))
            if self._rules:
                self._rules.feed(at, line)


class RuleMatcher:
    """The process that matches the user's own patterns. What it can't keep up with is left out.

    ``take_step`` is called, in a thread of its own, with each match of a rule that has ``"steps": true``.
    """

    def __init__(
        self, signs: Signs, rules: Sequence[JSON], take_step: Callable[[JSON], None] = lambda told: None
    ) -> None:
        self._signs, self._take_step = signs, take_step
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._writing = threading.Lock()  # a descriptor that is closed meanwhile may be that of another file
        self.pid = 0
        libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
        source = pkgutil.get_data("lockstep.worker.child", "pattern_matching.py") or b""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-c", source.decode("utf-8")], env=libraries, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, start_new_session=True,
            )  # fmt: skip
            self.pid = self._process.pid
            stdin: Any = self._process.stdin
            asked = [
                {"name": rule["name"], "pattern": rule["pattern"], "steps": bool(rule.get("steps"))} for rule in rules
            ]
            stdin.write(json.dumps(asked).encode())
            stdin.write(b"\n")
            os.set_blocking(stdin.fileno(), False)
        except (OSError, KeyError, TypeError) as error:
            signs.add(PATTERN_PROBLEM, time.time(), f"no pattern is looked for: {error!r}")
        self._answers = threading.Thread(target=self._listen, daemon=True)
        self._answers.start()

    def feed(self, at: float, line: bytes) -> None:
        """Never blocks: a write of this size to a pipe happens as a whole or not at all."""
        if self._process is None:
            return
        with self._writing:
            stdin: Any = self._process.stdin
            if stdin is None or stdin.closed:
                return
            try:
                os.write(stdin.fileno(), b"%.3f %s\n" % (at, line))
            except BlockingIOError:
                pass
            except OSError:  # it has ended: no pattern is left
                stdin.close()

    def finish(self, timeout: float) -> None:
        """Wait for its last answers, bounded."""
        if self._process is not None:
            with self._writing:
                if self._process.stdin is not None:
                    self._process.stdin.close()
            self._answers.join(timeout)
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def _listen(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        with self._process.stdout as answers:
            for answer in iter(answers.readline, b""):
                try:
                    told = json.loads(answer.decode("utf-8"))
                except ValueError:
                    return  # cut off as it was ended
                if "problem" in told:
                    log_line(told["problem"])
                    self._signs.add(PATTERN_PROBLEM, time.time(), told["problem"])
                elif "step" in told:
                    self._take_step(told)
                else:
                    self._signs.add(f"Rule:{told['name']}", told["at"], told["text"])
