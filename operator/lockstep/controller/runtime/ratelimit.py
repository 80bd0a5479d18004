"""Rate limit: one token bucket per sender."""

import ipaddress
from collections import OrderedDict

from lockstep.controller.runtime.clock import Clock

_NOTHING = 1e-6
"""Of a token: what rounding leaves."""


class RateLimit:
    """Each sender may make ``burst`` requests at once and ``per_second`` of them in the long run.

    ``most``: senders that are remembered, where anybody can be one. Beyond it the one let in longest ago is forgotten,
    and begins anew; so what all of them may has to be bounded apart from it.
    """

    def __init__(self, clock: Clock, *, per_second: float = 20.0, burst: float = 40.0, most: int | None = None) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by sender: tokens left, and when
        self._sweep_at = 1024

    def __len__(self) -> int:
        """Senders remembered."""
        return len(self._buckets)

    def acquire(self, sender: str) -> float:
        """Take one token. Returns 0, or the seconds after which there will be one."""
        now = self._clock.monotonic()
        tokens = self._left(sender, now)
        if tokens < 1:
            return (1 - tokens) / self._per_second
        self._keep(sender, tokens - 1, now)
        return 0.0

    def charge(self, sender: str, tokens: float) -> None:
        """What the sender was let do cost so many more: it may be in debt for it, and then has to wait."""
        now = self._clock.monotonic()
        self._keep(sender, self._left(sender, now) - tokens, now)

    def debt(self, sender: str, spare: float = 0.0) -> float:
        """Seconds until what it was charged is paid, and it has ``spare`` tokens; 0: it owes nothing."""
        owed = spare - self._left(sender, self._clock.monotonic())
        return owed / self._per_second if owed > _NOTHING else 0.0

    def forget(self, sender: str) -> None:
        """It never comes again."""
        self._buckets.pop(sender, None)

    def _left(self, sender: str, now: float) -> float:
        tokens, since = self._buckets.get(sender, (self._burst, now))
        return min(self._burst, tokens + (now - since) * self._per_second)

    def _keep(self, sender: str, tokens: float, now: float) -> None:
        self._buckets[sender] = (tokens, now)
        self._buckets.move_to_end(sender)
        if self._most is not None and len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if len(self._buckets) > self._sweep_at:
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        """Forget senders whose bucket is full again; next time only after as many again have come."""
        self._buckets = OrderedDict(
            (sender, (tokens, since))
            for sender, (tokens, since) in self._buckets.items()
            if tokens + (now - since) * self._per_second < self._burst
        )
        self._sweep_at = 1024 + 2 * len(self._buckets)


def block(address: str) -> str:
    """The addresses that one machine can have like this one: itself, of IPv6 its /64."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:  # as a socket of both families calls one of IPv4: else these were all in one /64
        return str(found.ipv4_mapped)
    return f"{int(found) >> 64:x}::/64"
