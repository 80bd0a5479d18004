"""Missing knowledge never costs a pod; and what is really gone is noticed, also when nobody was looking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.site import Run, Site

pytestmark = pytest.mark.cluster
Json = dict[str, Any]


def running(site: Site, namespace: str, name: str, nodes: int) -> Run:
    run = site.apply(namespace, name, nodes=nodes)
    run.wait_until_running(1)
    return run


def wipe(run: Run) -> None:
    """Every field of status is gone, as after a restore from a backup without it."""
    run.patch_status(None)


def roll_back(run: Run) -> None:
    """Status as it was before the first assignment was written."""
    run.patch_status({"assignment": None, "start": None, "attempt": 0})


@pytest.mark.parametrize(
    ("lose", "while_operator_is_away"),
    [(wipe, False), (wipe, True), (roll_back, False)],
    ids=["wiped", "wiped-while-the-operator-is-away", "rolled-back"],
)
def test_a_run_whose_status_is_lost_trains_on_and_its_status_is_rebuilt(
    site: Site, namespace: str, lose: Callable[[Run], None], while_operator_is_away: bool
) -> None:
    run = running(site, namespace, "llama", nodes=4)
    # A second incarnation and a second attempt, so that there is something to get wrong.
    site.cluster.kubectl("-n", namespace, "delete", "pod", run.pod_name(3, 1), "--wait=false")
    run.wait_until_running(2)
    pods, before = run.pod_uids, run.status
    site.proxy.writes.clear()
    if while_operator_is_away:
        site.operator.kill_for_good()
        site.drop_lease()
    lose(run)
    if while_operator_is_away:
        assert not run.status.get("assignment", {}).get("nodes")
        site.operator.run()

    def is_rebuilt() -> bool:
        status = run.status
        return all(status.get(key) for key in ("start", "assignment")) and run.is_true("GangReady")

    run.wait("status is rebuilt", is_rebuilt)
    after = run.status
    assert after["attempt"] == 2
    assert after["assignment"]["nodes"] == before["assignment"]["nodes"]
    assert after["assignment"]["incarnations"] == before["assignment"]["incarnations"] == [1, 1, 1, 2]
    assert after["start"] == before["start"]
    assert run.pod_uids == pods
    assert run.deleted_pods() == []
    assert site.workers.running(run.uid, 2) == 4
    # What it is good for: the next attempt is the third, and everybody runs it.
    site.workers.fail(run.uid, rank=0)
    run.wait_until_running(3)
    assert run.pod_uids == pods
    assert run.heard.attempts() == [1, 2, 3]
    for attempt in (2, 3):
        assert run.heard.start(attempt)["attempt"] == attempt
    run.delete()


def test_a_run_whose_status_and_one_pod_are_lost_is_held_and_nothing_is_deleted(site: Site, namespace: str) -> None:
    run = running(site, namespace, "llama", nodes=3)
    site.operator.kill_for_good()
    site.drop_lease()
    wipe(run)
    site.cluster.kubectl("-n", namespace, "delete", "pod", run.pod_name(1, 1), "--grace-period=0", "--force")
    site.proxy.writes.clear()
    site.operator.run()
    run.wait("held for a person", lambda: run.is_true("StateRegression"))
    assert "slots [1] have no pod" in run.condition("StateRegression")["message"]
    assert site.workers.running(run.uid, 1) == 2
    assert not [write for write in site.proxy.writes if "/pods" in write.path]
    run.delete()


def gone_while_stopped(site: Site, run: Run) -> None:
    site.operator.kill_for_good()
    site.drop_lease()
    run.delete()
    site.operator.run()


def gone_while_watches_are_silent(site: Site, run: Run) -> None:
    site.proxy.stall_watches()
    run.delete()
    run.wait("its pods are gone", lambda: not run.pods)
    site.proxy.resume_watches(expired=True)


@pytest.mark.parametrize("gap", [gone_while_stopped, gone_while_watches_are_silent])
def test_a_run_deleted_while_nobody_looked_gives_its_nodes_back(
    site: Site, namespace: str, gap: Callable[[Site, Run], None]
) -> None:
    run = running(site, namespace, "llama", nodes=6)
    gap(site, run)
    after = site.apply(namespace, "gpt", nodes=6)
    after.wait_until_running(1)
    assert run.pods == []
    after.delete()


def test_a_run_deleted_in_plain_sight_has_its_pods_deleted_and_gives_its_nodes_back(site: Site, namespace: str) -> None:
    run = running(site, namespace, "llama", nodes=6)
    after = site.apply(namespace, "gpt", nodes=4)
    after.wait("waits", lambda: after.status.get("queue", {}).get("message"))
    run.delete()
    after.wait_until_running(1)
    after.delete()


def test_a_run_applied_again_while_an_old_pod_is_stuck_takes_other_nodes(site: Site, namespace: str) -> None:
    old = running(site, namespace, "llama", nodes=2)
    stuck = old.status["assignment"]["nodes"][1]
    site.cluster.silence_kwok_nodes([stuck])
    old.delete()
    old.wait("only the stuck pod is left", lambda: [p["spec"]["nodeName"] for p in old.pods] == [stuck])
    again = site.apply(namespace, "llama", nodes=4)
    again.wait_until_running(1)
    assert again.uid != old.uid
    assert stuck not in again.status["assignment"]["nodes"]
    assert [pod["metadata"]["deletionTimestamp"] for pod in old.pods]
    again.delete()
    site.cluster.restore_kwok_nodes([stuck])
    old.wait("the stuck pod is gone", lambda: not old.pods)


def test_a_run_applied_again_waits_and_says_so_while_an_old_pod_holds_the_node_it_needs(
    site: Site, namespace: str
) -> None:
    old = running(site, namespace, "llama", nodes=6)
    stuck = old.status["assignment"]["nodes"][2]
    # The node is Ready again, but the pod on it stays Terminating: something holds on to it.
    name = old.pod_name(2, 1)
    site.cluster.kubectl(
        "-n", namespace, "patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":["test/hold"]}}'
    )
    old.delete()
    old.wait("only the stuck pod is left", lambda: len(old.pods) == 1)
    again = site.apply(namespace, "llama", nodes=6)
    again.wait("it is said what is in the way", lambda: stuck in again.status.get("queue", {}).get("message", ""))
    assert again.pods == []
    site.cluster.kubectl(
        "-n", namespace, "patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )
    again.wait_until_running(1)
    again.delete()


def test_what_never_started_has_nothing_to_save_and_leaves_as_soon_as_its_run_is_cancelled(
    site: Site, namespace: str
) -> None:
    """Long before workers that are silent would be given up."""
    stuck = site.apply(namespace, "stuck", nodes=6, podTemplate={"spec": {"schedulerName": "nobody"}})
    stuck.wait("its pods are there", lambda: len(stuck.pods) == 6)
    mended = site.apply(namespace, "mended", nodes=6)
    mended.wait("it waits", lambda: mended.status.get("queue", {}).get("message"))
    stuck.patch_spec({"cancel": True})
    mended.wait_until_running(1)
    assert stuck.pods == []
    stuck.wait("nothing of it is left", lambda: "leaving" not in stuck.status)
    for run in (stuck, mended):
        run.delete()
