"""The verdict on one checkpoint, whatever its format."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import zlib
from typing import Callable, Optional, Sequence, Tuple

from lockstep.worker.checkpoints.formats import deepspeed, nemo, nvrx, orbax, ray_train
from lockstep.worker.checkpoints.formats.catalogue import AUTO, MARKERS, recognise
from lockstep.worker.checkpoints.formats.containers import CHUNK, check_container, check_zip_checksums
from lockstep.worker.checkpoints.formats.findings import (
    INVALID,
    UNKNOWN,
    VALID,
    ZIP,
    CheckpointEntry,
    Finding,
    InterruptedCheckError,
    InvalidError,
    ListedFile,
    OrderError,
    UnsureError,
    list_entry,
)
from lockstep.worker.errors import trouble
from lockstep.worker.settings import LOCAL_SKEW, TRUST_TIMES


def of_a_copy(finding: Finding) -> str:
    """What to do about a checkpoint that is whole, but for times that a copy, or its file system, has not kept; else
    empty."""
    if not finding.as_copied:
        return ""
    touch = f", touch {finding.marker}," if finding.marker else ""
    return f"; all else is right, as of a copy that did not keep times: copy with times{touch} or accept it"


ODD = (ValueError, ArithmeticError, LookupError, struct.error)
"""What damaged bytes may lead to anywhere: every rank meets the same, and none may fail at its barrier for it."""
ALL_FILES = 1024  # up to so many files every rank looks at all of them, beyond at its share


def examine(
    path: str, *, form: str = AUTO, run_uid: str = "", step: Optional[int] = None, share: int = 0, of: int = 1,
    skew: float = LOCAL_SKEW, trusts_times: Optional[bool] = None,
) -> Optional[Finding]:  # fmt: skip
    """Presence, sizes, ends of files and commit order of one checkpoint, a directory or a single file.

    No data is read. None: this is no checkpoint at all. ``run_uid`` and ``step``: what it must say of itself, unless
    empty or None. ``skew``: seconds by which a file may be younger than its commit. ``trusts_times`` False: it is a
    copy that did not keep them; None: as the run says.
    """
    finding: Optional[Finding] = Finding(INVALID, format=form.partition(":")[0])
    assert finding is not None
    try:
        entry = _entry(path, step)._replace(trusts_times=_or_as_the_run_says(trusts_times))
        known = recognise(entry, form)
        if known is None:
            return None
        finding = finding._replace(format=known.name)
        finding, files = known.read(entry)
        if run_uid and finding.run_uid not in ("", run_uid):  # before any of its files is asked for
            words = f"belongs to another run ({finding.run_uid[:64]})"
            return Finding(INVALID, words, format=known.name, run_uid=finding.run_uid)
        _check_files(entry, files, finding.committed_at + skew, skew, share, of)
        return finding
    except OrderError as error:
        otherwise = examine(
            path, form=form, run_uid=run_uid, step=step, share=share, of=of, skew=skew, trusts_times=False
        )
        as_copied = otherwise is not None and otherwise.verdict == VALID
        marker = next((name for name in MARKERS if os.path.lexists(os.path.join(path, name))), "")
        return finding._replace(verdict=INVALID, reason=str(error), as_copied=as_copied, marker=marker)
    except InvalidError as error:
        return finding._replace(verdict=INVALID, reason=str(error))
    except UnsureError as error:
        return finding._replace(verdict=UNKNOWN, reason=str(error))
    except FileNotFoundError as error:
        return finding._replace(verdict=INVALID, reason=f"vanished: {trouble(error)}")
    except OSError as error:
        return finding._replace(verdict=UNKNOWN, reason=trouble(error))
    except ODD as error:
        return finding._replace(verdict=INVALID, reason=f"cannot be made sense of: {error!r}")


def _or_as_the_run_says(trusts_times: Optional[bool]) -> bool:
    return TRUST_TIMES if trusts_times is None else trusts_times


def _entry(path: str, step: Optional[int]) -> CheckpointEntry:
    path = path.rstrip("/") or "/"
    try:
        return list_entry(path, step)
    except FileNotFoundError:
        absent = CheckpointEntry(path, is_file=True, step=step)
        if nvrx.is_local(absent) and os.path.isdir(os.path.dirname(path)):
            return absent
        raise


def _check_files(
    entry: CheckpointEntry, files: Sequence[ListedFile], newest: float, skew: float, share: int, of: int
) -> None:
    """Files are opened by the rank whose share they are; together the ranks open all of them."""
    for index, listed in enumerate(files):
        own = index % of == share
        if not own and len(files) > ALL_FILES:
            continue
        path = os.path.join(entry.base, listed.name)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidError(f"{listed.name} is missing") from None
        if not found.st_size and listed.bytes == 1 and not listed.exact:
            raise InvalidError(f"{listed.name} is empty")
        if found.st_size < listed.bytes or (listed.exact and found.st_size != listed.bytes):
            least = "" if listed.exact else "at least "
            raise InvalidError(f"{listed.name} has {found.st_size} bytes, its commit says {least}{listed.bytes}")
        if entry.trusts_times and listed.dated and found.st_mtime > newest:
            later = f"{found.st_mtime - newest + skew:.1f} s later; clocks may be {skew:g} s apart"
            raise OrderError(f"{listed.name} changed after its commit ({later})")
        if own and listed.container:
            check_container(path, listed.container)


def verify_checkpoint(
    path: str, share: int = 0, of: int = 1, *, form: str = AUTO, run_uid: str = "", skew: float = LOCAL_SKEW,
    trusts_times: Optional[bool] = None, interrupted: Callable[[], bool] = lambda: False,
) -> Tuple[str, str]:  # fmt: skip
    """(verdict, reason) after reading this share of the files (every ``of``-th from ``share`` on, by name).

    A checkpoint with a commit of its own is meant: in the local tier that of one rank. Read is what has checksums:
    the files of a manifest, those in Megatron's integrity.json, and files of torch.save; for others this says no more
    than ``examine``. Raises InterruptedCheckError when ``interrupted()`` becomes true.
    """
    finding = examine(path, form=form, run_uid=run_uid, skew=skew, trusts_times=trusts_times)
    if finding is None:
        return INVALID, "there is no checkpoint"
    if finding.verdict != VALID:
        return finding.verdict, finding.reason
    try:
        entry = _entry(path, None)._replace(trusts_times=_or_as_the_run_says(trusts_times))
        known = recognise(entry, form)
        files = sorted(known.read(entry)[1]) if known else []
        for listed in files[share::of]:
            _check_bytes(os.path.join(entry.base, listed.name), listed, interrupted)
    except InvalidError as error:
        return INVALID, str(error)
    except UnsureError as error:
        return UNKNOWN, str(error)
    except OSError as error:
        return UNKNOWN, trouble(error)
    except ODD as error:
        return INVALID, f"cannot be made sense of: {error!r}"
    return VALID, finding.reason


def _check_bytes(path: str, listed: ListedFile, interrupted: Callable[[], bool]) -> None:
    algorithm, _, expected = listed.digest.partition(":")
    if algorithm:
        found = file_digest(path, algorithm, interrupted)
        if found != expected:
            raise InvalidError(f"{listed.name} has {algorithm} {found}, its manifest says {expected}")
    elif listed.container == ZIP:
        check_zip_checksums(path, interrupted)


def file_digest(path: str, algorithm: str, interrupted: Callable[[], bool]) -> str:
    """crc32 (zlib's, eight digits) or sha256 of a file, hexadecimal. Raises OSError, InterruptedCheckError."""
    checksum, sha256 = 0, hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while True:
            if interrupted():
                raise InterruptedCheckError(path)
            chunk = stream.read(CHUNK)
            if not chunk:
                return f"{checksum:08x}" if algorithm == "crc32" else sha256.hexdigest()
            if algorithm == "crc32":
                checksum = zlib.crc32(chunk, checksum)
            else:
                sha256.update(chunk)


def commit_mark(path: str) -> Optional[Tuple[int, int]]:
    """Identifies a commit without reading it: it differs after another commit to the same place. None: uncommitted.

    It differs as well once a file is added, as by ranks that do not wait for the one that commits. Where there is no
    marker, in formats without one, it is made of the times and sizes of the files.
    """
    if orbax.UNFINISHED in os.path.basename(path) or os.path.lexists(nemo.unfinished_marker(path)):
        return None
    with contextlib.suppress(OSError):
        entry = _entry(path, None)
        held = [entry, *(entry.below(name) for name in entry.directories)]
        marker = next((name for name in MARKERS if os.path.lexists(entry.at(name))), "")
        if nvrx.is_local(entry):
            found = [os.stat(os.path.join(entry.base, name)) for name in nvrx.local_files(entry)]
        elif entry.is_file:
            found = [os.stat(path)]
        elif marker:
            found = [os.stat(entry.at(marker)), *(os.stat(each.path) for each in held)]
        else:
            found = [
                os.stat(each.at(name)) for each in held for name in [*each.files, *deepspeed.offloaded_files(each)]
            ]
            if not found and ray_train.is_ray_train(entry):  # all of it is deeper; what names it has committed it
                found = [os.stat(each.path) for each in held]
        if found:
            return max(each.st_mtime_ns for each in found), sum(each.st_size for each in found)
    return None


def has_marker(path: str) -> bool:
    """Whether something says that a save was meant to be complete."""
    return any(os.path.lexists(os.path.join(path, name)) for name in MARKERS)
