"""Runs in training that go on without a free node: one takes its spare, one shrinks."""

from __future__ import annotations

import pytest

from harness import stub_trainer
from harness.training import TrainingSite

pytestmark = pytest.mark.nodes


@pytest.mark.nightly  # that it grows again begins with this
def test_an_elastic_gang_without_a_free_node_trains_on_with_those_it_has(site: TrainingSite) -> None:
    run = site.train("elastic", 4, 60, "--save-every=1000", "--hold-after=12", elastic={"min": 2})
    run.wait_until_step(1, 10)
    before = run.nodes
    site.world.process_nodes.kill_node(before[2])
    run.wait("the gang has shrunk", lambda: run.status["resolved"]["nodes"] == 3)
    run.wait_until_succeeded()
    status = run.status
    assert status["start"]["order"] == "0-1,3"
    assert [entry["nodes"] for entry in run.attempts if "nodes" in entry] == [4, 3]
    last = run.attempts[-1]["number"]
    for rank, line in enumerate(stub_trainer.undisturbed(60, 3, rank) for rank in range(3)):
        assert run.lineage(last, rank) == list(line), "nothing was saved: it is the lineage of three ranks from step 1"
