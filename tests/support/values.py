"""Values that a test cannot go on without."""

from typing import TypeVar

_T = TypeVar("_T")


def not_none(value: _T | None) -> _T:
    """The value, which has to be there."""
    assert value is not None, "it is None"
    return value
