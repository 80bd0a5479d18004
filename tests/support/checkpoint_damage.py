"""What can happen to a checkpoint after, or instead of, its commit. Pure file operations on one that is whole."""

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

HOUR = 3600.0


class Damage(NamedTuple):
    """One thing done to one file: ``inflict(path of the file)``."""

    name: str
    file: str
    inflict: Callable[[Path], None]


def files_of(checkpoint: Path) -> list[Path]:
    """Every file of a checkpoint: a directory, a single file, or what has the step's name in ranks' directories."""
    if checkpoint.is_file():
        return [checkpoint]
    if checkpoint.is_dir():
        return sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return sorted(checkpoint.parent.glob(f"*/{checkpoint.name}_*"))


def losses(checkpoint: Path) -> Iterator[Damage]:
    """Each file removed, emptied, cut in the middle, and cut by its last byte."""
    for path in files_of(checkpoint):
        name = str(path.relative_to(checkpoint.parent))
        yield Damage("removed", name, Path.unlink)
        if path.stat().st_size:
            yield Damage("emptied", name, lambda file: cut(file, 0))
            yield Damage("halved", name, lambda file: cut(file, file.stat().st_size // 2))
            yield Damage("shortened", name, lambda file: cut(file, file.stat().st_size - 1))


def cut(path: Path, size: int) -> None:
    """Shorter, at the same time: as after a crash of the machine, when the name was durable before the data."""
    found = path.stat()
    os.truncate(path, size)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def flip(path: Path, number: int) -> bool:
    """One bit of a stored 32-bit number, at the same time. False: the file does not hold it as it is."""
    found, content = path.stat(), bytearray(path.read_bytes())
    at = content.find(struct.pack("<4f", *[number] * 4))
    if at < 0:
        return False
    content[at + 5] ^= 0x10
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    return True


def shift(path: Path, seconds: float) -> None:
    """Younger by that much; negative: older."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + int(seconds * 1e9)))


def age(root: Path, seconds: float) -> None:
    """Everything below root older, in the same order."""
    for path in root.rglob("*"):
        if path.is_file():
            shift(path, -seconds)


def unreadable(path: Path) -> None:
    """Something whose reading fails, for root too, though it is there: a link to itself."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(path.name)
