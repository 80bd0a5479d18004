"""Making ready: can this node train, and what is there to resume from?"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import socket
import stat
import subprocess
import time
from typing import List, NamedTuple, Optional, Sequence

from lockstep.slurm.sizes import plural
from lockstep.worker.checkpoints.inventory import At, at_nothing, survey
from lockstep.worker.checkpoints.previous import previous_saves
from lockstep.worker.checkpoints.removal import free_space as free_local_space
from lockstep.worker.checkpoints.tiers import PassesOver
from lockstep.worker.checkpoints.unrecognised import left_behind
from lockstep.worker.child.processes import end_other_processes, output_of
from lockstep.worker.child.scratch import free_space
from lockstep.worker.errors import trouble
from lockstep.worker.settings import JSON, LOCAL, SHARED, Settings, attempt_directory

GPU_RELEASE_SECONDS = 50.0
GPU_ANSWER_SECONDS = 30.0
GPU_FREE_MIB = 1024
MASTER_PORTS = range(20000, 30000)  # below the ephemeral ports and below the NodePorts
# The operator knows these words: no node is to blame.
SHARED_TIER_IS_FULL = "the shared checkpoint tier is full"
SHARED_TIER_REFUSES = "the shared checkpoint tier refuses this user"
FULL = (errno.ENOSPC, errno.EDQUOT)
DENIED = (errno.EACCES, errno.EPERM)


class Prepared(NamedTuple):
    """The result of making ready for an attempt. ``problem`` empty: this node can stand at the barrier."""

    attempt: int
    problem: str
    inventory: List[JSON]
    port: Optional[socket.socket]
    unrecognised: Optional[Sequence[JSON]] = ()  # what may be saves of earlier attempts, and is in no inventory
    steps_port: Optional[socket.socket] = None
    dashboard_port: Optional[socket.socket] = None
    previous_saves: Sequence[JSON] = ()  # what earlier runs of this name left, where this one saved nothing

    def close(self) -> None:
        """Nobody stands at the barrier with it: its ports are free."""
        for held in (self.port, self.steps_port, self.dashboard_port):
            if held is not None:
                held.close()


def prepare(
    settings: Settings, attempt: int, rank: int, world: int, suspicious: bool = True, at: At = at_nothing,
    steps: bool = False, may_not_be: Optional[PassesOver] = None,
) -> Prepared:  # fmt: skip
    """End what is left of earlier attempts, check the node, take inventory, choose a port. Slow: minutes at worst.

    ``suspicious``: try out the checkpoint tiers and whether writes reach the disk as well, as is done at first and
    after a failure here. ``at`` is told what is looked at from then on: a mount that hangs says nothing itself.
    ``steps``: a second port is wanted. ``may_not_be``: what is not to be chosen.
    """
    try:
        problem = end_other_processes() or gpu_problem(settings)
        if not problem:
            at(f"the scratch volume {settings.scratch}")
            problem = scratch_problem(settings, suspicious)
        inventory: List[JSON] = []
        unrecognised: Optional[List[JSON]] = []
        previous: List[JSON] = []
        if not problem:
            if LOCAL in settings.tiers:
                at(f"the {LOCAL} checkpoint tier {settings.tiers[LOCAL].root}")
                free_local_space(settings)
            inventory = survey(settings, attempt, rank, world, at, may_not_be)
            unrecognised = left_behind(settings, rank)
            if not inventory and rank <= 0:  # all see the same tier; a spare may become the one that is asked
                at("the saves of earlier runs of this name")
                previous = previous_saves(settings)
            problem = tier_problem(settings, attempt, at) if suspicious else ""
        at("")
        if problem:
            return Prepared(attempt, problem, [], None)
        steps_port = hold_port() if steps else None
        dashboard = hold_port() if settings.launcher == "Ray" else None
        return Prepared(attempt, "", inventory, hold_port(), unrecognised, steps_port, dashboard, previous)
    except Exception as error:  # the thread's end: the main thread waits for an answer, whatever happens
        return Prepared(attempt, _words_for(settings, error), [], None)


def _words_for(settings: Settings, error: Exception) -> str:
    """What went wrong; of a tier that takes nothing the same words, whichever step found out."""
    if not isinstance(error, OSError):
        return f"preparing failed: {error!r}"
    where = os.fsdecode(error.filename or "")
    for name, root, _ in settings.tiers.values():
        if error.errno in FULL + DENIED and where and _is_of(where, root):
            return _refusal_of(name, error)
    return f"preparing failed: {trouble(error)}"


def _is_of(path: str, root: str) -> bool:
    """Whether a path is in that tree, or on the way to it."""
    return f"{path}/".startswith(f"{root.rstrip('/')}/") or root.startswith(f"{path.rstrip('/')}/")


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
                return _few_seen(devices, settings.gpus)
            return ""
        if len(used) < settings.gpus:
            return _few_seen(len(used), settings.gpus)
        held = [index for index, mebibytes in enumerate(used) if mebibytes > GPU_FREE_MIB]
        if not held:
            return ""
        if time.monotonic() > deadline:
            return f"memory of GPU {held[0]} is still in use ({used[held[0]]} MiB)"
        time.sleep(1.0)
    return ""


def _few_seen(seen: int, wanted: int) -> str:
    return f"{seen} of {plural(wanted, 'GPU')} {'is' if wanted == 1 else 'are'} visible"


def _gpu_memory_used() -> Optional[List[int]]:
    """MiB by GPU, or None where there is no working nvidia-smi. Raises TimeoutExpired."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return [int(line) for line in output_of(query, GPU_ANSWER_SECONDS).split()]
    except (OSError, ValueError):
        return None


def scratch_problem(settings: Settings, synced: bool = True) -> str:
    """Why the worker cannot keep its records; empty when all is well."""
    probe = os.path.join(settings.scratch, ".probe")
    words = _write_problem(probe, synced)
    if words:
        free_space(settings)  # a program may have filled it
        words = _write_problem(probe, synced)
    return f"the scratch volume is not writable: {words}" if words else ""


def tier_problem(settings: Settings, attempt: int, at: At = at_nothing) -> str:
    """A tier that takes no synced write into the attempt's directory, or has too little space; empty: none.

    A shared tier that could not be listed has no such directory, and is not this node's fault: it is left out.
    """
    for name, root, _ in settings.tiers.values():
        at(f"the {name} checkpoint tier {root}")
        directory = attempt_directory(settings, name, attempt)
        if os.path.isdir(directory):
            error = _write_error(os.path.join(directory, f".probe-{settings.slot}"))
            if error is not None:
                return _refusal_of(name, error)
        if name == LOCAL and settings.min_disk:
            found = os.statvfs(root)
            free, asked = found.f_bavail * found.f_frsize, settings.min_disk
            if free < asked:
                return f"{free >> 20} MiB are free where local checkpoints go, {asked >> 20} MiB are asked for"
    return ""


def _refusal_of(tier: str, error: OSError) -> str:
    words = f"the {tier} checkpoint tier takes no writes"
    if tier == SHARED and error.errno in FULL:
        words = SHARED_TIER_IS_FULL
    elif tier == SHARED and error.errno in DENIED:
        words = SHARED_TIER_REFUSES
    return f"{words}: {trouble(error)}{_owner_of(error) if error.errno in DENIED else ''}"


def _owner_of(error: OSError) -> str:
    """Who may write there instead, in words; empty where it cannot be seen."""
    directory = os.path.dirname(os.fsdecode(error.filename or ""))
    try:
        found = os.stat(directory)
    except OSError:
        return ""
    mode, owner = stat.filemode(found.st_mode), f"{found.st_uid}:{found.st_gid}"
    return f"; this is user {os.geteuid()}, and {directory} is {owner}'s, {mode}"


def _write_problem(path: str, synced: bool) -> str:
    error = _write_error(path, synced)
    return "" if error is None else trouble(error)


def _write_error(path: str, synced: bool = True) -> Optional[OSError]:
    """Write, sync and remove a small file; what the operating system said against it."""
    try:
        with open(path, "wb") as stream:
            stream.write(b"lockstep")
            stream.flush()
            if synced:
                os.fsync(stream.fileno())
        os.unlink(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(path)
        return error
    return None


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
