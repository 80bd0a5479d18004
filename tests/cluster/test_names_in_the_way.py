"""Objects of other people under the names that Lockstep's own must have: told by name, left alone, and got past."""

from __future__ import annotations

from typing import Any

import pytest

from harness.site import Site
from localcluster.api import Request
from lockstep.api.base import names

pytestmark = pytest.mark.cluster
PATIENCE = 120.0


def test_a_pod_of_somebody_else_is_told_and_left_alone_until_its_owner_takes_it_away(
    site: Site, namespace: str
) -> None:
    run = site.apply(namespace, "llama", nodes=3, suspend=True)
    name, pods = run.pod_name(1, 1), f"/api/v1/namespaces/{namespace}/pods"
    theirs: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "c"}], "terminationGracePeriodSeconds": 0},
    }
    made = site.cluster.api.send(Request("POST", pods, theirs))
    run.patch_spec({"suspend": False})

    def is_told() -> bool:
        found = site.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return any(each["reason"] == "PodNameConflict" and name in each["note"] for each in found)

    run.wait("the conflict is told", is_told, PATIENCE)
    assert site.cluster.api.get(f"{pods}/{name}")["metadata"]["uid"] == made["metadata"]["uid"]
    assert site.workers.running(run.uid, 1) == 0
    site.cluster.api.send(Request("DELETE", f"{pods}/{name}"))
    run.wait_until_running(1, PATIENCE)
    run.delete()


def test_of_a_run_and_an_array_of_one_name_the_second_waits_until_the_first_has_ended(
    site: Site, namespace: str
) -> None:
    run = site.apply(namespace, "sweep", nodes=1)
    run.wait_until_running(1, PATIENCE)  # and more than a second old
    sets = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.RUN_SETS}"
    template = {"spec": {"nodes": 1, "image": "trainer", "command": ["train"]}}
    head = {"apiVersion": names.API_VERSION, "kind": names.RUN_SET_KIND, "metadata": {"name": "sweep"}}
    site.cluster.api.send(Request("POST", sets, head | {"spec": {"indices": "0-1", "template": template}}))

    def array() -> dict[str, Any]:
        found: dict[str, Any] = site.cluster.api.get(f"{sets}/sweep").get("status", {})
        return found

    run.wait("the array is told", lambda: array().get("reason") == "NameTaken", PATIENCE)
    assert run.condition("Accepted")["status"] == "True"
    run.patch_spec({"cancel": True})
    run.wait("it makes its runs", lambda: array().get("indices", {}).get("active") == "0-1", PATIENCE)
    site.cluster.api.send(Request("DELETE", f"{sets}/sweep"))
    run.delete()
