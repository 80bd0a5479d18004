"""What a run has and says once a cycle gave it nodes."""

from typing import Any

import pytest

from support.admission import NOW, node, run, world
from support.preempting import passed

RACKS = [node("n0", "r1"), node("n1", "r1"), node("n2", "r2")]


@pytest.mark.parametrize(
    ("spec", "nodes", "limit", "words"),
    [
        ({}, ("n2",), None, "1 node, rank 0 on n2; nodes by rack: r2 1"),
        ({"nodes": 3}, ("n0", "n1", "n2"), None, "3 nodes, rank 0 on n0; nodes by rack: r1 2, r2 1"),
        ({"timeLimit": "2h"}, ("n2",), 7200, "1 node, rank 0 on n2; nodes by rack: r2 1"),
    ],
)
def test_a_gang_gets_its_nodes_its_attempt_and_its_time_in_one_write(
    spec: dict[str, Any], nodes: tuple[str, ...], limit: int | None, words: str
) -> None:
    (write,) = passed(world([run("a", **spec)], RACKS)).writes
    status = write.status
    assert status.assignment.nodes == nodes
    assert (status.attempt, status.last_admitted) == (1, NOW)
    assert (status.admission.time_limit, status.admission.asked_limit) == (limit, spec.get("timeLimit", ""))
    assert status.resolved.template_hash
    assert [(event.reason, event.note) for event in write.events] == [("Admitted", words)]


GPU = "nvidia.com/gpu"
SMALL = {"cpu": 192_000, "memory": 2**41, GPU: 4}


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (
            {},
            "8 nvidia.com/gpu on n0, n1 stay unused: the gang has 4 of each node, as the smallest has no more; ",
        ),
        ({"gpusPerNode": 1}, "17 nvidia.com/gpu on n0, n1, n2 stay unused: the gang has 1 of each node; "),
    ],
)
def test_a_gang_that_leaves_gpus_unused_is_told_so_with_its_nodes(spec: dict[str, Any], note: str) -> None:
    (write,) = passed(world([run("a", 3, **spec)], [*RACKS[:2], node("n2", allocatable=SMALL)])).writes
    (event,) = [event for event in write.events if event.reason == "GpusUnused"]
    assert (event.type, event.note.startswith(note)) == ("Warning", True)
    assert write.status.resolved.unused_gpus == note.partition(" stay")[0]


@pytest.mark.parametrize("now", [NOW, 1_764_163_193.7, 1_764_163_193.1])
@pytest.mark.parametrize(("limit", "seconds"), [("40s", 40), ("61s", 61), ("2h", 7200)])
def test_a_limit_is_granted_to_the_second_whatever_the_time(now: float, limit: str, seconds: int) -> None:
    (write,) = passed(world([run("a", timeLimit=limit)], RACKS), now).writes
    assert write.status.admission.time_limit == seconds
    assert [event.note for event in write.events] == ["1 node, rank 0 on n2; nodes by rack: r2 1"]
