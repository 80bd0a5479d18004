"""First failures as an annotation of their node remembers them."""

from lockstep.api.base import nesting
from lockstep.api.base.times import LAST_MOMENT, to_unix
from lockstep.core.model.snapshot import NodeFailure

MAX_FAILURES = 8
"""Kept on a node."""


def read_failures(text: str) -> tuple[NodeFailure, ...]:
    """The annotation as ``marks_with`` wrote it. Annotations are anybody's: what cannot be read is nothing."""
    try:
        rows = nesting.loads(text) if text else []
        read = tuple(
            NodeFailure(str(row["run"])[:320], to_unix(row["time"]), str(row["cause"])[:64])
            for row in rows[:MAX_FAILURES]
        )
        for failure in read:  # they are told on, in status, events and annotations: they have to be such as can be
            f"{failure.run}{failure.cause}".encode()
        if not all(0 <= failure.time < LAST_MOMENT for failure in read):
            return ()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return ()
    return read
