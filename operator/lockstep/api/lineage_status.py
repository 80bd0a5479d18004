"""What status says of the runs that this one goes on from, and of the one that goes on from it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lockstep.api.base.schema import StatusModel, Timestamp

MAX_PREVIOUS = 8
MAX_ATTEMPTS = 2**31 - 1
MAX_STEP = 2**53

LinkedName = Annotated[str, Field(max_length=253)]
LinkedUid = Annotated[str, Field(max_length=64)]


class LinkedRun(StatusModel):
    """Another run of the namespace, by a name that may be another one's by now."""

    name: LinkedName
    """Its name."""
    uid: LinkedUid
    """Its UID."""


class PreviousRun(LinkedRun):
    """A run that this one goes on from, as it was when this one was made."""

    outcome: Annotated[str, Field(max_length=16)] = ""
    """Succeeded, Failed or Cancelled; empty: it had not ended."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """Why, in one CamelCase word."""
    ended: Timestamp | None = None
    """When it ended."""
    attempts: Annotated[int, Field(ge=0, le=MAX_ATTEMPTS)] = 0
    """How often all its ranks were started."""
    step: Annotated[int, Field(ge=0, le=MAX_STEP)] = 0
    """The highest step that it reported."""
    saved: Annotated[int, Field(ge=0, le=MAX_STEP)] | None = None
    """The newest step that it had saved in the shared tier; none: it had saved nothing there."""
