"""What the operating system refuses, and what programs leave in the place of a file."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, cast


def trouble(error: OSError) -> str:
    return f"{error.strerror or error}: {error.filename or ''}"


def open_plain(path: str) -> BinaryIO:
    """Open a file to read that the program may have replaced by a pipe, which would be waited for. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "is no plain file", path)
    return cast(BinaryIO, os.fdopen(descriptor, "rb"))
