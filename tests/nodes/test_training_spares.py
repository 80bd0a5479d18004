"""Runs in training that go on without a free node: one takes its spare, one shrinks."""

from __future__ import annotations

import pytest

from support import stub_trainer
from support.training import TrainingSite

pytestmark = pytest.mark.nodes


def test_a_spare_takes_the_place_of_a_killed_node_and_no_pod_is_made_for_it(site: TrainingSite) -> None:
    ranks = spare = site.all_but_one
    run = site.train("spared", ranks, 60, "--hold-after=22", spareNodes=1)
    run.wait("its spare is ready", lambda: run.status.get("spares") == "1/1")
    run.wait_until_saved(1, 20)
    before, pods = run.nodes, run.pod_uids
    assert sorted(before) == sorted(site.nodes), "there is no further node"
    site.kill_node(before[1])
    run.wait("attempt 2 is started", lambda: run.status["start"]["attempt"] == 2)
    assert run.pod_uids <= pods
    status = run.status
    order = [0, spare, *range(2, ranks)]
    assert status["assignment"]["rankToSlot"] == order
    assert status["start"]["order"] == ",".join(map(str, order))
    assert status["start"]["resume"]["tier"] == "shared"
    assert status["assignment"]["nodes"] == [before[0], "", *before[2:]]
    run.wait_until_step(2, int(status["start"]["resume"]["step"]) + 1)
    run.wait_until_succeeded()
    run.assert_undisturbed(60)
    first = run.attempts[0]
    assert (first["cause"], first["rank"], first["node"]) == ("NodeLost", 1, before[1])
    assert run.events("SpareUsed") == [f"the spare on {before[spare]} takes the place of rank 1"]


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
