"""Many runs and few nodes: whole gangs only, never two on a node, and words for those that wait."""

from __future__ import annotations

from typing import Any

import pytest

from harness.site import Run, Site
from localcluster.api import MERGE_PATCH, Request

pytestmark = pytest.mark.cluster


def test_runs_that_contend_for_nodes_all_get_their_turn_and_never_share_one(site: Site, namespace: str) -> None:
    """The fixture holds that no node ever had two gang pods."""
    runs = [site.apply(namespace, f"run-{number}", nodes=size) for number, size in enumerate((2, 3, 1, 4, 2, 6, 3))]
    crashed = False
    waiting = set(runs)
    while waiting:
        trains = [run for run in waiting if site.workers.running(run.uid, 1) == len(run.pods) > 0]
        if trains and not crashed:
            crashed = True
            site.kill_operator()
        for run in trains:
            run.wait_until_running(1)
            site.workers.finish(run.uid)
            run.wait_until_finished()
            waiting.remove(run)
        if not trains:
            runs[0].wait("another one trains", lambda: any(_is_whole(run) for run in waiting))
    for run in runs:
        assert run.is_true("Succeeded")
        assert run.status["attempt"] == 1


def _is_whole(run: Run) -> bool:
    pods = run.pods
    return bool(pods) and run.site.workers.running(run.uid, 1) == len(pods)


def test_a_run_that_cannot_fit_whole_creates_no_pod_and_says_what_lacks(site: Site, namespace: str) -> None:
    small = site.apply(namespace, "small", nodes=2)
    small.wait_until_running(1)
    whole = site.apply(namespace, "whole", nodes=7)
    hungry = site.apply(namespace, "hungry", nodes=1, resourcesPerNode={"cpu": 500})

    def words(run: Run) -> str:
        return str(run.status.get("queue", {}).get("message", ""))

    whole.wait("it is said what lacks", lambda: "needs 7 nodes, 4 fit: 2 booked" in words(whole))
    hungry.wait("it is said what lacks", lambda: "cpu" in words(hungry).lower())
    for run in (whole, hungry):
        assert run.condition("Admitted")["message"] == words(run)
        assert run.pods == []
        run.delete()
    small.delete()


def test_kubectl_waits_for_the_end_and_shows_a_run_readably(site: Site, namespace: str) -> None:
    run = site.apply(namespace, "llama", nodes=2)
    run.wait_until_running(1)
    site.workers.finish(run.uid)
    kubectl = site.cluster.kubectl
    kubectl("-n", namespace, "wait", "trun/llama", "--for=condition=Finished", "--timeout=90s")
    head, row = kubectl("-n", namespace, "get", "trun", "-o", "wide").splitlines()
    for column in ("STATE", "REASON", "NODES", "STEP", "ATTEMPT", "AGE"):
        assert column in head.split()
    for word in ("llama", "Succeeded", "2/2"):
        assert word in row.split()
    described = kubectl("-n", namespace, "describe", "trun", "llama")
    for words in ("Admitted", "Started", "all 2 ranks ended with code 0"):
        assert words in described.partition("Events:")[2]


def _offer(site: Site, node: str, **amounts: str | None) -> None:
    """As a kubelet writes it: what a node offers, ``nvidia`` for nvidia.com/gpu."""
    offered = {f"{maker}.com/gpu": amount for maker, amount in amounts.items()}
    path = f"/api/v1/nodes/{node}/status"
    site.cluster.api.send(Request("PATCH", path, {"status": {"allocatable": offered}}, MERGE_PATCH))


def _on(pool: str) -> dict[str, Any]:
    return {"spec": {"nodeSelector": {"pool": pool}}}


def test_a_run_waits_for_gpus_whose_device_plugins_are_away_and_starts_with_all_of_them(
    site: Site, namespace: str
) -> None:
    with site.with_nodes(2, prefix="gpu", labels={"pool": "gpu"}) as nodes:
        for node in nodes:
            _offer(site, node, nvidia="0")
        run = site.apply(namespace, "patient", nodes=2, podTemplate=_on("gpu"))
        run.wait("it waits for them", lambda: run.status.get("queue", {}).get("reason") == "DevicesNotOffered")
        both = f"2 offering no nvidia.com/gpu now ({nodes[0]}, {nodes[1]}: "
        run.wait("it is told which", lambda: both in run.condition("Admitted").get("message", ""))
        _offer(site, nodes[0], nvidia="8")
        left = f"1 offering no nvidia.com/gpu now ({nodes[1]}: "
        run.wait("one is back", lambda: left in run.status["queue"]["message"])
        assert run.pods == []
        _offer(site, nodes[1], nvidia="8")
        run.wait_until_running(1)
        for pod in run.pods:
            assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
        run.delete()
        run.wait("its pods are gone", lambda: run.pods == [])


def test_a_gang_gets_the_make_of_gpus_that_it_names_and_is_told_what_it_leaves_unused(
    site: Site, namespace: str
) -> None:
    with site.with_nodes(2, prefix="amd", gpus=0, labels={"pool": "amd"}) as nodes:
        for node, number in zip(nodes, ("8", "4"), strict=True):
            _offer(site, node, amd=number)
        run = site.apply(namespace, "other", nodes=2, gpuResource="amd.com/gpu")
        run.wait_until_running(1)
        assert {pod["spec"]["nodeName"] for pod in run.pods} == {*nodes}
        for pod in run.pods:
            limits = pod["spec"]["containers"][0]["resources"]["limits"]
            assert (limits["amd.com/gpu"], limits.get("nvidia.com/gpu")) == ("4", None)
        assert run.status["resolved"]["gpuResource"] == "amd.com/gpu"
        told = f"2 nodes are held, each with 4 amd.com/gpu; 4 amd.com/gpu on {nodes[0]} stay unused"
        assert run.condition("Admitted")["message"] == told
        run.delete()
        run.wait("its pods are gone", lambda: run.pods == [])
