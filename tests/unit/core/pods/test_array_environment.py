"""What the pods of an array's runs are told of their array."""

from dataclasses import replace

import pytest

from lockstep.core.arrays.members import run_body
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.array_environment import array_environment
from lockstep.core.pods.gang import dry_run_body
from lockstep.core.pods.plain_pods import plain_dry_run_body
from support.arrays import member, run_set


@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
def test_the_training_container_is_told_of_its_index(worker: str) -> None:
    mine = [{"name": "SLURM_ARRAY_TASK_ID", "value": "mine"}]
    template = {"spec": {"nodes": 1, "image": "i", "command": ["t"], "worker": worker, "env": mine}}
    body = run_body(run_set(template=template), 3)
    body["metadata"] |= {"uid": "uid-3", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    pod = (dry_run_body if worker == "Enabled" else plain_dry_run_body)(parse_run(body), Tunables())
    [trainer] = pod["spec"]["containers"]
    values = [(each["name"], each.get("value")) for each in trainer["env"] if "ARRAY" in each["name"]]
    assert ("LOCKSTEP_ARRAY_INDEX", "3") in values
    assert ("SLURM_ARRAY_TASK_MAX", "9") in values
    assert [value for name, value in values if name == "SLURM_ARRAY_TASK_ID"] == ["mine"]
    assert len(values) == 8


@pytest.mark.parametrize(
    "words",
    [
        "",
        "index=1",
        "index=1 count=2 min=0 max=$(x)",
        "index=1 count=2 min=0 max=9 a=1",
        "index=1 count=2 min=0 max=123456",
    ],
)
def test_an_annotation_that_somebody_else_wrote_gives_no_environment(words: str) -> None:
    run = replace(member(run_set(), 0), annotations={"lockstep.dev/array": words})
    assert array_environment(run) == {}
