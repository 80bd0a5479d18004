"""Objects with which something went wrong: left out, counted, and told once. Whatever it is, it is one object's."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lockstep.api.base import nesting

CUT = f"is read without what lies deeper than {nesting.DEEPEST} levels in it"
"""Of an object that is not left out as a whole."""
_REMEMBERED = 10_000
_log = logging.getLogger("lockstep.left_out")


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Meta


_objects = msgspec.json.Decoder(_Object)


class LeftOut:
    """Where the edges, which look at one object after the other, leave what one of them raised."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By kind, in the plural."""
        self._told: dict[tuple[str, object], None] = {}

    @contextmanager
    def if_it_fails(self, kind: str, which: str, version: object) -> Iterator[None]:
        """One look at one object, of which nothing is to come if it raises. ``which`` one, in words."""
        try:
            yield
        except Exception as error:  # whatever it is, nobody else is to wait for it
            self.note(kind, which, version, error)

    def note(self, kind: str, which: str, version: object, error: Exception | str) -> None:
        """``error`` has come of one object. Logged once for each ``version`` of it."""
        self.counts[kind] += 1
        key = kind, (which, version)
        if key in self._told:
            return
        if len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[key] = None
        if isinstance(error, str):
            _log.error("%s: %s %s", kind, which, error)
            return
        # What does not parse is somebody's writing; anything else is a defect of ours, and has a traceback.
        trace = None if isinstance(error, (msgspec.DecodeError, ValueError)) else error
        words = str(error) or type(error).__name__
        _log.error("%s: %s cannot be read and is left out: %s", kind, which, words, exc_info=trace)


def name_in(text: bytes | msgspec.Raw) -> str:
    """Which object it is, as far as its metadata can be read."""
    try:
        meta = nesting.decode(_objects, text).metadata
    except (msgspec.DecodeError, ValueError):
        return "an object"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def uid_in(text: bytes | msgspec.Raw) -> str:
    """Its UID; empty where its metadata cannot be read."""
    try:
        return nesting.decode(_objects, text).metadata.uid
    except (msgspec.DecodeError, ValueError):
        return ""
