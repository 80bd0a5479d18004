"""Counts as people read them."""


def plural(count: int, word: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {word}{'' if count == 1 else 's'}"
