"""``lockstep checkpoint leftovers``: local checkpoints on this node of runs that the cluster has no record of any more.

No pod can do this: it sees the part of its own namespace, as its own user, and who is not in the API any more may be in
a backup. So an administrator does it, on the node, and by UID: a name comes back, a UID never does.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.api.base import names
from lockstep.cli.client import Cluster, core_path, runs_path
from lockstep.cli.errors import CliError, if_forbidden
from lockstep.cli.output import echo, note, print_lines, table
from lockstep.present.amounts import ago, plural

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REMOVED = ".removed"  # ends the name of one whose removal has begun
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """What a run has in a storage. ``written``: when the youngest file of it was, in Unix seconds."""

    namespace: str
    run: str
    uid: str
    path: Path
    bytes: int
    written: float


def show_or_remove(cluster: Cluster, root: str, *, older_than: float, removes: bool, now: float) -> None:
    """Show, or remove, what runs that are gone have left in a storage, unless it was written in the last seconds."""
    if not os.path.isdir(root):
        raise CliError(
            f"{root} is no directory", "name that of localStorage in the operator's configuration, as it is here"
        )
    # In this order: a run that comes later has no directory here, or is known.
    directories = list(run_directories(Path(root)))
    begun = list(_begun(Path(root)))
    living = living_uids(cluster)
    node = this_node(cluster)
    if removes and not node:
        raise CliError(
            "this machine is no node of that cluster, which therefore cannot know whose directories these are",
            "choose the --context of the cluster that the node belongs to",
        )
    left = leftovers(directories, living, older_than, now)
    if removes:
        for path in begun:
            _remove(path)
        echo(f"{node}: {_freed([each for each in left if _remove(each.path)])} removed")
    elif left:
        rows = [[f"{e.namespace}/{e.run}", e.uid, f"{e.bytes / _GIB:.1f} GiB", ago(e.written, now)] for e in left]
        print_lines(table(["RUN", "UID", "SIZE", "WRITTEN"], rows))
        note(f"{_freed(left)} that this cluster has no record of; --remove removes it")
    else:
        note("every run that has something here is known to this cluster, or wrote it not long ago")


def leftovers(
    directories: Iterable[RunDirectory], living: frozenset[str], older_than: float, now: float
) -> list[RunDirectory]:
    """Those of runs that do not live, and were last written to so many seconds ago."""
    gone = [each for each in directories if each.uid not in living and each.written <= now - older_than]
    return sorted(gone, key=lambda each: (each.namespace, each.run, each.uid))


def run_directories(root: Path) -> Iterator[RunDirectory]:
    """Every ``<namespace>/<run>/<UID>`` of a storage. What is called otherwise is none; links are not followed."""
    for path in _third_level(root):
        if _UID.fullmatch(path.name):
            try:
                size, written = _extent(path)
            except OSError as error:
                note(f"{path} is left out: {error.strerror}: {error.filename}")
                continue
            yield RunDirectory(path.parts[-3], path.parts[-2], path.name, path, size, written)


def living_uids(cluster: Cluster) -> frozenset[str]:
    """UIDs of the runs that there are, finished ones included, and of those that still have pods."""
    with if_forbidden("ask for the right to list TrainingRuns, pods and nodes of the cluster"):
        runs = cluster.list(runs_path(None))["items"]
        pods = cluster.list(core_path(None, "pods"), labelSelector=names.LABEL_RUN_UID)["items"]
    uids = {run["metadata"]["uid"] for run in runs}
    return frozenset(uids | {pod["metadata"]["labels"][names.LABEL_RUN_UID] for pod in pods})


def this_node(cluster: Cluster) -> str:
    """The name of the node of the cluster that this machine is; empty when it is none."""
    here = BOOT_ID.read_text().strip()
    found = (
        node["metadata"]["name"]
        for node in cluster.list(core_path(None, "nodes"))["items"]
        if node.get("status", {}).get("nodeInfo", {}).get("bootID") == here
    )
    return next(found, "")


def _begun(root: Path) -> Iterator[Path]:
    """What is left of a removal that was cut off."""
    for path in _third_level(root):
        if path.name.endswith(_REMOVED) and _UID.fullmatch(path.name[1 : -len(_REMOVED)]):
            yield path


def _remove(path: Path) -> bool:
    """Whether it is gone. It disappears as a whole: what a removal that is cut off leaves is not what the run had."""
    doomed = path
    try:
        if not path.name.endswith(_REMOVED):
            doomed = path.with_name(f".{path.name}{_REMOVED}")
            path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        note(f"{path} is not removed, or not to the end: {error.strerror}: {error.filename}")
        return False
    return True


def _third_level(root: Path) -> Iterator[Path]:
    for namespace in _directories(root):
        for run in _directories(namespace):
            yield from _directories(run)


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        raise CliError(f"{error.strerror}: {path}", "run it as a user who can read every run's directory") from error


def _extent(path: Path) -> tuple[int, float]:
    """Bytes on the disk, and when the youngest file was written; of a directory without any, the directory itself."""
    size, times = 0, []

    def fail(error: OSError) -> None:
        raise error

    for parent, _, files in os.walk(path, onerror=fail):
        for name in files:
            found = os.lstat(os.path.join(parent, name))
            size += found.st_blocks * 512
            times.append(found.st_mtime)
    return size, max(times, default=path.lstat().st_mtime)


def _freed(left: list[RunDirectory]) -> str:
    return f"{sum(each.bytes for each in left) / _GIB:.1f} GiB of {plural(len(left), 'run')}"
