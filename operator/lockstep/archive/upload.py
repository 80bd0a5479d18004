"""One valid checkpoint into the archive: every part, then the record that publishes it.

What if this is killed? Parts that arrived are whole and named by their checksum, so that the next one skips them.
What if two do it at once? They send the same parts under the same names, and the store lets one of them publish.
What if the source changes? It is judged again before the record is written, and its parts then have other names.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lockstep.archive.outcomes import ARCHIVE_CORRUPT, CONFLICT, SOURCE_INVALID, ArchiveError
from lockstep.archive.pace import CopyProgress, Pace
from lockstep.archive.record import MAX_RECORD_BYTES, ArchivedFile, ArchiveKey, Record, RecordError, decode, part_count
from lockstep.archive.shared_tier import reading
from lockstep.archive.source import Source, SourceFile, confirm_unchanged, open_source, stated_checksums
from lockstep.archive.store import ObjectStore
from lockstep.worker.checkpoints.formats.ray_train import RAY_TRAIN, restored_name

PART_BYTES = 64 << 20
MAX_READERS = 4  # a file is read from front to back by one thread, for its checksum


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a copy. `already`: it was published before, as it is."""

    record: Record
    moved: int
    skipped: int
    seconds: float
    already: bool = False


def upload(
    store: ObjectStore,
    source_path: Path,
    place: ArchiveKey,
    *,
    form: str = "Auto",
    part_bytes: int = PART_BYTES,
    parallel: int = 8,
    pace: Pace | None = None,
    say: Callable[[str], None] = print,
) -> Copied:
    """Publish the checkpoint at `source_path` as `place`. Raises ArchiveError."""
    present = {found.name: found.bytes for found in store.objects(place.data)}
    published = store.get(place.record, MAX_RECORD_BYTES)
    if published is not None:
        before = _trusted(published, place)
        if all(present.get(name) == size for name, size in before.part_sizes()):
            return Copied(before, 0, 0, 0.0, already=True)
        say(f"{place.prefix} is published and has lost parts: they are sent again")
    source = open_source(source_path, run_uid=place.run_uid, form=form)
    stated = stated_checksums(source, run_uid=place.run_uid)
    progress = CopyProgress(sum(file.bytes for file in source.files), say)
    sender = _Sender(store, present, parallel, pace or Pace(), progress)
    try:
        with ThreadPoolExecutor(min(MAX_READERS, parallel), thread_name_prefix="read") as readers:
            copies = [readers.submit(_send_file, file, place, part_bytes, sender) for file in source.files]
        files = tuple(copy.result() for copy in copies)
        sender.finish()
    finally:
        sender.close()
    for file in files:
        expected = stated.get(file.name, file.crc32)
        if expected != file.crc32:
            message = f"{file.name} has crc32 {file.crc32}, its manifest says {expected}"
            raise ArchiveError(SOURCE_INVALID, f"{source_path}: {message}")
    confirm_unchanged(source, run_uid=place.run_uid, form=form)
    record = _record(place, source, part_bytes, files)
    _publish(store, record)
    return Copied(record, progress.moved, progress.skipped, progress.seconds)


def _record(place: ArchiveKey, source: Source, part_bytes: int, files: tuple[ArchivedFile, ...]) -> Record:
    return Record(
        place=place,
        name=restored_name(place.step) if source.format == RAY_TRAIN else source.path.name,
        shape=source.shape,
        format=source.format,
        world=source.world,
        part_bytes=part_bytes,
        files=tuple(sorted(files, key=lambda file: file.name)),
    )


def _publish(store: ObjectStore, record: Record) -> None:
    store.put_new(record.place.record, record.encode())
    # Read back whoever wrote it: another uploader may have been first, and not every server that calls itself
    # S3-compatible heeds the condition.
    published = _trusted(store.get(record.place.record, MAX_RECORD_BYTES) or b"", record.place)
    if published != record:
        message = f"{record.place.prefix} was published by another job with other contents; those stay"
        raise ArchiveError(CONFLICT, message)


def _trusted(text: bytes, place: ArchiveKey) -> Record:
    try:
        return decode(text, place)
    except RecordError as error:
        raise ArchiveError(ARCHIVE_CORRUPT, f"{place.prefix}: {error}") from None


def _send_file(file: SourceFile, place: ArchiveKey, part_bytes: int, sender: _Sender) -> ArchivedFile:
    try:
        return _send_parts(file, place, part_bytes, sender)
    except BaseException as error:
        sender.fail(error)  # the other files need not be read to the end
        raise


def _send_parts(file: SourceFile, place: ArchiveKey, part_bytes: int, sender: _Sender) -> ArchivedFile:
    whole = 0
    parts: list[str] = []
    with reading(file.path), file.path.open("rb", buffering=0) as stream:
        for index in range(part_count(file.bytes, part_bytes)):
            sender.check()
            offset = index * part_bytes
            body = _read(stream.read, min(part_bytes, file.bytes - offset))
            if len(body) != min(part_bytes, file.bytes - offset):
                raise ArchiveError(SOURCE_INVALID, f"{file.path} became shorter while it was copied")
            whole = zlib.crc32(body, whole)
            parts.append(f"{zlib.crc32(body):08x}")
            sender.send(place.part(file.name, index, parts[-1]), body)
    return ArchivedFile(file.name, file.bytes, f"{whole:08x}", file.mtime_ns, tuple(parts))


def _read(read: Callable[[int], bytes | None], amount: int) -> bytes:
    """Exactly that many bytes unless the file ends before: a read may return fewer."""
    pieces: list[bytes] = []
    while amount > 0:
        piece = read(amount)
        if not piece:
            break
        pieces.append(piece)
        amount -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Sender:
    """Sends parts in parallel, and holds readers back: no more than `parallel` parts wait in memory.

    The first failure ends it: readers see it at their next part.
    """

    def __init__(
        self, store: ObjectStore, present: Mapping[str, int], parallel: int, pace: Pace, progress: CopyProgress
    ) -> None:
        self._store = store
        self._present = present
        self._pace = pace
        self._progress = progress
        self._slots = threading.BoundedSemaphore(parallel)
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="send")
        self._sending: list[Future[None]] = []
        self._failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Nothing more is sent; the first failure is the one that is told."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raise the failure of any part so far."""
        if self._failure is not None:
            raise self._failure

    def send(self, name: str, body: bytes) -> None:
        """Have the part sent unless it is there: its name says its contents, a listing its size."""
        if self._present.get(name) == len(body):
            self._progress.add(skipped=len(body))
            return
        self._slots.acquire()
        try:
            self.check()
            self._sending.append(self._pool.submit(self._send, name, body))
        except BaseException:
            self._slots.release()
            raise

    def _send(self, name: str, body: bytes) -> None:
        try:
            self.check()
            self._pace.acquire(len(body))
            self._store.put(name, body)
            self._progress.add(moved=len(body))
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._slots.release()

    def finish(self) -> None:
        """Wait for every part. Raises the first failure."""
        for part in self._sending:
            part.result()

    def close(self) -> None:
        """Let go of the threads; what was not begun is not sent."""
        self._pool.shutdown(cancel_futures=True)
