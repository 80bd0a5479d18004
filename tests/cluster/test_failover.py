"""Two operators, one of which leads: killed, stopped dead, cut off or asked to go, it takes no run with it.

Times are short here; `make test-outages` has them in full length: a Lease of 10 s, a leader that is away for 60.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from harness.replicas import Replica
from harness.site import Run
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import Request
from lockstep.api.base import names
from support.replica_site import Footprint, ReplicaSite, seen_of

pytestmark = pytest.mark.cluster

LEASE = int(os.environ.get("LOCKSTEP_TEST_LEASE", "6"))
AWAY = float(os.environ.get("LOCKSTEP_TEST_LEADER_AWAY", "12"))
PATIENCE = 90.0
# Without the rule a node whose rank fails first twice would be left.
IN_PLACE = {"recovery": {"rules": [{"name": "on-purpose", "exitCodes": [1], "action": "RestartInPlace"}]}}


@pytest.fixture(scope="module")
def replica_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicaSite]:
    settings = {"leaseDuration": LEASE}
    with ReplicaSite.with_replicas(cluster, tmp_path_factory.mktemp("replicas"), settings) as site:
        yield site


@pytest.fixture
def site(replica_site: ReplicaSite) -> Iterator[ReplicaSite]:
    replica_site.replicas.wait_until_whole()
    with replica_site.with_nodes(8):
        yield replica_site
    for replica in replica_site.replicas.members:
        replica.api.mend()
    assert replica_site.workers.shared_nodes == []


@dataclass(frozen=True)
class Preempting:
    """A queue within which runs of the class ``high`` send those of ``low`` away."""

    queue: str
    low: str
    high: str


@pytest.fixture
def preempting(site: ReplicaSite, namespace: str) -> Iterator[Preempting]:
    api, classes = site.cluster.api, "/apis/scheduling.k8s.io/v1/priorityclasses"
    queues = f"/apis/{names.API_VERSION}/{names.QUEUES}"
    made = Preempting(f"{namespace}-urgent", f"{namespace}-low", f"{namespace}-high")
    rules = {"preemption": {"withinQueue": "LowerPriority", "minRuntime": "0s"}}
    queue = {"apiVersion": names.API_VERSION, "kind": "TrainingQueue", "metadata": {"name": made.queue}, "spec": rules}
    with contextlib.ExitStack() as cleanup:

        def create(path: str, body: dict[str, Any]) -> None:
            api.send(Request("POST", path, body))
            gone = Request("DELETE", f"{path}/{body['metadata']['name']}", absence_is_fine=True)
            cleanup.callback(api.send, gone)

        create(queues, queue)
        for name, value in ((made.low, 10), (made.high, 1000)):
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            create(classes, kind | {"value": value})
        yield made


def wait_until_it_leads(site: ReplicaSite, replica: Replica) -> None:
    """… and has read the cluster, so that workers are heard."""

    def is_there() -> bool:
        return replica.leads and site.replicas.service.leads_to == replica.port

    wait_for("the other one leads", is_there, seconds=PATIENCE, last_seen=site.replicas.log_tail)


def fail_and_recover(site: ReplicaSite, run: Run, attempt: int) -> None:
    """A rank exits now; the exit has to arrive at whoever leads, and every rank has to hear the answer."""
    pods = run.pod_uids
    site.workers.fail(run.uid, rank=1)
    run.wait_until_running(attempt, PATIENCE)
    assert run.pod_uids == pods


def assert_it_led_no_more(site: ReplicaSite, footprint: Footprint, starts: int, old: Replica) -> None:
    """It has ended, is back as a standby, and the API server took no write from it since."""
    wait_for("the returned leader ends", lambda: old.process.starts > starts, seconds=PATIENCE)
    site.replicas.wait_until_whole()
    assert footprint.since == []
    assert not old.leads
    assert str(site.replicas.lease()["holderIdentity"]).startswith(f"operator-{site.replicas.other_than(old).number}-")


def test_a_killed_leader_takes_no_run_with_it_and_no_report_that_matters(site: ReplicaSite, namespace: str) -> None:
    calm = site.apply(namespace, "calm", nodes=3)
    failing = site.apply(namespace, "failing", nodes=3, **IN_PLACE)
    for run in (calm, failing):
        run.wait_until_running(1, PATIENCE)
    before, pods = seen_of(calm), failing.pod_uids
    old = site.replicas.leader
    old.process.kill_for_good()  # one that comes back at once may win the Lease again
    try:
        site.workers.fail(failing.uid, rank=1)  # nobody leads: its report has to wait for whoever comes
        later = site.apply(namespace, "later", nodes=2)
        wait_until_it_leads(site, site.replicas.other_than(old))
        failing.wait_until_running(2, PATIENCE)
        later.wait_until_running(1, PATIENCE)
    finally:
        old.process.run()
    assert seen_of(calm) == before
    assert failing.pod_uids == pods
    assert failing.status["attempts"][0]["rank"] == 1
    site.workers.finish(calm.uid)
    calm.wait_until_finished(PATIENCE)
    assert calm.is_true("Succeeded")
    assert (calm.heard.attempts(), failing.heard.attempts()) == ([1], [1, 2])


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(False, id="with-the-answer-on-its-way"),
        pytest.param(True, id="before-its-next-write", marks=pytest.mark.nightly),
    ],
)
def test_a_leader_that_dies_amid_a_launch_a_recovery_or_a_stop_leaves_the_rest_of_it_to_the_other(
    site: ReplicaSite, namespace: str, answered: bool
) -> None:
    def dies_after(writes: int) -> Replica:
        site.replicas.wait_until_whole()
        leader = site.replicas.leader
        leader.api.crash_after(writes, leader.process.kill9, answered=answered)
        return leader

    leaders = [dies_after(3)]  # the admission, and some of the pods
    run = site.apply(namespace, "llama", nodes=4, **IN_PLACE)
    run.wait_until_running(1, PATIENCE)
    pods = run.pod_uids
    leaders.append(dies_after(1))  # that there is to be another attempt
    site.workers.fail(run.uid, rank=1)
    run.wait_until_running(2, PATIENCE)
    assert run.pod_uids == pods
    leaders.append(dies_after(2))  # that it is to stop, and more
    run.patch_spec({"suspend": True})
    run.wait("no pod is left", lambda: run.status["state"] == "Suspended" and not run.pods, PATIENCE)
    assert not any(leader.api.crash_is_due for leader in leaders)
    assert run.heard.attempts() == [1, 2]
    assert [run.heard.slots_of(attempt) for attempt in (1, 2)] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("answered", "writes"),
    [
        pytest.param(False, (1, 1), id="with-the-answer-on-its-way-first-writes", marks=pytest.mark.nightly),
        pytest.param(True, (2, 3), id="before-its-next-write-later-writes"),
        pytest.param(False, (2, 3), id="with-the-answer-on-its-way-later-writes", marks=pytest.mark.nightly),
        pytest.param(True, (1, 1), id="before-its-next-write-first-writes", marks=pytest.mark.nightly),
    ],
)
def test_two_leaders_that_die_amid_a_preemption_leave_the_rest_of_it_to_the_next_one(
    site: ReplicaSite, namespace: str, preempting: Preempting, answered: bool, writes: tuple[int, int]
) -> None:
    low = site.apply(namespace, "low", nodes=6, queue=preempting.queue, priorityClassName=preempting.low)
    bystander = site.apply(namespace, "bystander", nodes=2, queue=preempting.queue, priorityClassName=preempting.low)
    for run in (low, bystander):
        run.wait_until_running(1, PATIENCE)
    before = seen_of(bystander)
    leader = site.replicas.leader
    doomed = (leader, site.replicas.other_than(leader))
    for replica, count in zip(doomed, writes, strict=True):
        replica.api.crash_after(count, replica.process.kill9, answered=answered)
    urgent = site.apply(namespace, "urgent", nodes=6, queue=preempting.queue, priorityClassName=preempting.high)
    urgent.wait_until_running(1, PATIENCE)
    assert not any(replica.api.crash_is_due for replica in doomed)
    assert low.status["admission"]["preemptions"] == 1
    assert "reservation" not in urgent.status
    assert seen_of(bystander) == before
    site.workers.finish(urgent.uid)
    low.wait_until_running(2, PATIENCE)
    assert "preemption" not in low.status
    assert (low.heard.attempts(), urgent.heard.attempts(), bystander.heard.attempts()) == ([1, 2], [1], [1])


def test_a_leader_that_was_stopped_dead_and_goes_on_changes_nothing(site: ReplicaSite, namespace: str) -> None:
    calm = site.apply(namespace, "calm", nodes=3)
    failing = site.apply(namespace, "failing", nodes=3, **IN_PLACE)
    for run in (calm, failing):
        run.wait_until_running(1, PATIENCE)
    old, before = site.replicas.leader, seen_of(calm)
    starts = old.process.starts
    # In the middle of its work: a rank has failed, and what it would answer is on its tongue when it wakes.
    site.workers.fail(failing.uid, rank=1)
    old.stop_dead()
    try:
        stopped = time.monotonic()
        time.sleep(1.0)  # what was on its way has arrived
        footprint = Footprint(old)
        wait_until_it_leads(site, site.replicas.other_than(old))
        failing.wait_until_running(2, PATIENCE)
        fail_and_recover(site, failing, 3)
        time.sleep(max(0.0, stopped + AWAY - time.monotonic()))
    finally:
        old.go_on()
    assert_it_led_no_more(site, footprint, starts, old)
    assert seen_of(calm) == before
    assert failing.heard.attempts() == [1, 2, 3]


@pytest.mark.nightly
def test_a_leader_that_was_cut_off_and_is_back_changes_nothing(site: ReplicaSite, namespace: str) -> None:
    calm = site.apply(namespace, "calm", nodes=3)
    failing = site.apply(namespace, "failing", nodes=3, **IN_PLACE)
    for run in (calm, failing):
        run.wait_until_running(1, PATIENCE)
    old, before = site.replicas.leader, seen_of(calm)
    starts = old.process.starts
    old.api.take_down()
    cut = time.monotonic()
    footprint = Footprint(old)
    # Workers still reach it for as long as it believes to lead: what they say there must not be lost with it.
    site.workers.fail(failing.uid, rank=1)
    wait_until_it_leads(site, site.replicas.other_than(old))
    failing.wait_until_running(2, PATIENCE)
    time.sleep(max(0.0, cut + AWAY - time.monotonic()))
    old.api.bring_up()
    assert_it_led_no_more(site, footprint, starts, old)
    assert seen_of(calm) == before
    assert failing.heard.attempts() == [1, 2]


def test_an_outage_of_the_api_server_ends_the_leader_once_and_the_standby_never(
    site: ReplicaSite, namespace: str
) -> None:
    """A pod that ended again and again would be started ever more seldom, and late when the API server is back."""
    run = site.apply(namespace, "calm", nodes=3)
    run.wait_until_running(1, PATIENCE)
    old, before = site.replicas.leader, seen_of(run)
    standby = site.replicas.other_than(old)
    starts = old.process.starts, standby.process.starts

    def is_alive() -> bool:
        try:
            with urllib.request.urlopen(f"{old.process.metrics_url}/healthz", timeout=20):
                return old.process.starts > starts[0]
        except OSError:
            return False

    for replica in site.replicas.members:
        replica.api.take_down()
    wait_for("it has ended, and waits for the API server", is_alive, seconds=PATIENCE, last_seen=old.process.log_tail)
    time.sleep(AWAY)
    for replica in site.replicas.members:
        replica.api.bring_up()
    site.replicas.wait_until_whole()
    assert (old.process.starts, standby.process.starts) == (starts[0] + 1, starts[1])
    assert seen_of(run) == before


def test_a_leader_that_is_asked_to_go_hands_over_before_its_lease_runs_out(site: ReplicaSite, namespace: str) -> None:
    run = site.apply(namespace, "calm", nodes=3)
    run.wait_until_running(1, PATIENCE)
    old, before = site.replicas.leader, seen_of(run)
    site.replicas.members[old.number].process.stop()
    try:
        # Nobody's, or the other one's already: had it not been given up, it would be the old one's for seconds yet.
        assert not str(site.replicas.lease().get("holderIdentity", "")).startswith(f"operator-{old.number}-")
        wait_until_it_leads(site, site.replicas.other_than(old))
        assert seen_of(run) == before
    finally:
        old.process.run()


def test_a_standby_is_ready_and_tells_workers_to_try_again(site: ReplicaSite) -> None:
    standby = site.replicas.other_than(site.replicas.leader)
    assert standby.is_ready
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{standby.port}/v1/report", data=b"{}")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, context=insecure, timeout=20)
    assert (refused.value.code, refused.value.headers["Retry-After"]) == (503, "2")
    assert refused.value.headers["Connection"] == "close"
    assert json.loads(refused.value.read())["error"] == "not-leading"
