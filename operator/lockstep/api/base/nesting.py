"""JSON in bounds: the bytes of anybody are looked at before they are decoded, and what is nested too deeply is cut off.

The API server takes 10,000 levels in whatever is kept as written: pod templates, and who wrote which field of any
object. Decoders call themselves for each level, and what ends them then is a matter of interpreter and library. So all
that is not ours is decoded by ``decode`` or ``loads``, and nothing else decodes; ``Raw`` is a piece of what was looked
at. Such an object must be no trouble to anybody else, and its owner is to be told.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import add, xor
from typing import Any, NamedTuple, TypeVar

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
_QUOTE, _OPENS, _CLOSES = 1, 2, 4
_KINDS = bytes(
    {0x22: _QUOTE, 0x5B: _OPENS, 0x7B: _OPENS, 0x5D: _CLOSES, 0x7D: _CLOSES}.get(byte, 0) for byte in range(256)
)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRETCH = 60
"""Bytes, for which levels up and down fit into seven bits. No stretch has a level that is kept and one that is cut."""
_PIECE = _STRETCH * 2**14
CUT_OFF = orjson.dumps(TOO_DEEP)
"""What ``cut`` leaves in the place of what it takes."""


def is_deep(text: bytes, levels: int = DEEPEST) -> bool:
    """Whether it has more than so many levels, whether or not it is JSON. No recursion, a GiB or so a second of what
    honest people write, and a tenth of that whatever it is.

    There are no more levels than brackets that open, but for those that are closed at once, of which no two are in one
    another: that mostly answers. Where it does not, pairs of quotes with no bracket between them go first: no bracket
    is in or out of a string by them. Then brackets that hold none are peeled off, a level at a time, for as long as
    there are many; only what is left after that is counted.
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
    signs += b"}" * levels  # a level that nothing closes is peeled off like any other
    while signs.count(b"{") > levels:
        fewer = signs.replace(b"{}", b"")
        if levels == 0 or 2 * len(fewer) > len(signs):
            return any(max(map(add, piece.starts, piece.highs)) > levels for piece in _pieces(signs))
        signs, levels = fewer, levels - 1
    return False


def cut(text: bytes) -> bytes:
    """JSON with ``TOO_DEEP`` in the place of each part below ``MAX_LEVELS`` that goes on below ``DEEPEST``.

    Such a part is longer than what stands for it, however many there are. A tenth of a GiB or so a second, whatever is
    in it: nobody's brackets are looked at one by one.
    """
    kept: list[bytes] = []
    begin = 0
    above: tuple[_Piece, int] | None = None  # where it was last as high as MAX_LEVELS
    is_cutting = False
    for piece in _pieces(text):
        for index, (start, low, high) in enumerate(zip(piece.starts, piece.lows, piece.highs, strict=True)):
            if start + low <= MAX_LEVELS:
                if is_cutting:
                    kept.append(CUT_OFF)
                    begin = piece.after_first(MAX_LEVELS, index)
                    is_cutting = False
                above = piece, index
            elif start + high > DEEPEST and not is_cutting and above is not None:
                kept.append(text[begin : above[0].after_last(MAX_LEVELS, above[1])])
                is_cutting = True
    return b"".join(kept if is_cutting else [*kept, text[begin:]])


class _Piece(NamedTuple):
    """A part of a text, in stretches of ``_STRETCH`` bytes."""

    at: int
    """Where it begins."""
    starts: list[int]
    """Of each stretch, the level at its beginning, less ``_STRETCH``. All others are counted from there."""
    lows: bytes
    highs: bytes
    levels: bytearray
    """After each byte."""

    def after_first(self, level: int, stretch: int) -> int:
        """Where a stretch that begins deeper has come to ``level``."""
        return self.at + self.levels.index(level - self.starts[stretch], stretch * _STRETCH) + 1

    def after_last(self, level: int, stretch: int) -> int:
        """Where a stretch is about to leave ``level``, which it, or its beginning, has, for good."""
        begin = stretch * _STRETCH
        found = self.levels.rfind(level - self.starts[stretch], begin, begin + _STRETCH)
        return self.at + (begin if found < 0 else found + 1)


def _pieces(text: bytes) -> Iterator[_Piece]:
    """All of it, whether or not it is JSON.

    All stretches of a piece are counted at once: the first bytes of all are one large number, and so the second ones.
    No byte of such a number runs over into the next, as a stretch has no more levels than bytes.
    """
    if b"\\" in text:
        text = text.replace(rb"\\", b"  ").replace(rb"\"", b"  ")
    level = is_inside = 0
    for at in range(0, len(text), _PIECE):
        kinds = text[at : at + _PIECE].translate(_KINDS)
        columns = [int.from_bytes(kinds[column::_STRETCH], "little") for column in range(_STRETCH)]
        size = -(-len(kinds) // _STRETCH)
        ones = int.from_bytes(b"\1" * size, "little")
        odd = (reduce(xor, columns) & ones).to_bytes(size, "little")
        *begin_inside, is_inside = accumulate(odd, xor, initial=is_inside)
        inside = int.from_bytes(bytes(begin_inside), "little")
        now = low = high = ones * _STRETCH
        levels = bytearray(size * _STRETCH)
        for column, signs in enumerate(columns):
            inside ^= signs & ones
            outside = ones ^ inside
            now += ((signs >> 1) & outside) - ((signs >> 2) & outside)
            levels[column::_STRETCH] = now.to_bytes(size, "little")
            low ^= (low ^ now) & _where(low, now, ones)
            high ^= (high ^ now) & _where(now, high, ones)
        lows, highs, ends = (each.to_bytes(size, "little") for each in (low, high, now))
        *starts, level = accumulate(ends, lambda start, end: start + end - _STRETCH, initial=level)
        yield _Piece(at, [start - _STRETCH for start in starts], lows, highs, levels)


def _where(more: int, less: int, ones: int) -> int:
    """The bits of all bytes, of seven bits, that are as large in ``more`` as in ``less`` or larger."""
    found = ((more | (ones << 7)) - less) & (ones << 7)
    return found - (found >> 7)


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
