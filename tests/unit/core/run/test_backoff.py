"""How often an attempt is tried without progress, and how long is waited before the next."""

import pytest

from lockstep.api.checkpoint_status import CadenceStatus, CheckpointStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.run.backoff import (
    LEAST_ATTEMPTS,
    MOST_ATTEMPTS,
    adaptive_limit,
    allowed_without_progress,
    backoff,
    measured_limit,
)
from support.world import spec


@pytest.mark.parametrize(
    ("consecutive", "around"), [(0, 0.0), (1, 0.0), (2, 10.0), (3, 20.0), (4, 40.0), (7, 320.0), (40, 600.0)]
)
def test_the_wait_doubles_from_the_second_attempt_on_and_varies_by_a_fifth(consecutive: int, around: float) -> None:
    waits = {backoff(consecutive, 10.0, 600.0, f"uid-{n}") for n in range(50)}
    assert all(0.8 * around - 1e-9 <= wait <= 1.2 * around + 1e-9 for wait in waits)
    assert len(waits) > 10 or not around
    assert backoff(consecutive, 10.0, 600.0, "a") == backoff(consecutive, 10.0, 600.0, "a")


@pytest.mark.parametrize(
    ("nodes", "seconds", "rate", "attempts"),
    [
        (1, 0.0, 0.01, LEAST_ATTEMPTS),
        (1, 900.0, 0.01, LEAST_ATTEMPTS),
        (96, 900.0, 1.0, 16),  # one failure in 900 s: ln 0.001 / ln (1 - 1/e)
        (100_000, 900.0, 1.0, MOST_ATTEMPTS),
    ],
)
def test_luck_explains_more_attempts_the_more_often_the_gang_fails(
    nodes: int, seconds: float, rate: float, attempts: int
) -> None:
    assert adaptive_limit(nodes, seconds, rate) == attempts


@pytest.mark.parametrize(("interval", "mttf", "attempts"), [(0, 1, LEAST_ATTEMPTS), (600, 900, 16), (60, 900, 7)])
def test_the_limit_follows_what_the_run_measured_of_itself(interval: int, mttf: int, attempts: int) -> None:
    cadence = CadenceStatus(interval=interval, mttf=mttf)
    status = TrainingRunStatus(checkpoint=CheckpointStatus(cadence=cadence))
    assert measured_limit(status, 8) == attempts


@pytest.mark.parametrize(("stated", "allowed"), [(7, 7), (1, 1), ("Adaptive", LEAST_ATTEMPTS)])
def test_what_the_spec_says_comes_first(stated: int | str, allowed: int) -> None:
    assert allowed_without_progress(spec(2, recovery={"noProgressLimit": stated}), TrainingRunStatus()) == allowed
