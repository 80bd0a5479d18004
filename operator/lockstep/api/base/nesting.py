"""Objects as the API server has them, however deep somebody has nested them and whatever bytes are in them.

It takes 10,000 levels of JSON, Python counts to 1,000, and what is in a pod template is anybody's to write. Such an
object must be no trouble to anybody else, and its owner is to be told.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import orjson

MAX_LEVELS = 50
"""Of a part that is kept as written. The deepest field of a pod template lies some fifteen levels down."""
TOO_DEEP = f"is nested deeper than {MAX_LEVELS} levels; Kubernetes has no such field, leave it out"
"""What stands for a part that Python cannot hold, in the place of that part."""
UNREADABLE = "cannot be read: some of it is no UTF-8"
"""What stands for a spec in which there are bytes that are no text."""

T = TypeVar("T")
_DEEPEST = 12_000  # the API server takes no JSON that is nested deeper than 10,000
_OPENED = 6  # items[0].spec.template.spec.podTemplate of a list of arrays
_CUT_BELOW = 200
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_layer = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw) -> T:
    """What ``decoder`` makes of ``text``, however deep that is nested where it does not look.

    Raises msgspec.DecodeError.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(_DEEPEST)  # of C alone, some hundred bytes of stack each
        try:
            return decoder.decode(text)
        except RecursionError:  # Python counts levels of C apart from 3.12 on, to 10,000
            return decoder.decode(cut(bytes(text)))
        finally:
            sys.setrecursionlimit(usual)


def cut(text: bytes) -> bytes:
    """JSON with ``TOO_DEEP`` in the place of what is nested so deeply that it is nobody's concern.

    Without recursion, and slow: a tenth of a second for a MiB.
    """
    kept: list[bytes] = []
    level = begin = 0
    for found in _BRACKETS.finditer(text):
        sign = text[found.start()]
        if sign in b"[{":
            level += 1
            if level == _CUT_BELOW + 1:
                kept.append(text[begin : found.start()])
        elif sign in b"]}":
            if level == _CUT_BELOW + 1:
                kept.append(orjson.dumps(TOO_DEEP))
                begin = found.end()
            level -= 1
    return b"".join([*kept, text[begin:]])


def read_object(text: bytes | msgspec.Raw) -> dict[str, Any]:
    """An object of the API server, or a list of them. ``TOO_DEEP`` stands for the parts that are, ``UNREADABLE`` for a
    spec that is. Raises ValueError."""
    try:
        return dict(orjson.loads(memoryview(text)))
    except orjson.JSONDecodeError:
        return _marked(text)


def plain_json(text: bytes | msgspec.Raw) -> bytes:
    """As ``read_object``, as JSON that any parser can read. Raises ValueError."""
    try:
        return orjson.dumps(orjson.loads(memoryview(text)))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # which refuses more than 254 levels
        return orjson.dumps(_marked(text))


def is_too_deep(value: object) -> bool:
    """Whether it has more than ``MAX_LEVELS`` levels. Looked at level by level, as it may have a thousand."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        if TOO_DEEP in level:
            return True
        level = [part for each in level for part in _parts(each)]
    return bool(level)


def _marked(text: bytes | msgspec.Raw) -> dict[str, Any]:
    return {name: _part(name, value) for name, value in decode(_fields, text).items()}


def _part(name: str, text: msgspec.Raw) -> Any:
    """Whose object it is and what is on record of it is to be known whatever is in its spec."""
    try:
        return _opened(text, _OPENED)
    except ValueError:
        if name == "spec":
            return UNREADABLE
        return _opened(msgspec.Raw(bytes(text).decode(errors="replace").encode()), _OPENED)


def _opened(text: msgspec.Raw, levels: int) -> Any:
    try:
        value = orjson.loads(memoryview(text))
        orjson.dumps([[[[[[[[value]]]]]]]])  # so that it can be written within what it was opened of, too
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        if not levels:
            return TOO_DEEP
    else:
        return value
    found = decode(_layer, text)
    if isinstance(found, list):
        return [_opened(value, levels - 1) for value in found]
    return {name: _opened(value, levels - 1) for name, value in found.items()}


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return tuple(value.values())
    return value if isinstance(value, list) else ()
