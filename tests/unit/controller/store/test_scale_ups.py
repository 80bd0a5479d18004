"""ProvisioningRequests and placeholder pods at the API server: found, read, made once, ended, known to the store."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import orjson
import pytest

from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.runtime.resources import Resource
from lockstep.controller.store.scale_ups import ProvisioningApi, ProvisioningRequests, ScaleUps, view_of
from lockstep.controller.store.store import Store
from lockstep.core.model.own_objects import parse_run
from lockstep.core.model.plan import DeleteProvisioning, EnsureProvisioning
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import Leadership, ProvisioningView, RunView
from support.manual_clock import ManualClock
from support.stored_runs import run, stored
from support.stored_world import World
from support.stored_world import pod as gang_pod

LEADER = Leadership(since=0.0)
BY_REQUEST = {"by": "ProvisioningRequest", "nodes": 2, "generation": 1}
BY_PODS = {"by": "Placeholders", "nodes": 2, "generation": 1}
NAME = "llama-u1-scale-up"


class Kube:
    """Keeps what it is given, and says what was asked of it."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.plurals = frozenset({"provisioningrequests"})

    async def served(self, group_version: str) -> frozenset[str]:
        self.asked.append(group_version)
        if self.fails is not None:
            raise self.fails
        return self.plurals

    async def get(self, resource: Resource, name: str, namespace: str) -> bytes:
        if self.fails is not None:
            raise self.fails
        if resource.plural not in self.there:
            raise ApiError(404, "NotFound", f'"{name}" not found')
        return orjson.dumps(self.there[resource.plural])

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str) -> bytes:
        if self.fails is not None:
            raise self.fails
        if resource.plural in self.there:
            raise ApiError(409, "AlreadyExists", "there is one")
        self.asked.append(f"create {resource.plural}")
        self.there[resource.plural] = {**body, "metadata": {**body["metadata"], "uid": f"uid-{resource.plural}"}}
        return b"{}"

    async def delete(self, resource: Resource, name: str, namespace: str, *, uid: str) -> bytes:
        assert self.there[resource.plural]["metadata"]["uid"] == uid
        self.asked.append(f"delete {resource.plural}")
        del self.there[resource.plural]
        return b"{}"


def thing(kind: str, *, attempt: int = 1, owner: str = "u1", conditions: Any = ()) -> dict[str, Any]:
    owners = [{"uid": owner}]
    annotations = {names.ANNOTATION_SCALE_UP: str(attempt)}
    return {
        "kind": kind,
        "metadata": {"name": NAME, "uid": "r1", "ownerReferences": owners, "annotations": annotations},
        "status": {"conditions": list(conditions)},
    }


def condition(kind: str, status: str = "True", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Any", "message": message}


WANTED = EnsureProvisioning("team", NAME, thing("PodTemplate"), thing("ProvisioningRequest"))
GONE = DeleteProvisioning("team", NAME)
BOTH = ["create podtemplates", "create provisioningrequests"]


def asking(**scale_up: Any) -> RunView:
    return parse_run(run(status={"scaleUp": scale_up or BY_REQUEST}))


def client(kube: Kube) -> tuple[ProvisioningRequests, ScaleUps, ManualClock]:
    clock = ManualClock()
    known = ScaleUps(clock, {"u1": asking()}.get)
    return ProvisioningRequests(cast(KubeClient, kube), known), known, clock


class TestDiscovery:
    def follow(self, kube: Kube, **settings: Any) -> tuple[ProvisioningApi, ManualClock, list[str]]:
        clock, told = ManualClock(), list[str]()
        given = ScaleUpSettings(**settings)
        return ProvisioningApi(cast(KubeClient, kube), clock, given, lambda found: told.append(found.by)), clock, told

    async def test_what_is_installed_or_removed_later_is_noticed_within_a_minute(self) -> None:
        kube = Kube()
        kube.plurals = frozenset()
        api, clock, told = self.follow(kube, provisioning_requests=True)
        await api.discover_until_known()
        following = asyncio.create_task(api.follow())
        await asyncio.sleep(0)
        kube.plurals = frozenset({"provisioningrequests"})
        await clock.advance(61.0)
        kube.plurals = frozenset()
        await clock.advance(61.0)
        assert told == ["ProvisioningRequest", "Placeholders"]
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    async def test_an_operator_that_is_not_to_use_them_asks_for_nothing(self) -> None:
        kube = Kube()
        api, _, told = self.follow(kube)
        await api.discover_until_known()
        await api.follow()
        assert (kube.asked, told) == ([], [])

    async def test_silence_is_no_evidence_that_they_are_gone(self) -> None:
        kube = Kube()
        api, _, told = self.follow(kube, provisioning_requests=True)
        await api.discover()
        kube.fails = UnreachableError("connection refused")
        assert not await api.discover()
        assert told == ["ProvisioningRequest"]


class TestRequests:
    async def test_it_is_made_once_its_template_first(self) -> None:
        kube = Kube()
        requests, _, _ = client(kube)
        for _ in range(3):
            await requests.ensure(asking(), WANTED)
        assert kube.asked == BOTH

    async def test_one_that_was_cut_short_is_completed(self) -> None:
        kube = Kube()
        requests, _, _ = client(kube)
        kube.there["podtemplates"] = thing("PodTemplate")
        await requests.ensure(asking(), WANTED)
        assert kube.asked == BOTH[1:]

    async def test_what_an_earlier_attempt_left_is_not_used(self) -> None:
        kube = Kube()
        requests, _, _ = client(kube)
        kube.there["podtemplates"] = thing("PodTemplate", attempt=7)
        await requests.ensure(asking(), WANTED)
        assert kube.asked == ["delete podtemplates"], "the next look makes it anew"
        await requests.ensure(asking(), WANTED)
        assert kube.asked[1:] == BOTH

    async def test_what_is_somebody_elses_is_never_touched(self) -> None:
        kube = Kube()
        requests, _, _ = client(kube)
        kube.there["podtemplates"] = thing("PodTemplate", owner="another")
        with pytest.raises(ApiError, match="a PodTemplate llama-u1-scale-up that is not of this run is in the way"):
            await requests.ensure(asking(), WANTED)
        kube.there["provisioningrequests"] = thing("ProvisioningRequest", owner="another")
        await requests.delete(asking(), GONE)
        assert kube.asked == []

    async def test_once_the_request_is_gone_so_is_its_template(self) -> None:
        kube = Kube()
        requests, _, _ = client(kube)
        await requests.ensure(asking(), WANTED)
        await requests.delete(asking(), GONE)
        await requests.delete(asking(), GONE)
        assert kube.asked[2:] == ["delete podtemplates", "delete provisioningrequests"]

    async def test_what_was_read_counts_for_a_moment_and_not_beyond_a_write(self) -> None:
        kube = Kube()
        requests, known, clock = client(kube)
        view = asking()
        assert known.seen(view) is None
        assert known.is_due(view)
        await requests.read(view)
        assert known.seen(view) == ProvisioningView()
        assert not known.is_due(view)
        await requests.ensure(view, WANTED)
        assert known.is_due(view)
        assert known.seen(view) is None
        await requests.read(view)
        await clock.advance(60.0)
        assert known.is_due(view)

    @pytest.mark.parametrize("status", [None, BY_PODS], ids=["nothing", "by pods"])
    async def test_nothing_is_read_of_a_run_that_asks_in_no_such_way(self, status: dict[str, Any] | None) -> None:
        _, known, _ = client(Kube())
        view = parse_run(run(status={} if status is None else {"scaleUp": status}))
        assert not known.is_due(view)
        assert known.seen(view) is None

    async def test_nothing_is_kept_of_a_run_that_went_while_it_was_read(self) -> None:
        clock = ManualClock()
        store = Store(WorkQueue(clock), clock)
        store.runs.apply(run(status={"scaleUp": BY_REQUEST}))
        view = stored(store)

        class Leaving(Kube):
            async def get(self, resource: Resource, name: str, namespace: str) -> bytes:
                store.runs.remove("team", "llama", "u1")
                return await super().get(resource, name, namespace)

        await ProvisioningRequests(cast(KubeClient, Leaving()), store.scale_ups).read(view)
        assert store.scale_ups.seen(view) is None

    async def test_what_cannot_be_read_keeps_nobody_from_deciding(self) -> None:
        kube = Kube()
        requests, known, _ = client(kube)
        kube.fails = ApiError(403, "Forbidden", "may not")
        await requests.read(asking())
        assert known.seen(asking()) == ProvisioningView(problem="may not")


@pytest.mark.parametrize(
    ("conditions", "state", "message"),
    [
        ([], "", ""),
        ([condition("Accepted", message="ok")], "Accepted", "ok"),
        ([condition("Accepted"), condition("Provisioned", message="3 nodes")], "Provisioned", "3 nodes"),
        ([condition("Accepted"), condition("Provisioned"), condition("BookingExpired")], "BookingExpired", ""),
        ([condition("Provisioned"), condition("CapacityRevoked")], "CapacityRevoked", ""),
        ([condition("Accepted"), condition("Provisioned", "False"), condition("Failed", message="no")], "Failed", "no"),
        ([condition("Failed", "False"), condition("Accepted", "Unknown")], "", ""),
        ([condition("Accepted", message="\x1b[31m" + "x" * 999)], "Accepted", "x" * 256),
    ],
)
def test_the_worst_condition_counts(conditions: list[dict[str, str]], state: str, message: str) -> None:
    found = view_of(thing("ProvisioningRequest", conditions=conditions), asking())
    assert (found.uid, found.is_own, found.attempt, found.state or "", found.message) == ("r1", True, 1, state, message)


@pytest.mark.parametrize(
    "annotations", [None, {}, {names.ANNOTATION_SCALE_UP: "9" * 5000}, {names.ANNOTATION_SCALE_UP: "-1"}]
)
def test_what_somebody_wrote_over_is_of_no_attempt(annotations: Any) -> None:
    raw = thing("ProvisioningRequest", owner="another")
    raw["metadata"]["annotations"] = annotations
    raw["status"] = None
    found = view_of(raw, asking())
    assert (found.is_own, found.attempt, found.state) == (False, 0, None)


class TestStore:
    """Two runs of a team, of which `llama` asks by placeholders."""

    def setup_method(self) -> None:
        world = World()
        self.clock, self.queue, self.store, self.due = world.clock, world.queue, world.store, world.due
        self.store.runs.apply(run(status={"scaleUp": BY_PODS}))

    def place(
        self,
        node: str = "",
        version: int = 20,
        name: str = f"{NAME}-0",
        priority: int = -10,
        uid: str = "p1",
        namespace: str = "team",
    ) -> None:
        owner = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": "llama", "uid": "u1"}
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {names.LABEL_PLACEHOLDER_OF: "u1"},
            "ownerReferences": [{**owner, "controller": True}],
        }
        container = {"name": "placeholder", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
        spec = {"nodeName": node, "priority": priority, "containers": [container]}
        self.store.apply_pod(orjson.dumps({"metadata": metadata, "spec": spec}))

    def gpus(self, node: str = "gpu-1") -> int:
        return dict(self.store.foreign_requests.get(node, {})).get("nvidia.com/gpu", 0)

    def placeholders(self, name: str = "llama") -> list[str]:
        snapshot = self.store.snapshot_run("team", name, {}, LEADER)
        assert snapshot is not None
        return [pod.name for pod in snapshot.placeholders]

    async def test_a_placeholder_takes_nothing_and_wakes_its_run(self) -> None:
        await self.due()
        self.place("gpu-1")
        assert self.gpus() == 0
        assert self.placeholders() == [f"{NAME}-0"]
        assert "run/team/llama" in await self.due()
        snapshot = self.store.snapshot_cluster(LEADER)
        assert (snapshot.gang_pods, snapshot.doubtful_pods) == ((), ())

    @pytest.mark.parametrize("pretence", [{"name": "mine"}, {"priority": 0}])
    async def test_a_pod_that_only_says_so_takes_what_it_requests(self, pretence: dict[str, Any]) -> None:
        self.place("gpu-1", **pretence)
        assert self.gpus() == 8

    async def test_what_its_run_vouches_for_no_more_takes_what_it_requests_and_admission_hears_of_it(self) -> None:
        self.place("gpu-1")
        self.store.changes.read()
        self.store.changes.finish()
        self.store.runs.apply(run(11, status={}))
        assert self.gpus() == 8
        assert "gpu-1" in (self.store.changes.read().nodes or ())
        self.store.changes.finish()
        self.store.runs.apply(run(12, status={"scaleUp": BY_PODS}))
        assert self.gpus() == 0
        assert "gpu-1" in (self.store.changes.read().nodes or ())

    async def test_one_that_was_there_before_its_run_takes_what_it_requests_until_that_is_known(self) -> None:
        self.store = Store(self.queue, self.clock)
        self.place("gpu-1")
        assert self.gpus() == 8
        self.store.runs.apply(run(40, status={"scaleUp": BY_PODS}))
        assert self.gpus() == 0
        self.store.runs.remove("team", "llama", "u1")
        assert self.gpus() == 8
        self.store.placeholder_pods.remove("p1", 50)
        assert self.gpus() == 0

    async def test_what_a_run_that_waits_writes_has_admission_look_at_no_node_again(self) -> None:
        self.store.changes.read()
        self.store.changes.finish()
        self.place("gpu-1")
        self.store.runs.apply(run(11, status={"scaleUp": BY_PODS, "queue": {"position": 3}}))
        assert not self.store.changes.read().nodes

    async def test_a_pod_of_another_namespace_that_names_the_run_is_none_of_its_placeholders(self) -> None:
        self.place("gpu-1", namespace="elsewhere")
        assert self.placeholders() == []
        assert self.gpus() == 8

    @pytest.mark.parametrize(("name", "wakes"), [(f"{NAME}-0", True), ("mine", False)])
    async def test_a_pod_that_only_says_so_wakes_nobody_on_its_node(self, name: str, wakes: bool) -> None:
        holding = {"attempt": 1, "assignment": {"nodes": ["gpu-1"], "incarnations": [1]}}
        other = run(uid="u2", status=holding)
        other["metadata"]["name"] = "other"
        self.store.runs.apply(other)
        self.store.gang_pods.upsert(gang_pod(run="other", run_uid="u2", owner_uid="u2", node="gpu-1"))
        await self.due()
        self.place("gpu-1", name=name)
        assert ("run/team/other" in await self.due()) is wakes

    async def test_the_gang_that_gets_the_node_sees_it_there_and_who_would_be_there_next(self) -> None:
        holding = {"attempt": 1, "assignment": {"nodes": ["gpu-1"], "incarnations": [1]}}
        other = run(uid="u2", status=holding)
        other["metadata"]["name"] = "other"
        self.store.runs.apply(other)
        self.place("gpu-1")
        self.place(name=f"{NAME}-1", uid="p2")
        self.place("gpu-3", name=f"{NAME}-2", uid="p3")
        assert self.placeholders("other") == [f"{NAME}-0", f"{NAME}-1"]
        self.place("gpu-2", version=21)
        assert self.placeholders("other") == []

    async def test_one_that_is_gone_leaves_nothing(self) -> None:
        self.place("gpu-1")
        await self.due()
        self.store.placeholder_pods.remove("p1", 30)
        snapshot = self.store.snapshot_run("team", "llama", {}, LEADER)
        assert snapshot is not None
        assert snapshot.placeholder_gone_at == self.clock.now()
        assert self.placeholders() == []
        pods = self.store._pods
        assert (pods._placeholders, pods._places_on, pods._false_places) == ({}, {}, {})
        assert "run/team/llama" in await self.due()

    async def test_the_store_is_not_complete_without_them(self) -> None:
        caches = (self.store.runs.cache, self.store.queues.cache, self.store.namespaces, self.store.priority_classes)
        more = (self.store.gang_pods, self.store.other_pods, self.store.nodes, self.store.archive_jobs.cache)
        for cache in (*caches, *more, self.store.run_sets.cache):
            cache.synced = True
        assert not self.store.synced
        self.store.placeholder_pods.synced = True
        assert self.store.synced
