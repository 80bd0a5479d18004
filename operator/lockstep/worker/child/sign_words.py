"""Which lines of stderr may be signs: for processes that only pass them to the worker, which knows what they tell."""

from __future__ import annotations

from typing import List

MAX_LINE = 4000  # bytes of a line that are looked at; with its time it fits into one atomic write to a pipe
MAX_LINES = 64  # of one process
# Every pattern of signs.py holds one of these: most output is passed over without a closer look.
SIGN_WORDS = (
    b"Xid", b"out of memory", b"OUT_OF_MEMORY", b"OutOfMemory", b"Out of memory", b"ECC", b"Ecc", b"ecc",
    b"Watchdog", b"NCCL", b"nccl", b"cudaError", b"CUDA_ERROR", b"CUDA error", b"No space left", b"quota exceeded",
    b"Input/output", b"Stale file", b"Remote I/O", b"Read-only file", b"endpoint is not", b"StreamReader",
    b"SafetensorError", b"UnpicklingError", b"BadZipFile", b"invalid header", b"Ran out of input",
    b"CheckpointException", b"Rendezvous", b"DistStoreError", b"DistNetworkError", b"Barrier timed", b"has timed out",
    b"DEADLINE_EXCEEDED", b"already in use", b"EADDRINUSE", b"ModuleNotFoundError", b"ImportError",
    b"MemoryAllocation", b"JAX distributed", b"NVLink", b"NVLINK", b"nvlink", b"Nvlink",
    b"Service token", b"Weights only", b"might be corrupted", b"load weights", b"DATA_LOSS", b"CRC-32C",
    b"hecksum mismatch", b"FileNotFoundError", b"NOT_FOUND: ",
)  # fmt: skip


class SignLines:
    """Finds them in one process's stderr, as it comes."""

    def __init__(self) -> None:
        self._begun = b""
        self._left = MAX_LINES

    def feed(self, data: bytes) -> List[bytes]:
        """Those that have come to their end."""
        if not self._left or not data:
            return []
        text = self._begun + data.replace(b"\r", b"\n")
        if not _has_word(text):
            self._begun = text[text.rfind(b"\n") + 1 :][-MAX_LINE:]
            return []
        *lines, begun = text.split(b"\n")
        self._begun = begun[-MAX_LINE:]
        found = [line[:MAX_LINE] for line in lines if _has_word(line)][: self._left]
        self._left -= len(found)
        return found

    def rest(self) -> List[bytes]:
        """The last line, which may lack its end."""
        return self.feed(b"\n")


def _has_word(text: bytes) -> bool:
    return any(word in text for word in SIGN_WORDS)
