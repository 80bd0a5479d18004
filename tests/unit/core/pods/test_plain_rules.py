"""What a run without workers cannot have."""

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.pods.plain_rules import plain_problems


def plain(**fields: Any) -> TrainingRunSpec:
    return TrainingRunSpec.model_validate({"nodes": 2, "image": "i", "command": ["x"], "worker": "Disabled", **fields})


REFUSED: Mapping[str, dict[str, Any]] = {
    "spec.preflight.minDisk": {"preflight": {"minDisk": "10Gi"}},
    "spec.preflight.startJitter": {"preflight": {"startJitter": "5s"}},
    "spec.progress.pattern": {"progress": {"pattern": "at (?P<step>[0-9]+)"}},
    "spec.recovery.debugHold": {"recovery": {"debugHold": "10m"}},
    "spec.recovery.rules[0].logPattern": {"recovery": {"rules": [{"name": "a", "logPattern": "x", "action": "Stop"}]}},
    "spec.recovery.rules[0].action": {"recovery": {"rules": [{"name": "a", "exitCodes": [9], "action": "RollBack"}]}},
    "spec.checkpoint.cadence": {"checkpoint": {"shared": {"claimName": "c"}, "cadence": {"interval": "10m"}}},
    "spec.checkpoint.layout": {"checkpoint": {"shared": {"claimName": "c"}, "layout": "Shared"}},
    "spec.checkpoint.start": {"checkpoint": {"shared": {"claimName": "c"}, "start": {"mode": "Require"}}},
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_only_the_worker_does_is_refused_with_the_remedy(field: str) -> None:
    spec = plain(**REFUSED[field])
    problems = list(plain_problems(spec))
    assert [problem.field for problem in problems] == [field]
    assert "worker: Enabled" in problems[0].message
    assert not list(plain_problems(changed(spec, worker="Enabled")))


CEL: Mapping[str, dict[str, Any]] = {
    "network": {"network": "Pod"},
    "warm": {"preflight": {"warmUp": "Ring"}},
    "signal": {"checkpoint": {"shared": {"claimName": "c"}, "signal": "SIGUSR1"}},
    "resumeBy": {"checkpoint": {"shared": {"claimName": "c"}, "resumeBy": "Env"}},
    "MPI": {"launcher": {"type": "MPI"}},
    "Slurm": {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh"}}, "command": []},
    "steps": {"launcher": {"steps": True}},
    "archive": {"checkpoint": {"shared": {"claimName": "c"}, "archive": {"uri": "s3://bucket/x"}}},
}


@pytest.mark.parametrize("what", CEL)
def test_what_the_api_server_refuses_is_refused_here_as_well(what: str) -> None:
    spec = plain(**CEL[what])
    assert any("worker: Enabled" in problem.message for problem in list(plain_problems(spec)))


def test_a_run_that_needs_no_worker_is_refused_nothing() -> None:
    mounts = {"shared": {"claimName": "c"}, "local": {"storage": "nvme"}}
    rules = [{"name": "a", "exitCodes": [9], "action": "Stop"}]
    assert not list(plain_problems(plain(checkpoint=mounts, recovery={"rules": rules})))


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"spareNodes": 1}, "spec.spareNodes"),
        ({"elastic": {"min": 1}}, "spec.elastic"),
        ({"network": "Pod"}, "spec.network"),
    ],
)
def test_what_happens_at_the_workers_barrier_is_refused(fields: dict[str, Any], refused: str) -> None:
    assert [problem.field for problem in plain_problems(changed(plain(), worker="Enabled"))] == []
    assert [problem.field for problem in plain_problems(plain(**fields))] == [refused]
