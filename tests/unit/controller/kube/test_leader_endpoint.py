"""The EndpointSlice that leads workers to the leader, against a fake of the three requests that it takes."""

import asyncio
import itertools
from typing import Any

import orjson
import pytest

from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, UnreachableError
from lockstep.controller.kube.leader_endpoint import CHECK_SECONDS, PORT_NAME, LeaderEndpoint
from lockstep.controller.runtime.resources import ENDPOINT_SLICES, SERVICES, Resource
from support.manual_clock import ManualClock

Json = dict[str, Any]


class FakeApi:
    """One Service and the slices beside it, with the API server's rules on versions."""

    def __init__(self) -> None:
        self.service: Json | None = {"metadata": {"name": "lockstep", "uid": "svc-1"}}
        self.slices: dict[str, Json] = {}
        self.writes = 0
        self.is_away = False
        self.meanwhile: Any = None  # done between a read of a slice and the write that follows
        self._versions = itertools.count(1)

    async def get(self, resource: Resource, name: str, namespace: str) -> bytes:
        if self.is_away:
            raise UnreachableError("nobody there")
        found = self.service if resource is SERVICES else self.slices.get(name)
        if found is None:
            raise ApiError(404, "NotFound", f'"{name}" not found')
        answer = orjson.dumps(found)
        if resource is ENDPOINT_SLICES and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return answer

    async def create(self, resource: Resource, body: Json, namespace: str) -> bytes:
        if body["metadata"]["name"] in self.slices:
            raise ApiError(409, "AlreadyExists", "there is one")
        return self._store(body)

    async def replace(self, resource: Resource, name: str, body: Json, namespace: str) -> bytes:
        if body["metadata"]["resourceVersion"] != self.slices[name]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self._store(body)

    async def delete(
        self, resource: Resource, name: str, namespace: str, *, uid: str, resource_version: str
    ) -> bytes | None:
        metadata = self.slices[name]["metadata"]
        if (metadata["uid"], metadata["resourceVersion"]) != (uid, resource_version):
            return None
        del self.slices[name]
        return b"{}"

    def _store(self, body: Json) -> bytes:
        self.writes += 1
        name, version = body["metadata"]["name"], str(next(self._versions))
        known = self.slices.get(name)
        if known is not None and known["addressType"] != body["addressType"]:
            raise ApiError(422, "Invalid", "addressType: field is immutable")
        uid = known["metadata"]["uid"] if known is not None else f"uid-{version}"
        stored = {**body, "metadata": {**body["metadata"], "uid": uid, "resourceVersion": version}}
        self.slices[name] = stored
        return orjson.dumps(stored)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def endpoint(api: FakeApi, address: str, clock: ManualClock | None = None) -> LeaderEndpoint:
    kube: Any = api
    return LeaderEndpoint(
        kube, clock or ManualClock(), namespace="system", service="lockstep", address=address, port=8443, pod="op-1"
    )


def address_in(api: FakeApi, name: str = "lockstep-ipv4") -> str:
    (found,) = api.slices[name]["endpoints"]
    return str(found["addresses"][0])


async def test_the_first_leader_makes_the_slice_and_the_next_one_moves_it(api: FakeApi) -> None:
    await endpoint(api, "10.0.0.1").point_here()
    made = api.slices["lockstep-ipv4"]
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "lockstep"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "svc-1"
    assert made["ports"] == [{"name": PORT_NAME, "port": 8443, "protocol": "TCP"}]
    assert made["endpoints"][0]["targetRef"]["name"] == "op-1"
    await endpoint(api, "10.0.0.2").point_here()
    assert address_in(api) == "10.0.0.2"


async def test_a_slice_that_is_right_is_not_written_again(api: FakeApi) -> None:
    here = endpoint(api, "10.0.0.1")
    await here.point_here()
    await here.point_here()
    assert api.writes == 1


async def test_each_address_family_has_a_slice_of_its_own(api: FakeApi) -> None:
    await endpoint(api, "10.0.0.1").point_here()
    await endpoint(api, "fd00::7").point_here()
    assert api.slices["lockstep-ipv6"]["addressType"] == "IPv6"
    assert address_in(api) == "10.0.0.1"


async def test_a_slice_for_addresses_of_another_kind_is_replaced(api: FakeApi) -> None:
    await endpoint(api, "10.0.0.1").point_here()
    api.slices["lockstep-ipv4"]["addressType"] = "FQDN"
    before = api.slices["lockstep-ipv4"]["metadata"]["uid"]
    await endpoint(api, "10.0.0.1").point_here()
    made = api.slices["lockstep-ipv4"]
    assert (made["addressType"], made["metadata"]["uid"] != before, address_in(api)) == ("IPv4", True, "10.0.0.1")


async def test_a_leader_that_slept_before_it_replaced_a_slice_changes_nothing(api: FakeApi) -> None:
    await endpoint(api, "10.0.0.9").point_here()
    api.slices["lockstep-ipv4"]["addressType"] = "FQDN"
    api.meanwhile = endpoint(api, "10.0.0.2").point_here
    with pytest.raises(ApiError, match="there is one"):
        await endpoint(api, "10.0.0.1").point_here()
    assert address_in(api) == "10.0.0.2"


async def test_a_leader_that_slept_between_reading_and_writing_changes_nothing(api: FakeApi) -> None:
    await endpoint(api, "10.0.0.9").point_here()
    api.meanwhile = endpoint(api, "10.0.0.2").point_here
    with pytest.raises(ApiError, match="modified"):
        await endpoint(api, "10.0.0.1").point_here()
    assert address_in(api) == "10.0.0.2"


async def test_the_slice_is_put_right_whatever_happens_to_it_until_the_lease_is_lost(api: FakeApi) -> None:
    clock = ManualClock()
    here = endpoint(api, "10.0.0.1", clock)

    keeping = asyncio.ensure_future(here.keep())
    await clock.advance(0)
    api.slices["lockstep-ipv4"]["endpoints"] = []
    await clock.advance(CHECK_SECONDS)
    assert address_in(api) == "10.0.0.1"
    api.slices.clear()
    api.is_away = True
    await clock.advance(10 * CHECK_SECONDS)
    assert not keeping.done()
    api.is_away = False
    api.service = {"metadata": {"name": "lockstep", "uid": "svc-2"}}
    await clock.advance(CHECK_SECONDS)
    assert api.slices["lockstep-ipv4"]["metadata"]["ownerReferences"][0]["uid"] == "svc-2"

    async def forbidden(*_: Any) -> bytes:
        raise LostLeadershipError("the lease has run out")

    api.slices.clear()
    api.create = forbidden  # type: ignore[method-assign]
    await clock.advance(CHECK_SECONDS)
    assert not keeping.done(), "a renewal that is late may still succeed, and is who says that the lease is lost"
    keeping.cancel()


async def test_without_a_service_there_is_nothing_to_tell(api: FakeApi) -> None:
    clock = ManualClock()
    api.service = None
    keeping = asyncio.ensure_future(endpoint(api, "10.0.0.1", clock).keep())
    await clock.advance(100)
    assert (keeping.done(), api.slices) == (False, {})
    keeping.cancel()
