"""How many ranks a run trains with on so many nodes."""

from typing import Any

import pytest

from lockstep.core.model.world_size import world_size
from support.world import spec


@pytest.mark.parametrize(
    ("nodes", "elastic", "usable", "ranks"),
    [
        (8, None, 8, 8),
        (8, None, 9, 8),
        (8, None, 7, 0),
        (8, {"min": 4}, 8, 8),
        (8, {"min": 4}, 7, 7),
        (8, {"min": 4}, 4, 4),
        (8, {"min": 4}, 3, 0),
        (8, {"min": 4, "multipleOf": 4}, 7, 4),
        (8, {"min": 4, "multipleOf": 2}, 7, 6),
        (8, {"min": 2, "multipleOf": 2}, 1, 0),
    ],
)
def test_an_elastic_gang_shrinks_in_its_steps_down_to_its_least(
    nodes: int, elastic: Any, usable: int, ranks: int
) -> None:
    fields = {"elastic": elastic} if elastic else {}
    assert world_size(spec(nodes, **fields), usable) == ranks
