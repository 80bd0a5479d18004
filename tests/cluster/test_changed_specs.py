"""A suspension that is taken back before the operator has seen it, on a real API server."""

from typing import Any

import pytest

from harness.site import Run, Site
from lockstep.core.model.reasons import ConditionType

pytestmark = pytest.mark.cluster
ANOTHER = "example.org/another:1"


def change_unseen(site: Site, run: Run, spec: dict[str, Any]) -> None:
    """Two writes in a row, of which the operator sees the outcome."""
    site.proxy.take_down()
    run.patch_spec({"suspend": True, **spec})
    run.patch_spec({"suspend": False})
    site.proxy.bring_up()


def images(run: Run) -> list[str]:
    return [container["image"] for pod in run.pods for container in pod["spec"]["containers"]]


def test_a_gang_whose_spec_was_changed_unseen_queues_again_and_starts_with_that(site: Site, namespace: str) -> None:
    run = site.apply(namespace, "llama", nodes=2)
    run.wait_until_running(1)
    before = run.pod_uids
    change_unseen(site, run, {"image": ANOTHER})
    run.wait("its pods are of the new spec", lambda: images(run) == [ANOTHER] * 2)
    run.wait_until_running(2)
    assert not run.pod_uids & before
    assert run.is_true(ConditionType.ACCEPTED)
    run.delete()


def test_no_pod_is_made_of_a_spec_that_was_changed_unseen_and_may_not_run(site: Site, namespace: str) -> None:
    run = site.apply(namespace, "llama", nodes=2)
    run.wait_until_running(1)
    privileged = {"name": "trainer", "securityContext": {"privileged": True}}
    change_unseen(site, run, {"podTemplate": {"spec": {"containers": [privileged]}}})
    run.wait("it is refused", lambda: run.condition(ConditionType.ACCEPTED).get("reason") == "InvalidSpec")
    run.wait("its pods are gone", lambda: not run.pods)
    assert "privileged" in run.condition(ConditionType.ACCEPTED)["message"]
    run.delete()


def test_another_order_of_what_has_names_is_taken_and_stops_nobody(site: Site, namespace: str) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    run = site.apply(namespace, "llama", nodes=2, env=env)
    run.wait_until_running(1)
    before = run.pod_uids
    run.patch_spec({"env": env[::-1]})
    run.wait("the record is of this generation", lambda: run.status["resolved"]["specHash"].startswith("2/"))
    assert (run.pod_uids, run.heard.attempts()) == (before, [1])
    run.delete()
