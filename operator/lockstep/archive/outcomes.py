"""How an archive job can end: one word, one exit code, and whether the same job may be tried again as it is.

The exit codes are those of sysexits.h where they fit. The job's podFailurePolicy rests on `FINAL_CODES`
(lockstep.core.checkpoints.archive_job holds the same list, and a test holds them equal).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_MESSAGE = 1024
"""Bytes of what is said of a failure: a termination message has 4,096 in all."""
_QUERY = re.compile(r"(\w+://[^\s?]+)\?[^\s)\"'>]*")
_USER = re.compile(r"(\w+://)[^\s/@]+@")


@dataclass(frozen=True, slots=True)
class FailureReason:
    """Why a job ended without success. `retryable`: trying again without changing anything may help."""

    word: str
    exit_code: int
    retryable: bool


COMMAND_REFUSED = FailureReason("CommandRefused", 64, False)  # the operator is newer than this image
SOURCE_INVALID = FailureReason("SourceInvalid", 65, False)  # not VALID, or changed while it was read
SOURCE_VANISHED = FailureReason("SourceVanished", 66, False)
ARCHIVE_CORRUPT = FailureReason("ArchiveCorrupt", 67, False)  # other bytes than were published
NOT_PUBLISHED = FailureReason("NotPublished", 68, False)
STORE_UNAVAILABLE = FailureReason("StoreUnavailable", 69, True)
INTERNAL = FailureReason("Internal", 70, True)
DESTINATION_REFUSED = FailureReason("DestinationRefused", 71, False)  # permissions, or what is there cannot be judged
DESTINATION_FULL = FailureReason("DestinationFull", 72, False)
CONFLICT = FailureReason("Conflict", 73, False)  # something else is published under that name
STORAGE_UNREADABLE = FailureReason("StorageUnreadable", 74, True)  # an I/O error of the shared tier
INTERRUPTED = FailureReason("Interrupted", 75, True)
STORE_REFUSED = FailureReason("StoreRefused", 76, False)
CREDENTIALS_REFUSED = FailureReason("CredentialsRefused", 77, False)
BUCKET_MISSING = FailureReason("BucketMissing", 78, False)
DESTINATION_TAKEN = FailureReason("DestinationTaken", 79, False)  # a checkpoint that is not this one has its name

REASONS = (
    COMMAND_REFUSED,
    SOURCE_INVALID,
    SOURCE_VANISHED,
    ARCHIVE_CORRUPT,
    NOT_PUBLISHED,
    STORE_UNAVAILABLE,
    INTERNAL,
    DESTINATION_REFUSED,
    DESTINATION_FULL,
    CONFLICT,
    STORAGE_UNREADABLE,
    INTERRUPTED,
    STORE_REFUSED,
    CREDENTIALS_REFUSED,
    BUCKET_MISSING,
    DESTINATION_TAKEN,
)
FINAL_CODES = tuple(sorted(reason.exit_code for reason in REASONS if not reason.retryable))


class ArchiveError(Exception):
    """A job that cannot be completed, and why."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def presentable(text: str) -> str:
    """A message that may go into status, events and logs: bounded, of one line, and without what opens a door.

    Libraries put whole addresses into their errors, with the signature of a SAS token or a presigned URL in the query.
    """
    bare = _USER.sub(r"\1", _QUERY.sub(r"\1?…", text))
    line = "".join(letter if letter.isprintable() else " " for letter in bare)
    return line.encode("utf-8", "backslashreplace")[:MAX_MESSAGE].decode("utf-8", "ignore")
