"""Who admits a run, and what a run may not ask for where Kueue does."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.kueue.choice import choice_of, kueue_problems, topology_rule
from lockstep.core.model.snapshot import QueueView
from lockstep.core.model.tunables import Tunables
from support.admission import run

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"


def test_the_label_wins_over_the_queue() -> None:
    queue = QueueView("research", TrainingQueueSpec.model_validate({"backend": "Kueue"}))
    view = run("llama")
    assert choice_of(view, None) is None
    assert choice_of(view, QueueView("default", TrainingQueueSpec())) is None
    chosen = choice_of(view, queue)
    assert chosen is not None
    assert (chosen.queue, chosen.by) == ("research", "TrainingQueue")
    labelled = choice_of(replace(view, labels={"kueue.x-k8s.io/queue-name": "mine"}), queue)
    assert labelled is not None
    assert (labelled.queue, labelled.by) == ("mine", "Label")


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ([{"level": "rack", "policy": "Spread", "maxNodes": 1, "mode": "Required"}], "can only require Pack"),
        ([{"level": "rack", "maxNodes": 2, "mode": "Required"}], "can only require Pack without maxNodes"),
        ([{"level": "rack", "mode": "Required"}], ""),
        ([{"level": "zone", "mode": "Required"}], f"has no level topology.kubernetes.io/zone; it has {RACK}"),
        ([{"level": "rack", "mode": "Required"}, {"level": "zone", "mode": "Required"}], "can require one level"),
        ([{"level": "rack", "policy": "Spread", "maxNodes": 1}], ""),
    ],
)
def test_required_topology_that_kueue_cannot_give_is_refused_by_field(
    topology: list[dict[str, Any]], words: str
) -> None:
    view = run("llama", gpusPerNode=8, placement={"topology": topology})
    assert view.spec is not None
    problems = [f"{each.field}: {each.message}" for each in kueue_problems(view.spec, (RACK,), Tunables())]
    assert bool(problems) == bool(words)
    assert all(problem.startswith("spec.placement.topology[") for problem in problems)
    assert words in "".join(problems)
    assert not list(kueue_problems(view.spec, (), Tunables())), "without topology the placement is ours"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"gpusPerNode": 8}, []),
        ({"gpusPerNode": 0}, []),
        ({}, ["spec.gpusPerNode"]),
        ({"resourcesPerNode": {"amd.com/gpu": 8}}, []),
        ({"gpusPerNode": 8, "spareNodes": 1}, ["spec.spareNodes"]),
        ({"gpusPerNode": 8, "nodes": 2, "elastic": {"min": 1}}, ["spec.elastic"]),
    ],
)
def test_kueue_reserves_one_number_of_nodes_and_has_to_be_told_of_gpus(
    fields: dict[str, Any], refused: list[str]
) -> None:
    view = run("llama", **fields)
    assert view.spec is not None
    assert [problem.field for problem in kueue_problems(view.spec, (), Tunables())] == refused


@pytest.mark.parametrize(
    ("topology", "levels", "asked"),
    [
        ([], (RACK,), None),
        ([{"level": "rack"}], (RACK,), ("Preferred", RACK)),
        ([{"level": "rack"}], (ZONE,), None),
        ([{"level": "rack"}, {"level": "zone", "mode": "Required"}], (ZONE, RACK), ("Required", ZONE)),
        ([{"level": "zone"}, {"level": "rack"}], (ZONE, RACK), ("Preferred", ZONE)),
        ([{"level": "rack", "policy": "Contiguous"}, {"level": "zone"}], (ZONE, RACK), ("Preferred", ZONE)),
    ],
)
def test_kueue_places_by_the_first_rule_that_is_required_else_by_the_first(
    topology: list[dict[str, Any]], levels: tuple[str, ...], asked: tuple[str, str] | None
) -> None:
    view = run("llama", placement={"topology": topology})
    assert view.spec is not None
    found = topology_rule(view.spec, levels, Tunables())
    assert (found and (found[0].mode, found[1])) == asked


@pytest.mark.parametrize(
    ("queue", "local_queue"),
    [({"backend": "Kueue"}, "research"), ({"backend": "Kueue", "localQueue": "gpus"}, "gpus"), ({}, None)],
)
def test_a_queue_of_kueues_names_the_local_queue_or_lends_its_own_name(
    queue: dict[str, Any], local_queue: str | None
) -> None:
    chosen = choice_of(run("llama"), QueueView("research", TrainingQueueSpec.model_validate(queue)))
    assert (chosen and chosen.queue) == local_queue
