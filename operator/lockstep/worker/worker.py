"""Lockstep's worker: PID 1 of the training container. One file, standard library only, Python >= 3.8.

Theory of operation
  The main thread owns the state machine and never blocks for long: it takes events from an inbox (replies of
  the operator, signals, ended processes, results of slow work) and then brings what is nearer to the newest
  desired state. Replies are levels, not commands: hearing one twice, late or never does no harm.
  Two threads talk to the operator. One holds a long poll open, which is the heartbeat and brings a new desired
  state at once; the other sends a fresh report the moment something changed here. Disks are slow or stuck when
  it matters, so everything that touches checkpoints runs in threads of its own.

Two rules
  An attempt is never run twice, and never before the operator released this worker from that attempt's barrier.
  A worker stands at a barrier only after every process of earlier attempts in its PID namespace is dead.

The contract with the training code (environment, exit codes, files) is docs/worker.md.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import http.client
import itertools
import json
import os
import pickletools
import random
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

PROTOCOL = 1
WORKER_VERSION = "0.1.0"
CONTRACT = "1"  # of the child's environment

MAX_POLL_SECONDS = 15.0
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 5.0
MAX_REPLY_BYTES = 16 << 20  # the addresses of 16,384 nodes fit many times
RESTART_GRACE_SECONDS = 2.0  # the peers are gone: there is nothing left to save together
SWEEP_SECONDS = 20.0
GPU_RELEASE_SECONDS = 50.0
GPU_FREE_MIB = 1024
RETRY_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 10.0  # at what could not be read while at the barrier
ORPHAN_SECONDS = 600.0
STDERR_TAIL_BYTES = 4096
MAX_PROGRESS_LINE = 8192
MASTER_PORTS = range(20000, 30000)  # below the ephemeral ports and below the NodePorts


def say(message: str) -> None:
    """One line on the worker's own stderr, beside the child's output."""
    write_all(2, "lockstep: {}\n".format(message.replace("\n", " ")).encode("utf-8", "replace"))


def write_all(descriptor: int, data: bytes) -> bool:
    """False when nobody can read there any more: output must then be dropped, not block the training."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [], 1.0)
        except OSError:
            return False
    return True


# ----------------------------------------------------------------------------
# Settings
# ----------------------------------------------------------------------------


LOCAL, SHARED = "local", "shared"
LOCAL_SKEW = 1.0  # seconds; one machine, one clock
SHARED_SKEW = 2.0  # times come from the file server, mostly


class Tier(NamedTuple):
    """Where checkpoints of the run are: ``root`` holds a directory per run UID."""

    name: str
    root: str
    skew: float  # seconds by which a file may be younger than its commit


@dataclass(frozen=True)
class Settings:
    """What the pod says, fixed for its life. Everything that changes from attempt to attempt comes with START."""

    operator_url: str
    namespace: str
    run: str
    run_uid: str
    slot: int
    incarnation: int
    pod_uid: str
    command: Sequence[str]
    node: str = ""
    address: str = ""
    gpus: int = 0
    gpus_required: bool = False
    launcher: str = "Plain"
    launcher_options: Dict[str, Any] = field(default_factory=dict)
    checkpoint_format: str = "Auto"
    tiers: Dict[str, Tier] = field(default_factory=dict)  # by name
    fenced: bool = False  # the run insists on one fixed directory, which two attempts could write to
    scratch: str = "/run/lockstep"
    token_file: str = "/var/run/secrets/lockstep.dev/token"
    ca_file: str = ""
    orphan_seconds: float = ORPHAN_SECONDS

    @classmethod
    def of(cls, environ: Any, arguments: Sequence[str]) -> Settings:
        """Raises KeyError or ValueError when the pod was not made by Lockstep."""
        checkpoint = json.loads(environ.get("LOCKSTEP_CHECKPOINT_CONFIG") or "{}")
        skew = {LOCAL: LOCAL_SKEW, SHARED: float(checkpoint.get("sharedClockSkewSeconds", SHARED_SKEW))}
        command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
        if not command:
            raise ValueError("there is no command to run")
        return cls(
            operator_url=environ["LOCKSTEP_OPERATOR_URL"],
            namespace=environ["LOCKSTEP_NAMESPACE"],
            run=environ["LOCKSTEP_RUN"],
            run_uid=environ["LOCKSTEP_RUN_UID"],
            slot=int(environ["LOCKSTEP_SLOT"]),
            incarnation=int(environ["LOCKSTEP_INCARNATION"]),
            pod_uid=environ["LOCKSTEP_POD_UID"],
            command=command,
            node=environ.get("LOCKSTEP_NODE_NAME", ""),
            address=environ.get("LOCKSTEP_HOST_IP") or environ.get("LOCKSTEP_POD_IP", ""),
            gpus=int(environ.get("LOCKSTEP_GPUS") or 0),
            gpus_required=environ.get("LOCKSTEP_CHECK_GPUS") == "1",
            launcher=environ.get("LOCKSTEP_LAUNCHER") or "Plain",
            launcher_options=json.loads(environ.get("LOCKSTEP_LAUNCHER_OPTIONS") or "{}"),
            checkpoint_format=checkpoint.get("format") or "Auto",
            tiers={name: Tier(name, checkpoint[name], skew[name]) for name in skew if checkpoint.get(name)},
            fenced=checkpoint.get("layout") == "Shared",
            scratch=environ.get("LOCKSTEP_SCRATCH") or "/run/lockstep",
            token_file=environ.get("LOCKSTEP_TOKEN_FILE") or "/var/run/secrets/lockstep.dev/token",
            ca_file=environ.get("LOCKSTEP_CA_FILE")
            or os.path.join(os.path.dirname(os.path.abspath(__file__)), "ca.crt"),
            orphan_seconds=float(environ.get("LOCKSTEP_ORPHAN_SECONDS") or ORPHAN_SECONDS),
        )


# ----------------------------------------------------------------------------
# Checkpoints: what can be said of a directory without loading a model and without unpickling.
# Functions over directories only, so that the command line can use them too.
# ----------------------------------------------------------------------------

VALID, INVALID, UNKNOWN = "Valid", "Invalid", "Unknown"
MANIFEST, TORCH_DCP = "Manifest", "TorchDCP"
MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = "lockstep/1"
NEWEST = 32  # checkpoints looked at per tier
ENOUGH_VALID = 8  # older ones than the eight newest valid ones are never the best choice
ALL_FILES = 1024  # up to so many files every rank looks at all of them, beyond at its share
MAX_MANIFEST_BYTES = 64 << 20
CHUNK = 4 << 20

_ATTEMPT_NAME = re.compile(r"^a(\d{1,9})$")
_STEP_NAME = re.compile(r"(?:^|[^0-9])(\d{1,15})$")


class Finding(NamedTuple):
    """What was found out about one checkpoint directory. ``committed_at`` 0: no evidence of a commit."""

    verdict: str
    reason: str = ""
    format: str = ""
    attempt: int = 0
    world: int = 0
    run_uid: str = ""
    bytes: int = 0
    committed_at: float = 0.0


class InvalidError(Exception):
    """The checkpoint is not complete and unchanged; the message says why."""


class InterruptedCheckError(Exception):
    """The answer is no longer wanted."""


class ListedFile(NamedTuple):
    """A file that a checkpoint must have. ``exact``: of exactly that many bytes, else at least."""

    name: str
    bytes: int
    exact: bool = True
    crc32: str = ""


def scan_tier(
    tier: str,
    root: str,
    run_uid: str,
    *,
    form: str = "Auto",
    share: int = 0,
    of: int = 1,
    skew: float = LOCAL_SKEW,
) -> List[Dict[str, Any]]:
    """The newest checkpoints under ``<root>/<run_uid>/a<N>/``, newest first, as rows of the inventory.

    In the tier ``local`` each rank's shard is a row of its own. Of a checkpoint with very many files only every
    ``of``-th is looked at, from ``share`` on: the ranks together see all of them.
    Raises OSError when a directory that exists cannot be listed: then nothing is known, not even that there is none.
    """
    rows: List[Dict[str, Any]] = []
    valid = 0
    for step, attempt, path in sorted(step_directories(os.path.join(root, run_uid)), reverse=True)[:NEWEST]:
        for shard in shards(path, tier):
            finding = examine(shard, form=form, run_uid=run_uid, step=step, share=share, of=of, skew=skew)
            if finding is not None:
                rows.append(inventory_row(tier, step, attempt, shard, finding))
                valid += finding.verdict == VALID
        if valid >= ENOUGH_VALID:
            break
    return rows[:NEWEST]


def inventory_row(tier: str, step: int, attempt: int, path: str, finding: Finding) -> Dict[str, Any]:
    """A finding as the protocol carries it."""
    return {
        "tier": tier, "step": step, "path": path, "verdict": finding.verdict, "reason": finding.reason[:256],
        "format": finding.format, "attempt": attempt, "world": finding.world, "runUid": finding.run_uid,
        "bytes": finding.bytes, "committedAt": finding.committed_at,
    }  # fmt: skip


def step_directories(run_root: str) -> Iterator[Tuple[int, int, str]]:
    """(step, attempt, path) of every directory that is named like a checkpoint of some attempt."""
    for name in _subdirectories(run_root):
        matched = _ATTEMPT_NAME.match(name)
        if matched:
            yield from attempt_steps(os.path.join(run_root, name), int(matched.group(1)))


def attempt_steps(directory: str, attempt: int) -> Iterator[Tuple[int, int, str]]:
    """(step, attempt, path) of every checkpoint directory of one attempt: those whose name ends in a number."""
    for name in _subdirectories(directory):
        matched = _STEP_NAME.search(name)
        if matched:
            yield int(matched.group(1)), attempt, os.path.join(directory, name)


def _subdirectories(directory: str) -> List[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def shards(directory: str, tier: str) -> List[str]:
    """The directories with a commit of their own: one per rank in the local tier, else the checkpoint itself."""
    if tier != "local":
        return [directory]
    held = [name for name in _subdirectories(directory) if name.startswith("rank-")]
    return [os.path.join(directory, name) for name in held] or [directory]


def examine(
    directory: str,
    *,
    form: str = "Auto",
    run_uid: str = "",
    step: Optional[int] = None,
    share: int = 0,
    of: int = 1,
    skew: float = LOCAL_SKEW,
) -> Optional[Finding]:
    """Presence, sizes and commit order of one directory; no data is read. None: this is no checkpoint at all.

    ``run_uid`` and ``step``: what it must say of itself, unless empty or None. ``skew``: seconds by which a file may
    be younger than the commit.
    """
    finding = Finding(INVALID, format=form)
    try:
        names = os.listdir(directory)
        if form not in (MANIFEST, TORCH_DCP):
            ours = MANIFEST_NAME in names or os.path.basename(directory).startswith(("step-", "rank-"))
            if not ours and not _looks_like_dcp(names):
                return None
            dcp = _looks_like_dcp(names) and MANIFEST_NAME not in names
            finding = finding._replace(format=TORCH_DCP if dcp else MANIFEST)
        if finding.format == MANIFEST:
            finding, files = _read_manifest(directory, run_uid, step)
        else:
            finding, files = _read_dcp(directory, names)
        _check_files(directory, files, finding.committed_at, share, of, skew)
        return finding
    except InvalidError as error:
        return finding._replace(verdict=INVALID, reason=str(error))
    except FileNotFoundError as error:
        return finding._replace(verdict=INVALID, reason="vanished: {}".format(_trouble(error)))
    except OSError as error:
        return finding._replace(verdict=UNKNOWN, reason=_trouble(error))


def _check_files(
    directory: str, files: Sequence[ListedFile], committed_at: float, share: int, of: int, skew: float
) -> None:
    for listed in files[share::of] if len(files) > ALL_FILES else files:
        try:
            found = os.stat(os.path.join(directory, listed.name))
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidError("{} is missing".format(listed.name)) from None
        if found.st_size < listed.bytes or (listed.exact and found.st_size != listed.bytes):
            raise InvalidError(
                "{} has {} bytes, its commit says {}{}".format(
                    listed.name, found.st_size, "" if listed.exact else "at least ", listed.bytes
                )
            )
        if found.st_mtime > committed_at + skew:
            raise InvalidError("{} changed after its commit".format(listed.name))


def _read_manifest(directory: str, run_uid: str, step: Optional[int]) -> Tuple[Finding, List[ListedFile]]:
    """Raises InvalidError, OSError."""
    path = os.path.join(directory, MANIFEST_NAME)
    try:
        with open(path, "rb") as stream:
            committed_at = os.fstat(stream.fileno()).st_mtime
            text = stream.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise InvalidError("no {}: it was never committed".format(MANIFEST_NAME)) from None
    if len(text) > MAX_MANIFEST_BYTES:
        raise InvalidError("{} is too large".format(MANIFEST_NAME))
    try:
        manifest = json.loads(text.decode("utf-8"))
        if manifest.get("format") != MANIFEST_FORMAT:
            raise InvalidError("{} is of format {!r}".format(MANIFEST_NAME, manifest.get("format")))
        files = [
            ListedFile(_inside(entry["name"]), _whole(entry["bytes"]), crc32=str(entry["crc32"]).lower())
            for entry in manifest["files"]
        ]
        finding = Finding(
            VALID,
            format=MANIFEST,
            attempt=_whole(manifest["attempt"]),
            world=_whole(manifest["world"]),
            run_uid=str(manifest["runUID"]),
            bytes=sum(listed.bytes for listed in files),
            committed_at=committed_at,
        )
        committed_step = _whole(manifest["step"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidError("{} is not readable: {!r}".format(MANIFEST_NAME, error)) from None
    if run_uid and finding.run_uid != run_uid:
        raise InvalidError("belongs to another run ({})".format(finding.run_uid[:64]))
    if step is not None and committed_step != step:
        raise InvalidError("{} says step {}".format(MANIFEST_NAME, committed_step))
    if not files:
        raise InvalidError("{} lists no file".format(MANIFEST_NAME))
    return finding, sorted(files)


def _inside(name: Any) -> str:
    if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise ValueError("bad file name {!r}".format(name))
    return name


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError("bad number {!r}".format(number))
    return number


def _looks_like_dcp(names: Sequence[str]) -> bool:
    return any(name.endswith(".distcp") or name in (".metadata", ".metadata.tmp") for name in names)


def _read_dcp(directory: str, names: Sequence[str]) -> Tuple[Finding, List[ListedFile]]:
    """Raises InvalidError, OSError.

    What .metadata refers to is compared where its structure is understood; otherwise the files that are there
    are taken as they are and the reason says so: refusing them would refuse every checkpoint of a newer torch.
    """
    if ".metadata.tmp" in names:
        raise InvalidError(".metadata.tmp is left over: a save did not end")
    if ".metadata" not in names:
        raise InvalidError("no .metadata: it was never committed")
    data = sorted(name for name in names if name.endswith(".distcp"))
    if not data:
        raise InvalidError("there is no .distcp file")
    marker = os.path.join(directory, ".metadata")
    found = os.stat(marker)
    extents = _dcp_extents_of(marker, found.st_mtime_ns, found.st_size)
    reason = ""
    if not extents:
        reason = "the structure of .metadata was not understood: sizes were not compared"
    files = {name: ListedFile(name, 0, exact=False) for name in data}
    for name, extent in extents.items():
        try:
            files[name] = ListedFile(_inside(name), extent, exact=False)
        except ValueError as error:
            raise InvalidError(".metadata names a {}".format(error)) from None
    total = sum(listed.bytes for listed in files.values())
    finding = Finding(VALID, reason, TORCH_DCP, bytes=total, committed_at=found.st_mtime)
    return finding, sorted(files.values())


@functools.lru_cache(maxsize=64)
def _dcp_extents_of(path: str, mtime_ns: int, size: int) -> Dict[str, int]:
    """``dcp_extents`` of a file, remembered while it stays the same: a large one takes seconds at every barrier."""
    if size > MAX_MANIFEST_BYTES:
        return {}
    with open(path, "rb") as stream:
        metadata = stream.read(size)
    try:
        return dcp_extents(metadata)
    except MemoryError:
        raise
    except Exception as error:  # pickletools raises whatever a broken stream leads to
        raise InvalidError(".metadata is not a whole pickle: {}".format(error)) from None


_STRING_OPCODES = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_INTEGER_OPCODES = frozenset(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"))
_MEMO_PUTS = frozenset(("BINPUT", "LONG_BINPUT", "PUT"))
_MEMO_GETS = frozenset(("BINGET", "LONG_BINGET", "GET"))


def dcp_extents(metadata: bytes) -> Dict[str, int]:
    """Bytes that each data file must at least have, read off the opcodes of a DCP ``.metadata`` pickle.

    Nothing is unpickled: the stream is searched for the state of torch's ``_StorageInfo`` (relative_path, offset,
    length, pushed in this order). Empty when not every such state was understood. Raises on a broken pickle.
    """
    extents: Dict[str, int] = {}
    memo: Dict[int, Any] = {}
    pushed: Deque[Any] = collections.deque(maxlen=6)
    last: Any = None
    seen = understood = 0
    for opcode, argument, _ in pickletools.genops(metadata):
        name = opcode.name
        if name == "FRAME":
            continue
        if name == "MEMOIZE":
            memo[len(memo)] = last
            continue
        if name in _MEMO_PUTS:
            memo[argument] = last
            continue
        if name in _MEMO_GETS:
            last = memo.get(argument)
        elif name in _STRING_OPCODES or name in _INTEGER_OPCODES:
            last = argument
        else:
            last = None
        if last is None:
            pushed.clear()
            continue
        pushed.append(last)
        seen += last == "relative_path"
        if len(pushed) == 6 and (pushed[0], pushed[2], pushed[4]) == ("relative_path", "offset", "length"):
            path, offset, length = pushed[1], pushed[3], pushed[5]
            if isinstance(path, str) and isinstance(offset, int) and isinstance(length, int):
                extents[path] = max(extents.get(path, 0), offset + length)
                understood += 1
    return extents if understood == seen else {}


def verify_checkpoint(
    directory: str,
    share: int = 0,
    of: int = 1,
    *,
    form: str = "Auto",
    run_uid: str = "",
    skew: float = LOCAL_SKEW,
    interrupted: Callable[[], bool] = lambda: False,
) -> Tuple[str, str]:
    """(verdict, reason) after reading this share of the files (every ``of``-th from ``share`` on, by name).

    A directory with a commit marker is meant: in the local tier that of one rank. TorchDCP has no checksums, so
    there it says no more than ``examine``. Raises InterruptedCheckError when ``interrupted()`` becomes true.
    """
    finding = examine(directory, form=form, run_uid=run_uid, skew=skew)
    if finding is None:
        return INVALID, "there is no checkpoint"
    if finding.verdict != VALID or finding.format != MANIFEST:
        return finding.verdict, finding.reason
    try:
        files = _read_manifest(directory, run_uid, None)[1]
        for listed in files[share::of]:
            found = file_crc32(os.path.join(directory, listed.name), interrupted)
            if found != listed.crc32:
                return INVALID, "{} has crc32 {}, its manifest says {}".format(listed.name, found, listed.crc32)
    except InvalidError as error:
        return INVALID, str(error)
    except OSError as error:
        return UNKNOWN, _trouble(error)
    return VALID, ""


def file_crc32(path: str, interrupted: Callable[[], bool] = lambda: False) -> str:
    """zlib's CRC-32 of a file as eight hexadecimal digits. Raises OSError, InterruptedCheckError."""
    checksum = 0
    with open(path, "rb", buffering=0) as stream:
        while True:
            if interrupted():
                raise InterruptedCheckError(path)
            chunk = stream.read(CHUNK)
            if not chunk:
                return "{:08x}".format(checksum)
            checksum = zlib.crc32(chunk, checksum)


def commit_mark(directory: str) -> Optional[Tuple[int, int]]:
    """Identifies a commit without reading it: it differs after another commit to the same place. None: uncommitted."""
    for name in (MANIFEST_NAME, ".metadata"):
        try:
            found = os.stat(os.path.join(directory, name))
        except OSError:
            continue
        return found.st_mtime_ns, found.st_size
    return None


def _trouble(error: OSError) -> str:
    return "{}: {}".format(error.strerror or error, error.filename or "")


# ----------------------------------------------------------------------------
# Processes of this PID namespace
# ----------------------------------------------------------------------------


def adopt_orphans() -> None:
    """Be the parent of descendants whose own parent died, as PID 1 is by itself."""
    if os.getpid() == 1:
        return
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError) as error:
        say("cannot adopt orphaned processes: {}".format(error))


class Process(NamedTuple):
    """A line of /proc."""

    pid: int
    parent: int
    state: str
    name: str


def other_processes() -> List[Process]:
    """Living processes that are not the worker: all of its PID namespace where it is PID 1, else its descendants."""
    found: Dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/stat".format(name), "rb") as stream:
                    head, _, tail = stream.read().decode("utf-8", "replace").rpartition(")")
            except OSError:
                continue  # it ended meanwhile
            fields = tail.split()
            found[int(name)] = Process(int(name), int(fields[1]), fields[0], head.partition("(")[2])
    own = os.getpid()
    mine: Set[int] = set(found) if own == 1 else {own}
    grown = own != 1
    while grown:
        children = {process.pid for process in found.values() if process.parent in mine}
        grown = not children <= mine
        mine |= children
    return [found[pid] for pid in sorted(mine - {own}) if pid in found and found[pid].state not in "ZX"]


def kill_others() -> List[Process]:
    """Send SIGKILL to every other process once; returns those it was sent to."""
    others = other_processes()
    for process in others:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            os.kill(process.pid, signal.SIGKILL)
    return others


def end_other_processes() -> str:
    """Kill until nothing else lives; returns what is in the way, or an empty string."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while True:
        left = kill_others()
        if not left:
            return ""
        if time.monotonic() > deadline:
            named = ", ".join("{} {} (state {})".format(p.pid, p.name, p.state) for p in left[:3])
            return "{} processes of an earlier attempt do not die: {}".format(len(left), named)
        time.sleep(0.02)


def out_of_memory_kills() -> int:
    """How many processes of this container the kernel has killed for memory; 0 where it does not say."""
    try:
        with open("/sys/fs/cgroup/memory.events") as stream:
            return {key: int(value) for key, value in map(str.split, stream)}.get("oom_kill", 0)
    except (OSError, ValueError):
        return 0


# ----------------------------------------------------------------------------
# The node: can this machine train?
# ----------------------------------------------------------------------------


def _nvidia_smi(query: str) -> Optional[List[int]]:
    """One number per GPU, or None where there is no working nvidia-smi. Raises TimeoutExpired."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        output = subprocess.run(
            [program, "--query-gpu=" + query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30,
        ).stdout  # fmt: skip
        return [int(line) for line in output.split()]
    except (OSError, ValueError):
        return None


def gpu_problem(settings: Settings) -> str:
    """Too few GPUs, or memory of them still in use; empty when nothing is wrong or nothing can be asked."""
    if not settings.gpus:
        return ""
    deadline = time.monotonic() + GPU_RELEASE_SECONDS
    while True:
        try:
            used = _nvidia_smi("memory.used")
        except subprocess.TimeoutExpired:
            return "nvidia-smi does not answer"
        if used is None:
            devices = len([name for name in os.listdir("/dev") if re.match(r"nvidia\d+$", name)])
            if devices < settings.gpus and (devices or settings.gpus_required):
                return "{} of {} GPUs are visible".format(devices, settings.gpus)
            return ""
        if len(used) < settings.gpus:
            return "{} of {} GPUs are visible".format(len(used), settings.gpus)
        held = [index for index, mebibytes in enumerate(used) if mebibytes > GPU_FREE_MIB]
        if not held:
            return ""
        if time.monotonic() > deadline:
            return "memory of GPU {} is still in use ({} MiB)".format(held[0], used[held[0]])
        time.sleep(1.0)


def scratch_problem(settings: Settings) -> str:
    """Why the worker cannot keep its records; empty when all is well."""
    probe = os.path.join(settings.scratch, ".probe")
    try:
        with open(probe, "wb") as stream:
            stream.write(b"lockstep")
            stream.flush()
            os.fsync(stream.fileno())
        os.unlink(probe)
    except OSError as error:
        return "the scratch volume is not writable: {}".format(_trouble(error))
    return ""


def hold_port() -> socket.socket:
    """A free TCP port, kept from others until just before the child starts.

    Below the ephemeral ports, so that no outgoing connection takes it while the trainer is still importing.
    """
    family = socket.AF_INET6 if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6") else socket.AF_INET
    for port in [*random.sample(MASTER_PORTS, 200), 0]:
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            held.bind(("", port))
            return held
        except OSError as error:
            held.close()
            if error.errno == errno.EADDRNOTAVAIL and family == socket.AF_INET6:
                family = socket.AF_INET
    raise OSError(errno.EADDRINUSE, "no free TCP port")


class Prepared(NamedTuple):
    """The result of making ready for an attempt. ``problem`` empty: this node can stand at the barrier."""

    attempt: int
    problem: str
    inventory: List[Dict[str, Any]]
    port: Optional[socket.socket]


def prepare(settings: Settings, attempt: int, rank: int, world: int) -> Prepared:
    """End what is left of earlier attempts, check the node, take inventory, choose a port. Slow: minutes at worst."""
    try:
        problem = end_other_processes() or gpu_problem(settings) or scratch_problem(settings)
        if problem:
            return Prepared(attempt, problem, [], None)
        return Prepared(attempt, "", survey(settings, attempt, rank, world), hold_port())
    except OSError as error:
        return Prepared(attempt, "preparing failed: {}".format(_trouble(error)), [], None)
    except Exception as error:  # the thread's end: the main thread waits for an answer, whatever happens
        return Prepared(attempt, "preparing failed: {!r}".format(error), [], None)


def survey(settings: Settings, attempt: int, rank: int, world: int) -> List[Dict[str, Any]]:
    """Take inventory of all tiers, and make the directories that the attempt saves in.

    They are made here, not at the start: a tier that takes no writes is found out before anybody is released.
    A shared tier that cannot be listed is not this node's fault: an UNKNOWN row of step 0 stands for what may be
    there, and the operator sees that this rank is blind. Raises OSError for all other trouble.
    """
    rows: List[Dict[str, Any]] = []
    for name, root, skew in settings.tiers.values():
        share, of = (rank, world) if name == SHARED and 0 <= rank < world else (0, 1)
        try:
            rows += scan_tier(
                name, root, settings.run_uid, form=settings.checkpoint_format, share=share, of=of, skew=skew
            )
        except OSError as error:
            if name != SHARED:
                raise
            unseen = os.path.join(root, settings.run_uid)
            rows.append(inventory_row(name, 0, 0, unseen, Finding(UNKNOWN, _trouble(error))))
        else:
            os.makedirs(attempt_directory(settings, name, attempt), exist_ok=True)
    return rows


# ----------------------------------------------------------------------------
# The child: its command, environment, output and progress
# ----------------------------------------------------------------------------


class LaunchError(Exception):
    """The child could not be started; ``code`` is what a shell would have said."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class Launch(NamedTuple):
    """What START means for this rank."""

    attempt: int
    rank: int
    world: int
    master_address: str
    master_port: int
    resume_path: str
    resume_step: str
    nodelist: Sequence[str]

    @classmethod
    def of(cls, desired: Dict[str, Any]) -> Launch:
        """From a released reply. Raises KeyError, TypeError."""
        start, resume = desired["start"], desired["start"].get("resume") or {}
        return cls(
            desired["attempt"], desired["rank"], desired["worldSize"], start["masterAddress"], start["masterPort"],
            resume.get("path", ""), str(resume["step"]) if resume else "", desired.get("nodelist") or [],
        )  # fmt: skip


def attempt_directory(settings: Settings, name: str, attempt: int) -> str:
    """Where an attempt saves in the tier of that name; empty when the run has no such tier."""
    tier = settings.tiers.get(name)
    return os.path.join(tier.root, settings.run_uid, "a{}".format(attempt)) if tier else ""


def contract_environment(settings: Settings, launch: Launch) -> Dict[str, str]:
    """The LOCKSTEP_ variables of one attempt (docs/worker.md)."""
    scratch = os.path.join(settings.scratch, "a{}".format(launch.attempt))

    return {
        "LOCKSTEP_CONTRACT": CONTRACT,
        "LOCKSTEP_RUN": settings.run,
        "LOCKSTEP_RUN_UID": settings.run_uid,
        "LOCKSTEP_ATTEMPT": str(launch.attempt),
        "LOCKSTEP_NODE_RANK": str(launch.rank),
        "LOCKSTEP_NNODES": str(launch.world),
        "LOCKSTEP_NODELIST_FILE": os.path.join(scratch, "nodelist"),
        "LOCKSTEP_MASTER_ADDR": launch.master_address,
        "LOCKSTEP_MASTER_PORT": str(launch.master_port),
        "LOCKSTEP_RESUME_PATH": launch.resume_path,
        "LOCKSTEP_RESUME_STEP": launch.resume_step,
        "LOCKSTEP_CHECKPOINT_DIR": attempt_directory(settings, SHARED, launch.attempt),
        "LOCKSTEP_LOCAL_CHECKPOINT_DIR": attempt_directory(settings, LOCAL, launch.attempt),
        "LOCKSTEP_PROGRESS_FILE": os.path.join(scratch, "progress.jsonl"),
    }


def launcher_environment(settings: Settings, launch: Launch) -> Dict[str, str]:
    """The variables that make the framework find its peers."""
    address, port = launch.master_address, str(launch.master_port)
    endpoint = "[{}]:{}".format(address, port) if ":" in address else "{}:{}".format(address, port)
    if settings.launcher == "JAX":
        return {
            "JAX_COORDINATOR_ADDRESS": endpoint,
            "JAX_NUM_PROCESSES": str(launch.world),
            "JAX_PROCESS_ID": str(launch.rank),
        }
    if settings.launcher == "Torchrun":
        return {}  # torchrun gets it by argument and sets the rest itself
    environment = {
        "MASTER_ADDR": address, "MASTER_PORT": port, "NNODES": str(launch.world), "NODE_RANK": str(launch.rank),
        "PET_NNODES": str(launch.world), "PET_NODE_RANK": str(launch.rank),
        "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port, "PET_RDZV_BACKEND": "static",
    }  # fmt: skip
    if settings.gpus:
        environment["PET_NPROC_PER_NODE"] = os.environ.get("PET_NPROC_PER_NODE") or str(settings.gpus)
    return environment


def launcher_command(settings: Settings, launch: Launch) -> List[str]:
    """The command as the launcher wants it: Torchrun replaces the interpreter, the others change nothing."""
    command = list(settings.command)
    if settings.launcher != "Torchrun":
        return command
    # An entrypoint stands in front of the command and has to stay there.
    ahead = int(settings.launcher_options.get("entrypoint") or 0)
    processes = settings.launcher_options.get("nprocPerNode") or settings.gpus or 1
    head, command = command[:ahead], command[ahead:]
    torchrun = [
        "torchrun", "--nnodes={}".format(launch.world), "--node-rank={}".format(launch.rank),
        "--nproc-per-node={}".format(processes), "--master-addr={}".format(launch.master_address),
        "--master-port={}".format(launch.master_port),
    ]  # fmt: skip
    directory, program = os.path.split(command[0])
    if re.match(r"python[0-9.]*$", program):
        torchrun[0] = os.path.join(directory, "torchrun")  # that of the interpreter which the user named
        script = list(itertools.dropwhile("-u".__eq__, command[1:]))
        if script and (script[0] == "-m" or not script[0].startswith("-")):
            command = script  # torchrun starts the interpreter itself, with -u
        else:
            torchrun.append("--no-python")  # it would lose the interpreter's other options
    elif not program.endswith(".py") and program != "-m":
        torchrun.append("--no-python")
    return [*head, *torchrun, *command]


def expand(argument: str, variables: Dict[str, str]) -> str:
    """As the kubelet does it, for LOCKSTEP_ variables only: ``$(X)`` becomes its value, ``$$(X)`` the text ``$(X)``.

    An unknown name stays. Other names are none of ours: the kubelet has expanded them already.
    """

    def replacement(matched: Any) -> str:
        dollars, name = matched.groups()
        text = "({})".format(name)
        if len(dollars) % 2:
            text = variables.get(name, "$" + text)
        return str("$" * (len(dollars) // 2) + text)

    return re.sub(r"(\$+)\((LOCKSTEP_[A-Z0-9_]+)\)", replacement, argument)


class ProgressTail:
    """Reads a growing file of JSON lines {"step": …, "loss": …, "total_steps": …, "time": …}, newest line wins."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""

    def newest(self, now: float) -> Optional[Dict[str, Any]]:
        """The progress of the newest whole line since the last call, or None. ``now``: for lines without a time."""
        try:
            with open(self._path, "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                if size < self._offset:  # written anew
                    self._offset, self._partial = 0, b""
                if size - self._offset > 1 << 20:  # only the newest line is wanted
                    self._offset, self._partial = size - (1 << 20), b""
                stream.seek(self._offset)
                data = stream.read(size - self._offset)
        except OSError:
            return None
        self._offset += len(data)
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()[-MAX_PROGRESS_LINE:]
        for line in reversed(lines):
            progress = parse_progress(line, now) if len(line) <= MAX_PROGRESS_LINE else None
            if progress is not None:
                return progress
        return None


def parse_progress(line: bytes, now: float) -> Optional[Dict[str, Any]]:
    """One line as the protocol carries it; None for anything that is not progress."""
    try:
        # Numbers stay the text that the trainer wrote: a loss is shown, never computed with.
        entry = json.loads(line.decode("utf-8"), parse_float=str, parse_constant=str)
        step = int(float(entry["step"]))
        total = entry.get("total_steps")
        total = None if total is None else int(float(total))
        at = float(entry.get("time") or now)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    if not (0 <= step <= 1 << 53 and (total is None or 0 <= total <= 1 << 53)):
        return None
    loss = entry.get("loss")
    return {
        "step": step,
        "at": at if 0 <= at < 1 << 40 else now,
        "loss": "" if loss is None else str(loss)[:32],
        "totalSteps": total,
    }


class Child:
    """One attempt's process, in a session of its own. Its output goes through byte by byte as two streams."""

    def __init__(self, attempt: int, command: Sequence[str], environment: Dict[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, bufsize=0, start_new_session=True,
            )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LaunchError(127, "CommandNotFound", "{}: {}".format(command[0], error.strerror)) from None
        except (OSError, ValueError) as error:
            raise LaunchError(126, "CommandNotExecutable", "{}: {}".format(command[0], error)) from None
        self.attempt = attempt
        self.pid = self._process.pid
        self.started = time.monotonic()
        self.kill_at: Optional[float] = None  # monotonic; None: nobody asked it to end
        self.stop_reason = ""
        self.stderr_tail = b""
        self._pumps = [
            threading.Thread(target=self._pump, args=(self._process.stdout, 1), daemon=True),
            threading.Thread(target=self._pump, args=(self._process.stderr, 2), daemon=True),
        ]
        for pump in self._pumps:
            pump.start()

    def _pump(self, source: Any, sink: int) -> None:
        readable = True
        with source:
            while True:
                data = os.read(source.fileno(), 65536)
                if not data:
                    return
                if sink == 2:
                    self.stderr_tail = (self.stderr_tail + data)[-STDERR_TAIL_BYTES:]
                readable = readable and write_all(sink, data)

    def stop(self, grace: float, reason: str) -> bool:
        """SIGTERM now, SIGKILL after ``grace`` seconds; of several requests the strictest holds. True: the first."""
        first, kill_at = self.kill_at is None, time.monotonic() + grace
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if first:
            self.stop_reason = reason
            self._signal(signal.SIGTERM)
        return first

    def enforce(self) -> None:
        """Kill it if its grace is over."""
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            os.killpg(self.pid, number)

    def drain(self, code: int) -> None:
        """After it was reaped: let the last output through, bounded, since a process that survived may hold a pipe."""
        self._process.returncode = code
        deadline = time.monotonic() + 1.0
        for pump in self._pumps:
            pump.join(max(0.0, deadline - time.monotonic()))


class CheckpointWatch(threading.Thread):
    """While an attempt trains: tells of each of its checkpoints once, when its commit appears."""

    def __init__(self, settings: Settings, launch: Launch, interval: float, tell: Callable[[List[Any]], None]) -> None:
        super().__init__(daemon=True)
        self._settings, self._launch, self._interval, self._tell = settings, launch, interval, tell
        self._ended = threading.Event()
        self._told: Dict[str, Tuple[int, int]] = {}

    def end(self) -> None:
        """Look once more and leave."""
        self._ended.set()

    def run(self) -> None:
        """Look at intervals until ended."""
        ended = False
        while not ended:
            ended = self._ended.wait(self._interval)
            rows = []
            for tier in self._settings.tiers.values():
                with contextlib.suppress(OSError):  # the next look, or the inventory, will say
                    rows += self._news(tier)
            if rows:
                self._tell(rows)

    def _news(self, tier: Tier) -> List[Dict[str, Any]]:
        settings, launch = self._settings, self._launch
        rows = []
        directory = attempt_directory(settings, tier.name, launch.attempt)
        for step, attempt, path in sorted(attempt_steps(directory, launch.attempt), reverse=True)[:NEWEST]:
            for shard in shards(path, tier.name):
                mark = commit_mark(shard)
                if mark is None or self._told.get(shard) == mark:
                    continue
                finding = examine(
                    shard, form=settings.checkpoint_format, run_uid=settings.run_uid, step=step,
                    share=launch.rank, of=launch.world, skew=tier.skew,
                )  # fmt: skip
                self._told[shard] = mark
                if finding is not None:
                    rows.append(inventory_row(tier.name, step, attempt, shard, finding))
        return rows


# ----------------------------------------------------------------------------
# The link to the operator
# ----------------------------------------------------------------------------


class Inbox:
    """Events for the main thread, from any thread and from signal handlers."""

    def __init__(self) -> None:
        self._events: Deque[Any] = collections.deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def catch(self, *signals: int) -> None:
        """Turn these signals into events (their numbers). Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in signals:
            signal.signal(number, lambda caught, frame: self._events.append(caught))

    def post(self, event: Any) -> None:
        """Add an event and wake the main thread."""
        self._events.append(event)
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def wait(self, timeout: float) -> List[Any]:
        """What came in, after at most ``timeout`` seconds."""
        select.select([self._read], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 65536)
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events


class Reply:
    """A desired state, and the checkpoints that the report it answers has told of. ``done``: it was acted on."""

    def __init__(self, desired: Dict[str, Any], told: List[Any]) -> None:
        self.desired = desired
        self.told = told
        self.done = threading.Event()


class Refused(NamedTuple):
    """The operator does not speak this worker's protocol."""

    message: str


class Connection:
    """One keep-alive connection to the operator."""

    def __init__(self, settings: Settings) -> None:
        parts = urllib.parse.urlsplit(settings.operator_url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError("the operator's URL must be https: {}".format(settings.operator_url))
        self._settings = settings
        self._prefix = parts.path.rstrip("/")
        self._http = http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=CONNECT_SECONDS,
            context=ssl.create_default_context(cafile=settings.ca_file),
        )  # fmt: skip
        self.used = False  # the server may have closed it by now

    def open(self) -> None:
        """Connect unless connected. Raises OSError."""
        if self._http.sock is None:
            self._http.timeout = CONNECT_SECONDS
            self._http.connect()
            self.used = False

    def close(self) -> None:
        """Forget it; the next exchange connects anew."""
        self._http.close()

    def own_address(self) -> str:
        """The address by which this machine reaches the operator."""
        return str(self._http.sock.getsockname()[0]) if self._http.sock else ""

    def send(self, path: str, body: bytes) -> None:
        """Raises OSError, HTTPException."""
        with open(self._settings.token_file) as stream:  # it rotates
            token = stream.read().strip()
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        self._http.request("POST", self._prefix + path, body, headers)

    def receive(self, timeout: float) -> Tuple[int, Dict[str, Any], float]:
        """(status, body, seconds to wait before the next try). Raises OSError, HTTPException, ValueError."""
        if self._http.sock is not None:
            self._http.sock.settimeout(timeout)
        response = self._http.getresponse()
        text = response.read(MAX_REPLY_BYTES)
        if response.status != 200 or not response.isclosed():
            self.close()
        self.used = True
        try:
            retry_after = min(MAX_BACKOFF_SECONDS, float(response.headers.get("Retry-After") or 0))
        except ValueError:
            retry_after = 0.0
        try:
            body = json.loads(text.decode("utf-8"))
        except ValueError:
            if response.status == 200:
                raise
            body = {}
        return response.status, body if isinstance(body, dict) else {}, retry_after


class Link:
    """Brings reports to the operator and its replies to the inbox, whatever the network does."""

    def __init__(self, settings: Settings, inbox: Inbox) -> None:
        self._settings = settings
        self._inbox = inbox
        self._changed = threading.Condition()
        self._order = threading.Lock()  # a newer report is never put on the wire before an older one
        self._report: Dict[str, Any] = {}
        self._inventory: List[Dict[str, Any]] = []
        self._version = 0  # of the state to be told at once
        self._delivered = 0
        self._registered = False
        self._outage = ""
        self.heartbeat = 2.0  # seconds
        self.epoch: Optional[List[int]] = None  # the highest seen
        self.seen = 0  # revision of the last reply acted on

    def start(self) -> None:
        """Begin to talk. Raises OSError, ValueError when the CA or the URL is unusable."""
        for loop in (self._push_forever, self._poll_forever):
            threading.Thread(target=loop, args=(Connection(self._settings),), daemon=True).start()

    def publish(self, report: Dict[str, Any], urgent: bool) -> None:
        """What all reports say from now on; ``urgent`` is not left for the next heartbeat."""
        with self._changed:
            self._report = report
            self._version += urgent
            self._changed.notify_all()

    def register(self, inventory: List[Dict[str, Any]]) -> None:
        """Register anew, with this inventory. Takes effect with the next urgent report."""
        with self._changed:
            self._inventory = inventory
            self._registered = False

    def settle(self, timeout: float) -> None:
        """Give the last report a chance to arrive."""
        with self._changed:
            self._changed.wait_for(lambda: self._delivered == self._version, timeout)

    def _push_forever(self, connection: Connection) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._version and (self._delivered != self._version or not self._registered)
                )
            reply, pause = self._exchange(connection, 0.0, pushing=True)
            failures = 0 if reply else failures + 1
            self._rest(failures, pause)

    def _poll_forever(self, connection: Connection) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._registered)
            reply, pause = self._exchange(connection, min(MAX_POLL_SECONDS, self.heartbeat), pushing=False)
            failures = 0 if reply else failures + 1
            self._rest(failures, pause)
            if reply:
                reply.done.wait(1.0)  # else the next poll would be answered at once with the same
                time.sleep(random.uniform(0.0, self.heartbeat / 20.0))  # large gangs must not return as one

    @staticmethod
    def _rest(failures: int, pause: float) -> None:
        if failures:
            backoff = min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(failures, 8))
            time.sleep(max(pause, random.uniform(backoff / 2, backoff)))

    def _exchange(self, connection: Connection, wait: float, pushing: bool) -> Tuple[Optional[Reply], float]:
        """One request and its answer. (None, pause) when there was none or a refusal."""
        try:
            try:
                reply, pause = self._attempt(connection, wait, pushing)
            except (OSError, http.client.HTTPException):
                if not connection.used:
                    raise
                connection.close()  # kept alive by us, closed by the other side: no failure yet
                reply, pause = self._attempt(connection, wait, pushing)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            connection.close()
            self._lost("{}: {}".format(type(error).__name__, error))
            return None, 0.0
        return reply, pause

    def _attempt(self, connection: Connection, wait: float, pushing: bool) -> Tuple[Optional[Reply], float]:
        connection.open()
        with self._order:
            with self._changed:
                version, report = self._version, dict(self._report)
                registering = pushing and not self._registered
                if not pushing and not self._registered:
                    return None, 0.0  # "ready" must not get there before the inventory that goes with it
                inventory = self._inventory
            report.update(epoch=self.epoch, seen=self.seen, waitSeconds=wait, wall=time.time(), mono=time.monotonic())
            told = report["newCheckpoints"]
            identity = self._identity()
            if registering:
                body = dict(identity, **self._registration(connection, report), inventory=inventory, report=report)
            else:
                body = dict(identity, **report)
            connection.send("/v1/register" if registering else "/v1/report", json.dumps(body).encode("utf-8"))
        status, answer, pause = connection.receive(wait + ANSWER_SECONDS)
        if status == 200:
            reply = Reply(answer, told)
            if self._outage:
                self._outage = ""
                say("the operator is reachable again")
            with self._changed:
                if registering and self._inventory is inventory:
                    self._registered = True
                self._delivered = max(self._delivered, version)
                self._changed.notify_all()
            self._inbox.post(reply)
            return reply, 0.0
        if status == 409:
            with self._changed:
                self._registered = False
                self._changed.notify_all()
            return None, pause
        if status == 426:
            self._inbox.post(Refused(str(answer.get("message", ""))))
        self._lost("HTTP {} {} {}".format(status, answer.get("error", ""), answer.get("message", "")))
        return None, pause

    def _identity(self) -> Dict[str, Any]:
        settings = self._settings
        return {
            "protocol": PROTOCOL, "runUid": settings.run_uid, "slot": settings.slot,
            "incarnation": settings.incarnation, "podUid": settings.pod_uid,
        }  # fmt: skip

    def _registration(self, connection: Connection, report: Dict[str, Any]) -> Dict[str, Any]:
        settings = self._settings
        return {
            "namespace": settings.namespace, "run": settings.run, "node": settings.node,
            "hostname": socket.gethostname(), "address": settings.address or connection.own_address(),
            "workerVersion": WORKER_VERSION, "problem": report["problem"],
        }  # fmt: skip

    def _lost(self, why: str) -> None:
        if not self._outage:  # once per outage, not once per try
            say("the operator is not reachable, what runs goes on: {}".format(why[:300]))
        self._outage = why


# ----------------------------------------------------------------------------
# The state machine
# ----------------------------------------------------------------------------

PREPARING, READY, RUNNING, STOPPING, EXITED = "Preparing", "Ready", "Running", "Stopping", "Exited"


class NewCheckpoints(NamedTuple):
    """Rows for the next reports."""

    rows: List[Dict[str, Any]]


class Surveyed(NamedTuple):
    """What a worker at the barrier of ``attempt`` saw when it looked again."""

    attempt: int
    inventory: List[Dict[str, Any]]


class Verified(NamedTuple):
    """The result of reading a checkpoint's bytes."""

    request: Tuple[Any, ...]
    verdict: str
    reason: str


class Worker:
    """Owned by the main thread, except where a comment says otherwise."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.inbox = Inbox()
        self.link = Link(settings, self.inbox)
        self.phase = PREPARING
        self.problem = ""
        self.attempt = 0  # of the child it runs or last ran
        self.spent = highest_attempt(settings.scratch)  # no attempt up to this one may start any more
        self.ready_for = 0
        self.start: Optional[Dict[str, Any]] = None
        self.exit: Optional[Dict[str, Any]] = None
        self.progress: Optional[Dict[str, Any]] = None
        self.inventory: List[Dict[str, Any]] = []  # as registered
        self.fresh: List[Dict[str, Any]] = []  # checkpoints not told of yet
        self.verified: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
        self.desired: Dict[str, Any] = {"phase": "Hold"}
        self.child: Optional[Child] = None
        self.tail: Optional[ProgressTail] = None
        self.watch: Optional[CheckpointWatch] = None
        self.port: Optional[socket.socket] = None
        self.preparing = False  # a thread is at it
        self.prepare_after = self.look_after = self.verify_after = 0.0  # monotonic
        self.verifying: Tuple[Any, ...] = ()  # read by the verifying thread: any other value interrupts it
        self.memory_kills = 0
        self.terminating = False
        self.refusal = ""
        self.contact = self.advanced = self.ended = time.monotonic()
        self.leave_with: Optional[int] = None
        self._told: Dict[str, Any] = {}

    def run(self) -> int:
        """Live until it is time to leave; returns the exit code."""
        self.inbox.catch(signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        adopt_orphans()
        self.link.start()
        self._publish()
        while self.leave_with is None:
            for event in self.inbox.wait(0.1 if self.child and self.child.kill_at else 0.5):
                self._take(event)
            self._reap()
            self._advance()
            self._publish()
        self.link.settle(2.0)
        return self.leave_with

    # Events

    def _take(self, event: Any) -> None:
        if isinstance(event, Reply):
            self._take_reply(event)
        elif isinstance(event, Prepared):
            self._take_prepared(event)
        elif isinstance(event, NewCheckpoints):
            self.fresh = (self.fresh + event.rows)[-NEWEST:]
        elif isinstance(event, Surveyed):
            self.preparing, self.look_after = False, time.monotonic() + LOOK_AGAIN_SECONDS
            if event.attempt == self.ready_for and event.inventory != self.inventory:
                self._register(event.inventory)
        elif isinstance(event, Verified):
            self.verify_after = time.monotonic() + LOOK_AGAIN_SECONDS
            if self.verifying == event.request:
                self.verifying = ()
            self.verified[event.request] = {
                "tier": event.request[0], "path": event.request[1],
                "verdict": event.verdict, "reason": event.reason[:256],
            }  # fmt: skip
        elif isinstance(event, Refused):
            self.refusal = "the operator does not speak protocol {}: {}".format(PROTOCOL, event.message)
        elif event in (signal.SIGTERM, signal.SIGINT) and not self.terminating:
            say("asked to leave by signal {}".format(int(event)))
            self.terminating = True

    def _take_reply(self, reply: Reply) -> None:
        desired = reply.desired
        try:
            epoch = [int(part) for part in desired["epoch"]]
            if self.link.epoch is None or epoch >= self.link.epoch:  # else: a leader that was replaced
                self.link.epoch = epoch
                self.link.seen = int(desired["revision"])
                self.link.heartbeat = min(60.0, max(0.1, float(desired["heartbeatSeconds"])))
                self.contact = time.monotonic()
                self.refusal = ""
                if desired["phase"] != "Hold":
                    self.desired = desired
            self.fresh = [row for row in self.fresh if row not in reply.told]
        except (KeyError, TypeError, ValueError) as error:
            say("the operator's reply is not understood: {!r}".format(error))
        finally:
            reply.done.set()

    def _take_prepared(self, prepared: Prepared) -> None:
        self.preparing = False
        self._release_port()
        if self._prepares(prepared.attempt) and not self.child and not prepared.problem:
            self.problem, self.port = "", prepared.port
            self.ready_for, self.phase = prepared.attempt, READY
            self.look_after = time.monotonic() + LOOK_AGAIN_SECONDS
            self._register(prepared.inventory)
            return
        if prepared.port is not None:
            prepared.port.close()
        if prepared.problem:
            if prepared.problem != self.problem:
                say("not ready: {}".format(prepared.problem))
            self.problem = prepared.problem
            self.prepare_after = time.monotonic() + RETRY_SECONDS

    def _register(self, inventory: List[Dict[str, Any]]) -> None:
        self.inventory = inventory
        self.link.register(inventory)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.child and pid == self.child.pid:
                self._child_ended(self.child, status)

    # Towards the desired state

    def _advance(self) -> None:
        now = time.monotonic()
        if self.child:
            self._follow_progress(now)
            self.child.enforce()
        if self.terminating:
            self._leave_on_signal()
        elif self.desired["phase"] == "Prepare":
            self._towards_barrier(self.desired)
        elif self.desired["phase"] == "Run":
            self._towards_running(self.desired)
        elif self.desired["phase"] == "Stop":
            self._towards_stopped(self.desired)
        elif self.desired["phase"] == "Complete":
            self._towards_complete(self.desired)
        if not self._prepares(self.ready_for):
            self.verifying = ()
        if self.leave_with is None and not self.child:
            self._leave_if_abandoned(now)

    def _prepares(self, attempt: int) -> bool:
        return self.desired["phase"] == "Prepare" and self.desired["attempt"] == attempt and not self.terminating

    def _towards_barrier(self, desired: Dict[str, Any]) -> None:
        attempt = desired["attempt"]
        if self.child:
            if self.child.attempt < attempt:
                self._stop_child(RESTART_GRACE_SECONDS, "StoppedForRestart")
        elif attempt <= self.spent:
            if self.attempt < attempt:  # it was in an earlier life of this worker
                self.problem = "attempt {} has already run here".format(attempt)
        elif self.ready_for == attempt:
            self._verify(desired)
            self._look_again(desired)
        elif not self.preparing and time.monotonic() >= self.prepare_after:
            self.phase, self.ready_for, self.preparing = PREPARING, 0, True
            self.verified = {}
            rank, world = desired.get("rank", -1), desired.get("worldSize", 0)
            self._in_thread(lambda: prepare(self.settings, attempt, rank, world))

    def _look_again(self, desired: Dict[str, Any]) -> None:
        """The operator waits a bounded time for what could not be read: tell it as soon as it can be."""
        unsure = any(row["verdict"] == UNKNOWN for row in self.inventory)
        if not unsure or self.preparing or time.monotonic() < self.look_after:
            return
        self.preparing = True
        attempt, rank, world = self.ready_for, desired.get("rank", -1), desired.get("worldSize", 0)

        def look() -> Surveyed:
            try:
                return Surveyed(attempt, survey(self.settings, attempt, rank, world))
            except Exception:  # the thread's end, as above; the next look may tell more
                return Surveyed(attempt, self.inventory)

        self._in_thread(look)

    def _verify(self, desired: Dict[str, Any]) -> None:
        wanted = desired.get("verify")
        if not wanted:
            self.verifying = ()
            return
        request = (wanted["tier"], wanted["path"], wanted["share"], wanted["of"])
        known = self.verified.get(request)
        if self.verifying == request or (known and known["verdict"] != UNKNOWN):
            return
        if known and time.monotonic() < self.verify_after:
            return
        self.verifying = request
        local = wanted["tier"] == "local"  # there each rank reads all of its own shard
        share, of = (0, 1) if local else (wanted["share"], max(1, wanted["of"]))

        def read() -> Optional[Verified]:
            own = os.path.join(wanted["path"], "rank-{}".format(desired["rank"]))
            directory = own if local and os.path.isdir(own) else wanted["path"]
            try:
                verdict, reason = verify_checkpoint(
                    directory, share, of, form=self.settings.checkpoint_format, run_uid=self.settings.run_uid,
                    skew=self.settings.tiers[wanted["tier"]].skew,
                    interrupted=lambda: self.verifying != request,
                )  # fmt: skip
            except InterruptedCheckError:
                return None
            except Exception as error:  # the thread's end, as above
                verdict, reason = UNKNOWN, repr(error)
            return Verified(request, verdict, reason)

        self._in_thread(read)

    def _towards_running(self, desired: Dict[str, Any]) -> None:
        attempt, rank = desired["attempt"], desired.get("rank", -1)
        if self.child or attempt <= self.spent or attempt != self.ready_for or rank < 0 or not desired.get("start"):
            return
        if desired["start"].get("attempt") != attempt:
            self.problem = "START is of attempt {}, not {}".format(desired["start"].get("attempt"), attempt)
            return
        self._start_child(desired)

    def _towards_stopped(self, desired: Dict[str, Any]) -> None:
        if self.child:
            if self.child.attempt <= desired["attempt"]:
                self._stop_child(float(desired.get("stopGraceSeconds", 30)), "StoppedOnRequest")
        elif self.ready_for:
            self.ready_for = 0
            self.phase = EXITED if self.exit else PREPARING
            self._release_port()

    def _towards_complete(self, desired: Dict[str, Any]) -> None:
        if self.child:
            self._stop_child(float(desired.get("stopGraceSeconds", 30)), "StoppedOnRequest")
        else:
            # The run is over as a whole: a rank that only had to be stopped did not fail.
            stopped = self.exit is not None and self.exit["reason"] == "StoppedOnRequest"
            self.leave_with = 0 if stopped else self._child_code()

    def _leave_on_signal(self) -> None:
        self.ready_for, self.problem = 0, "SIGTERM"
        if self.child:
            self._stop_child(float(self.desired.get("stopGraceSeconds", 30)), "WorkerTerminated")
        elif self.exit is not None and self.exit["reason"] != "WorkerTerminated":
            self.leave_with = self._child_code()
        else:
            self.leave_with = 128 + signal.SIGTERM
        if self.exit is None or self.child:
            self.phase = STOPPING

    def _leave_if_abandoned(self, now: float) -> None:
        if self.refusal:
            say(self.refusal)
            self.leave_with = self._child_code() if self.exit else 125
        elif self.phase == EXITED and now - max(self.contact, self.ended) > self.settings.orphan_seconds:
            say("no operator for {:g} s after the end".format(self.settings.orphan_seconds))
            self.leave_with = self._child_code()

    def _child_code(self) -> int:
        if self.exit is None:
            return 0
        return 128 + self.exit["signal"] if self.exit["signal"] else int(self.exit["code"])

    # The child

    def _start_child(self, desired: Dict[str, Any]) -> None:
        launch = Launch.of(desired)
        self.attempt = self.spent = launch.attempt
        self.start, self.exit, self.progress, self.problem = desired["start"], None, None, ""
        self.ready_for, self.fresh = 0, []
        self.advanced = time.monotonic()
        self.memory_kills = out_of_memory_kills()
        contract = contract_environment(self.settings, launch)
        say(
            "attempt={} rank={} node={} resume={} world={} master={}:{} start".format(
                launch.attempt, launch.rank, self.settings.node, launch.resume_step or "none",
                launch.world, launch.master_address, launch.master_port,
            )
        )  # fmt: skip
        self._release_port()
        try:
            self._make_scratch(launch, contract)
            # What steers the worker is not the training code's business; users cannot set variables of this name.
            environment = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
            environment.update(contract, **launcher_environment(self.settings, launch))
            command = [expand(argument, environment) for argument in launcher_command(self.settings, launch)]
            self.child = Child(launch.attempt, command, environment)
        except LaunchError as error:
            say(str(error))
            self._ended(error.code, 0, error.reason, str(error).encode("utf-8", "replace"))
            return
        self.phase = RUNNING
        self.tail = ProgressTail(contract["LOCKSTEP_PROGRESS_FILE"])
        interval = max(5.0, 2.5 * self.link.heartbeat)
        self.watch = CheckpointWatch(
            self.settings, launch, interval, lambda rows: self.inbox.post(NewCheckpoints(rows))
        )
        self.watch.start()

    def _make_scratch(self, launch: Launch, contract: Dict[str, str]) -> None:
        """Scratch of the attempt, new by necessity: its presence means that the attempt has run."""
        scratch = os.path.dirname(contract["LOCKSTEP_PROGRESS_FILE"])
        try:
            os.mkdir(scratch)
            with open(contract["LOCKSTEP_NODELIST_FILE"], "w") as stream:
                stream.writelines(address + "\n" for address in launch.nodelist)
            with open(contract["LOCKSTEP_PROGRESS_FILE"], "w"):
                pass
            for name in os.listdir(self.settings.scratch):
                matched = _ATTEMPT_NAME.match(name)
                if matched and int(matched.group(1)) < launch.attempt:
                    shutil.rmtree(os.path.join(self.settings.scratch, name), ignore_errors=True)
        except OSError as error:
            raise LaunchError(125, "DirectoryNotCreated", _trouble(error)) from None

    def _stop_child(self, grace: float, reason: str) -> None:
        assert self.child is not None
        self.phase = STOPPING
        if self.child.stop(grace, reason):
            say("attempt={} stopping: {}".format(self.child.attempt, reason))

    def _follow_progress(self, now: float) -> None:
        newest = self.tail.newest(time.time()) if self.tail else None
        if newest is not None:
            self.progress, self.advanced = newest, now
        # Where each attempt saves in a directory of its own, that is the fence: silence never kills training.
        fence = float(self.desired.get("fenceSeconds") or 0) if self.settings.fenced else 0.0
        if fence and now - max(self.contact, self.advanced) > fence and self.child:
            self._stop_child(0.0, "Fenced")

    def _child_ended(self, child: Child, status: int) -> None:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 0 if number else os.WEXITSTATUS(status)
        # As in any container: when its main process ends, everything in it ends.
        kill_others()
        child.drain(-number or code)
        self._follow_progress(time.monotonic())
        self.child = None
        if self.watch:
            self.watch.end()
            self.watch = None
        reason = child.stop_reason
        if not reason:
            if number == signal.SIGKILL and out_of_memory_kills() > self.memory_kills:
                reason = "OOMKilled"
            else:
                reason = "Signal" if number else "Error" if code else "Completed"
        if child.stderr_tail and not child.stderr_tail.endswith(b"\n"):
            write_all(2, b"\n")
        self._ended(code, number, reason, child.stderr_tail, time.monotonic() - child.started)

    def _ended(self, code: int, number: int, reason: str, stderr_tail: bytes, seconds: float = 0.0) -> None:
        self.phase, self.ended = EXITED, time.monotonic()
        self.exit = {
            "code": None if number else code, "signal": number or None, "at": time.time(), "reason": reason,
            "stderrTail": stderr_tail.decode("utf-8", "replace"),
        }  # fmt: skip
        outcome = "signal={}".format(number) if number else "code={}".format(code)
        say(
            "attempt={} node={} end {} reason={} after={:.1f}s".format(
                self.attempt, self.settings.node, outcome, reason, seconds
            )
        )

    # Odds and ends

    def _in_thread(self, work: Callable[[], Any]) -> None:
        def run() -> None:
            event = work()
            if event is not None:
                self.inbox.post(event)

        threading.Thread(target=run, daemon=True).start()

    def _release_port(self) -> None:
        if self.port is not None:
            self.port.close()
            self.port = None

    def _publish(self) -> None:
        report = {
            "phase": self.phase, "attempt": self.attempt, "readyFor": self.ready_for,
            "port": self.port.getsockname()[1] if self.port else 0, "start": self.start, "exit": self.exit,
            "verified": list(self.verified.values())[-8:], "problem": self.problem,
        }  # fmt: skip
        urgent = report != self._told
        self._told = report
        self.link.publish(dict(report, progress=self.progress, newCheckpoints=list(self.fresh)), urgent)


def highest_attempt(scratch: str) -> int:
    """The last attempt that an earlier life of this worker started in the same pod, or 0."""
    try:
        matches = [_ATTEMPT_NAME.match(name) for name in os.listdir(scratch)]
    except OSError:
        return 0
    return max((int(matched.group(1)) for matched in matches if matched), default=0)


def main() -> int:
    """Exit code of the container."""
    try:
        worker = Worker(Settings.of(os.environ, sys.argv[1:]))
        return worker.run()
    except (KeyError, ValueError, OSError) as error:
        say("cannot start: {!r}".format(error))
        return 125


if __name__ == "__main__":
    code = main()
    # Threads may hang in a read from a dead file server; nothing is left to be flushed.
    os._exit(code)
