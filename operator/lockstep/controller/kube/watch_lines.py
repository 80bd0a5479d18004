"""The lines of a watch, out of whatever pieces they come in, and none that is larger than an object can be."""

from collections.abc import Callable, Iterator

LONGEST_LINE = 2**26
"""Bytes. An object has 1.5 MiB at most, where the API server is as it comes; nobody's may fill our memory."""
TOO_LONG = f"of more than {LONGEST_LINE} bytes is left out"


class WatchLines:
    """``left_out`` is called for each line that is too long."""

    def __init__(self, left_out: Callable[[], None]) -> None:
        self._left_out = left_out
        self._parts: list[bytes] = []  # of a line that has not ended yet
        self._size = 0
        self._skips = False  # the rest of a line that was too long

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in ``chunk``, empty ones aside. What has not ended yet is kept."""
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            self._keep(end)
            line = b"".join(self._parts)
            self._parts, self._size, self._skips = [], 0, False
            if line:
                yield line
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > LONGEST_LINE and not self._skips:
            self._left_out()
            self._skips = True
        if self._skips:
            self._parts = []
        elif part:
            self._parts.append(part)
