"""Queues at work: who goes first, who may use what, who may start before others, and what everybody is told."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.site import PATIENCE, Run, Site
from harness.waiting import wait_for
from localcluster import LocalCluster
from localcluster.api import MERGE_PATCH, Request
from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339, to_unix

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
HOUR = 3600
WINDOW = {"name": "firmware", "duration": "4h", "nodeSelector": {"maintained": "yes"}}
_QUEUES = f"/apis/{names.API_VERSION}/{names.QUEUES}"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def window_begins() -> float:
    return float(int(time.time()) + HOUR)


@pytest.fixture(scope="module")
def running_site(
    cluster: LocalCluster, crds_installed: None, tmp_path_factory: pytest.TempPathFactory, window_begins: float
) -> Iterator[Site]:
    window = WINDOW | {"start": to_rfc3339(window_begins)}
    with Site.started(cluster, tmp_path_factory.mktemp("site"), {"admission": {"windows": [window]}}) as site:
        yield site


@dataclasses.dataclass(frozen=True)
class Queue:
    """A TrainingQueue that was applied."""

    site: Site
    name: str

    @property
    def path(self) -> str:
        return f"{_QUEUES}/{self.name}"

    @property
    def status(self) -> Json:
        found: Json = self.site.cluster.api.get(self.path).get("status", {})
        return found

    def change(self, **spec: Any) -> None:
        self.site.cluster.api.send(Request("PATCH", self.path, {"spec": spec}, MERGE_PATCH))

    def verdict(self, kind: str) -> tuple[str, str]:
        found = {each["type"]: (each["status"], each["reason"]) for each in self.status.get("conditions", ())}
        return found.get(kind, ("", ""))

    def wait_until(self, kind: str, value: str, reason: str) -> None:
        wait_for(
            f"queue {self.name} is {kind} {value} for {reason}",
            lambda: self.verdict(kind) == (value, reason),
            seconds=PATIENCE,
            every=0.1,
            last_seen=lambda: str(self.status),
        )


class Cluster:
    """Makes what has no namespace, under names that no other test uses, and takes it away again."""

    def __init__(self, site: Site, namespace: str) -> None:
        self.site = site
        self.namespace = namespace
        self.cleanup = contextlib.ExitStack()

    def queue(self, name: str, **spec: Any) -> Queue:
        queue = Queue(self.site, self.unique(name))
        self._create(_QUEUES, queue.name, {"apiVersion": names.API_VERSION, "kind": "TrainingQueue", "spec": spec})
        return queue

    def priority_class(self, name: str, value: int) -> str:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        self._create(_CLASSES, self.unique(name), kind)
        return self.unique(name)

    def unique(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    def run(self, name: str, nodes: int, **spec: Any) -> Run:
        run = self.site.apply(self.namespace, name, nodes, **spec)
        self.cleanup.callback(run.delete)
        return run

    def wait_until_empty(self) -> None:
        """The nodes are the next test's."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        wait_for("no pod is left", lambda: not self.site.cluster.api.get(pods)["items"], seconds=PATIENCE, every=0.1)

    def _create(self, path: str, name: str, body: Json) -> None:
        api = self.site.cluster.api
        api.send(Request("POST", path, body | {"metadata": {"name": name}}))
        self.cleanup.callback(api.send, Request("DELETE", f"{path}/{name}", absence_is_fine=True))


@pytest.fixture
def at_work(site: Site, namespace: str) -> Iterator[Cluster]:
    cluster = Cluster(site, namespace)
    with cluster.cleanup:
        yield cluster
    cluster.wait_until_empty()


def told(run: Run) -> tuple[int, str]:
    """Position and reason."""
    queue = run.status.get("queue", {})
    return queue.get("position", 0), queue.get("reason", "")


def message(run: Run) -> str:
    return str(run.status.get("queue", {}).get("message", ""))


def is_admitted(run: Run) -> bool:
    return run.is_true("Admitted")


def wait_until_told(run: Run, reason: str) -> None:
    run.wait(f"it is told {reason}", lambda: told(run)[1] == reason)


def wait_until_admitted(*runs: Run) -> None:
    for run in runs:
        run.wait("it is admitted", lambda run=run: is_admitted(run))


def finish(run: Run) -> None:
    run.wait_until_running(run.status["attempt"])
    run.site.workers.finish(run.uid)
    run.wait_until_finished()


def test_a_cohort_lends_what_is_idle_within_bounds_and_the_queues_tell_who_uses_what(at_work: Cluster) -> None:
    cohort = at_work.namespace
    own, lent = {"gpuType": "H100", "nominalNodes": 2, "borrowingLimit": 1}, {"gpuType": "H100", "nominalNodes": 3}
    small, large = (
        at_work.queue("small", cohort=cohort, quotas=[own]),
        at_work.queue("large", cohort=cohort, quotas=[lent]),
    )
    borrows = at_work.run("borrows", 3, queue=small.name)
    wait_until_admitted(borrows)
    too_much = at_work.run("too-much", 1, queue=small.name)
    wait_until_told(too_much, "Quota")
    assert "uses 3 of its 2 H100 nodes and 1 that it may borrow; the run needs 1" in message(too_much)
    fits = at_work.run("fits", 2, queue=large.name)
    wait_until_admitted(fits)
    waits = at_work.run("waits", 1, queue=large.name)
    wait_until_told(waits, "Quota")

    def figures(queue: Queue) -> Json:
        status = queue.status
        return {key: status.get(key) for key in ("pending", "running", "nodesInUse", "usage")}

    expected = {"pending": 1, "running": 1, "nodesInUse": 3, "usage": [{"gpuType": "H100", "nodes": 3, "borrowed": 1}]}
    wait_for(
        "the figures are told",
        lambda: figures(small) == expected,
        seconds=PATIENCE,
        last_seen=lambda: str(small.status),
    )
    assert small.verdict("Active") == ("True", "Admitting")
    assert small.verdict("Valid") == ("True", "Valid")
    head, row = at_work.site.cluster.kubectl("get", "tqueue", small.name).splitlines()
    assert head.split() == ["NAME", "ACTIVE", "VALID", "PENDING", "RUNNING", "NODES", "AGE"]
    assert row.split()[1:-1] == ["True", "True", "1", "1", "3"]
    borrows.delete()
    wait_until_admitted(too_much, waits)


def test_a_quota_that_is_lowered_or_lends_no_more_stops_nobody_and_lets_nobody_else_in(at_work: Cluster) -> None:
    cohort = at_work.namespace
    small = at_work.queue("small", cohort=cohort, quotas=[{"gpuType": "H100", "nominalNodes": 2}])
    large = at_work.queue("large", cohort=cohort, quotas=[{"gpuType": "H100", "nominalNodes": 3}])
    borrows = at_work.run("borrows", 3, queue=small.name)
    borrows.wait_until_running(1)
    small.change(cohort=f"{cohort}-of-its-own", quotas=[{"gpuType": "H100", "nominalNodes": 1}])
    waits = at_work.run("waits", 1, queue=small.name)
    wait_until_told(waits, "Quota")
    assert f"queue {small.name} uses 3 with 1 of its own; the run needs 1" in message(waits)
    lends_no_more = at_work.run("lends-no-more", 3, queue=large.name)
    wait_until_admitted(lends_no_more)
    lends_no_more.delete()
    small.change(quotas=[{"gpuType": "H100", "nominalNodes": 4}])
    wait_until_admitted(waits)
    assert borrows.status["attempt"] == 1
    assert len(borrows.pods) == 3


def test_a_queue_that_makes_no_sense_names_the_field_and_says_when_it_is_over(at_work: Cluster) -> None:
    queue = at_work.queue("q", quotas=[{"gpuType": "H1000", "nominalNodes": 2}])
    queue.wait_until("Valid", "False", "UnknownGpuType")
    assert "spec.quotas[H1000].gpuType" in str(queue.status["conditions"])
    assert queue.verdict("Active") == ("True", "Admitting")
    queue.change(quotas=[{"gpuType": "H100", "nominalNodes": 2}])
    queue.wait_until("Valid", "True", "Valid")
    assert queue.status["observedGeneration"] == 2


def test_the_higher_class_goes_first_and_a_class_that_does_not_exist_is_named(at_work: Cluster) -> None:
    low, high = at_work.priority_class("low", 10), at_work.priority_class("high", 1000)
    first = at_work.run("first", 6)
    wait_until_admitted(first)
    humble = at_work.run("humble", 6, priorityClassName=low)
    wait_until_told(humble, "Resources")
    urgent = at_work.run("urgent", 6, priorityClassName=high)
    urgent.wait("it is first", lambda: told(urgent)[0] == 1)
    lost = at_work.run("lost", 1, priorityClassName=at_work.unique("nobody"))
    wait_until_told(lost, "PriorityClassNotFound")
    assert at_work.unique("nobody") in message(lost)
    finish(first)
    wait_until_admitted(urgent)
    assert not is_admitted(humble)
    lost.delete()
    urgent.delete()
    wait_until_admitted(humble)


def test_a_class_that_is_made_later_lets_its_run_go(at_work: Cluster) -> None:
    run = at_work.run("early", 1, priorityClassName=at_work.unique("later"))
    wait_until_told(run, "PriorityClassNotFound")
    at_work.priority_class("later", 5)
    wait_until_admitted(run)


def test_a_short_run_starts_before_a_large_one_that_it_does_not_delay_and_a_long_one_does_not(at_work: Cluster) -> None:
    base = at_work.run("base", 4, timeLimit="2h")
    wait_until_admitted(base)
    started = to_unix(base.status["lastAdmitted"])
    large = at_work.run("large", 6, timeLimit="1h")
    large.wait("it is told when it starts", lambda: "estimatedStart" in large.status.get("queue", {}))
    expected = started + 2 * HOUR
    assert expected - 60 < to_unix(large.status["queue"]["estimatedStart"]) < expected + 120
    short, long = at_work.run("short", 1, timeLimit="90m"), at_work.run("long", 1, timeLimit="3h")
    wait_until_admitted(short)
    assert short.status["admission"]["backfilled"] is True
    assert short.status["admission"]["timeLimit"] == 90 * 60
    long.wait("it is told what it waits for", lambda: told(long)[1])
    assert not is_admitted(long)
    assert f"{at_work.namespace}/large" in long.status["queue"]["blockedBy"]
    assert not is_admitted(large)


def test_a_run_that_would_overrun_a_maintenance_window_waits_and_one_that_may_be_shorter_is_cut(
    at_work: Cluster, window_begins: float
) -> None:
    queue = at_work.queue("maintained", nodeSelector={"maintained": "yes"})
    with at_work.site.with_nodes(3, prefix="maintained", labels={"maintained": "yes"}):
        too_long = at_work.run("too-long", 1, queue=queue.name, timeLimit="2h")
        wait_until_told(too_long, "Window")
        assert "maintenance window firmware" in message(too_long)
        assert to_rfc3339(window_begins) in message(too_long)
        short = at_work.run("short", 1, queue=queue.name, timeLimit="30m")
        cut = at_work.run("cut", 1, queue=queue.name, timeLimit="2h", minTimeLimit="10m")
        wait_until_admitted(short, cut)
        assert short.status["admission"]["timeLimit"] == 30 * 60
        status = cut.status
        assert to_unix(status["lastAdmitted"]) + status["admission"]["timeLimit"] <= window_begins
        at_work.cleanup.close()
        at_work.wait_until_empty()


def test_a_drained_queue_gives_its_nodes_back_and_takes_them_again_when_it_is_opened(at_work: Cluster) -> None:
    queue = at_work.queue("drained")
    run = at_work.run("llama", 2, queue=queue.name)
    run.wait_until_running(1)
    queue.change(stopPolicy="HoldAndDrain")
    queue.wait_until("Active", "False", "Drained")
    wait_until_told(run, "QueueHeld")
    run.wait("its pods are gone", lambda: not run.pods)
    assert not is_admitted(run)
    queue.change(stopPolicy="None")
    queue.wait_until("Active", "True", "Admitting")
    run.wait_until_running(2)


def test_a_chain_runs_link_by_link_and_says_so_when_it_is_broken(at_work: Cluster) -> None:
    second = at_work.run("second", 1, dependsOn=[{"name": "first"}])
    never = at_work.run("never", 1, dependsOn=[{"name": "first", "condition": "Failed"}])
    wait_until_told(second, "Dependency")
    assert "first" in message(second)
    first = at_work.run("first", 1)
    third = at_work.run("third", 1, dependsOn=[{"name": "second", "condition": "Started"}])
    first.wait_until_running(1)
    assert not is_admitted(second)
    finish(first)
    wait_until_admitted(second, third)
    wait_until_told(never, "DependencyNeverSatisfied")
    first.delete()
    finish(second)
    assert second.status["admission"]["met"] == ["first Succeeded"]


def test_a_run_is_deleted_with_its_pods_once_its_time_after_the_end_is_over(at_work: Cluster) -> None:
    kept, gone = at_work.run("kept", 1), at_work.run("gone", 2)
    for run in (kept, gone):
        wait_until_admitted(run)
        finish(run)
    api = at_work.site.cluster.api
    # Only now: until it was seen to finish it has to be there.
    api.send(Request("PATCH", gone.path, {"spec": {"ttlAfterFinished": "1s"}}, MERGE_PATCH))
    path = gone.path.rpartition("/")[0]
    wait_for(
        "it is deleted",
        lambda: [item["metadata"]["name"] for item in api.get(path)["items"]] == ["kept"],
        seconds=PATIENCE,
        every=0.1,
    )
    gone.wait("its pods are gone", lambda: not gone.pods)


def test_a_run_gets_no_nodes_before_its_time(at_work: Cluster) -> None:
    run = at_work.run("later", 1, notBefore=to_rfc3339(time.time() + HOUR))
    wait_until_told(run, "BeginTime")
    assert told(run)[0] == 0
    begin = int(time.time()) + 4
    patch = {"spec": {"notBefore": to_rfc3339(begin)}}
    at_work.site.cluster.api.send(Request("PATCH", run.path, patch, MERGE_PATCH))
    wait_until_admitted(run)
    assert to_unix(run.status["lastAdmitted"]) >= begin


def test_a_run_that_nobody_can_ask_to_save_has_its_limit_but_the_grace_of_its_pods(at_work: Cluster) -> None:
    """And not half of it, which the lead time for a save would take."""
    grace = {"spec": {"terminationGracePeriodSeconds": 2}}
    run = at_work.run("short", 1, timeLimit="20s", checkpoint=None, podTemplate=grace)
    told = run.wait("it is told when it ends", lambda: run.status.get("timeLimit"))
    since = to_unix(run.status["lastAdmitted"])
    assert (told["seconds"], run.status["admission"]["timeLimit"], "saveAt" in told) == (20, 20, False)
    assert (to_unix(told["endAt"]), to_unix(told["overAt"])) == (since + 18, since + 20)
    run.wait_until_finished()
    ended = run.condition("Finished")
    assert ended["reason"] == "TimeLimit"
    assert to_unix(ended["lastTransitionTime"]) >= since + 18
