"""``-o`` of squeue and sinfo: ``%.18i %9P``, and ``-O`` by names."""

from __future__ import annotations

import re
from typing import List, Mapping, NamedTuple, Sequence

_FIELD = re.compile(r"%(\.?)([0-9]{0,4})(#?)([A-Za-z%])")
_WIDTH = 20  # of -O


class LineColumn(NamedTuple):
    """A field, with the text in front of it. Width 0: as wide as it is."""

    before: str
    field: str
    width: int = 0
    right: bool = False


class LineFormat(NamedTuple):
    """A line."""

    columns: Sequence[LineColumn]
    after: str = ""


def short_format(text: str) -> LineFormat:
    """Of ``-o``: letters."""
    columns: List[LineColumn] = []
    start, before = 0, ""
    for found in _FIELD.finditer(text):
        before += text[start : found.start()]
        start = found.end()
        if found[4] == "%":
            before += "%"
            continue
        columns.append(LineColumn(before, found[4], int(found[2] or 0), bool(found[1])))
        before = ""
    return LineFormat(columns, before + text[start:])


def long_format(text: str) -> LineFormat:
    """Of ``-O``: names, in small letters, as wide as said behind a colon; a dot before that has them on the right."""
    columns = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, colon, size = word.partition(":")
        digits = re.fullmatch(r"(\.?)([0-9]{0,4}).*", size)
        width = int(digits[2]) if digits and digits[2] else 0 if colon and not size else _WIDTH
        columns.append(LineColumn("", name.lower(), width, bool(digits and digits[1])))
    return LineFormat(columns)


def line(made: LineFormat, values: Mapping[str, str]) -> str:
    """One row, or the headers; what is wider than its column is cut, what is not known is empty."""
    written = []
    for column in made.columns:
        value = values.get(column.field, "")
        if column.width:
            value = value[: column.width]
            value = value.rjust(column.width) if column.right else value.ljust(column.width)
        written.append(column.before + value)
    return "".join(written) + made.after
