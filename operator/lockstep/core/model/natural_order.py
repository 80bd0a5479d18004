"""Names in the order people expect: rack-2 before rack-10."""

import re
from functools import lru_cache

_DIGITS = re.compile("([0-9]+)")
NaturalKey = tuple[tuple[int, int, str], ...]


@lru_cache(maxsize=65_536)
def natural_key(name: str) -> NaturalKey:
    """Sort key under which digits compare as numbers. Distinct names have distinct keys."""
    words = _DIGITS.split(name)  # text and digits alternate, text first
    key = [(1, int(word), word) if index % 2 else (2, 0, word) for index, word in enumerate(words) if word]
    return (*key, (0, 0, name))
