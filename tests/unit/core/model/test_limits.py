"""The time limit of a run, as its spec and its queue have it."""

from typing import Any

import pytest

from lockstep.api.queue import QueueLimits
from lockstep.core.model.limits import asked_limit, limit_allowed
from support.world import spec

HOUR = 3600


@pytest.mark.parametrize(
    ("run", "queue", "asked", "allowed"),
    [
        ({}, {}, None, None),
        ({"timeLimit": "2h"}, {}, 2 * HOUR, 2 * HOUR),
        ({}, {"defaultTimeLimit": "3h"}, 3 * HOUR, 3 * HOUR),
        ({"timeLimit": "2h"}, {"defaultTimeLimit": "3h"}, 2 * HOUR, 2 * HOUR),
        ({"timeLimit": "2h"}, {"maxTimeLimit": "2h"}, 2 * HOUR, 2 * HOUR),
        ({"timeLimit": "2h"}, {"maxTimeLimit": "1h"}, 2 * HOUR, HOUR),
        ({}, {"defaultTimeLimit": "3h", "maxTimeLimit": "1h"}, 3 * HOUR, HOUR),
        ({}, {"maxTimeLimit": "1h"}, None, None),
    ],
)
def test_the_spec_comes_before_the_queues_default_and_the_queues_longest_bounds_both(
    run: dict[str, Any], queue: dict[str, Any], asked: int | None, allowed: int | None
) -> None:
    limits = QueueLimits.model_validate(queue)
    assert asked_limit(spec(**run), limits) == asked
    assert limit_allowed(spec(**run), limits) == allowed
