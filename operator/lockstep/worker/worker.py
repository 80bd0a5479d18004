"""Lockstep's worker: PID 1 of the training container. One file, standard library only, Python >= 3.8.

Theory of operation
  The main thread owns the state machine (``Worker``, at the end of this file) and never blocks for long: it makes
  the calls that others put into its inbox (replies of the operator, signals, results of slow work) and then brings
  what is nearer to the newest desired state. Replies are levels, not commands: hearing one twice, late or never
  does no harm.
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
LAST_LOOK_SECONDS = 5.0
LOOK_AGAIN_SECONDS = 10.0  # at what could not be read while at the barrier
ORPHAN_SECONDS = 600.0
STDERR_TAIL_BYTES = 4096
MAX_PROGRESS_LINE = 8192
MASTER_PORTS = range(20000, 30000)  # below the ephemeral ports and below the NodePorts

JSON = Dict[str, Any]


def say(message: str) -> None:
    """One line on the worker's own stderr, beside the child's output."""
    line = message.replace("\n", " ")
    write_all(2, f"lockstep: {line}\n".encode("utf-8", "replace"))


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
# Settings: what the pod says
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
    """Fixed for the pod's life. Everything that changes from attempt to attempt comes with START."""

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
    launcher_options: JSON = field(default_factory=dict)
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
        command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
        if not command:
            raise ValueError("there is no command to run")
        checkpoint = json.loads(environ.get("LOCKSTEP_CHECKPOINT_CONFIG", "{}"))
        skew = {LOCAL: LOCAL_SKEW, SHARED: float(checkpoint.get("sharedClockSkewSeconds", SHARED_SKEW))}
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ca.crt")
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
            gpus=int(environ.get("LOCKSTEP_GPUS", 0)),
            gpus_required=environ.get("LOCKSTEP_CHECK_GPUS") == "1",
            launcher=environ.get("LOCKSTEP_LAUNCHER", cls.launcher),
            launcher_options=json.loads(environ.get("LOCKSTEP_LAUNCHER_OPTIONS", "{}")),
            checkpoint_format=checkpoint.get("format", cls.checkpoint_format),
            tiers={name: Tier(name, checkpoint[name], skew[name]) for name in skew if checkpoint.get(name)},
            fenced=checkpoint.get("layout") == "Shared",
            scratch=environ.get("LOCKSTEP_SCRATCH", cls.scratch),
            token_file=environ.get("LOCKSTEP_TOKEN_FILE", cls.token_file),
            ca_file=environ.get("LOCKSTEP_CA_FILE", beside),
            orphan_seconds=float(environ.get("LOCKSTEP_ORPHAN_SECONDS", ORPHAN_SECONDS)),
        )


# ----------------------------------------------------------------------------
# Checkpoints: what can be said of a directory without loading a model and without unpickling.
# Functions over directories only, so that other programs can use them too.
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
    tier: str, root: str, run_uid: str, *, form: str = "Auto", share: int = 0, of: int = 1, skew: float = LOCAL_SKEW
) -> List[JSON]:
    """The newest checkpoints under ``<root>/<run_uid>/a<N>/``, newest first, as rows of the inventory.

    In the tier ``local`` each rank's shard is a row of its own. Of a checkpoint with very many files only every
    ``of``-th is looked at, from ``share`` on: the ranks together see all of them.
    Raises OSError when a directory that exists cannot be listed: then nothing is known, not even that there is none.
    """
    rows: List[JSON] = []
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


def inventory_row(tier: str, step: int, attempt: int, path: str, finding: Finding) -> JSON:
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
    if tier != LOCAL:
        return [directory]
    held = [name for name in _subdirectories(directory) if name.startswith("rank-")]
    return [os.path.join(directory, name) for name in held] or [directory]


def examine(
    directory: str, *, form: str = "Auto", run_uid: str = "", step: Optional[int] = None, share: int = 0, of: int = 1,
    skew: float = LOCAL_SKEW,
) -> Optional[Finding]:  # fmt: skip
    """Presence, sizes and commit order of one directory; no data is read. None: this is no checkpoint at all.

    ``run_uid`` and ``step``: what it must say of itself, unless empty or None.
    """
    finding = Finding(INVALID, format=form)
    try:
        names = os.listdir(directory)
        if form not in (MANIFEST, TORCH_DCP):
            dcp = any(name.endswith(".distcp") or name in (".metadata", ".metadata.tmp") for name in names)
            ours = MANIFEST_NAME in names or os.path.basename(directory).startswith(("step-", "rank-"))
            if not dcp and not ours:
                return None
            finding = finding._replace(format=TORCH_DCP if dcp and MANIFEST_NAME not in names else MANIFEST)
        if finding.format == MANIFEST:
            finding, files = _read_manifest(directory, run_uid, step)
        else:
            finding, files = _read_dcp(directory, names)
        _check_files(directory, files[share::of] if len(files) > ALL_FILES else files, finding.committed_at + skew)
        return finding
    except InvalidError as error:
        return finding._replace(verdict=INVALID, reason=str(error))
    except FileNotFoundError as error:
        return finding._replace(verdict=INVALID, reason=f"vanished: {_trouble(error)}")
    except OSError as error:
        return finding._replace(verdict=UNKNOWN, reason=_trouble(error))


def _check_files(directory: str, files: Sequence[ListedFile], newest: float) -> None:
    for name, expected, exact, _ in files:
        try:
            found = os.stat(os.path.join(directory, name))
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidError(f"{name} is missing") from None
        if found.st_size < expected or (exact and found.st_size != expected):
            least = "" if exact else "at least "
            raise InvalidError(f"{name} has {found.st_size} bytes, its commit says {least}{expected}")
        if found.st_mtime > newest:
            raise InvalidError(f"{name} changed after its commit")


def _read_manifest(directory: str, run_uid: str, step: Optional[int]) -> Tuple[Finding, List[ListedFile]]:
    """Raises InvalidError, OSError."""
    try:
        with open(os.path.join(directory, MANIFEST_NAME), "rb") as stream:
            committed_at = os.fstat(stream.fileno()).st_mtime
            text = stream.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        raise InvalidError(f"no {MANIFEST_NAME}: it was never committed") from None
    if len(text) > MAX_MANIFEST_BYTES:
        raise InvalidError(f"{MANIFEST_NAME} is too large")
    try:
        manifest = json.loads(text.decode("utf-8"))
        if manifest.get("format") != MANIFEST_FORMAT:
            raise InvalidError(f"{MANIFEST_NAME} is of format {manifest.get('format')!r}")
        files = [
            ListedFile(_inside(entry["name"]), _whole(entry["bytes"]), crc32=str(entry["crc32"]).lower())
            for entry in manifest["files"]
        ]
        finding = Finding(
            VALID, format=MANIFEST, attempt=_whole(manifest["attempt"]), world=_whole(manifest["world"]),
            run_uid=str(manifest["runUID"]), bytes=sum(listed.bytes for listed in files), committed_at=committed_at,
        )  # fmt: skip
        stated_step = _whole(manifest["step"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidError(f"{MANIFEST_NAME} is not readable: {error!r}") from None
    if run_uid and finding.run_uid != run_uid:
        raise InvalidError(f"belongs to another run ({finding.run_uid[:64]})")
    if step is not None and stated_step != step:
        raise InvalidError(f"{MANIFEST_NAME} says step {stated_step}")
    if not files:
        raise InvalidError(f"{MANIFEST_NAME} lists no file")
    return finding, sorted(files)


def _inside(name: Any) -> str:
    if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise ValueError(f"bad file name {name!r}")
    return name


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"bad number {number!r}")
    return number


def _read_dcp(directory: str, names: Sequence[str]) -> Tuple[Finding, List[ListedFile]]:
    """Raises InvalidError, OSError.

    What .metadata refers to is compared where its structure is understood; otherwise the files that are there
    are taken as they are and the reason says so: refusing them would refuse every checkpoint of a newer torch.
    """
    if ".metadata.tmp" in names:
        raise InvalidError(".metadata.tmp is left over: a save did not end")
    if ".metadata" not in names:
        raise InvalidError("no .metadata: it was never committed")
    sizes = {name: 0 for name in names if name.endswith(".distcp")}
    if not sizes:
        raise InvalidError("there is no .distcp file")
    marker = os.path.join(directory, ".metadata")
    found = os.stat(marker)
    extents = _dcp_extents_of(marker, found.st_mtime_ns, found.st_size)
    reason = "" if extents else "the structure of .metadata was not understood: sizes were not compared"
    try:
        sizes.update((_inside(name), extent) for name, extent in extents.items())
    except ValueError as error:
        raise InvalidError(f".metadata names a {error}") from None
    finding = Finding(VALID, reason, TORCH_DCP, bytes=sum(sizes.values()), committed_at=found.st_mtime)
    return finding, [ListedFile(name, sizes[name], exact=False) for name in sorted(sizes)]


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
        raise InvalidError(f".metadata is not a whole pickle: {error}") from None


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
    memo: Dict[Any, Any] = {}
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
        else:
            last = argument if name in _STRING_OPCODES or name in _INTEGER_OPCODES else None
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
    directory: str, share: int = 0, of: int = 1, *, form: str = "Auto", run_uid: str = "", skew: float = LOCAL_SKEW,
    interrupted: Callable[[], bool] = lambda: False,
) -> Tuple[str, str]:  # fmt: skip
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
        for listed in _read_manifest(directory, run_uid, None)[1][share::of]:
            found = file_crc32(os.path.join(directory, listed.name), interrupted)
            if found != listed.crc32:
                return INVALID, f"{listed.name} has crc32 {found}, its manifest says {listed.crc32}"
    except InvalidError as error:
        return INVALID, str(error)
    except OSError as error:
        return UNKNOWN, _trouble(error)
    return VALID, ""


def file_crc32(path: str, interrupted: Callable[[], bool]) -> str:
    """zlib's CRC-32 of a file as eight hexadecimal digits. Raises OSError, InterruptedCheckError."""
    checksum = 0
    with open(path, "rb", buffering=0) as stream:
        while True:
            if interrupted():
                raise InterruptedCheckError(path)
            chunk = stream.read(CHUNK)
            if not chunk:
                return f"{checksum:08x}"
            checksum = zlib.crc32(chunk, checksum)


def commit_mark(directory: str) -> Optional[Tuple[int, int]]:
    """Identifies a commit without reading it: it differs after another commit to the same place. None: uncommitted."""
    for name in (MANIFEST_NAME, ".metadata"):
        with contextlib.suppress(OSError):
            found = os.stat(os.path.join(directory, name))
            return found.st_mtime_ns, found.st_size
    return None


def _trouble(error: OSError) -> str:
    return f"{error.strerror or error}: {error.filename or ''}"


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
        say(f"cannot adopt orphaned processes: {error}")


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
                with open(f"/proc/{name}/stat", "rb") as stream:
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
            named = ", ".join(f"{process.pid} {process.name} (state {process.state})" for process in left[:3])
            return f"{len(left)} processes of an earlier attempt do not die: {named}"
        time.sleep(0.02)


def out_of_memory_kills() -> int:
    """How many processes of this container the kernel has killed for memory; 0 where it does not say."""
    try:
        with open("/sys/fs/cgroup/memory.events") as stream:
            return {key: int(value) for key, value in map(str.split, stream)}.get("oom_kill", 0)
    except (OSError, ValueError):
        return 0


# ----------------------------------------------------------------------------
# Making ready: can this node train, and what is there to resume from?
# ----------------------------------------------------------------------------


class Prepared(NamedTuple):
    """The result of making ready for an attempt. ``problem`` empty: this node can stand at the barrier."""

    attempt: int
    problem: str
    inventory: List[JSON]
    port: Optional[socket.socket]


def prepare(settings: Settings, attempt: int, rank: int, world: int) -> Prepared:
    """End what is left of earlier attempts, check the node, take inventory, choose a port. Slow: minutes at worst."""
    try:
        problem = end_other_processes() or gpu_problem(settings) or scratch_problem(settings)
        if problem:
            return Prepared(attempt, problem, [], None)
        return Prepared(attempt, "", survey(settings, attempt, rank, world), hold_port())
    except Exception as error:  # the thread's end: the main thread waits for an answer, whatever happens
        trouble = _trouble(error) if isinstance(error, OSError) else repr(error)
        return Prepared(attempt, f"preparing failed: {trouble}", [], None)


def gpu_problem(settings: Settings) -> str:
    """Too few GPUs, or memory of them still in use; empty when nothing is wrong or nothing can be asked."""
    deadline = time.monotonic() + GPU_RELEASE_SECONDS
    while settings.gpus:
        try:
            used = _gpu_memory_used()
        except subprocess.TimeoutExpired:
            return "nvidia-smi does not answer"
        if used is None:
            devices = len([name for name in os.listdir("/dev") if re.match(r"nvidia\d+$", name)])
            if devices < settings.gpus and (devices or settings.gpus_required):
                return f"{devices} of {settings.gpus} GPUs are visible"
            return ""
        if len(used) < settings.gpus:
            return f"{len(used)} of {settings.gpus} GPUs are visible"
        held = [index for index, mebibytes in enumerate(used) if mebibytes > GPU_FREE_MIB]
        if not held:
            return ""
        if time.monotonic() > deadline:
            return f"memory of GPU {held[0]} is still in use ({used[held[0]]} MiB)"
        time.sleep(1.0)
    return ""


def _gpu_memory_used() -> Optional[List[int]]:
    """MiB by GPU, or None where there is no working nvidia-smi. Raises TimeoutExpired."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(
            query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
        ).stdout
        return [int(line) for line in output.split()]
    except (OSError, ValueError):
        return None


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
        return f"the scratch volume is not writable: {_trouble(error)}"
    return ""


def survey(settings: Settings, attempt: int, rank: int, world: int) -> List[JSON]:
    """Take inventory of all tiers, and make the directories that the attempt saves in.

    They are made here, not at the start: a tier that takes no writes is found out before anybody is released.
    A shared tier that cannot be listed is not this node's fault: an UNKNOWN row of step 0 stands for what may be
    there, and the operator sees that this rank is blind. Raises OSError for all other trouble.
    """
    rows: List[JSON] = []
    for name, root, skew in settings.tiers.values():
        form, run_uid = settings.checkpoint_format, settings.run_uid
        share, of = (rank, world) if name == SHARED and 0 <= rank < world else (0, 1)
        try:
            rows += scan_tier(name, root, run_uid, form=form, share=share, of=of, skew=skew)
        except OSError as error:
            if name != SHARED:
                raise
            rows.append(inventory_row(name, 0, 0, os.path.join(root, run_uid), Finding(UNKNOWN, _trouble(error))))
        else:
            os.makedirs(attempt_directory(settings, name, attempt), exist_ok=True)
    return rows


def attempt_directory(settings: Settings, name: str, attempt: int) -> str:
    """Where an attempt saves in the tier of that name; empty when the run has no such tier."""
    tier = settings.tiers.get(name)
    return os.path.join(tier.root, settings.run_uid, f"a{attempt}") if tier else ""


def hold_port() -> socket.socket:
    """A free TCP port, kept from others until just before the child starts.

    Below the ephemeral ports, so that no outgoing connection takes it while the trainer is still importing.
    """
    ipv6 = os.path.exists("/proc/net/if_inet6")
    for port in [*random.sample(MASTER_PORTS, 200), 0]:
        held = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET)
        try:
            if ipv6:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # of both families
            held.bind(("", port))
            return held
        except OSError as error:
            held.close()
            ipv6 = ipv6 and error.errno != errno.EADDRNOTAVAIL
    raise OSError(errno.EADDRINUSE, "no free TCP port")


# ----------------------------------------------------------------------------
# The child: its command, environment, output and progress
# ----------------------------------------------------------------------------


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
    def of(cls, desired: JSON) -> Launch:
        """From a released reply. Raises KeyError, TypeError."""
        start, resume = desired["start"], desired["start"].get("resume") or {}
        return cls(
            desired["attempt"], desired["rank"], desired["worldSize"], start["masterAddress"], start["masterPort"],
            resume.get("path", ""), str(resume.get("step", "")), desired.get("nodelist") or [],
        )  # fmt: skip


def contract_environment(settings: Settings, launch: Launch) -> Dict[str, str]:
    """The LOCKSTEP_ variables of one attempt (docs/worker.md)."""
    scratch = os.path.join(settings.scratch, f"a{launch.attempt}")
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
    address, port, world, rank = launch.master_address, str(launch.master_port), str(launch.world), str(launch.rank)
    if settings.launcher == "JAX":
        host = f"[{address}]" if ":" in address else address
        return {"JAX_COORDINATOR_ADDRESS": f"{host}:{port}", "JAX_NUM_PROCESSES": world, "JAX_PROCESS_ID": rank}
    if settings.launcher == "Torchrun":
        return {}  # torchrun gets it by argument and sets the rest itself
    environment = {
        "MASTER_ADDR": address, "MASTER_PORT": port, "NNODES": world, "NODE_RANK": rank, "PET_NNODES": world,
        "PET_NODE_RANK": rank, "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port, "PET_RDZV_BACKEND": "static",
    }  # fmt: skip
    if settings.gpus:
        environment["PET_NPROC_PER_NODE"] = os.environ.get("PET_NPROC_PER_NODE") or str(settings.gpus)
    return environment


def launcher_command(settings: Settings, launch: Launch) -> List[str]:
    """The command as the launcher wants it: Torchrun replaces the interpreter, the others change nothing."""
    if settings.launcher != "Torchrun":
        return list(settings.command)
    # An entrypoint stands in front of the command and has to stay there.
    ahead = int(settings.launcher_options.get("entrypoint") or 0)
    processes = settings.launcher_options.get("nprocPerNode") or settings.gpus or 1
    head, command = settings.command[:ahead], settings.command[ahead:]
    torchrun = [
        "torchrun", f"--nnodes={launch.world}", f"--node-rank={launch.rank}", f"--nproc-per-node={processes}",
        f"--master-addr={launch.master_address}", f"--master-port={launch.master_port}",
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
        text = f"({name})"
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

    def newest(self, now: float) -> Optional[JSON]:
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


def parse_progress(line: bytes, now: float) -> Optional[JSON]:
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
    loss = "" if entry.get("loss") is None else str(entry["loss"])[:32]
    return {"step": step, "at": at if 0 <= at < 1 << 40 else now, "loss": loss, "totalSteps": total}


class LaunchError(Exception):
    """The child could not be started: (exit code as of a shell, reason, words)."""


class Child:
    """One attempt's process, in a session of its own. Its output goes through byte by byte as two streams."""

    def __init__(self, attempt: int, command: Sequence[str], environment: Dict[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, bufsize=0, start_new_session=True,
            )  # fmt: skip
        except (FileNotFoundError, NotADirectoryError) as error:
            raise LaunchError(127, "CommandNotFound", f"{command[0]}: {error.strerror}") from None
        except (OSError, ValueError) as error:
            raise LaunchError(126, "CommandNotExecutable", f"{command[0]}: {error}") from None
        self.attempt = attempt
        self.pid = self._process.pid
        self.started = time.monotonic()
        self.kill_at: Optional[float] = None  # monotonic; None: nobody asked it to end
        self.stop_reason = ""
        self.stderr_tail = b""
        streams = ((self._process.stdout, 1), (self._process.stderr, 2))
        self._pumps = [threading.Thread(target=self._pump, args=stream, daemon=True) for stream in streams]
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


def new_commits(settings: Settings, launch: Launch, told: Dict[str, Tuple[int, int]]) -> List[JSON]:
    """Rows of the attempt's checkpoints that were committed since the last look; ``told`` remembers the commits."""
    rows = []
    for name, _, skew in settings.tiers.values():
        directory = attempt_directory(settings, name, launch.attempt)
        with contextlib.suppress(OSError):  # the next look, or the inventory, will say
            for step, attempt, path in sorted(attempt_steps(directory, launch.attempt), reverse=True)[:NEWEST]:
                for shard in shards(path, name):
                    mark = commit_mark(shard)
                    if mark is None or told.get(shard) == mark:
                        continue
                    told[shard] = mark
                    finding = examine(
                        shard, form=settings.checkpoint_format, run_uid=settings.run_uid, step=step,
                        share=launch.rank, of=launch.world, skew=skew,
                    )  # fmt: skip
                    if finding is not None:
                        rows.append(inventory_row(name, step, attempt, shard, finding))
    return rows


# ----------------------------------------------------------------------------
# The link to the operator
# ----------------------------------------------------------------------------


class Inbox:
    """Calls that the main thread is to make, from any thread and from signal handlers."""

    def __init__(self) -> None:
        self._calls: Deque[Callable[[], None]] = collections.deque()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def catch(self, number: int, call: Callable[[], None]) -> None:
        """Make that call when the signal arrives. Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        signal.signal(number, lambda caught, frame: self._calls.append(call))

    def post(self, call: Callable[[], None]) -> None:
        """Add a call and wake the main thread."""
        self._calls.append(call)
        with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
            os.write(self._write, b"\0")

    def make_calls(self, timeout: float) -> None:
        """Make the calls that came in, after waiting at most ``timeout`` seconds for one."""
        select.select([self._read], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 65536)
        while self._calls:
            self._calls.popleft()()


class Connection:
    """One keep-alive connection to the operator."""

    def __init__(self, settings: Settings) -> None:
        parts = urllib.parse.urlsplit(settings.operator_url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the operator's URL must be https: {settings.operator_url}")
        self._token_file = settings.token_file
        self._prefix = parts.path.rstrip("/")
        self._http = http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=CONNECT_SECONDS,
            context=ssl.create_default_context(cafile=settings.ca_file),
        )  # fmt: skip
        self.failures = 0  # in a row
        self.pause = 0.0  # seconds for which the operator asked to be left alone

    def is_open(self) -> bool:
        """Whether it was, when last used: the other side may have closed it since."""
        return self._http.sock is not None

    def open(self) -> None:
        """Connect unless connected. Raises OSError."""
        self.pause = 0.0
        if not self.is_open():
            self._http.connect()

    def close(self) -> None:
        """Forget it; the next exchange connects anew."""
        self._http.close()

    def send(self, path: str, body: JSON) -> None:
        """Raises OSError, HTTPException."""
        with open(self._token_file) as stream:  # it rotates
            token = stream.read().strip()
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        self._http.request("POST", self._prefix + path, json.dumps(body).encode("utf-8"), headers)

    def receive(self, timeout: float) -> Tuple[int, JSON]:
        """(status, body). Raises OSError, HTTPException, ValueError."""
        if self._http.sock is not None:
            self._http.sock.settimeout(timeout)
        response = self._http.getresponse()
        text = response.read(MAX_REPLY_BYTES)
        if response.status == 200:
            return 200, json.loads(text.decode("utf-8"))
        self.close()
        body = None
        with contextlib.suppress(ValueError):  # the words may be those of something in between
            self.pause = min(MAX_BACKOFF_SECONDS, float(response.headers.get("Retry-After", 0)))
            body = json.loads(text.decode("utf-8"))
        return response.status, body if isinstance(body, dict) else {}


class Link:
    """Brings reports to the operator and its replies to the main thread, whatever the network does.

    ``take`` gets a desired state, with the rows of ``newCheckpoints`` that the report it answers has told of;
    ``refuse`` gets the operator's words when it does not speak this worker's protocol.
    """

    def __init__(
        self, settings: Settings, inbox: Inbox, take: Callable[[JSON, List[JSON]], None], refuse: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._identity = {
            "protocol": PROTOCOL, "runUid": settings.run_uid, "slot": settings.slot,
            "incarnation": settings.incarnation, "podUid": settings.pod_uid,
        }  # fmt: skip
        self._inbox, self._take, self._refuse = inbox, take, refuse
        self._changed = threading.Condition()
        self._order = threading.Lock()  # a newer report is never put on the wire before an older one
        self._report: JSON = {}
        self._version = 0  # of the state to be told at once
        self._delivered = 0
        self._registered = False
        self._outage = ""
        self.inventory: List[JSON] = []  # as last registered
        self.heartbeat = 2.0  # seconds
        self.epoch: Optional[List[int]] = None  # the highest seen
        self.seen = 0  # revision of the last reply acted on

    def start(self) -> None:
        """Begin to talk. Raises OSError, ValueError when the CA or the URL is unusable."""
        for loop in (self._push_forever, self._poll_forever):
            threading.Thread(target=loop, args=(Connection(self._settings),), daemon=True).start()

    def publish(self, report: JSON, urgent: bool) -> None:
        """What all reports say from now on; ``urgent`` is not left for the next heartbeat."""
        with self._changed:
            self._report = report
            self._version += urgent
            self._changed.notify_all()

    def register(self, inventory: List[JSON]) -> None:
        """Register anew, with this inventory. Takes effect with the next report that is published."""
        with self._changed:
            self.inventory = inventory
            self._registered = False

    def settle(self, timeout: float) -> None:
        """Give the last report a chance to arrive."""
        with self._changed:
            self._changed.wait_for(lambda: self._delivered == self._version, timeout)

    def _push_forever(self, connection: Connection) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._version and (self._delivered != self._version or not self._registered)
                )
            self._exchange(connection, 0.0, pushing=True)

    def _poll_forever(self, connection: Connection) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._registered)
            taken = self._exchange(connection, min(MAX_POLL_SECONDS, self.heartbeat), pushing=False)
            if taken:
                taken.wait(1.0)  # else the next poll would be answered at once with the same
                time.sleep(random.uniform(0.0, self.heartbeat / 20.0))  # large gangs must not return as one

    def _exchange(self, connection: Connection, wait: float, pushing: bool) -> Optional[threading.Event]:
        """One request and its answer, set once the main thread has taken it. None, after a rest: there was none."""
        reused = connection.is_open()
        try:
            taken = self._attempt(connection, wait, pushing)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            connection.close()
            if reused:  # kept alive by us, closed by the other side: no failure yet
                return self._exchange(connection, wait, pushing)
            self._lost(f"{type(error).__name__}: {error}")
            taken = None
        connection.failures = 0 if taken else connection.failures + 1
        if not taken:
            backoff = min(MAX_BACKOFF_SECONDS, 0.1 * 2 ** min(connection.failures, 8))
            time.sleep(max(connection.pause, random.uniform(backoff / 2, backoff)))
        return taken

    def _attempt(self, connection: Connection, wait: float, pushing: bool) -> Optional[threading.Event]:
        connection.open()
        with self._order:
            with self._changed:
                version, report = self._version, dict(self._report)
                inventory, registering = self.inventory, not self._registered
            if registering and not pushing:
                return None  # "ready" must not get there before the inventory that goes with it
            report.update(epoch=self.epoch, seen=self.seen, waitSeconds=wait, wall=time.time(), mono=time.monotonic())
            about = self._registration(report, inventory) if registering else report
            connection.send("/v1/register" if registering else "/v1/report", {**self._identity, **about})
        status, answer = connection.receive(wait + ANSWER_SECONDS)
        if status == 200:
            return self._answered(answer, report["newCheckpoints"], version, inventory if registering else None)
        if status == 409:
            with self._changed:
                self._registered = False
                self._changed.notify_all()
            return None
        if status == 426:
            self._inbox.post(functools.partial(self._refuse, str(answer.get("message", ""))))
        self._lost(f"HTTP {status} {answer.get('error', '')} {answer.get('message', '')}")
        return None

    def _answered(
        self, desired: JSON, told: List[JSON], version: int, registered: Optional[List[JSON]]
    ) -> threading.Event:
        if self._outage:
            self._outage = ""
            say("the operator is reachable again")
        with self._changed:
            if registered is not None and registered is self.inventory:
                self._registered = True
            self._delivered = max(self._delivered, version)
            self._changed.notify_all()
        taken = threading.Event()

        def take() -> None:
            self._take(desired, told)
            taken.set()

        self._inbox.post(take)
        return taken

    def _registration(self, report: JSON, inventory: List[JSON]) -> JSON:
        settings = self._settings
        return {
            "namespace": settings.namespace, "run": settings.run, "node": settings.node,
            "hostname": socket.gethostname(), "address": settings.address, "workerVersion": WORKER_VERSION,
            "problem": report["problem"], "inventory": inventory, "report": report,
        }  # fmt: skip

    def _lost(self, why: str) -> None:
        if not self._outage:  # once per outage, not once per try
            say(f"the operator is not reachable, what runs goes on: {why[:300]}")
        self._outage = why


# ----------------------------------------------------------------------------
# The state machine
# ----------------------------------------------------------------------------

PREPARING, READY, RUNNING, STOPPING, EXITED = "Preparing", "Ready", "Running", "Stopping", "Exited"


class Worker:
    """Brings this node towards the desired state. Used by the main thread only, but for ``verifying``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.inbox = Inbox()
        self.link = Link(settings, self.inbox, self._take_desired, self._take_refusal)
        self.phase = PREPARING
        self.problem = ""
        self.attempt = 0  # of the child it runs or last ran
        self.spent = highest_attempt(settings.scratch)  # no attempt up to this one may start any more
        self.ready_for = 0
        self.start: Optional[JSON] = None
        self.exit: Optional[JSON] = None
        self.progress: Optional[JSON] = None
        self.fresh: List[JSON] = []  # checkpoints not told of yet
        self.verified: Dict[Tuple[Any, ...], JSON] = {}
        self.desired: JSON = {"phase": "Hold"}
        self.child: Optional[Child] = None
        self.tail: Optional[ProgressTail] = None
        self.new_commits: Optional[Callable[[], List[JSON]]] = None  # of the child, until the last look at them
        self.port: Optional[socket.socket] = None
        self.preparing = self.watching = False  # a thread is at it
        self.verifying: Tuple[Any, ...] = ()  # read by the verifying thread: any other value interrupts it
        self.prepare_after = self.look_after = self.verify_after = self.watch_after = 0.0  # monotonic
        self.memory_kills = 0
        self.terminating = False
        self.refusal = ""
        self.contact = self.advanced = self.ended = time.monotonic()
        self.leave_with: Optional[int] = None
        self._told: JSON = {}

    def run(self) -> int:
        """Live until it is time to leave; returns the exit code."""
        self.inbox.catch(signal.SIGTERM, self._take_termination)
        self.inbox.catch(signal.SIGINT, self._take_termination)
        self.inbox.catch(signal.SIGCHLD, lambda: None)  # reaped in every turn
        adopt_orphans()
        self.link.start()
        self._publish()
        while self.leave_with is None:
            self.inbox.make_calls(0.1 if self.child and self.child.kill_at else 0.5)
            self._reap()
            self._advance()
            self._publish()
        self.link.settle(2.0)
        return self.leave_with

    # What the inbox brings

    def _take_desired(self, desired: JSON, told: List[JSON]) -> None:
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
            self.fresh = [row for row in self.fresh if row not in told]
        except (KeyError, TypeError, ValueError) as error:
            say(f"the operator's reply is not understood: {error!r}")

    def _take_refusal(self, message: str) -> None:
        self.refusal = f"the operator does not speak protocol {PROTOCOL}: {message}"

    def _take_termination(self) -> None:
        if not self.terminating:
            say("asked to leave")
        self.terminating = True

    def _take_prepared(self, prepared: Prepared) -> None:
        self.preparing = False
        self._release_port()
        if self._prepares(prepared.attempt) and not self.child and not prepared.problem:
            self.problem, self.port = "", prepared.port
            self.ready_for, self.phase = prepared.attempt, READY
            self.look_after = time.monotonic() + LOOK_AGAIN_SECONDS
            self.link.register(prepared.inventory)
            return
        if prepared.port is not None:
            prepared.port.close()
        if prepared.problem:
            if prepared.problem != self.problem:
                say(f"not ready: {prepared.problem}")
            self.problem = prepared.problem
            self.prepare_after = time.monotonic() + RETRY_SECONDS

    def _take_survey(self, attempt: int, inventory: List[JSON]) -> None:
        self.preparing, self.look_after = False, time.monotonic() + LOOK_AGAIN_SECONDS
        if attempt == self.ready_for and inventory != self.link.inventory:
            self.link.register(inventory)

    def _take_verdict(self, request: Tuple[Any, ...], verdict: str, reason: str) -> None:
        self.verify_after = time.monotonic() + LOOK_AGAIN_SECONDS
        if self.verifying == request:
            self.verifying = ()
        tier, path = request[:2]
        self.verified[request] = {"tier": tier, "path": path, "verdict": verdict, "reason": reason[:256]}

    def _take_commits(self, rows: List[JSON]) -> None:
        self.watching = False
        self.fresh = (self.fresh + rows)[-NEWEST:]

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
        if self.child:
            self._follow_progress()
            self.child.enforce()
        self._watch_commits()
        if self.terminating:
            self._leave_on_signal()
        elif self.desired["phase"] == "Prepare":
            self._towards_barrier(self.desired)
        elif self.desired["phase"] == "Run":
            self._towards_running(self.desired)
        elif self.desired["phase"] == "Stop":
            self._towards_stopped(self.desired)
        elif self.desired["phase"] == "Complete":
            self._towards_complete()
        if not self._prepares(self.ready_for):
            self.verifying = ()
        if self.leave_with is None and not self.child:
            self._leave_if_abandoned()

    def _prepares(self, attempt: int) -> bool:
        return self.desired["phase"] == "Prepare" and self.desired["attempt"] == attempt and not self.terminating

    def _towards_barrier(self, desired: JSON) -> None:
        attempt, rank, world = desired["attempt"], desired.get("rank", -1), desired.get("worldSize", 0)
        if self.child:
            if self.child.attempt < attempt:
                self._stop_child(RESTART_GRACE_SECONDS, "StoppedForRestart")
        elif attempt <= self.spent:
            if self.attempt < attempt:  # it was in an earlier life of this worker
                self.problem = f"attempt {attempt} has already run here"
        elif self.ready_for == attempt:
            self._verify(desired)
            self._look_again(attempt, rank, world)
        elif not self.preparing and time.monotonic() >= self.prepare_after:
            self.phase, self.ready_for, self.preparing = PREPARING, 0, True
            self.verified = {}
            prepared = functools.partial(prepare, self.settings, attempt, rank, world)
            self._in_thread(lambda: functools.partial(self._take_prepared, prepared()))

    def _look_again(self, attempt: int, rank: int, world: int) -> None:
        """The operator waits a bounded time for what could not be read: tell it as soon as it can be."""
        unsure = any(row["verdict"] == UNKNOWN for row in self.link.inventory)
        if not unsure or self.preparing or time.monotonic() < self.look_after:
            return
        self.preparing = True
        known = self.link.inventory

        def look() -> Callable[[], None]:
            try:
                found = survey(self.settings, attempt, rank, world)
            except Exception:  # the thread's end, as in prepare; the next look may tell more
                found = known
            return functools.partial(self._take_survey, attempt, found)

        self._in_thread(look)

    def _verify(self, desired: JSON) -> None:
        wanted = desired.get("verify")
        if not wanted:
            self.verifying = ()
            return
        request = (wanted["tier"], wanted["path"], wanted["share"], wanted["of"])
        answer = self.verified.get(request)
        if self.verifying == request or (answer and answer["verdict"] != UNKNOWN):
            return
        if answer and time.monotonic() < self.verify_after:
            return
        self.verifying = request
        local = wanted["tier"] == LOCAL  # there each rank reads all of its own shard
        share, of = (0, 1) if local else (wanted["share"], max(1, wanted["of"]))

        def read() -> Optional[Callable[[], None]]:
            own = os.path.join(wanted["path"], f"rank-{desired['rank']}")
            directory = own if local and os.path.isdir(own) else wanted["path"]
            try:
                verdict, reason = verify_checkpoint(
                    directory, share, of, form=self.settings.checkpoint_format, run_uid=self.settings.run_uid,
                    skew=self.settings.tiers[wanted["tier"]].skew, interrupted=lambda: self.verifying != request,
                )  # fmt: skip
            except InterruptedCheckError:
                return None
            except Exception as error:  # the thread's end, as above
                verdict, reason = UNKNOWN, repr(error)
            return functools.partial(self._take_verdict, request, verdict, reason)

        self._in_thread(read)

    def _in_thread(self, work: Callable[[], Optional[Callable[[], None]]]) -> None:
        """Have slow work done, and the call that it returns made by the main thread."""

        def run() -> None:
            call = work()
            if call is not None:
                self.inbox.post(call)

        threading.Thread(target=run, daemon=True).start()

    def _towards_running(self, desired: JSON) -> None:
        attempt, start = desired["attempt"], desired.get("start")
        if self.child or attempt <= self.spent or attempt != self.ready_for or desired.get("rank", -1) < 0 or not start:
            return
        if start.get("attempt") != attempt:
            self.problem = f"START is of attempt {start.get('attempt')}, not {attempt}"
            return
        self._start_child(desired)

    def _towards_stopped(self, desired: JSON) -> None:
        if self.child:
            if self.child.attempt <= desired["attempt"]:
                self._stop_child(self._grace(), "StoppedOnRequest")
        elif self.ready_for:
            self.ready_for = 0
            self.phase = EXITED if self.exit else PREPARING
            self._release_port()

    def _towards_complete(self) -> None:
        if self.child:
            self._stop_child(self._grace(), "StoppedOnRequest")
        elif self.watching and time.monotonic() - self.ended < LAST_LOOK_SECONDS:
            return  # what was saved last is told of before it leaves
        else:
            # The run is over as a whole: a rank that only had to be stopped did not fail.
            stopped = self.exit is not None and self.exit["reason"] == "StoppedOnRequest"
            self.leave_with = 0 if stopped else self._child_code()

    def _leave_on_signal(self) -> None:
        self.ready_for, self.problem = 0, "SIGTERM"
        if self.child:
            self._stop_child(self._grace(), "WorkerTerminated")
        elif self.exit is not None and self.exit["reason"] != "WorkerTerminated":
            self.leave_with = self._child_code()
        else:
            self.leave_with = 128 + signal.SIGTERM
        if self.exit is None or self.child:
            self.phase = STOPPING

    def _leave_if_abandoned(self) -> None:
        if self.refusal:
            say(self.refusal)
            self.leave_with = self._child_code() if self.exit else 125
        elif self.phase == EXITED and time.monotonic() - max(self.contact, self.ended) > self.settings.orphan_seconds:
            say(f"no operator for {self.settings.orphan_seconds:g} s after the end")
            self.leave_with = self._child_code()

    def _child_code(self) -> int:
        if self.exit is None:
            return 0
        return 128 + self.exit["signal"] if self.exit["signal"] else int(self.exit["code"])

    # The child

    def _start_child(self, desired: JSON) -> None:
        launch = Launch.of(desired)
        self.attempt = self.spent = launch.attempt
        self.start, self.exit, self.progress, self.problem = desired["start"], None, None, ""
        self.ready_for, self.fresh = 0, []
        self.advanced = time.monotonic()
        self.memory_kills = out_of_memory_kills()
        say(
            f"attempt={launch.attempt} rank={launch.rank} node={self.settings.node} "
            f"resume={launch.resume_step or 'none'} world={launch.world} "
            f"master={launch.master_address}:{launch.master_port} start"
        )
        self._release_port()
        contract = contract_environment(self.settings, launch)
        # What steers the worker is not the training code's business; users cannot set variables of this name.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LOCKSTEP_")}
        environment.update(contract, **launcher_environment(self.settings, launch))
        command = [expand(argument, environment) for argument in launcher_command(self.settings, launch)]
        try:
            self._make_scratch(launch, contract)
            self.child = Child(launch.attempt, command, environment)
        except LaunchError as error:
            code, reason, words = error.args
            say(words)
            self._record_end(code, 0, reason, words.encode("utf-8", "replace"), 0.0)
            return
        self.phase = RUNNING
        self.tail = ProgressTail(contract["LOCKSTEP_PROGRESS_FILE"])
        self.new_commits = functools.partial(new_commits, self.settings, launch, {})
        self.watching, self.watch_after = False, time.monotonic() + self._watch_interval()

    def _watch_interval(self) -> float:
        return max(5.0, 2.5 * self.link.heartbeat)

    def _watch_commits(self) -> None:
        """Tell of the child's checkpoints as they are committed; once more after its end."""
        look = self.new_commits
        if look is None or self.watching or (self.child and time.monotonic() < self.watch_after):
            return
        self.watching, self.watch_after = True, time.monotonic() + self._watch_interval()
        if not self.child:
            self.new_commits = None
        self._in_thread(lambda: functools.partial(self._take_commits, look()))

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

    def _grace(self) -> float:
        return float(self.desired.get("stopGraceSeconds", 30))

    def _stop_child(self, grace: float, reason: str) -> None:
        assert self.child is not None
        self.phase = STOPPING
        if self.child.stop(grace, reason):
            say(f"attempt={self.child.attempt} stopping: {reason}")

    def _follow_progress(self) -> None:
        now = time.monotonic()
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
        self._follow_progress()
        self.child = None
        reason = child.stop_reason
        if not reason and number == signal.SIGKILL and out_of_memory_kills() > self.memory_kills:
            reason = "OOMKilled"
        if child.stderr_tail and not child.stderr_tail.endswith(b"\n"):
            write_all(2, b"\n")
        reason = reason or ("Signal" if number else "Error" if code else "Completed")
        self._record_end(code, number, reason, child.stderr_tail, time.monotonic() - child.started)

    def _record_end(self, code: int, number: int, reason: str, stderr_tail: bytes, seconds: float) -> None:
        self.phase, self.ended = EXITED, time.monotonic()
        self.exit = {
            "code": None if number else code, "signal": number or None, "at": time.time(), "reason": reason,
            "stderrTail": stderr_tail.decode("utf-8", "replace"),
        }  # fmt: skip
        outcome = f"signal={number}" if number else f"code={code}"
        node = self.settings.node
        say(f"attempt={self.attempt} node={node} end {outcome} reason={reason} after={seconds:.1f}s")

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
        return Worker(Settings.of(os.environ, sys.argv[1:])).run()
    except (KeyError, ValueError, OSError) as error:
        say(f"cannot start: {error!r}")
        return 125


if __name__ == "__main__":
    code = main()
    # Threads may hang in a read from a dead file server; nothing is left to be flushed.
    os._exit(code)
