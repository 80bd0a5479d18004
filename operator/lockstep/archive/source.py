"""The checkpoint that is copied: what it consists of, and proof that it did not change meanwhile."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.archive.outcomes import (
    SOURCE_INVALID,
    STORAGE_UNREADABLE,
    ArchiveError,
)
from lockstep.archive.record import DIRECTORY, FILE, RecordError, inside
from lockstep.archive.shared_tier import reading
from lockstep.worker.checkpoints import formats
from lockstep.worker.settings import SHARED_SKEW

_MANIFEST = "Manifest"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file and what tells that it was touched. `name` is relative to the checkpoint."""

    name: str
    path: Path
    bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint that was VALID when this was made."""

    path: Path
    shape: str
    format: str
    world: int
    files: tuple[SourceFile, ...]


def open_source(path: Path, *, run_uid: str, form: str = "Auto", skew: float = SHARED_SKEW) -> Source:
    """Judge the checkpoint and list its files. Raises ArchiveError when it is not VALID."""
    with reading(path):
        shape = DIRECTORY if path.is_dir() else FILE
        files = tuple(_files(path) if shape == DIRECTORY else [_file(path, path.name)])
        # Judged after the listing: a file that is changed in between differs at the second listing.
        finding = formats.examine(str(path), form=form, run_uid=run_uid, skew=skew)
    if finding is None:
        raise ArchiveError(SOURCE_INVALID, f"{path} is no checkpoint")
    if finding.verdict == formats.UNKNOWN:
        raise ArchiveError(STORAGE_UNREADABLE, f"{path} cannot be judged: {finding.reason}")
    if finding.verdict != formats.VALID:
        raise ArchiveError(SOURCE_INVALID, f"{path}: {finding.reason}")
    return Source(path, shape, finding.format, finding.world, files)


def stated_checksums(source: Source, *, run_uid: str, skew: float = SHARED_SKEW) -> Mapping[str, str]:
    """CRC-32 sums by file that the checkpoint states, to be held against what is read for the copy.

    Formats with checksums of another kind are read once for them here. Raises ArchiveError.
    """
    if source.format == _MANIFEST:
        with reading(source.path):
            try:
                manifest = json.loads((source.path / "manifest.json").read_text())
                return {str(entry["name"]): str(entry["crc32"]).lower() for entry in manifest["files"]}
            except (ValueError, KeyError, TypeError) as error:
                raise ArchiveError(SOURCE_INVALID, f"{source.path}: {error!r} in its manifest") from None
    verdict, reason = formats.verify_checkpoint(str(source.path), form=source.format, run_uid=run_uid, skew=skew)
    if verdict != formats.VALID:
        raise ArchiveError(SOURCE_INVALID if verdict == formats.INVALID else STORAGE_UNREADABLE, reason)
    return {}


def confirm_unchanged(before: Source, *, run_uid: str, form: str = "Auto", skew: float = SHARED_SKEW) -> None:
    """Raise ArchiveError unless the checkpoint is still VALID and no file came, went or was touched."""
    now = open_source(before.path, run_uid=run_uid, form=form, skew=skew)
    if now.files != before.files:
        changed = sorted({file.name for file in set(now.files) ^ set(before.files)})
        raise ArchiveError(SOURCE_INVALID, f"{before.path} changed while it was copied: {', '.join(changed[:5])}")


def _files(root: Path) -> Iterator[SourceFile]:
    for directory, subdirectories, names in os.walk(root, onerror=_raise):
        subdirectories.sort()
        for name in subdirectories:
            if os.path.islink(os.path.join(directory, name)):
                raise ArchiveError(SOURCE_INVALID, f"{directory}/{name} is a link to a directory, which is not copied")
        for name in sorted(names):
            path = Path(directory, name)
            yield _file(path, path.relative_to(root).as_posix())


def _file(path: Path, name: str) -> SourceFile:
    found = path.stat()  # of what a link leads to: the archive holds contents
    if not stat.S_ISREG(found.st_mode):
        raise ArchiveError(SOURCE_INVALID, f"{path} is no regular file")
    try:
        return SourceFile(inside(name), path, found.st_size, found.st_mtime_ns)
    except RecordError as error:
        raise ArchiveError(SOURCE_INVALID, f"{path}: {error}") from None


def _raise(error: OSError) -> None:
    raise error
