"""A run that the API server takes, other specs made of it, and what the API server says of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from localcluster.api import Request
from localcluster.cluster import LocalCluster
from localcluster.errors import ApiError

GOOD: dict[str, Any] = {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"]}
ABSENT = object()


def spec(**changes: Any) -> dict[str, Any]:
    """A good spec with some fields changed; ABSENT takes one away."""
    return {name: value for name, value in (deepcopy(GOOD) | changes).items() if value is not ABSENT}


def saving(**changes: Any) -> dict[str, Any]:
    return spec(checkpoint={"shared": {"claimName": "lustre"}} | changes)


def refusal(cluster: LocalCluster, method: str, path: str, body: dict[str, Any]) -> str:
    """The API server's words; empty when it would take the object."""
    try:
        cluster.api.send(Request(method, f"{path}?fieldValidation=Strict&dryRun=All", body))
    except ApiError as error:
        return str(error)
    return ""


def run(wanted: dict[str, Any], namespace: str, name: str = "bad") -> dict[str, Any]:
    return {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name, "namespace": namespace},
        "spec": wanted,
    }


def runs(namespace: str) -> str:
    return f"/apis/lockstep.dev/v1alpha1/namespaces/{namespace}/trainingruns"
