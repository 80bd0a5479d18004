"""What of a worker's words is taken at all: beyond these bounds its message is refused, and the field named.

msgspec holds to them when it decodes. What the operator itself makes is not measured against them.
"""

from typing import Annotated, Literal

from msgspec import Meta

MAX_SLOTS = 65_536

Name = Annotated[str, Meta(min_length=1, max_length=253)]
Word = Annotated[str, Meta(max_length=64)]
Text = Annotated[str, Meta(max_length=65_536)]
Path = Annotated[str, Meta(max_length=4096)]
Slot = Annotated[int, Meta(ge=0, lt=MAX_SLOTS)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Step = Annotated[int, Meta(ge=0, le=2**53)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Moment = Annotated[float, Meta(ge=0, le=2**40)]
Span = Annotated[float, Meta(ge=0, le=366 * 86_400.0)]
"""Seconds that something took: not more than a year."""
Tier = Literal["local", "shared"]
