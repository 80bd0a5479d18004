"""Waiting for a condition: never a bare sleep, and a failure that says what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WaitedInVain(AssertionError):  # noqa: N818 (a sentence reads better in a failed test)
    """The condition did not come true in time."""


def wait_for(
    what: str,
    look: Callable[[], T | None],
    *,
    seconds: float,
    every: float = 0.2,
    last_seen: Callable[[], object] = lambda: "",
) -> T:
    """Poll until ``look()`` is truthy; its value.

    Raises WaitedInVain after ``seconds``, with ``what`` was waited for and what ``last_seen()`` tells then.
    A KeyError of ``look`` is a field that the object does not have yet. Its other errors are not caught: a condition
    that cannot be evaluated is no condition.
    """
    begun = time.monotonic()
    while True:
        missing = ""
        try:
            value = look()
        except KeyError as error:
            value, missing = None, f"no {error}"
        if value:
            return value
        if time.monotonic() - begun >= seconds:
            seen = ", ".join(filter(None, [missing, str(last_seen())]))
            raise WaitedInVain(f"waited {seconds:g} s in vain: {what}" + (f"; last seen: {seen}" if seen else ""))
        time.sleep(every)
