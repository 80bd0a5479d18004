"""One published checkpoint back into the shared tier: whole and checked, or not there at all.

It is put together in a hidden directory beside its place and renamed when every part was checked and is on the disk.
What was written before a kill is read again and kept where its checksum is right. A save of the same name that is not
whole gets another name just before: with one directory for all attempts that is the one to be replaced.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lockstep.archive.outcomes import (
    ARCHIVE_CORRUPT,
    DESTINATION_FULL,
    DESTINATION_REFUSED,
    DESTINATION_TAKEN,
    NOT_PUBLISHED,
    ArchiveError,
)
from lockstep.archive.pace import CopyProgress, Pace, in_units
from lockstep.archive.record import DIRECTORY, MAX_RECORD_BYTES, ArchivedFile, ArchiveKey, Record, RecordError, decode
from lockstep.archive.shared_tier import writing
from lockstep.archive.store import ObjectStore
from lockstep.worker.checkpoints import formats
from lockstep.worker.checkpoints.pointers import put_invalid_aside
from lockstep.worker.settings import SHARED_SKEW

_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Restored:
    """Where the checkpoint is now. `already`: it was there before."""

    record: Record
    path: Path
    moved: int
    skipped: int
    seconds: float
    already: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    file: ArchivedFile
    index: int
    offset: int
    bytes: int


def restore(
    store: ObjectStore,
    place: ArchiveKey,
    into: Path,
    *,
    parallel: int = 8,
    pace: Pace | None = None,
    say: Callable[[str], None] = print,
) -> Restored:
    """Make `into`/<name> the checkpoint that was published as `place`. Raises ArchiveError."""
    record = published_record(store, place)
    target = into / record.name
    with writing(into):
        if found := _found(record, target):
            return found
        require_parts(store, record)
        # Its own name stays the last word of the path, as formats look at it; the scan for checkpoints skips
        # the hidden directory.
        staging = into / f".{record.name}.restoring"
        draft = staging / record.name
        _clear_strangers(staging, {_path(record, draft, file) for file in record.files})
        draft.parent.mkdir(parents=True, exist_ok=True)
        progress = CopyProgress(record.size, say, verb="fetched")
        _fetch(store, record, draft, parallel, pace or Pace(), progress)
        _settle(record, draft)
        _judge(record, draft)
        if found := _found(record, target):  # another restore was first
            return found
        if os.path.lexists(target):
            say(put_invalid_aside(str(target), record.format))
        draft.rename(target)
        _sync(into)
        with suppress(OSError):
            staging.rmdir()
    return Restored(record, target, progress.moved, progress.skipped, progress.seconds)


def published_record(store: ObjectStore, place: ArchiveKey) -> Record:
    """Raises ArchiveError when nothing is published there, or nothing that can be read."""
    text = store.get(place.record, MAX_RECORD_BYTES)
    if text is None:
        raise ArchiveError(NOT_PUBLISHED, f"{place.prefix} is not published")
    try:
        return decode(text, place)
    except RecordError as error:
        raise ArchiveError(ARCHIVE_CORRUPT, f"{place.prefix}: {error}") from None


def require_parts(store: ObjectStore, record: Record) -> None:
    """Raise ArchiveError unless every part is there in its full size: told by a listing, before bytes are moved."""
    present = {found.name: found.bytes for found in store.objects(record.place.data)}
    for name, size in record.part_sizes():
        found = present.get(name)
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes, not {size}"
            raise ArchiveError(ARCHIVE_CORRUPT, f"{name} {state}")


def _found(record: Record, target: Path) -> Restored | None:
    """The checkpoint, where it has its name already. None: nothing has it, or a save that is damaged.

    Raises ArchiveError where the name is that of something else.
    """
    if not os.path.lexists(target):
        return None
    finding = formats.examine(str(target), form=record.format, run_uid=record.place.run_uid, skew=SHARED_SKEW)
    if finding is None or finding.verdict == formats.UNKNOWN:
        why = finding.reason if finding is not None else "is no checkpoint"
        raise ArchiveError(DESTINATION_REFUSED, f"{target} is there and cannot be judged: {why}; move it away")
    if finding.run_uid in ("", record.place.run_uid) and not target.is_symlink():
        if finding.verdict != formats.VALID:
            return None
        if all(_has_bytes_of(_path(record, target, file), file) for file in record.files):
            return Restored(record, target, 0, 0, 0.0, already=True)
        if all(_has_time_of(_path(record, target, file), file) for file in record.files):
            return None  # the same, and what is in it has changed since: steps of two attempts have one size
    raise ArchiveError(DESTINATION_TAKEN, f"{target} is there and is not this checkpoint; move it away")


def _has_bytes_of(path: Path, file: ArchivedFile) -> bool:
    return _size(path) == file.bytes and _crc32_of(path, 0, file.bytes) == file.crc32


def _has_time_of(path: Path, file: ArchivedFile) -> bool:
    return _size(path) == file.bytes and path.stat().st_mtime_ns == file.mtime_ns


def _clear_strangers(staging: Path, ours: Set[Path]) -> None:
    """Remove what is not of this checkpoint: left of another of the same name, and links, which lead elsewhere."""
    if staging.is_symlink():
        staging.unlink()
    for directory, subdirectories, names in os.walk(staging):
        for path in (Path(directory, name) for name in (*subdirectories, *names)):
            if path.is_symlink() or not (path.is_dir() or path in ours):
                path.unlink()


def _fetch(store: ObjectStore, record: Record, draft: Path, parallel: int, pace: Pace, progress: CopyProgress) -> None:
    fresh = set()
    for file in record.files:
        path = _path(record, draft, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        if _size(path) != file.bytes:
            fresh.add(file.name)
            with path.open("wb") as stream:
                stream.truncate(file.bytes)
    parts = list(_parts(record))
    kept = {file.name for file in record.files} - fresh
    _need_space(draft.parent, sum(part.bytes for part in parts if part.file.name not in kept))

    def fetch(part: _Part) -> None:
        path = _path(record, draft, part.file)
        crc32 = part.file.parts[part.index]
        if part.file.name in kept and _crc32_of(path, part.offset, part.bytes) == crc32:
            progress.add(skipped=part.bytes)
            return
        pace.acquire(part.bytes)
        name = record.place.part(part.file.name, part.index, crc32)
        body = store.get(name, part.bytes)
        if body is None:
            raise ArchiveError(ARCHIVE_CORRUPT, f"{name} is missing")
        if len(body) != part.bytes or f"{zlib.crc32(body):08x}" != crc32:
            raise ArchiveError(ARCHIVE_CORRUPT, f"{name} holds other bytes than were published")
        with writing(path), path.open("r+b") as stream:
            stream.seek(part.offset)
            stream.write(body)
        progress.add(moved=part.bytes)

    with ThreadPoolExecutor(parallel, thread_name_prefix="fetch") as pool:
        running = [pool.submit(fetch, part) for part in parts]
        try:
            for done in running:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _settle(record: Record, draft: Path) -> None:
    """Times as they were, and everything on the disk: contents, then names."""
    for file in record.files:
        path = _path(record, draft, file)
        os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
        _sync(path)
    for directory, _, _ in os.walk(draft.parent, topdown=False):
        _sync(Path(directory))


def _judge(record: Record, draft: Path) -> None:
    finding = formats.examine(str(draft), form=record.format, run_uid=record.place.run_uid, skew=SHARED_SKEW)
    if finding is None or finding.verdict != formats.VALID:
        why = finding.reason if finding else "is no checkpoint"
        raise ArchiveError(ARCHIVE_CORRUPT, f"{record.place.prefix}, as fetched, is not valid: {why}")


def _parts(record: Record) -> Iterator[_Part]:
    for file in record.files:
        for index in range(len(file.parts)):
            yield _Part(file, index, *file.part_range(index, record.part_bytes))


def _path(record: Record, root: Path, file: ArchivedFile) -> Path:
    return root / file.name if record.shape == DIRECTORY else root


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def _crc32_of(path: Path, offset: int, amount: int) -> str:
    crc32 = 0
    with path.open("rb") as stream:
        stream.seek(offset)
        while amount > 0 and (piece := stream.read(min(amount, _READ_BYTES))):
            crc32 = zlib.crc32(piece, crc32)
            amount -= len(piece)
    return f"{crc32:08x}"


def _need_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ArchiveError(DESTINATION_FULL, f"{directory} has {in_units(free)} free, {in_units(needed)} are needed")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
