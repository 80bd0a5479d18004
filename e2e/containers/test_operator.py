"""The operator as its users have it: behind its Service, killed, upgraded, removed and installed again under gangs."""

from __future__ import annotations

from functools import partial

import pytest

from containers.any_cluster import Json
from containers.site import KindSite
from harness import stub_trainer
from harness.kube import OPERATOR_NAMESPACE
from harness.training import LEASE, NAMESPACE, TrainingRun
from harness.waiting import wait_for
from kindcluster import site as installation
from kindcluster.cluster import CONTROL_PLANE
from localcluster.api import Request
from localcluster.errors import ApiError
from lockstep.api.base import names

pytestmark = pytest.mark.containers
SECONDS = 240.0
TOO_MANY_REQUESTS = 429
HOURS = 100_000
"""Steps that nobody waits for: the run is deleted when its test is over."""
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/endpointslices/lockstep-operator-ipv4"
OPERATORS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods?labelSelector=app.kubernetes.io/name%3Dlockstep"


def begun(site: KindSite, name: str) -> TrainingRun:
    """Two of three nodes train, and have saved."""
    run = site.train(name, 2, HOURS, "--save-every=20", "--notice-after=3")
    run.wait_until_saved(1, 20, SECONDS)
    return run


def seen_of(run: TrainingRun) -> tuple[object, ...]:
    """What must be the same after whatever happens to operators."""
    status = run.status
    return run.pod_uids, status["attempt"], status["start"], status["assignment"]


def operators(site: KindSite) -> dict[str, str]:
    """Addresses of the operator's pods, by their names."""
    pods = site.world.cluster.api.get(OPERATORS)["items"]
    return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in pods}


def leader(site: KindSite) -> str:
    """The pod that leads; nothing while none does."""
    holder = site.world.cluster.api.get(LEASE)["spec"].get("holderIdentity") or ""
    return next((name for name in operators(site) if holder.startswith(name)), "")


def is_led_to(site: KindSite, pod: str) -> bool:
    """Whether the operator's Service leads to that pod and to no other."""
    try:
        endpoints: list[Json] = site.world.cluster.api.get(SLICE).get("endpoints") or []
    except ApiError:  # nobody has led yet
        return False
    return [address for endpoint in endpoints for address in endpoint["addresses"]] == [operators(site).get(pod)]


def fail_and_recover(site: KindSite, run: TrainingRun, rank: int = 1) -> None:
    """A rank is killed. Its end has to reach whoever leads, and every rank has to hear the answer.

    A second time it has to be another rank: its node would be left.
    """
    pods, attempt = run.pod_uids, run.status["attempt"]
    run.wait("the attempt has saved", lambda: has_saved(run, attempt), SECONDS)
    fail(site, run, rank)
    assert_recovered(run, attempt, rank)
    assert run.pod_uids == pods


def has_saved(run: TrainingRun, attempt: int) -> bool:
    return any(run.folder.glob(f"a{attempt}/step-*/manifest.json"))


def fail(site: KindSite, run: TrainingRun, rank: int = 1) -> None:
    node = run.nodes[rank]
    [pid] = site.trainers(node)
    site.kill_inside(node, pid)


def assert_recovered(run: TrainingRun, attempt: int = 1, rank: int = 1) -> None:
    """The attempt was ended by that rank alone, and the next one goes on from what was saved in it."""
    for each in range(2):
        run.wait("the next attempt trains", partial(trains, run, attempt + 1, each), SECONDS)
    ended, next_one = run.attempts[attempt - 1 : attempt + 1]
    assert (ended["number"], ended["cause"], ended["rank"]) == (attempt, "Application", rank), run.summary()
    assert ended["action"] == "RestartInPlace", run.summary()
    resumed = int(next_one["resumeStep"])
    assert resumed >= 20, "it did not resume from what was saved"
    assert resumed % 20 == 0
    for each in range(2):
        taken = run.lineage(attempt + 1, each)
        whole = stub_trainer.undisturbed(int(taken[-1]["step"]), 2, each)
        assert taken == list(whole)[resumed:]


def trains(run: TrainingRun, attempt: int, rank: int) -> bool:
    return len(run.lineage(attempt, rank)) >= 5


def test_a_leader_that_is_killed_is_followed_by_the_standby_and_no_gang_notices(site: KindSite) -> None:
    run = begun(site, "orphaned")
    run.wait("the Service leads to the leader", lambda: is_led_to(site, leader(site)), SECONDS)
    run.wait("there are two", lambda: len(operators(site)) == 2, SECONDS)
    old, before, step = leader(site), seen_of(run), run.step(1)
    [standby] = set(operators(site)) - {old}
    kill_twice(site, old)
    run.wait("another one leads", lambda: leader(site) not in ("", old), SECONDS)
    assert leader(site) == standby
    run.wait("the Service leads there", lambda: is_led_to(site, standby), SECONDS)
    assert seen_of(run) == before
    assert run.step(1) > step
    fail_and_recover(site, run)
    site.world.kubectl("wait", "--for=condition=Ready", "-n", OPERATOR_NAMESPACE, f"pod/{old}", "--timeout=240s")
    assert leader(site) == standby


def kill_twice(site: KindSite, name: str) -> None:
    """SIGKILL to an operator from its node, and again as soon as its kubelet has started it: now that waits before it
    does so once more, and the other one has stood by for longer."""
    killed: list[str] = []

    def runs_anew() -> Json | None:
        pod = site.world.cluster.api.get(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{name}")
        [container] = pod["status"]["containerStatuses"]
        return pod if "running" in container["state"] and container["containerID"] not in killed else None

    for _ in range(2):
        pod = wait_for(f"{name} runs", runs_anew, seconds=SECONDS)
        killed.append(pod["status"]["containerStatuses"][0]["containerID"])
        site.kill_container(CONTROL_PLANE, pod)


def test_whoever_clears_a_node_gets_one_operator_at_a_time_and_no_gang_notices(site: KindSite) -> None:
    run = begun(site, "cleared")
    run.wait("one may go", lambda: may_go(site) == 1, SECONDS)
    old, before = leader(site), seen_of(run)
    [standby] = set(operators(site)) - {old}
    evict(site, old)
    with pytest.raises(ApiError) as refused:
        evict(site, standby)
    assert refused.value.status == TOO_MANY_REQUESTS
    run.wait("another one leads", lambda: leader(site) not in ("", old), SECONDS)  # the one that stayed, or a new one
    run.wait("the Service leads there", lambda: is_led_to(site, leader(site)), SECONDS)
    run.wait("one may go again", lambda: may_go(site) == 1, SECONDS)
    assert seen_of(run) == before
    fail_and_recover(site, run)


def may_go(site: KindSite) -> int:
    """How many operators may be evicted now."""
    budget = f"/apis/policy/v1/namespaces/{OPERATOR_NAMESPACE}/poddisruptionbudgets/lockstep-operator"
    return int(site.world.cluster.api.get(budget)["status"]["disruptionsAllowed"])


def evict(site: KindSite, pod: str) -> None:
    """As `kubectl drain` does. Raises ApiError."""
    meta = {"name": pod, "namespace": OPERATOR_NAMESPACE}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    site.world.cluster.api.send(Request("POST", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}/eviction", body))


@pytest.mark.nightly
def test_workers_follow_a_change_of_ca_and_the_service_to_the_next_leader(site: KindSite) -> None:
    run = begun(site, "follows")
    before, first = seen_of(run), trusted(site, run)
    rotate = f"{names.ANNOTATION_ROTATE_CA}=now"
    site.world.kubectl("annotate", "secret", "lockstep-worker-tls", "-n", OPERATOR_NAMESPACE, rotate)
    run.wait("every kubelet has brought the next one alone", lambda: changed(first, trusted(site, run)), SECONDS)
    old = leader(site)
    site.world.kubectl("delete", "pod", "-n", OPERATOR_NAMESPACE, old, "--wait=false")  # and no connection is left
    run.wait("another one leads", lambda: leader(site) not in ("", old), SECONDS)
    run.wait("the Service leads there", lambda: is_led_to(site, leader(site)), SECONDS)
    assert seen_of(run) == before
    fail_and_recover(site, run)


def trusted(site: KindSite, run: TrainingRun) -> list[str]:
    """What each worker has to know the operator by, as its kubelet has mounted it."""
    inside = ("exec", "-n", NAMESPACE, "--", "cat", f"{names.TOKEN_MOUNT}/{names.CA_FILE}")
    return [site.world.kubectl(*inside[:3], pod["metadata"]["name"], *inside[3:]) for pod in run.pods]


def changed(before: list[str], now: list[str]) -> bool:
    """Whether all have one CA, and none that was there before."""
    return all(each.count("BEGIN CERTIFICATE") == 1 for each in now) and not set(before) & set(now)


@pytest.mark.nightly
def test_gangs_outlive_their_operator_and_are_taken_up_by_the_next_installation(site: KindSite) -> None:
    run = begun(site, "outlives")
    pods, step = run.pod_uids, run.step(1)
    namespace = ["--namespace", OPERATOR_NAMESPACE]
    installation.helm(site.kind, "uninstall", installation.RELEASE, *namespace, "--wait", "--timeout", "5m")
    try:
        run.wait("no operator is left", lambda: not operators(site), SECONDS)
        run.wait("it trains on", lambda: run.step(1) > step + 20, SECONDS)
        fail(site, run)
        applied = site.train("applied", 1, 30)
        assert run.pod_uids == pods
    finally:
        installation.install(site.kind, (site.kind.folder / installation.OPERATOR_IMAGE).read_text(), print)
    assert_recovered(run)
    assert run.pod_uids == pods
    applied.wait_until_succeeded(SECONDS)
