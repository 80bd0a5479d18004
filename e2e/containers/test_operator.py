"""The operator as its users have it: behind its Service, upgraded, removed and installed again while gangs train."""

from __future__ import annotations

import pytest

from containers.any_cluster import Json
from containers.site import KindSite
from harness.kube import OPERATOR_NAMESPACE
from kindcluster import site as installation
from kindcluster.cluster import KindCluster
from localcluster.errors import ApiError
from support import stub_trainer
from support.training import LEASE, TrainingRun

pytestmark = pytest.mark.containers
SECONDS = 240.0
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
    pods = site.world.api.get(OPERATORS)["items"]
    return {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in pods}


def leader(site: KindSite) -> str:
    """The pod that leads; nothing while none does."""
    holder = site.world.api.get(LEASE)["spec"].get("holderIdentity") or ""
    return next((name for name in operators(site) if holder.startswith(name)), "")


def is_led_to(site: KindSite, pod: str) -> bool:
    """Whether the operator's Service leads to that pod and to no other."""
    try:
        endpoints: list[Json] = site.world.api.get(SLICE).get("endpoints") or []
    except ApiError:  # nobody has led yet
        return False
    return [address for endpoint in endpoints for address in endpoint["addresses"]] == [operators(site).get(pod)]


def fail_and_recover(site: KindSite, run: TrainingRun) -> None:
    """A rank is killed. Its end has to reach whoever leads, and every rank has to hear the answer."""
    pods = run.pod_uids
    fail(site, run)
    assert_recovered(run)
    assert run.pod_uids == pods


def fail(site: KindSite, run: TrainingRun) -> None:
    node = run.nodes[1]
    [pid] = site.trainers(node)
    site.kill_inside(node, pid)


def assert_recovered(run: TrainingRun) -> None:
    run.wait_until_step(2, 25, SECONDS)
    ended = run.attempts[0]
    assert (ended["cause"], ended["rank"], ended["action"]) == ("Application", 1, "RestartInPlace"), run.summary()
    for rank in range(2):
        taken = run.lineage(2, rank)
        first = int(taken[0]["step"])
        whole = stub_trainer.undisturbed(int(taken[-1]["step"]), 2, rank)
        assert taken == list(whole)[first - 1 :]
        assert first > 20, "it did not resume from what was saved"
        assert first % 20 == 1


def test_workers_follow_the_service_to_the_next_leader(site: KindSite) -> None:
    run = begun(site, "led")
    run.wait("the Service leads to the leader", lambda: is_led_to(site, leader(site)), SECONDS)
    old, before = leader(site), seen_of(run)
    site.world.kubectl("delete", "pod", "-n", OPERATOR_NAMESPACE, old, "--wait=false")
    run.wait("another one leads", lambda: leader(site) not in ("", old), SECONDS)
    run.wait("the Service leads there", lambda: is_led_to(site, leader(site)), SECONDS)
    assert seen_of(run) == before
    fail_and_recover(site, run)


def test_an_upgrade_touches_nothing_that_trains(site: KindSite) -> None:
    run = begun(site, "upgraded")
    before, old = seen_of(run), set(operators(site))
    upgrade(site.kind, "config.stopGrace=11")
    run.wait("only new operators are there", lambda: not old & set(operators(site)), SECONDS)
    run.wait("one of them leads", lambda: leader(site), SECONDS)
    assert seen_of(run) == before
    fail_and_recover(site, run)
    run.wait("one of the new ones leads", lambda: leader(site) not in ("", *old), SECONDS)


def upgrade(kind: KindCluster, change: str) -> None:
    """As docs/install.md says it."""
    release = [installation.RELEASE, installation.CHART, "--namespace", OPERATOR_NAMESPACE]
    kept = ["--reset-then-reuse-values", "--set", change, "--wait", "--timeout", "5m"]
    installation.helm(kind, "upgrade", *release, *kept)


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
