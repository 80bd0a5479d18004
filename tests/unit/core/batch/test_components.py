"""The components of a heterogeneous job, made into one gang. Their tasks are tested where the manifest is."""

import pytest

from lockstep.core.batch.components import gang_of
from lockstep.slurm.handling import IGNORED, REFUSED
from lockstep.slurm.submission.batch import Batch, batches
from lockstep.slurm.submission.directives import directives


def components_of(*components: str) -> list[Batch]:
    script = "#!/bin/sh\n" + "#SBATCH hetjob\n".join(f"#SBATCH {each}\n" for each in components)
    return batches(directives("t.sh", script), {}, [])


@pytest.mark.parametrize(
    ("components", "nodes", "told"),
    [
        (("-N1 -w n1", "-N2 -w gpu-[7-8]"), ("n1", "gpu-7", "gpu-8"), True),
        (("-w n1", "-w n2,n3"), ("n1", "n2", "n3"), True),
        (("-N1 -w n[1-3]", "-N2 -w n[1-3]"), ("n1", "n2", "n3"), False),
        (("-N1", "-N2"), (), False),
    ],
)
def test_nodes_that_components_name_are_the_gangs(
    components: tuple[str, ...], nodes: tuple[str, ...], told: bool
) -> None:
    request, rows, sizes = gang_of(components_of(*components))
    assert (request.nodes, request.nodelist, len(sizes)) == (3, nodes, 2)
    assert [row.handling for row in rows if row.option == "hetjob"] == [IGNORED] * told
    assert not [row for row in rows if row.handling == REFUSED]


@pytest.mark.parametrize(
    "components",
    [
        ("-N1", "-N1 -w gpu-7"),
        ("-N1 -w gpu-7", "-N1"),
        ("-N1 -w n1", "-N1 -w n1"),
        ("-N2 -w n[1-2]", "-N1 -w n2"),
        ("-N1 -w n1", "-N2 -w n2"),
        ("-N1 -w n[1-2]", "-N1 -w n3"),
        ("-w n[1-2]", "-w n[1-2]"),
    ],
)
def test_nodes_of_some_components_alone_are_refused_with_what_to_write(components: tuple[str, ...]) -> None:
    request, rows, _ = gang_of(components_of(*components))
    [row] = [row for row in rows if row.handling == REFUSED]
    assert not request.nodelist
    assert row.option == "--nodelist"
    assert "have each name as many as its -N" in row.words
