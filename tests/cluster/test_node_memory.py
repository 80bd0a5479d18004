"""What nodes remember of failures, as people and other runs find it on a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.site import PATIENCE, Run, Site
from harness.waiting import wait_for
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def node(site: Site, name: str) -> Json:
    found: Json = site.cluster.api.get(f"/api/v1/nodes/{name}")
    return found


def annotation(site: Site, name: str, key: str) -> str:
    return str(node(site, name)["metadata"].get("annotations", {}).get(key, ""))


def fail_first_on(site: Site, run: Run, attempt: int) -> str:
    """The rank of slot 0 fails in ``attempt``; the node it was on, once that node says so."""
    name = str(run.status["assignment"]["nodes"][0])
    before = len(json.loads(annotation(site, name, names.ANNOTATION_FIRST_FAILURES) or "[]"))
    site.workers.fail(run.uid, rank=0)
    run.wait_until_running(attempt + 1)

    def remembered() -> bool:
        return len(json.loads(annotation(site, name, names.ANNOTATION_FIRST_FAILURES) or "[]")) > before

    wait_for(f"{name} remembers", remembered, seconds=PATIENCE)
    return name


def test_a_node_on_which_two_runs_failed_first_is_suspect_and_is_taken_last(site: Site, namespace: str) -> None:
    one = site.apply(namespace, "one", nodes=1)
    one.wait_until_running(1)
    name = fail_first_on(site, one, 1)
    assert not annotation(site, name, names.ANNOTATION_SUSPECT)
    one.delete()
    wait_for("its pods are gone", lambda: not one.pods, seconds=PATIENCE)

    pinned = site.apply(namespace, "two", nodes=1, placement={"nodes": [name]})
    pinned.wait_until_running(1)
    fail_first_on(site, pinned, 1)
    wait_for("it is suspect", lambda: annotation(site, name, names.ANNOTATION_SUSPECT), seconds=PATIENCE)
    told = json.loads(annotation(site, name, names.ANNOTATION_FIRST_FAILURES))
    assert {entry["run"] for entry in told} == {f"{namespace}/one", f"{namespace}/two"}
    pinned.delete()
    wait_for("its pods are gone", lambda: not pinned.pods, seconds=PATIENCE)

    third = site.apply(namespace, "three", nodes=1)
    third.wait_until_running(1)
    assert third.status["assignment"]["nodes"] != [name]
    third.delete()
    clean = {names.ANNOTATION_FIRST_FAILURES: None, names.ANNOTATION_SUSPECT: None}
    patch = {"metadata": {"annotations": clean}}
    site.cluster.api.send(Request("PATCH", f"/api/v1/nodes/{name}", patch, MERGE_PATCH))


def test_what_nodes_carry_of_a_program_that_fails_on_any_of_them_goes_with_that_verdict(
    site: Site, namespace: str
) -> None:
    run = site.apply(namespace, "faulty", nodes=1)
    run.wait_until_running(1)
    name = fail_first_on(site, run, 1)
    for attempt in range(2, 8):
        site.workers.fail(run.uid, rank=0)
        run.wait("it starts again, or has ended", lambda after=attempt: run.is_true("Finished") or started(run, after))
        if run.is_true("Finished"):
            break
        run.wait_until_running(attempt + 1)
    assert run.condition("Finished")["reason"] == "Deterministic"
    tried = {name, *(entry.get("node", name) for entry in run.status["attempts"])}
    assert len(tried) > 1
    key = names.ANNOTATION_FIRST_FAILURES
    wait_for("nobody remembers", lambda: not any(annotation(site, each, key) for each in tried), seconds=PATIENCE)
    run.delete()


def started(run: Run, after: int) -> bool:
    return bool(run.status.get("start", {}).get("attempt", 0) > after)
