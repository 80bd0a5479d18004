"""What the shared tier refuses, in the words of this program."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.archive.outcomes import (
    DESTINATION_FULL,
    DESTINATION_REFUSED,
    SOURCE_INVALID,
    SOURCE_VANISHED,
    STORAGE_UNREADABLE,
    ArchiveError,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the shared tier says into an ArchiveError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ArchiveError(SOURCE_VANISHED, f"{error.filename or path} is not there (any more)") from error
    except PermissionError as error:
        message = f"{error.filename or path} must not be read by user {os.getuid()}"
        raise ArchiveError(SOURCE_INVALID, message) from error
    except OSError as error:
        raise ArchiveError(STORAGE_UNREADABLE, f"{error.strerror}: {error.filename or path}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the shared tier says into an ArchiveError."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            message = f"{where} must not be written by user {os.getuid()}: {error.strerror}"
            raise ArchiveError(DESTINATION_REFUSED, message) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ArchiveError(DESTINATION_FULL, f"{where}: {error.strerror}") from error
        raise ArchiveError(STORAGE_UNREADABLE, f"{where}: {error.strerror}") from error
