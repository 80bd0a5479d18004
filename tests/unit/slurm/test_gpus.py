"""GPUs of a step: how many, which, and how many tasks follow from them."""

import pytest

from lockstep.slurm.gpus import GpusAsked, chosen, of_task
from lockstep.slurm.layout import LayoutError


@pytest.mark.parametrize(
    ("asked", "counts", "wanted"),
    [
        (GpusAsked(), [1, 1], None),
        (GpusAsked(per_node=1), [1, 1], [1, 1]),
        (GpusAsked(per_node=0), [1], [0]),
        (GpusAsked(total=4), [1, 1], [2, 2]),
        (GpusAsked(total=4, per_node=2), [1, 1], [2, 2]),
        (GpusAsked(per_task=2), [2, 1], [4, 2]),
        (GpusAsked(per_task=2, per_node=6), [2, 1], [6, 6]),
        (GpusAsked(ntasks_per_gpu=2), [3, 2], [2, 1]),
    ],
)
def test_what_a_step_wants_of_each_node_is_what_it_says(
    asked: GpusAsked, counts: list[int], wanted: list[int] | None
) -> None:
    assert asked.wanted(counts, 8) == wanted


@pytest.mark.parametrize(
    ("asked", "counts", "words"),
    [
        (GpusAsked(per_node=9), [1], "9 GPUs of a node are asked for, and each has 8"),
        (GpusAsked(per_task=2), [5], "10 GPUs of a node are asked for, and each has 8"),
        (GpusAsked(per_task=2, per_node=2), [2], "its 2 tasks on a node need 4 GPUs, not 2"),
        (GpusAsked(per_node=1, ntasks_per_gpu=2), [3], "its 3 tasks on a node need 2 GPUs, not 1"),
        (GpusAsked(total=3), [1, 1], "--gpus=3 is not the same on each of 2 nodes; write --gpus-per-node"),
        (GpusAsked(total=4, per_node=1), [1, 1], "keep one of them"),
    ],
)
def test_what_no_node_has_is_refused(asked: GpusAsked, counts: list[int], words: str) -> None:
    with pytest.raises(LayoutError, match=words):
        asked.wanted(counts, 8)


@pytest.mark.parametrize(
    ("asked", "tasks"),
    [
        (GpusAsked(), None),
        (GpusAsked(per_node=4), None),
        (GpusAsked(ntasks_per_gpu=1), 16),
        (GpusAsked(ntasks_per_gpu=2, per_node=3), 12),
        (GpusAsked(ntasks_per_gpu=1, total=4), 4),
        (GpusAsked(total=4, per_task=2), 2),
    ],
)
def test_tasks_follow_from_gpus_where_it_is_said_how(asked: GpusAsked, tasks: int | None) -> None:
    assert asked.tasks(2, 8) == tasks


def test_there_are_no_tasks_of_gpus_where_there_are_none() -> None:
    with pytest.raises(LayoutError, match="write --ntasks-per-node"):
        GpusAsked(ntasks_per_gpu=1).tasks(2, 0)


@pytest.mark.parametrize(
    ("wanted", "taken", "overlap", "found"),
    [
        ({"a": 1}, {}, False, {"a": [0]}),
        ({"a": 1, "b": 2}, {"a": {0}, "b": {1}}, False, {"a": [1], "b": [0, 2]}),
        ({"a": 3}, {"a": {0, 1}}, False, None),
        ({"a": 5}, {}, False, None),
        ({"a": 1, "b": 4}, {"b": {3}}, False, None),  # of all nodes, or of none
        ({"a": 3}, {"a": {0, 1}}, True, {"a": [0, 2, 3]}),
        ({"a": 0}, {"a": {0, 1, 2, 3}}, False, {"a": []}),
    ],
)
def test_a_step_gets_the_lowest_that_no_other_has(
    wanted: dict[str, int], taken: dict[str, set[int]], overlap: bool, found: dict[str, list[int]] | None
) -> None:
    assert chosen(wanted, taken, 4, overlap=overlap) == found


@pytest.mark.parametrize(
    ("asked", "local", "devices"),
    [
        (GpusAsked(per_node=4), 1, [2, 3, 5, 7]),
        (GpusAsked(per_task=2), 1, [5, 7]),
        (GpusAsked(ntasks_per_gpu=2), 3, [3]),
        (GpusAsked(ntasks_per_gpu=2), 8, []),
    ],
)
def test_a_task_sees_its_own_of_them(asked: GpusAsked, local: int, devices: list[int]) -> None:
    assert of_task([2, 3, 5, 7], local, asked) == devices
