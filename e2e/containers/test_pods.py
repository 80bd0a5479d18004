"""What kubelets, container runtimes and people do to the pods of a gang."""

from __future__ import annotations

import base64
import json
import time

import pytest

from containers.any_cluster import Json
from containers.site import KindSite, assert_blamed
from harness.training import NAMESPACE, TrainingRun
from localcluster.api import Request
from localcluster.errors import KubectlError
from lockstep.api.base import names
from lockstep.cli.main import main

pytestmark = pytest.mark.containers
SECONDS = 240.0
STEPS = 900
"""A minute and a half of the first attempt: kubelet looks at disks that seldom. Later ones are fast."""
# Rank 1 takes all memory that there is. Rank 0 notices that it is gone, and ends as programs do then.
GREEDY = """
import os, socket
peers = (os.environ["LOCKSTEP_MASTER_ADDR"], int(os.environ["LOCKSTEP_MASTER_PORT"]))
if os.environ["LOCKSTEP_NODE_RANK"] == "0":
    peer, _ = socket.create_server(peers).accept()
    while peer.recv(1):
        pass
    raise ConnectionResetError("rank 1 has hung up")
while True:
    try:
        peer = socket.create_connection(peers)
        break
    except OSError:
        pass
hoard = []
while True:
    hoard.append(bytearray(1 << 24))
"""


def begun(site: KindSite, name: str, **spec: object) -> TrainingRun:
    """Two of three nodes train, have saved, and listen to what is asked of them."""
    run = site.train(name, 2, STEPS, "--save-every=20", "--listen", "--later-delay=0.01", **spec)
    run.wait_until_saved(1, 20, SECONDS)
    return run


def pod_of(run: TrainingRun, rank: int) -> Json:
    [pod] = [pod for pod in run.pods if pod["spec"]["nodeName"] == run.nodes[rank]]
    return pod


def finish(run: TrainingRun) -> None:
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(STEPS)


def assert_all_were_asked_to_save(run: TrainingRun) -> None:
    """Before the pod was gone: programs that are ended without it may save on SIGTERM, or not."""
    assert any("PodTerminated" in note for note in run.events("SaveRequested")), run.events("SaveRequested")


def test_an_image_that_cannot_be_pulled_is_named_and_costs_nothing_once_it_is_put_right(site: KindSite) -> None:
    run = site.train("no-image", 2, 30, image="lockstep-nowhere:1")
    run.wait("is told of the image", lambda: "lockstep-nowhere:1" in json.dumps(run.status.get("conditions")), SECONDS)
    run.change(suspend=True)
    run.wait("its pods are gone", lambda: not run.pods, SECONDS)
    run.change(suspend=False, image=site.image)
    run.wait_until_succeeded(SECONDS)
    run.assert_undisturbed(30)


def test_the_rank_that_takes_too_much_memory_is_told_so_and_not_the_peer_that_it_left(site: KindSite) -> None:
    small = {"cpu": "300m", "memory": "128Mi"}
    run = site.apply("greedy", 2, ["python3", "-c", GREEDY], resourcesPerNode=small)
    run.wait_until_finished(SECONDS)
    assert_blamed(run, run.attempts[0]["node"], "OutOfMemory", "OOMKilled")
    assert run.condition("Succeeded")["reason"] == "OutOfMemory"


def test_an_evicted_pod_lets_all_ranks_save_first(site: KindSite) -> None:
    run = begun(site, "evicted")
    pod = pod_of(run, 1)
    meta = {"name": pod["metadata"]["name"], "namespace": NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    site.world.cluster.api.send(
        Request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{meta['name']}/eviction", eviction)
    )
    finish(run)
    first, second = run.attempts[:2]
    assert (first["cause"], first.get("charged", False)) == ("Disruption", False)
    assert int(second["resumeStep"]) >= first["lastStep"] - 1, "a step that was made is lost"
    assert_all_were_asked_to_save(run)


@pytest.mark.nightly
def test_a_pod_beyond_its_own_limit_is_evicted_by_kubelet_comes_back_and_is_told_the_limit(site: KindSite) -> None:
    run = begun(site, "full", resourcesPerNode={"cpu": "300m", "memory": "512Mi", "ephemeral-storage": "100Mi"})
    pod, node = pod_of(run, 1), run.nodes[1]
    fill = "open('/tmp/fill', 'wb').write(bytes(200 << 20))"
    site.world.kubectl("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", "python3", "-c", fill)
    run.wait("the next attempt", lambda: run.status["attempt"] == 2, SECONDS)
    finish(run)
    assert_blamed(run, node, "LimitExceeded", "ephemeral")


def test_a_drained_node_is_left_after_a_save(site: KindSite) -> None:
    run = begun(site, "drained")
    node, others = run.nodes[1], run.nodes[:1]
    site.world.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=170s")
    run.wait("another node is taken", lambda: run.nodes[1] != node, SECONDS)
    finish(run)
    assert run.nodes[:1] == others
    first, second = run.attempts[:2]
    assert first["cause"] == "Disruption", run.summary()
    assert int(second["resumeStep"]) >= first["lastStep"] - 1, "a step that was made is lost"
    assert_all_were_asked_to_save(run)


def test_no_second_pod_that_wants_the_gangs_port_gets_onto_a_node(site: KindSite) -> None:
    run = site.train("alone", 2, STEPS)
    run.wait_until_step(1, 2, SECONDS)
    port = {"containerPort": names.NODE_MUTEX_PORT, "hostPort": names.NODE_MUTEX_PORT}
    container = {"name": "other", "image": site.image, "command": ["sleep", "600"], "ports": [port]}
    choice = {"kubernetes.io/hostname": run.nodes[0]}
    site.world.cluster.api.send(Request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"},
        "spec": {"containers": [container], "nodeSelector": choice, "hostNetwork": True},
    }))  # fmt: skip
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/other"
    try:
        run.wait("the scheduler refuses it", lambda: "free ports" in json.dumps(
            site.world.cluster.api.get(path)["status"].get("conditions", [])), SECONDS)  # fmt: skip
    finally:
        site.world.cluster.api.send(Request("DELETE", path))


def test_a_worker_holds_a_token_for_the_operator_alone_and_none_for_the_api_server(site: KindSite) -> None:
    run = site.train("token", 2, STEPS)
    run.wait_until_step(1, 2, SECONDS)
    pod = pod_of(run, 0)
    inside = ("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--")
    token = site.world.kubectl(*inside, "cat", f"{names.TOKEN_MOUNT}/token")
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["aud"] == [names.TOKEN_AUDIENCE]
    assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]
    assert claims["exp"] - time.time() <= names.TOKEN_SECONDS + 60
    with pytest.raises(KubectlError, match="No such file"):
        site.world.kubectl(*inside, "ls", "/var/run/secrets/kubernetes.io")


def test_what_ranks_print_is_read_by_kubectl_and_by_our_command_line(
    site: KindSite, capsys: pytest.CaptureFixture[str]
) -> None:
    run = site.train("prints", 2, 100)
    run.wait_until_step(1, 2, SECONDS)
    told = [f"trainer: attempt=1 rank={rank} begins after step 0" for rank in range(2)]
    with pytest.raises(SystemExit) as end:  # follows both until they end
        main(["logs", run.name, "--follow", "-n", NAMESPACE, "--kubeconfig", str(site.kind.kubeconfig)])
    followed = capsys.readouterr().out
    assert (end.value.code or 0) == 0
    for rank in range(2):
        assert told[rank] in run.log(rank)
        assert f"[rank {rank}] {told[rank]}" in followed
        assert f"[rank {rank}] trainer: done" in followed
    run.wait_until_succeeded(SECONDS)
