"""How much of the API server's time unknown tokens may have, by the address that they come from.

An address is that of the connection. What a request says of where it comes from (X-Forwarded-For) counts for nothing:
whoever sends it could be anybody each time. So all who come through one proxy, or one ``kubectl port-forward``, share
what one address may.
"""

import asyncio
from collections import Counter

from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.ratelimit import RateLimit, block

EACH_PER_SECOND, EACH_BURST = 5.0, 50.0
"""Unknown tokens of one address. A proxy's brings those of all its readers after a restart."""
ALL_PER_SECOND, ALL_BURST = 20.0, 100.0
"""Of all addresses together."""
FEW, FEW_SECONDS = 3.0, 60.0
SELDOM_PER_SECOND, SELDOM_BURST = 5.0, 50.0
"""Beside that, for addresses with no more than ``FEW`` in ``FEW_SECONDS``: a few that flood cannot take these."""
MOST_ADDRESSES = 4096
MOST_PENDING, MOST_PENDING_EACH = 64, 16
"""Tokens whose review has not ended, of all and of one address: an API server that is slow makes them wait."""
PENDING_SECONDS = 1.0
AT_ONCE = 4
"""Tokens under review at once. There is room beside them for those who are signed in."""


class TooManyStrangersError(Exception):
    """More unknown tokens than are looked at: come again in ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many unknown tokens; try again in a moment")
        self.seconds = seconds


class Strangers:
    """Whose unknown token may be reviewed now."""

    def __init__(self, clock: Clock) -> None:
        self.slots = asyncio.Semaphore(AT_ONCE)
        """Held during a review."""
        self._each = RateLimit(clock, per_second=EACH_PER_SECOND, burst=EACH_BURST, most=MOST_ADDRESSES)
        self._few = RateLimit(clock, per_second=FEW / FEW_SECONDS, burst=FEW, most=MOST_ADDRESSES)
        self._seldom = RateLimit(clock, per_second=SELDOM_PER_SECOND, burst=SELDOM_BURST)
        self._all = RateLimit(clock, per_second=ALL_PER_SECOND, burst=ALL_BURST)
        self._pending: Counter[str] = Counter()

    def __len__(self) -> int:
        """Addresses remembered."""
        return len(self._each)

    def begin(self, address: str) -> str:
        """Take in a token that came from there, until ``end`` of what is returned. Raises TooManyStrangersError."""
        sender = block(address)
        if self._pending[sender] >= MOST_PENDING_EACH or self._pending.total() >= MOST_PENDING:
            raise TooManyStrangersError(PENDING_SECONDS)
        # Its own pace first: what one address may not have is not taken from all.
        wait = self._each.acquire(sender)
        if not wait and (self._few.acquire(sender) or self._seldom.acquire("")):
            wait = self._all.acquire("")
        if wait:
            raise TooManyStrangersError(wait)
        self._pending[sender] += 1
        return sender

    def end(self, sender: str) -> None:
        """Its review has ended, however."""
        self._pending[sender] -= 1
        if not self._pending[sender]:
            del self._pending[sender]
