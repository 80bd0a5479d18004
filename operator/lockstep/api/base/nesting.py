"""Objects as the API server has them, however deep somebody has nested them.

It takes 10,000 levels of JSON, Python counts to 1,000, and what is in a pod template is anybody's to write. Such an
object must be no trouble to anybody else, and its owner is to be told.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import orjson

MAX_LEVELS = 50
"""Of a part that is kept as written. The deepest field of a pod template lies some fifteen levels down."""
TOO_DEEP = f"is nested deeper than {MAX_LEVELS} levels; Kubernetes has no such field, leave it out"
"""What stands for a part that Python cannot hold, in the place of that part."""

T = TypeVar("T")
_DEEPEST = 12_000  # the API server takes no JSON that is nested deeper than 10,000
_OPENED = 6  # items[0].spec.template.spec.podTemplate of a list of arrays
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_layer = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw])


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
        finally:
            sys.setrecursionlimit(usual)


def read_object(text: bytes | msgspec.Raw) -> dict[str, Any]:
    """An object of the API server, or a list of them; ``TOO_DEEP`` stands for the parts that are. Raises ValueError."""
    try:
        return dict(orjson.loads(memoryview(text)))
    except orjson.JSONDecodeError:
        return {name: _opened(value, _OPENED) for name, value in decode(_fields, text).items()}


def is_too_deep(value: object) -> bool:
    """Whether it has more than ``MAX_LEVELS`` levels. Looked at level by level, as it may have a thousand."""
    level = [value]
    for _ in range(MAX_LEVELS + 1):
        if TOO_DEEP in level:
            return True
        level = [part for each in level for part in _parts(each)]
    return bool(level)


def _opened(text: msgspec.Raw, levels: int) -> Any:
    try:
        return orjson.loads(memoryview(text))
    except orjson.JSONDecodeError:
        if not levels:
            return TOO_DEEP
    found = decode(_layer, text)
    if isinstance(found, list):
        return [_opened(value, levels - 1) for value in found]
    return {name: _opened(value, levels - 1) for name, value in found.items()}


def _parts(value: object) -> Sequence[object]:
    if isinstance(value, Mapping):
        return tuple(value.values())
    return value if isinstance(value, list) else ()
