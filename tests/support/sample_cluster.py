"""An API server that has a run, what belongs to it and a few of everything else, and takes whatever it is sent."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Any

from support import sample_runs as sample
from support.answering_server import Answer, refuses, says

_LOG = b"2026-11-26T10:00:00.000000000Z step 1\n" * 500
_MANY = {"trainingruns": 20, "events": 50, "nodes": 20, "trainingqueues": 5, "pods": 4}


def _object(name: str, **fields: Any) -> dict[str, Any]:
    labels = {"lockstep.dev/run": "llama", "lockstep.dev/run-uid": sample.UID, "lockstep.dev/slot": "0"}
    metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "7", "labels": labels}
    return {"apiVersion": "v1", "kind": "Any", "metadata": metadata | {"creationTimestamp": sample.at(600)}, **fields}


def has(run: dict[str, Any]) -> Answer:
    """Has ``run``, which is called llama, until it is deleted."""
    sizes = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    objects = {
        "trainingruns": run,
        "trainingqueues": _object("default", spec={}, status={}),
        "persistentvolumeclaims": _object("lustre"),
        "namespaces": _object("team"),
        "nodes": _object("gpu-1", spec={}, status={"allocatable": sizes, "capacity": sizes, "conditions": ready}),
        "pods": _object(
            "llama-0",
            spec={"nodeName": "gpu-1", "containers": [{"name": "trainer"}]},
            status={"phase": "Running", "containerStatuses": [{"name": "trainer", "state": {"running": {}}}]},
        ),
        "events": _object(
            "event", type="Normal", reason="Admitted", action="Admit", note="4 nodes", eventTime=sample.at(60),
            regarding={"kind": "TrainingRun", "name": "llama", "uid": sample.UID},
        ),
    }  # fmt: skip

    gone = set[str]()

    def answer(request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        *_, kind, name = path.split("/")
        if name == "log":
            said = says(200, _LOG, "text/plain")
        elif "watch=" in query:
            said = refuses(410, "Expired", "too old resource version")
        elif request.command != "GET":
            gone.discard(name)  # plural, where something is created
            gone.update([kind] if request.command == "DELETE" else [])
            said = says(200, objects.get(kind, run))
        elif kind.endswith("s"):
            found = objects.get(kind)
            known = found is not None and found["metadata"]["name"] == name and kind not in gone
            said = says(200, found) if known else refuses(404, "NotFound", f"{kind} {name} not found", name=name)
        else:
            items = [objects[name]] * _MANY[name] if name in _MANY else []
            said = says(200, {"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items})
        said(request)

    return answer
