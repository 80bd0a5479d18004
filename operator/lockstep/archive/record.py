"""What is published with an archived checkpoint, and how its objects are named. Pure.

Under the URI of the archive, for every checkpoint of a run:

    <run UID>/a<attempt>/step-<step>/data/<file>/<part>-<crc32>    the parts of every file
    <run UID>/a<attempt>/step-<step>/lockstep-archive.json         written last: the checkpoint is published

A file is cut into parts of equal size, the last one shorter, and a part's name says its checksum. So a listing is
enough to know what is there already, no part is ever overwritten by other contents, and all of it works the same on
every kind of store (docs/decisions/0019).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

RECORD_NAME = "lockstep-archive.json"
RECORD_FORMAT = "lockstep-archive/1"
MAX_RECORD_BYTES = 256 << 20
DIRECTORY, FILE = "Directory", "File"

_UID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,62}")
_CHECKPOINT = re.compile(r"a(\d{1,9})/step-(\d{1,16})", re.ASCII)
_CRC = re.compile(r"[0-9a-f]{8}")
_NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_MAX_NAME = 240  # bytes: while it is put together it has a longer one
_LARGEST = 2**63 - 1


class RecordError(ValueError):
    """A record that cannot be read or contradicts itself; the message says how."""


@dataclass(frozen=True, slots=True, order=True)
class ArchiveKey:
    """A checkpoint of one run within the archive."""

    run_uid: str
    attempt: int
    step: int

    def __post_init__(self) -> None:
        if not _UID.fullmatch(self.run_uid):
            raise RecordError(f"{self.run_uid!r} is not a run UID")
        if self.attempt < 0 or self.step < 0:
            raise RecordError("attempt and step are not negative")

    @classmethod
    def parse(cls, run_uid: str, words: str) -> ArchiveKey:
        """From words such as a2/step-300. Raises RecordError."""
        matched = _CHECKPOINT.fullmatch(words)
        place = cls(run_uid, int(matched[1]), int(matched[2])) if matched is not None else None
        if place is None or place.label != words:  # a02/step-300 would be another name for the same checkpoint
            raise RecordError(f"{words!r} does not name a checkpoint; write it as a2/step-300")
        return place

    @property
    def label(self) -> str:
        """Attempt and step, e.g. a2/step-300."""
        return f"a{self.attempt}/step-{self.step}"

    @property
    def prefix(self) -> str:
        """Of all its objects, without a slash at the end."""
        return f"{self.run_uid}/{self.label}"

    @property
    def record(self) -> str:
        """Name of the object that publishes it."""
        return f"{self.prefix}/{RECORD_NAME}"

    @property
    def data(self) -> str:
        """Prefix of its parts."""
        return f"{self.prefix}/data"

    def part(self, file: str, index: int, crc32: str) -> str:
        """Name of one part of a file."""
        return f"{self.data}/{file}/{index:05d}-{crc32}"


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file: size, checksum (zlib's CRC-32, eight hexadecimal digits) of the whole and of each part.

    `mtime_ns` is kept because a file younger than its commit makes a checkpoint invalid, also after a restore.
    """

    name: str
    bytes: int
    crc32: str
    mtime_ns: int
    parts: tuple[str, ...]

    def part_range(self, index: int, part_bytes: int) -> tuple[int, int]:
        """Offset and length of a part."""
        offset = index * part_bytes
        return offset, min(part_bytes, self.bytes - offset)


@dataclass(frozen=True, slots=True)
class Record:
    """A published checkpoint. `name` is what it was called in the shared tier; `shape` Directory or File."""

    place: ArchiveKey
    name: str
    shape: str
    format: str
    world: int
    part_bytes: int
    files: tuple[ArchivedFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.bytes for file in self.files)

    def part_sizes(self) -> Iterator[tuple[str, int]]:
        """Name and size of every object that holds a part."""
        for file in self.files:
            for index, crc32 in enumerate(file.parts):
                yield self.place.part(file.name, index, crc32), file.part_range(index, self.part_bytes)[1]

    def encode(self) -> bytes:
        """The same checkpoint always gives the same bytes: two that publish the same thing agree."""
        body = {
            "format": RECORD_FORMAT,
            "runUID": self.place.run_uid,
            "attempt": self.place.attempt,
            "step": self.place.step,
            "name": self.name,
            "shape": self.shape,
            "sourceFormat": self.format,
            "world": self.world,
            "partBytes": self.part_bytes,
            "bytes": self.size,
            "files": [
                {
                    "name": file.name,
                    "bytes": file.bytes,
                    "crc32": file.crc32,
                    "mtimeNs": file.mtime_ns,
                    "parts": list(file.parts),
                }
                for file in sorted(self.files, key=lambda file: file.name)
            ],
        }
        return json.dumps(body, separators=(",", ":")).encode()


def decode(text: bytes, place: ArchiveKey) -> Record:
    """The record of the checkpoint at `place`. Raises RecordError: what cannot be trusted is not used."""
    if len(text) > MAX_RECORD_BYTES:
        raise RecordError(f"{RECORD_NAME} is too large")
    try:
        body = json.loads(text)
        if body["format"] != RECORD_FORMAT:
            raise RecordError(f"{RECORD_NAME} is of format {body['format']!r}")
        stated = ArchiveKey(str(body["runUID"]), _whole(body["attempt"]), _whole(body["step"]))
        part_bytes = _whole(body["partBytes"])
        record = Record(
            place=place,
            name=inside(body["name"]),
            shape=str(body["shape"]),
            format=str(body["sourceFormat"]),
            world=_whole(body["world"]),
            part_bytes=part_bytes,
            files=tuple(_file(entry, part_bytes) for entry in body["files"]),
        )
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{RECORD_NAME} is not readable: {error!r}") from None
    if stated != place:
        raise RecordError(f"{RECORD_NAME} says it is {stated.prefix}")
    if "/" in record.name or record.shape not in (DIRECTORY, FILE):
        raise RecordError(f"{RECORD_NAME} is of shape {record.shape!r}, named {record.name!r}")
    listed = {file.name for file in record.files}
    if not listed or len(listed) != len(record.files):
        raise RecordError(f"{RECORD_NAME} lists no file, or one twice")
    if record.shape == FILE and listed != {record.name}:
        raise RecordError(f"{RECORD_NAME} is of one file and lists others")
    if parents := {str(parent) for name in listed for parent in PurePosixPath(name).parents} & listed:
        raise RecordError(f"{min(parents)!r} is a file and a directory")
    if record.size != body.get("bytes"):
        raise RecordError(f"{RECORD_NAME} says {body.get('bytes')} bytes, its files have {record.size}")
    return record


def _file(entry: Mapping[str, Any], part_bytes: int) -> ArchivedFile:
    file = ArchivedFile(
        name=inside(entry["name"]),
        bytes=_whole(entry["bytes"]),
        crc32=_matching(_CRC, entry["crc32"]),
        mtime_ns=_whole(entry["mtimeNs"]),
        parts=tuple(_matching(_CRC, part) for part in entry["parts"]),
    )
    if len(file.parts) != part_count(file.bytes, part_bytes):
        raise RecordError(f"{file.name} of {file.bytes} bytes has {len(file.parts)} parts of {part_bytes}")
    return file


def part_count(size: int, part_bytes: int) -> int:
    """Parts of a file of that size; an empty file has one, empty."""
    if part_bytes < 1:
        raise RecordError("parts have at least one byte")
    return max(1, -(-size // part_bytes))


def inside(name: Any) -> str:
    """A relative path that every file system and store takes: without '.', '..' and empty words, of text in one
    line. Raises RecordError.
    """
    if not isinstance(name, str) or _NO_TEXT.search(name):
        raise RecordError(f"bad file name {name!r:.300}")
    words = name.split("/")
    if any(word in ("", ".", "..") or len(word.encode()) > _MAX_NAME for word in words):
        raise RecordError(f"bad file name {name!r:.300}")
    return name


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LARGEST:
        raise RecordError(f"bad number {number!r:.40}")
    return number


def _matching(pattern: re.Pattern[str], word: Any) -> str:
    if not isinstance(word, str) or not pattern.fullmatch(word):
        raise RecordError(f"bad word {word!r:.40}")
    return word
