"""Single files that tell by themselves whether they are whole: torch.save's zip archives, safetensors, OCDBT's nodes.

Only ends and headers are read, unless checksums are asked for. Nothing is ever unpickled: a pickle is searched for
a key and the number behind it.
"""

from __future__ import annotations

import functools
import json
import os
import re
import struct
import zipfile
import zlib
from typing import BinaryIO, Callable, Dict, List, Optional, Tuple

from lockstep.worker.checkpoints.formats.findings import OCDBT, SAFETENSORS, ZIP, InterruptedCheckError, InvalidError
from lockstep.worker.checkpoints.formats.pickles import first_number

TAIL = 64 << 10  # an end record is no farther from the end, whatever comment follows it
MAX_HEADER_BYTES = 100 << 20  # of safetensors, by its own definition
MAX_PICKLE_BYTES = 64 << 20
CHUNK = 4 << 20

_ZIP_START, _ZIP_END, _ZIP64_LOCATOR, _ZIP64_END = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06"
_PICKLE_START = b"\x80"
_OCDBT_NODE = b"\x0c\xdb\x20\xde"
# A dictionary's key may be stored in the memo before its value follows, in protocol 2 or 4.
_MEMO = rb"(?:q.|r....|\x94)?"
_VALUE = rb"(?:K(?P<one>.)|M(?P<two>..)|J(?P<four>....)|N)"
_INTEGER = rb"(?:K.|M..|J....)"
_LIST = rb"\]" + _MEMO + rb"(?:\((?P<more>" + _INTEGER + rb"{1,1000})e|(?P<one>" + _INTEGER + rb")a)"


def check_container(path: str, kind: str) -> None:
    """Raises InvalidError when the file is cut off, OSError."""
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if kind == SAFETENSORS:
            _check_safetensors(stream, size, os.path.basename(path))
        elif kind == ZIP:
            _check_torch_file(stream, size, os.path.basename(path))
        elif kind == OCDBT:
            _check_ocdbt(stream, size, os.path.basename(path))


def _check_torch_file(stream: BinaryIO, size: int, name: str) -> None:
    start = stream.read(4)
    if start != _ZIP_START:
        if start[:1] == _PICKLE_START:
            return  # torch's format before 1.6, whose end cannot be told
        raise InvalidError(f"{name} was not written by torch.save, or is cut off")
    stream.seek(max(0, size - TAIL))
    tail = stream.read(TAIL)
    at = tail.rfind(_ZIP_END)
    if at < 0 or len(tail) < at + 22:
        raise InvalidError(f"{name} is cut off: it has no end record")
    length, offset = struct.unpack("<II", tail[at + 12 : at + 20])
    end = size - len(tail) + at
    if tail[at - 20 : at - 16] == _ZIP64_LOCATOR:
        (end,) = struct.unpack("<Q", tail[at - 12 : at - 4])
        stream.seek(end)
        record = stream.read(56)
        if len(record) < 56 or record[:4] != _ZIP64_END:
            raise InvalidError(f"{name} is damaged: its end record leads nowhere")
        length, offset = struct.unpack("<QQ", record[40:56])
    if offset + length != end:
        raise InvalidError(f"{name} is damaged: its directory is not where its end record says")


def _check_safetensors(stream: BinaryIO, size: int, name: str) -> None:
    head = stream.read(8)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise InvalidError(f"{name} is cut off: its header is not whole")
    try:
        header = json.loads(stream.read(length).decode("utf-8"))
        ends = [tensor["data_offsets"][1] for key, tensor in header.items() if key != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InvalidError(f"{name} has a header that is not readable: {error!r}") from None
    if size != expected:
        raise InvalidError(f"{name} has {size} bytes, its header says {expected}")


def _check_ocdbt(stream: BinaryIO, size: int, name: str) -> None:
    """Nodes of the tree say how long they are. What follows the first value, which does not, cannot be told."""
    at = 0
    while at < size:
        stream.seek(at)
        head = stream.read(12)
        if head[:4] != _OCDBT_NODE[: len(head)]:
            return
        length = struct.unpack("<Q", head[4:])[0] if len(head) == 12 else size
        at += length
        if at > size or len(head) < 12 or length < 12:  # one that is shorter than its head would be read for ever
            raise InvalidError(f"{name} is cut off")


def check_zip_checksums(path: str, interrupted: Callable[[], bool]) -> None:
    """Compare the CRC-32 of every member. Raises InvalidError, OSError, InterruptedCheckError.

    Says nothing of a file in torch's old format, nor of members that were written without (a CRC of 0).
    """
    name = os.path.basename(path)
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb", buffering=0) as stream:
            for member in archive.infolist():
                if member.CRC == 0 or member.compress_type != zipfile.ZIP_STORED:
                    continue
                stream.seek(member.header_offset)
                head = stream.read(30)
                if head[:4] != _ZIP_START:
                    raise InvalidError(f"{name} is damaged at {member.filename}")
                stream.seek(member.header_offset + 30 + sum(struct.unpack("<HH", head[26:30])))
                if _crc32(stream, member.file_size, interrupted) != member.CRC:
                    raise InvalidError(f"{name} is damaged: {member.filename} has not the CRC it was written with")
    except zipfile.BadZipFile as error:
        raise InvalidError(f"{name} is damaged: {error}") from None


def _crc32(stream: BinaryIO, size: int, interrupted: Callable[[], bool]) -> int:
    checksum = 0
    while size > 0:
        if interrupted():
            raise InterruptedCheckError(stream.name)
        chunk = stream.read(min(CHUNK, size))
        if not chunk:
            break
        checksum = zlib.crc32(chunk, checksum)
        size -= len(chunk)
    return checksum


def pickled_facts(path: str, *keys: str) -> Optional[Dict[str, Optional[int]]]:
    """What follows the first mention of each key in the pickle of a torch.save file: a number, or None. Raises OSError.

    Keys that are not there, or followed by something else or a number below 0, are left out. None: the file is damaged,
    of torch's old format, or its pickle is larger than 64 MiB.
    """
    found = os.stat(path)
    return _pickled_facts(path, found.st_mtime_ns, found.st_size, keys)


def pickled_number(path: str, *keys: str) -> Optional[int]:
    """That of the first of these keys which has one in what a torch.save file holds, as ``first_number`` finds it.
    Raises OSError."""
    found = os.stat(path)
    return _pickled_number(path, found.st_mtime_ns, found.st_size, keys)


@functools.lru_cache(maxsize=256)
def _pickled_number(path: str, mtime_ns: int, size: int, keys: Tuple[str, ...]) -> Optional[int]:
    return first_number(_pickle_of(path), keys)


def is_whole_torch_file(path: str) -> bool:
    """A zip archive that is not cut off, or a file in torch's old format, which has no end. Raises OSError."""
    with open(path, "rb") as stream:
        start = stream.read(1)
    return start == _PICKLE_START or zipfile.is_zipfile(path)


@functools.lru_cache(maxsize=256)
def _pickled_facts(path: str, mtime_ns: int, size: int, keys: Tuple[str, ...]) -> Optional[Dict[str, Optional[int]]]:
    """Remembered while the file stays the same: the pickle of a large model has megabytes."""
    pickled = _pickle_of(path)
    if not pickled:
        return None
    facts: Dict[str, Optional[int]] = {}
    for key in keys:
        matched = re.search(_key(key) + _VALUE, pickled, re.DOTALL)
        if matched:
            digits = matched.group("one") or matched.group("two") or matched.group("four")
            number = _integer(digits) if digits else None
            if number is None or number >= 0:
                facts[key] = number
    return facts


def _integer(digits: bytes) -> int:
    """Of its opcodes that of four bytes alone has a sign."""
    return int.from_bytes(digits, "little", signed=len(digits) == 4)


def numbers_in_pickle(path: str, pattern: bytes) -> List[int]:
    """What the pattern's one group finds in the pickle of a torch.save file. Raises OSError."""
    return [int(each) for each in re.findall(pattern, _pickle_of(path))]


def pickled_list(path: str, key: str) -> Tuple[int, ...]:
    """The integers in the list that follows the first mention of the key, as ``pickled_facts``; empty: there is none.
    Raises OSError."""
    found = os.stat(path)
    return _pickled_list(path, found.st_mtime_ns, found.st_size, key)


@functools.lru_cache(maxsize=256)
def _pickled_list(path: str, mtime_ns: int, size: int, key: str) -> Tuple[int, ...]:
    matched = re.search(_key(key) + _LIST, _pickle_of(path), re.DOTALL)
    if not matched:
        return ()
    integers = re.findall(_INTEGER, matched.group("more") or matched.group("one"), re.DOTALL)
    return tuple(_integer(each[1:]) for each in integers)


def _pickle_of(path: str) -> bytes:
    """Names, shapes and numbers, without the tensors; empty when there is none. Raises OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith("/data.pkl") and member.file_size <= MAX_PICKLE_BYTES:
                    return archive.read(member)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError):
        pass
    return b""


def _key(key: str) -> bytes:
    text = key.encode()
    lengths = rb"(?:X" + re.escape(struct.pack("<I", len(text))) + rb"|\x8c" + re.escape(bytes([len(text)])) + rb")"
    return lengths + re.escape(text) + _MEMO
