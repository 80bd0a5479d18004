"""ConfigMaps that gangs need, against a fake of the API server's rules."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, UnreachableError
from lockstep.controller.reconcile.config_maps import ConfigMaps, ensure, ensure_everywhere
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.plan import EnsureConfigMap
from lockstep.core.pods.gang import ca_config_map, worker_config_map
from support.manual_clock import ManualClock


class FakeMaps:
    """ConfigMaps by namespace and name. ``refuse`` raises what a request is answered with in a namespace."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.refuse: Callable[[str], None] = lambda namespace: None

    async def get(self, resource: Resource, name: str, namespace: str) -> bytes:
        self.asked.append("get")
        self.refuse(namespace)
        if (namespace, name) not in self.objects:
            raise ApiError(404, "NotFound", name)
        return orjson.dumps(self.objects[namespace, name])

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str) -> bytes:
        self.asked.append("create")
        self.refuse(namespace)
        key = namespace, body["metadata"]["name"]
        if key in self.objects:
            raise ApiError(409, "AlreadyExists", key[1])
        return self._store(key, body, "1")

    async def replace(self, resource: Resource, name: str, body: Mapping[str, Any], namespace: str) -> bytes:
        self.asked.append("replace")
        held = self.objects[namespace, name]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != held:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self._store((namespace, name), body, f"{int(held) + 1}")

    def _store(self, key: tuple[str, str], body: Mapping[str, Any], version: str) -> bytes:
        self.objects[key] = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return orjson.dumps(self.objects[key])


@pytest.fixture
def maps() -> FakeMaps:
    return FakeMaps()


def authorities(namespace: str, text: str = "PEM") -> EnsureConfigMap:
    return ca_config_map(namespace, GangSettings(ca_certificate=text))


async def test_one_that_never_changes_is_only_created(maps: Any) -> None:
    wanted = worker_config_map("team", GangSettings(worker_archive=b"zip"))
    await ensure(maps, wanted)
    await ensure(maps, wanted)
    assert maps.asked == ["create", "create"]


async def test_gangs_that_start_together_send_the_worker_program_once(maps: Any) -> None:
    clock = ManualClock()
    config_maps = ConfigMaps(maps, clock)
    wanted = [worker_config_map("team", GangSettings(worker_archive=b"zip")), authorities("team")]
    for _ in range(100):
        for each in wanted:
            await config_maps.ensure(each)
    assert maps.asked == ["create", "get", "create"]


async def test_a_shared_one_that_somebody_deleted_is_made_again_by_a_launch_soon_after(maps: Any) -> None:
    clock = ManualClock()
    config_maps = ConfigMaps(maps, clock)
    wanted = worker_config_map("team", GangSettings(worker_archive=b"zip"))
    await config_maps.ensure(wanted)
    maps.objects.clear()
    await clock.advance(10.0)
    await config_maps.ensure(wanted)
    assert [name for _, name in maps.objects] == [wanted.name]


async def test_what_was_there_says_nothing_of_other_content_or_of_another_namespace(maps: Any) -> None:
    config_maps = ConfigMaps(maps, ManualClock())
    for wanted in (authorities("a"), authorities("a", "PEM\nNEXT"), authorities("b")):
        await config_maps.ensure(wanted)
    assert maps.objects["a", "lockstep-worker-ca"]["data"] == {"ca.crt": "PEM\nNEXT"}
    assert ("b", "lockstep-worker-ca") in maps.objects


async def test_one_that_was_refused_is_sent_again_by_the_next_launch(maps: Any) -> None:
    config_maps = ConfigMaps(maps, ManualClock())

    def refuse(namespace: str) -> None:
        raise ApiError(403, "Forbidden", "exceeded quota")

    maps.refuse = refuse
    with pytest.raises(ApiError):
        await config_maps.ensure(authorities("team"))
    maps.refuse = lambda namespace: None
    await config_maps.ensure(authorities("team"))
    assert ("team", "lockstep-worker-ca") in maps.objects


async def test_one_of_a_single_run_is_sent_whenever_it_is_wanted(maps: Any) -> None:
    config_maps = ConfigMaps(maps, ManualClock())
    wanted = EnsureConfigMap("team", "llama-assignment", {"metadata": {"name": "llama-assignment"}})
    await config_maps.ensure(wanted)
    await config_maps.ensure(wanted)
    assert maps.asked == ["create", "create"]


async def test_one_that_changes_is_made_brought_up_to_date_and_then_left_alone(maps: Any) -> None:
    await ensure(maps, authorities("team"))
    assert maps.asked == ["get", "create"]
    await ensure(maps, authorities("team", "PEM\nNEXT"))
    await ensure(maps, authorities("team", "PEM\nNEXT"))
    assert maps.asked[2:] == ["get", "replace", "get"]
    assert maps.objects["team", "lockstep-worker-ca"]["data"] == {"ca.crt": "PEM\nNEXT"}


async def test_what_a_user_put_in_its_place_does_not_stay(maps: Any) -> None:
    await ensure(maps, authorities("team"))
    maps.objects["team", "lockstep-worker-ca"]["data"] = {"ca.crt": "SOMEBODY ELSE"}
    await ensure(maps, authorities("team"))
    assert maps.objects["team", "lockstep-worker-ca"]["data"] == {"ca.crt": "PEM"}


@pytest.mark.parametrize(
    ("error", "everywhere"),
    [
        (ApiError(422, "Invalid", "field is immutable when `immutable` is set"), True),
        (ApiError(403, "Forbidden", "exceeded quota"), True),
        (ApiError(429, "TooManyRequests", "later"), False),
        (UnreachableError("nobody there"), False),
        (UnknownOutcome("no answer", 0), False),
    ],
)
async def test_a_namespace_that_refuses_keeps_nobody_waiting_and_silence_does(
    maps: Any, error: KubeError, everywhere: bool
) -> None:
    def refuse(namespace: str) -> None:
        if namespace == "b":
            raise error

    maps.refuse = refuse
    assert await ensure_everywhere(maps, ["a", "b", "c"], authorities) is everywhere
    assert {namespace for namespace, _ in maps.objects} == {"a", "c"}


@pytest.mark.parametrize(
    "found",
    [b"nothing", b"[1]", b'{"data":[],"metadata":7}', b'{"metadata":{"a":' + b"[" * 1_500 + b"]" * 1_500 + b"}}"],
)
async def test_whatever_a_namespace_has_in_its_place_costs_only_that_namespace(maps: Any, found: bytes) -> None:
    get = maps.get

    async def answer(resource: Any, name: str, namespace: str) -> bytes:
        return found if namespace == "b" else bytes(await get(resource, name, namespace))

    maps.get = answer
    await ensure_everywhere(maps, ["a", "b", "c"], authorities)
    assert {"a", "c"} <= {namespace for namespace, _ in maps.objects}
