"""Times of the configuration that do not go together."""

import pytest

from lockstep.core.model.tunables import Tunables, heartbeat_problems


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({}, []),
        ({"heartbeat_min": 10.0}, []),
        ({"heartbeat_min": 10.5}, ["heartbeatMin: 10.5 s is longer than heartbeatMax, 10 s; lower it"]),
        ({"steps_stopped_after": 20.0, "fence_seconds": 20.0}, []),
        ({"steps_stopped_after": 19.0}, ["stepsStoppedAfter: 19 s is less than twice heartbeatMax, 10 s"]),
        ({"fence_seconds": 19.0}, ["fenceSeconds: 19 s is less than twice heartbeatMax, 10 s"]),
        (
            {"heartbeat_max": 40.0},
            ["stepsStoppedAfter: 30 s is less than twice heartbeatMax", "fenceSeconds: 60 s is less than twice"],
        ),
    ],
)
def test_what_is_waited_for_lasts_two_of_the_longest_heartbeats(times: dict[str, float], words: list[str]) -> None:
    problems = heartbeat_problems(Tunables(**times))  # type: ignore[arg-type]
    assert len(problems) == len(words)
    assert all(problem.startswith(start) for problem, start in zip(problems, words, strict=True))
