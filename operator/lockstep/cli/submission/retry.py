"""`lockstep retry`: a new run in the place of one that has ended, or beside it, from its newest checkpoint.

Two runs cannot have one name, so the old object is deleted first. Before that everything else is known to be right, and
the new manifest lies on this machine until it is created, and its code on the API server: whatever happens in between,
neither is lost.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lockstep.api.base import names
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import ApiServerError, CliError, Unreachable, UsageError
from lockstep.cli.submission import code, submit
from lockstep.cli.submission.refusals import in_fields
from lockstep.cli.yaml_text import as_yaml
from lockstep.core.model.conditions import is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.reasons import ConditionType
from lockstep.present.amounts import ago
from lockstep.present.runs import current_phase

GONE_WITHIN = 60.0
"""Seconds that the deletion of a run may take."""
_LOOK_EVERY = 0.2


def ended(cluster: Cluster, name: str) -> Json:
    """The run, which has ended. Raises CliError with the remedy where it has not, or is gone."""
    try:
        raw = runs.fetch(cluster, name)
    except (ApiServerError, Unreachable):
        raise  # which says nothing of whether it is there
    except CliError as error:
        kept = max(_kept(cluster.namespace, name), default=None)
        if kept:
            raise CliError(
                f"there is no run {name} in namespace {cluster.namespace}; a retry of it was cut off "
                f"{ago(kept[0], time.time())}, after it was deleted",
                f"lockstep submit {kept[1]} makes the new run",
            ) from error
        raise
    run = runs.view(raw)
    if is_true(run.status, ConditionType.FINISHED):
        return raw
    state = run.status.state or Phase.PENDING
    if current_phase(run) is Phase.SUSPENDED:
        remedy = (
            f"change it with kubectl edit trun {run.name}; lockstep resume {run.name} has it go on from its checkpoint"
        )
    else:
        remedy = f"lockstep cancel {run.name} ends it; lockstep suspend {run.name} stops it, to be changed and resumed"
    raise CliError(f"{run.name} has not ended: it is {state}", remedy)


def takes_its_place(raw: Json, manifest: Json) -> bool:
    """Whether the old object has to go. Raises UsageError for what belongs to an array, which would make it anew."""
    name = raw["metadata"]["name"]
    if manifest["metadata"].get("name") != name:
        return False
    if any(owner.get("kind") == names.RUN_SET_KIND for owner in raw["metadata"].get("ownerReferences") or ()):
        raise UsageError(f"{name} is a run of an array", "give the new one a name of its own: --name")
    return True


def replace_run(cluster: Cluster, raw: Json, manifest: Json, sent: code.Sent, warning: str = "") -> Json:
    """Delete the run ``raw`` and create the one of ``manifest``, which has its name. The code that was ``sent`` is
    needed as long as the manifest is kept. ``warning``: what is said before anything is deleted."""
    name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
    path = runs_path(cluster.namespace, name)
    ask(cluster, manifest)
    if warning:
        output.note(warning)
    kept = _keep(cluster.namespace, name, uid, manifest)
    held: code.Owners = []
    try:
        code.hold_on_to(cluster, manifest, held)
        sent.needed = True
        _delete(cluster, path, uid)
    except BaseException as error:
        if not sent.needed or (isinstance(error, ApiServerError) and error.status < 500):  # it was refused
            sent.needed = False
            kept.unlink(missing_ok=True)
            code.give_back(cluster, held)
        else:
            output.note(f"whether {name} is deleted is not known; if it is, lockstep submit {kept} makes the new run")
        raise
    try:
        _await_end_of(cluster, path, uid)
        made = submit.create(cluster, manifest, dry_run=False)
    except BaseException:  # an interrupt as well
        output.note(f"{name} is deleted, its checkpoints are not; lockstep submit {kept} makes the new run")
        raise
    code.give_back(cluster, held, but=uid)
    kept.unlink(missing_ok=True)
    return made


def ask(cluster: Cluster, manifest: Json) -> None:
    """Have the API server judge a manifest whose name is still taken: that alone may be wrong with it, and is looked at
    last. Raises CliError."""
    try:
        cluster.create(runs_path(cluster.namespace), manifest, dryRun="All")
    except ApiServerError as error:
        if error.status != 409:
            raise in_fields(error, manifest, cluster.namespace) from error


def _delete(cluster: Cluster, path: str, uid: str) -> None:
    try:
        cluster.delete(path, uid)
    except ApiServerError as error:
        if error.status != 404:  # somebody else did
            raise


def _await_end_of(cluster: Cluster, path: str, uid: str) -> None:
    until = time.monotonic() + GONE_WITHIN
    while time.monotonic() < until:
        try:
            found = cluster.get(path)
        except ApiServerError as error:
            if error.status == 404:
                return
            raise
        if found["metadata"]["uid"] != uid:
            raise CliError("another run of that name was made meanwhile")
        time.sleep(_LOOK_EVERY)
    finalizers = ", ".join(found["metadata"].get("finalizers") or ()) or "none"
    raise CliError(f"its object is not gone after {GONE_WITHIN:.0f} s; finalizers: {finalizers}")


def _folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "lockstep" / "retry"


def _kept(namespace: str, name: str) -> Iterator[tuple[float, Path]]:
    """Manifests of retries that were cut off, with when: this user's, as anybody may make a folder for temporary
    files."""
    for folder in (_folder(), _fallback()):
        found = folder.glob(f"{glob.escape(namespace)}.{glob.escape(name)}.*.yaml") if _is_ours(folder) else ()
        with contextlib.suppress(OSError):
            for path in found:
                if _is_ours(path):
                    yield path.lstat().st_mtime, path


def _is_ours(path: Path) -> bool:
    """It is this user's, no link, and nobody else may write to it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & 0o022


def _fallback() -> Path:
    return Path(tempfile.gettempdir()) / f"lockstep-retry-{os.getuid()}"


def _keep(namespace: str, name: str, uid: str, manifest: Json) -> Path:
    """Write it where it outlives this program, readable by its user alone. Raises CliError."""
    for folder in (_folder(), _fallback()):
        path = folder / f"{namespace}.{name}.{uid[:8]}.yaml"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(folder):
                continue
            path.unlink(missing_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(as_yaml(manifest))
                file.flush()
                os.fsync(file.fileno())
            return path
    raise CliError(
        f"the new manifest can be kept neither in {_folder()} nor in {_fallback()} while the old run is deleted",
        "make room there, or give the new run another --name",
    )
