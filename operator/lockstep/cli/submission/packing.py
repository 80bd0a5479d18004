"""What `--code DIR` takes along of a directory: sources first, then whatever else there is room for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lockstep.cli.errors import CliError, UsageError
from lockstep.present.amounts import plural

MOST_SEEN = 20_000
"""A home directory is none of a program."""
MOST_PATH = 512
_PROGRAM = (
    ".py", ".pyi", ".sh", ".bash", ".toml", ".cfg", ".ini", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".jinja",
)  # fmt: skip
_TEXT = (".yaml", ".yml", ".json", ".txt", ".md")
_LARGEST_TEXT = 256 * 1024
"""Bytes. A configuration is smaller; a corpus, which has the same names, is not."""
_SKIPPED = ("__pycache__", "node_modules", "venv", "site-packages", "wandb", "mlruns", "lightning_logs")


class Room(NamedTuple):
    """What there is room for, and what to do where the sources alone are more."""

    holds: str
    size: int
    files: int
    remedy: str


IN_A_CONFIG_MAP = Room(
    "a ConfigMap holds",
    1_000_000,
    500,
    "--code-claim CLAIM copies up to 30 MB to a claim; what is more belongs into the image",
)
"""It holds 1 MiB, and each file has a line in the run."""
ON_A_CLAIM = Room(
    "--code-claim copies",
    30_000_000,
    5_000,
    "have it in the image or on the claim: kubectl cp it there, then --volume CLAIM:/data --workdir /data/code",
)
"""It passes through the API server, in parts, for some seconds."""


class Destination(NamedTuple):
    """Where on a claim it is to be."""

    claim: str
    path: str


@dataclass(frozen=True, slots=True)
class Packed:
    """What goes along, by its path below the directory, and what does not, with the reason."""

    files: Sequence[tuple[str, bytes]]
    left_out: Sequence[tuple[str, str]]
    to: Destination | None = None  # else a ConfigMap


def pack(directory: str, room: Room = IN_A_CONFIG_MAP) -> Packed:
    """Sources first, then whatever else there is room for, the smallest first. Raises CliError where the sources alone
    are too large, and on what is no directory."""
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"--code {directory} is no directory", "name the one that has your program, e.g. --code .")
    found: list[tuple[str, Path]] = []
    left_out: list[tuple[str, str]] = []
    for path, why in _walk(root):
        relative = path.relative_to(root).as_posix()
        if len(found) + len(left_out) >= MOST_SEEN:
            raise CliError(f"--code {directory} has more than {MOST_SEEN} files", "name the directory of your program")
        if why:
            left_out.append((relative, why))
        else:
            found.append((relative, path))
    taken: list[tuple[str, bytes]] = []
    left = room.size
    by_size = sorted((_size(path), relative, path) for relative, path in found)
    for is_source in (True, False):
        sizes = [each for each in by_size if _is_source(each[2].suffix, each[0]) is is_source]
        for size, relative, path in sizes:
            if size > left or len(taken) >= room.files:
                left_out.append((relative, f"{kilobytes(size)}, too large"))
                continue
            content = _read(path)
            left -= len(content)
            taken.append((relative, content))
        missing = [relative for _, relative, _ in sizes if relative not in {name for name, _ in taken}]
        if is_source and missing:
            raise CliError(
                f"--code {directory}: {plural(len(sizes), 'source file')} of {kilobytes(sum(s for s, _, _ in sizes))} "
                f"are more than {room.holds} ({room.files} files, {kilobytes(room.size)}), e.g. {missing[-1]}",
                room.remedy,
            )
    if not taken:
        raise CliError(f"--code {directory} holds no file that could go along", "name the directory of your program")
    return Packed(sorted(taken), sorted(left_out))


def _is_source(suffix: str, size: int) -> bool:
    """Rather than data."""
    return suffix in _PROGRAM or (suffix in _TEXT and size <= _LARGEST_TEXT)


def _walk(root: Path) -> Iterator[tuple[Path, str]]:
    """Files, each with why it stays behind; directories that stay behind as one."""
    unreadable: list[OSError] = []
    for place, directories, files in os.walk(root, onerror=unreadable.append):
        kept = []
        for name in sorted(directories):
            path = Path(place) / name
            if name.startswith(".") or name in _SKIPPED or name.endswith(".egg-info"):
                yield path, "is made, or hidden"
            elif path.is_symlink():
                yield path, "is a link"
            else:
                kept.append(name)
        directories[:] = kept
        for name in sorted(files):
            path = Path(place) / name
            if path.is_symlink() or not path.is_file():
                yield path, "is a link, or no plain file"
            elif name.startswith(".") or name.endswith((".pyc", ".pyo")):
                yield path, "is made, or hidden"
            elif len(path.relative_to(root).as_posix()) > MOST_PATH or not name.isprintable():
                yield path, "has a name that cannot be carried"
            else:
                yield path, ""
    for error in unreadable:
        yield Path(error.filename), f"cannot be read ({error.strerror})"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error


def kilobytes(size: int) -> str:
    """As people read sizes of files."""
    return f"{size / 1e6:.1f} MB" if size >= 10**6 else f"{max(1, round(size / 1e3))} kB"
