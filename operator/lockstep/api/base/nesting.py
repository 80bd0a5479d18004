"""JSON in bounds: the bytes of anybody are looked at before they are decoded, and what is nested too deeply is cut off.

The API server takes 10,000 levels in whatever is kept as written: pod templates, and who wrote which field of any
object. Decoders call themselves for each level, and what ends them then is a matter of interpreter and library. So all
that is not ours is decoded by ``decode`` or ``loads``, and nothing else decodes; ``Raw`` is a piece of what was looked
at. Such an object must be no trouble to anybody else, and its owner is to be told.
"""

import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
import orjson

MAX_LEVELS = 50
"""Of a part that is kept as written. The deepest field of a pod template lies some fifteen levels down."""
DEEPEST = 200
"""Levels that are decoded. A list of events of objects, each with as much as is allowed, has less than half of it."""
TOO_DEEP = f"is nested deeper than {MAX_LEVELS} levels; Kubernetes has no such field, leave it out"
"""What stands for a part that nobody decodes, in the place of that part."""
UNREADABLE = "cannot be read: some of it is no UTF-8"
"""What stands for a spec in which there are bytes that are no text."""

T = TypeVar("T")
_NO_SIGNS = bytes(byte for byte in range(256) if byte not in b'"[]{}')
_ONE_KIND = bytes.maketrans(b"[]", b"{}")
_STEPS = bytes({0x7B: 1, 0x7D: 255}.get(byte, 0) for byte in range(256))  # +1, and -1 as a byte
_PEELS = 8
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NEXT_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+[\[\]{}]', re.DOTALL)
CUT_OFF = orjson.dumps(TOO_DEEP)
"""What ``cut`` leaves in the place of what it takes."""


def is_deep(text: bytes, levels: int = DEEPEST) -> bool:
    """Whether it has more than so many levels, whether or not it is JSON. No recursion, a GiB or so a second.

    There are no more levels than brackets that open, but for those that are closed at once, of which no two are in one
    another: that mostly answers. Where it does not, pairs of quotes with no bracket between them go first: no bracket
    is in or out of a string by them. Then brackets that hold none are peeled off, a level at a time; only what is left
    after a few such peels is counted sign by sign.
    """
    signs = text.translate(_ONE_KIND, _NO_SIGNS)
    opened = signs.count(b"{")
    if opened <= levels or opened - signs.count(b"{}") < levels:
        return False
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
        signs = text.translate(_ONE_KIND, _NO_SIGNS)
    signs = signs.replace(b'""', b"")
    if b'"' in signs:
        signs = b"".join(signs.split(b'"')[::2])
    left = signs
    for peeled in range(_PEELS):
        if left.count(b"{") <= levels - peeled:
            return False
        left = left.replace(b"{}", b"")
    return max(accumulate(array("b", signs.translate(_STEPS))), default=0) > levels


def cut(text: bytes) -> bytes:
    """JSON with ``TOO_DEEP`` in the place of what is nested so deeply that it is nobody's concern.

    Without recursion, and slow: some tenths of a second for a MiB at worst.
    """
    kept: list[bytes] = []
    level = begin = at = 0
    while (found := _NEXT_BRACKET.match(text, at)) is not None:
        at = found.end()
        if text[at - 1] in b"[{":
            level += 1
            if level == DEEPEST + 1:
                kept.append(text[begin : at - 1])
        else:
            if level == DEEPEST + 1:
                kept.append(CUT_OFF)
                begin = at
            level -= 1
    return b"".join(kept if level > DEEPEST else [*kept, text[begin:]])


def decode(
    decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw, when_cut: Callable[[], object] = lambda: None
) -> T:
    """What ``decoder`` makes of ``text``, whatever is nested how deep in it. ``when_cut`` is called where something was
    cut off. Raises msgspec.DecodeError."""
    kept = _shallow(text)
    if kept is not text:
        when_cut()
    return decoder.decode(kept)


def loads(text: bytes | str | msgspec.Raw) -> Any:
    """As ``decode``, of whatever it is. Raises ValueError."""
    encoded = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return orjson.loads(memoryview(_shallow(encoded)))


def read_object(text: bytes | msgspec.Raw) -> dict[str, Any]:
    """An object of the API server, or a list of them. ``TOO_DEEP`` stands for the parts that are, ``UNREADABLE`` for a
    spec that is. Raises ValueError."""
    kept = _shallow(text)
    try:
        return dict(orjson.loads(memoryview(kept)))
    except orjson.JSONDecodeError:
        return {name: _part(name, value) for name, value in _fields.decode(kept).items()}


def plain_json(text: bytes | msgspec.Raw) -> bytes:
    """As ``read_object``, as JSON that any parser can read. Raises ValueError."""
    return orjson.dumps(read_object(text))


def is_too_deep(value: object) -> bool:
    """Whether it has more than ``MAX_LEVELS`` levels. Looked at level by level, as it may have a thousand."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        if TOO_DEEP in level:
            return True
        level = [part for each in level for part in _parts(each)]
    return bool(level)


def _shallow(text: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    return cut(text) if isinstance(text, bytes) and is_deep(text) else text


def _part(name: str, text: msgspec.Raw) -> Any:
    """Whose object it is and what is on record of it is to be known whatever is in its spec."""
    try:
        return orjson.loads(memoryview(text))
    except orjson.JSONDecodeError:
        if name == "spec":
            return UNREADABLE
        return orjson.loads(bytes(text).decode(errors="replace").encode())


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return tuple(value.values())
    return value if isinstance(value, list) else ()
