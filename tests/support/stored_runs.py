"""A run and a pod of it, as the API server has them and as they are read."""

from typing import Any

from lockstep.controller.store.store import Store
from lockstep.core.model.snapshot import PodPhase, PodView, RunView


def run(version: int = 10, uid: str = "u1", generation: int = 1, **changes: Any) -> dict[str, Any]:
    """The run ``llama`` of the namespace ``team``."""
    return {
        "metadata": {
            "namespace": "team",
            "name": "llama",
            "uid": uid,
            "resourceVersion": str(version),
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodes": 2, "image": "i", "command": ["train"]},
        **changes,
    }


def pod(slot: int = 0, **changes: Any) -> PodView:
    """A pod of the run ``llama`` that is bound and runs."""
    fields: dict[str, Any] = {
        "namespace": "team",
        "name": f"llama-{slot}",
        "uid": f"pod-{slot}",
        "run": "llama",
        "run_uid": "u1",
        "owner_uid": changes.get("run_uid", "u1"),
        "slot": slot,
        "incarnation": 1,
        "node": f"gpu-{slot}",
        "bound": True,
        "phase": PodPhase.RUNNING,
        "created_at": 0.0,
    }
    return PodView(**{**fields, **changes})


def stored(store: Store) -> RunView:
    """The run ``llama`` of the namespace ``team``, as the operator knows it."""
    view = store.runs.named("team", "llama")
    assert view is not None
    return view
