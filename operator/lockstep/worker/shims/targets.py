"""Which node a word means: by address, by name, or as ``localhost`` and what a pod calls itself."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence


class Gang(NamedTuple):
    """The nodes of this attempt, by rank. ``names``: as empty as unknown. ``hostname``: of the own pod."""

    addresses: Sequence[str]
    own: int
    names: Sequence[str] = ()
    hostname: str = ""

    def rank_of(self, word: str) -> Optional[int]:
        """None: no node of the gang. A name may be cut at its first dot, on either side, if that leaves one node."""
        word = word.strip("[]")  # of an IPv6 address
        for known in (self.addresses, self.names):
            if word in known:
                return known.index(word)
        if word.lower() in ("localhost", "127.0.0.1", "::1"):
            return self.own
        short = _short(word)
        found = [rank for rank, name in enumerate(self.names) if short and _short(name) == short]
        if not found and self.hostname and word == self.hostname:
            return self.own
        return found[0] if len(found) == 1 else None


def _short(name: str) -> str:
    """Empty of an address."""
    return "" if name.replace(".", "").isdigit() or ":" in name else name.partition(".")[0].lower()
