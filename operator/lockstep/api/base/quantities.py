"""Kubernetes quantities (`180`, `1800Gi`, `500m`) as exact numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)$"
QUANTITY_REMEDY = "write a quantity as 8, 500m, 200Gi or 2Ti"

_SCALE = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{f"{suffix}i": Fraction(1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")},
}
_QUANTITY = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|([KMGTPE]i|[numkMGTPE])?)")


MOST = 2**63 - 1
"""What the API server takes a larger amount for."""
_LONGEST = 256


def parse_quantity(text: str | float) -> Fraction:
    """Return the exact value of any quantity the API server may show or take: with a suffix or exponent, a bare number.

    Raises ValueError, with the right form, on anything else, whatever its type.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise _no_quantity(text)
    return _value(text)


@lru_cache(maxsize=1024)  # the same few are read again with every status
def _value(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise _no_quantity(text)
    sign, number, exponent, suffix = match.groups()
    value = Fraction(number + (exponent or "")) if exponent else Fraction(number) * _SCALE[suffix or ""]
    value = min(value, Fraction(MOST))
    return -value if sign == "-" else value


def _no_quantity(text: object) -> ValueError:
    return ValueError(f"{str(text)[:64]!r} is not a quantity: {QUANTITY_REMEDY}")
