"""When trying again is pointless, and how long to wait before trying again."""

import hashlib
import math

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.failures.failure_rate import PRIOR, SECONDS_PER_DAY
from lockstep.core.model.assignment import world

SECONDS_AT_RISK = 900.0
"""Restart plus one checkpoint interval, before either was measured: what has to go well for any progress."""
UNMEASURED_RESTART = 300.0
"""The restart's part of it, before the first recovery."""
LUCK = 1e-3
"""A run is stopped when bad luck alone explains its attempts with less than this probability."""
LEAST_ATTEMPTS, MOST_ATTEMPTS = 3, 100


def adaptive_limit(nodes: int, seconds_at_risk: float = SECONDS_AT_RISK, rate: float = PRIOR.mean) -> int:
    """Attempts in a row without progress after which luck is no explanation: max(3, ceil(ln LUCK / ln p0)).

    p0 = 1 - exp(-(R+P)/M) is the chance that a healthy attempt is cut short before its first new
    checkpoint: R + P are ``seconds_at_risk``, M the mean time to failure of ``nodes`` nodes that each fail
    ``rate`` times a day. Bounded where p0 is close to 1: nothing would ever stop such a run.
    """
    unlucky = -math.expm1(-seconds_at_risk * nodes * rate / SECONDS_PER_DAY)
    if unlucky <= 0.0:
        return LEAST_ATTEMPTS
    if unlucky >= LUCK ** (1.0 / MOST_ATTEMPTS):
        return MOST_ATTEMPTS
    return max(LEAST_ATTEMPTS, math.ceil(math.log(LUCK) / math.log(unlucky)))


def measured_limit(status: TrainingRunStatus, nodes: int) -> int:
    """``adaptive_limit`` with what this run has measured: its recoveries, its cadence, its failure rate."""
    cadence = status.checkpoint.cadence
    if not cadence.interval:
        return adaptive_limit(nodes)
    at_risk = (status.goodput.mttr_p50 or UNMEASURED_RESTART) + cadence.interval
    return adaptive_limit(nodes, at_risk, SECONDS_PER_DAY / (nodes * max(1, cadence.mttf)))


def allowed_without_progress(spec: TrainingRunSpec, status: TrainingRunStatus) -> int:
    """The limit of the spec, or the adaptive one for the gang as it is, with what was measured of it."""
    limit = spec.recovery.no_progress_limit
    if isinstance(limit, int):
        return limit
    return measured_limit(status, world(status.assignment) or spec.nodes)


def backoff(consecutive: int, base: float, longest: float, seed: str) -> float:
    """Seconds to wait after ``consecutive`` attempts without progress: 0, base, 2*base, … with 20 % jitter.

    The jitter is a function of ``seed``, so that a decision made twice is the same decision.
    """
    if consecutive <= 1:
        return 0.0
    digest = hashlib.sha256(f"{seed}/{consecutive}".encode()).digest()
    jitter = 0.8 + 0.4 * digest[0] / 255
    return min(longest, base * math.pow(2.0, min(consecutive - 2, 32))) * jitter
