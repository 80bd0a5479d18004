"""Which tasks run on which nodes."""

import pytest

from lockstep.slurm.layout import Layout, LayoutError, layout


@pytest.mark.parametrize(
    ("nodes", "tasks", "distribution", "plane", "expected"),
    [
        ([0, 1], 4, "block", 0, Layout([0, 1], [[0, 1], [2, 3]])),
        ([0, 1, 2], 7, "block", 0, Layout([0, 1, 2], [[0, 1, 2], [3, 4], [5, 6]])),
        ([0, 1, 2], 2, "block", 0, Layout([0, 1], [[0], [1]])),  # no node is without a task
        ([2, 0], 2, "block", 0, Layout([2, 0], [[0], [1]])),
        ([0, 1], 5, "cyclic", 0, Layout([0, 1], [[0, 2, 4], [1, 3]])),
        ([0, 1], 7, "plane", 2, Layout([0, 1], [[0, 1, 4, 5], [2, 3, 6]])),
        ([0, 1, 2], 3, "plane", 2, Layout([0, 1], [[0, 1], [2]])),
        ([1, 0, 1], 3, "arbitrary", 0, Layout([0, 1], [[1], [0, 2]])),
    ],
)
def test_tasks_are_distributed(nodes: list[int], tasks: int, distribution: str, plane: int, expected: Layout) -> None:
    found = layout(nodes, tasks, distribution, plane)
    assert found == expected
    assert found.total == tasks
    assert found.counts == [len(ranks) for ranks in expected.tasks]


@pytest.mark.parametrize(("nodes", "tasks", "distribution"), [([], 1, "block"), ([0], 0, "block"), ([0], 1, "plane")])
def test_what_is_no_layout_is_refused(nodes: list[int], tasks: int, distribution: str) -> None:
    with pytest.raises(LayoutError):
        layout(nodes, tasks, distribution)
