"""A run whose pods are made, and what is in the container of its trainer."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import ResolvedStatus, TrainingRunStatus
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables

TUNABLES = Tunables(
    gang=GangSettings(worker_archive=b"zip", ca_certificate="PEM", local_storages={"nvme": "/mnt/nvme"})
)
RESOLVED = ResolvedStatus(generation=1, gpus_per_node=8, cpu="191", memory="2046Gi", nodes=2)


def run(resolved: ResolvedStatus = RESOLVED, **spec: Any) -> RunView:
    """In its third attempt, on two nodes."""
    fields = {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"], **spec}
    return RunView(
        namespace="team",
        name="hello",
        uid="0f3a9c1e-0000-4000-8000-000000000000",
        generation=1,
        resource_version="7",
        created_at=0.0,
        spec=TrainingRunSpec.model_validate(fields),
        status=TrainingRunStatus(attempt=3, resolved=resolved),
    )


def trainer(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one container of a pod that trains."""
    (found,) = [c for c in pod["spec"]["containers"] if c["name"] == names.CONTAINER_NAME]
    return dict(found)


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    """Of that container; what is taken from elsewhere is empty."""
    return {item["name"]: item.get("value", "") for item in trainer(pod)["env"]}
