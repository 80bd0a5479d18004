"""What can be found out about a checkpoint, and what a format has to say for it."""

from __future__ import annotations

import os
from typing import BinaryIO, Callable, FrozenSet, List, NamedTuple, Optional, Pattern, Tuple

VALID, INVALID, UNKNOWN = "Valid", "Invalid", "Unknown"
ZIP, SAFETENSORS, OCDBT = "zip", "safetensors", "ocdbt"


class Finding(NamedTuple):
    """What was found out about one checkpoint. ``committed_at`` 0: no evidence of a commit.

    ``world`` counts nodes and ``processes`` ranks of the framework, where so many have to load it again; 0 where any
    number may, or the format does not say.
    ``owners``: the node ranks whose shards it holds, where that is more than the rank in its path.
    """

    verdict: str
    reason: str = ""
    format: str = ""
    attempt: int = 0
    world: int = 0
    run_uid: str = ""
    bytes: int = 0
    committed_at: float = 0.0
    processes: int = 0
    owners: Tuple[int, ...] = ()
    as_copied: bool = False  # INVALID by the order of its times alone, which a copy may not have kept
    marker: str = ""  # what commits it, where it is as copied


class InvalidError(Exception):
    """The checkpoint is not complete and unchanged; the message says why."""


class OrderError(InvalidError):
    """The times of its files are not in the order of one save."""


class UnsureError(Exception):
    """Nothing can be said of the checkpoint yet; the message says why."""


class InterruptedCheckError(Exception):
    """The answer is no longer wanted."""


class ListedFile(NamedTuple):
    """A file that a checkpoint must have, its name relative to ``CheckpointEntry.base``.

    ``exact``: of exactly that many bytes, else at least. ``digest``: "crc32:<8 hex>" or "sha256:<64 hex>".
    ``container``: ZIP, SAFETENSORS or OCDBT, which tell by themselves whether they are whole.
    ``dated``: being younger than the commit speaks against it.
    """

    name: str
    bytes: int = 1
    exact: bool = False
    digest: str = ""
    container: str = ""
    dated: bool = True


class CheckpointEntry(NamedTuple):
    """A checkpoint before it is judged: its path and, of a directory, the names in it.

    ``is_file``: it is no directory, so that its files are named from the one that holds it.

    ``step``: what it must say of itself, unless None. ``trusts_times``: those of its files are from when it was saved,
    and their order is held against it.
    """

    path: str
    files: FrozenSet[str] = frozenset()
    directories: FrozenSet[str] = frozenset()
    is_file: bool = False
    step: Optional[int] = None
    trusts_times: bool = True

    @property
    def name(self) -> str:
        """Its own, without the directory's."""
        return os.path.basename(self.path)

    @property
    def base(self) -> str:
        """What names of listed files are relative to."""
        return os.path.dirname(self.path) if self.is_file else self.path

    def at(self, name: str) -> str:
        """Path of something in the directory."""
        return os.path.join(self.path, name)

    def below(self, name: str) -> CheckpointEntry:
        """One of its directories. Raises OSError."""
        return list_entry(self.at(name))._replace(trusts_times=self.trusts_times)


Reading = Tuple[Finding, List[ListedFile]]


class Format(NamedTuple):
    """All that is known of one format.

    ``recognises``: by names alone. ``read``: what the checkpoint says of itself, and the files that it must have;
    raises InvalidError, UnsureError, OSError. ``step_name``: searched for in names, the step in group 1.
    ``markers``: files written last, each of which commits a save; of several the first is written after the others.
    """

    name: str
    recognises: Callable[[CheckpointEntry], bool]
    read: Callable[[CheckpointEntry], Reading]
    step_name: Pattern[str]
    markers: Tuple[str, ...] = ()


def list_entry(path: str, step: Optional[int] = None) -> CheckpointEntry:
    """Raises OSError. Links count as what they lead to."""
    try:
        with os.scandir(path) as found:
            kinds = [(entry.name, entry.is_dir()) for entry in found]
    except NotADirectoryError:
        return CheckpointEntry(path, is_file=True, step=step)
    directories = frozenset(name for name, is_directory in kinds if is_directory)
    files = frozenset(name for name, is_directory in kinds if not is_directory)
    return CheckpointEntry(path, files, directories, step=step)


def read_up_to(limit: int, stream: BinaryIO) -> bytes:
    """All of a file; of a larger one more than ``limit`` bytes. ``read(limit)`` would make room for that many."""
    return stream.read(min(os.fstat(stream.fileno()).st_size, limit) + 1)


def nested(reading: Reading, directory: str) -> List[ListedFile]:
    """The files of a checkpoint inside another, as the outer one names them."""
    return [listed._replace(name=f"{directory}/{listed.name}") for listed in reading[1]]
