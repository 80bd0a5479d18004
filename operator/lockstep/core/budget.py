"""When trying again is pointless, and how long to wait before trying again."""

import hashlib
import math

_SECONDS_PER_DAY = 86_400.0
PRIOR_FAILURES, PRIOR_NODE_DAYS = 2.0, 500.0
"""Gamma prior of the failure rate of a node: mean 4e-3 a day."""
SECONDS_AT_RISK = 900.0
"""Restart plus one checkpoint interval: what has to go well for an attempt to make progress."""
LUCK = 1e-3
"""A run is stopped when bad luck alone explains its attempts with less than this probability."""


def adaptive_limit(nodes: int, seconds_at_risk: float = SECONDS_AT_RISK) -> int:
    """Attempts in a row without progress after which luck is no explanation: max(3, ceil(ln LUCK / ln p0)).

    p0 = 1 - exp(-(R+P)/M) is the chance that a healthy attempt is cut short before its first new
    checkpoint, M the mean time to failure of ``nodes`` nodes under the prior.
    """
    mttf = _SECONDS_PER_DAY * PRIOR_NODE_DAYS / (nodes * PRIOR_FAILURES)
    unlucky = 1.0 - math.exp(-seconds_at_risk / mttf)
    if unlucky <= 0.0:
        return 3
    return max(3, math.ceil(math.log(LUCK) / math.log(unlucky)))


def backoff(consecutive: int, base: float, longest: float, seed: str) -> float:
    """Seconds to wait after ``consecutive`` attempts without progress: 0, base, 2*base, … with 20 % jitter.

    The jitter is a function of ``seed``, so that a decision made twice is the same decision.
    """
    if consecutive <= 1:
        return 0.0
    digest = hashlib.sha256(f"{seed}/{consecutive}".encode()).digest()
    jitter = 0.8 + 0.4 * digest[0] / 255
    return min(longest, base * math.pow(2.0, min(consecutive - 2, 32))) * jitter
