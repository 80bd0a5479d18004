"""What runs name is looked for with few requests, and nothing is held against what cannot be seen."""

import asyncio
from collections import Counter
from typing import Any, cast

import orjson
import pytest

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError, UnreachableError
from lockstep.controller.reconcile import look_ups
from lockstep.controller.reconcile.look_ups import LookUps
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model.named_objects import LookedUp, NamedObject, ObjectKind
from support.manual_clock import ManualClock

NO_RIGHT = ApiError(403, "Forbidden", 'User "lockstep" cannot get resource "x" in API group "" in the namespace "team"')
BY_A_WEBHOOK = ApiError(403, "Forbidden", "denied by a policy")


class Kube:
    def __init__(self) -> None:
        self.there = {("persistentvolumeclaims", "team", "data"), ("storageclasses", "", "fast")}
        self.content: dict[str, Any] = {"data": {"train.py": "import x"}, "binaryData": {"m.bin": "AA=="}}
        self.error: KubeError | None = None
        self.asked: Counter[str] = Counter()
        self.answering = asyncio.Event()
        self.answering.set()
        self.at_once = self.most_at_once = 0

    async def exists(self, resource: Resource, name: str, namespace: str, *, within: float) -> bool:
        self.asked[f"get {resource.plural} {namespace} {name}"] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.answering.wait()
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        return (resource.plural, namespace, name) in self.there

    async def get(self, resource: Resource, name: str, namespace: str, *, within: float) -> bytes:
        self.asked[f"read {resource.plural} {namespace} {name}"] += 1
        await self.answering.wait()
        if self.error is not None:
            raise self.error
        return orjson.dumps({"metadata": {"name": name}} | self.content)

    async def names_of(self, resource: Resource, namespace: str, most: int, *, within: float) -> list[str]:
        self.asked[f"list {resource.plural} {namespace}"] += 1
        if self.error is not None:
            raise self.error
        return [name for plural, where, name in sorted(self.there) if (plural, where) == (resource.plural, namespace)]


class Looking:
    def __init__(self, *, secrets: bool = False) -> None:
        self.clock, self.kube = ManualClock(), Kube()
        self.look_ups = LookUps(cast(KubeClient, self.kube), self.clock, secrets=secrets)

    async def up(self, kind: ObjectKind, *names: str, namespace: str = "team") -> LookedUp:
        return await self.look_ups.look_up(namespace, [NamedObject(kind, name, f"spec.{name}") for name in names])


@pytest.mark.parametrize(
    ("kind", "name", "near", "asked"),
    [
        (ObjectKind.CLAIM, "data", None, ["get persistentvolumeclaims team data"]),
        (
            ObjectKind.CLAIM,
            "dta",
            ("data",),
            ["get persistentvolumeclaims team dta", "list persistentvolumeclaims team"],
        ),
        (ObjectKind.CLAIM, "else", (), ["get persistentvolumeclaims team else", "list persistentvolumeclaims team"]),
        (ObjectKind.CONFIG_MAP, "dta", (), ["get configmaps team dta"]),
        (ObjectKind.SECRET, "dta", (), ["get secrets team dta"]),
        (ObjectKind.SERVICE_ACCOUNT, "dta", None, []),
        (ObjectKind.STORAGE_CLASS, "fsat", ("fast",), ["get storageclasses  fsat", "list storageclasses "]),
    ],
)
async def test_each_kind_is_asked_for_by_name_and_only_the_names_of_some_are_listed(
    kind: ObjectKind, name: str, near: tuple[str, ...] | None, asked: list[str]
) -> None:
    looking = Looking(secrets=True)
    found = await looking.up(kind, name)
    assert [each.near for each in found.missing] == ([] if near is None else [near])
    assert found.unknown == ()
    assert sorted(looking.kube.asked) == sorted(asked)


async def test_secrets_are_unknown_and_not_asked_for_where_they_may_not_be() -> None:
    looking = Looking()
    found = await looking.up(ObjectKind.SECRET, "token")
    assert ([each.name for each in found.unknown], found.missing) == (["token"], ())
    assert not looking.kube.asked


def entries(*keys: str, kind: ObjectKind = ObjectKind.CONFIG_MAP, name: str = "code") -> list[NamedObject]:
    return [NamedObject(kind, name, f"spec.{key}", key) for key in keys]


async def test_entries_of_a_config_map_are_looked_for_by_one_read_of_it_whoever_asks() -> None:
    looking = Looking()
    looking.kube.there.add(("configmaps", "team", "code"))
    looking.kube.answering.clear()
    wanted = entries("train.py", "m.bin", "trian.py", "other")
    runs = [asyncio.create_task(looking.look_ups.look_up("team", wanted)) for _ in range(300)]
    await asyncio.sleep(0)
    looking.kube.answering.set()
    for found in await asyncio.gather(*runs):
        assert [(each.named.key, each.near) for each in found.missing] == [("trian.py", ("train.py",)), ("other", ())]
        assert found.unknown == ()
    assert looking.kube.asked == {"get configmaps team code": 1, "read configmaps team code": 1}
    looking.kube.content = {}
    await looking.clock.advance(look_ups.MISSING_SECONDS)
    assert len((await looking.look_ups.look_up("team", wanted)).missing) == 4


async def test_of_a_config_map_that_is_not_there_its_entries_are_not_told_and_secrets_are_never_read() -> None:
    looking = Looking(secrets=True)
    looking.kube.there.add(("secrets", "team", "code"))
    wanted = [*entries("train.py"), *entries("token", kind=ObjectKind.SECRET)]
    assert await looking.look_ups.look_up("team", wanted) == LookedUp()
    assert not [each for each in looking.kube.asked if each.startswith("read")]


@pytest.mark.parametrize("content", [None, {"data": ["x"]}, {"data": "x"}])
async def test_entries_that_cannot_be_read_are_unknown(content: Any) -> None:
    looking = Looking()
    looking.kube.there.add(("configmaps", "team", "code"))
    await looking.up(ObjectKind.CONFIG_MAP, "code")
    if content is None:
        looking.kube.error = UnreachableError("no answer")
    else:
        looking.kube.content = content
    found = await looking.look_ups.look_up("team", entries("train.py"))
    assert ([each.key for each in found.unknown], found.missing) == (["train.py"], ())


async def test_entries_are_remembered_of_so_many_and_of_none_that_has_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(look_ups, "_MOST_WITH_KEYS", 3)
    looking = Looking()
    for name in (f"c{n}" for n in range(10)):
        looking.kube.there.add(("configmaps", "team", name))
        await looking.look_ups.look_up("team", entries("train.py", name=name))
    assert len(looking.look_ups._keys) == 3
    await looking.clock.advance(look_ups.MISSING_SECONDS)
    await looking.look_ups.look_up("team", entries("train.py", name="c9"))
    assert len(looking.look_ups._keys) == 1
    looking.kube.content = {"data": {f"{n:040}": "" for n in range(1000)}}
    await looking.look_ups.look_up("team", entries("train.py", name="c8"))
    assert len(looking.look_ups._keys) == 1


@pytest.mark.parametrize(
    ("error", "asked_again"),
    [(NO_RIGHT, False), (BY_A_WEBHOOK, True), (UnreachableError("no answer"), True), (ApiError(404, "", "page"), True)],
)
async def test_what_cannot_be_seen_is_unknown_and_a_right_that_lacks_is_not_tried_each_time(
    error: KubeError, asked_again: bool
) -> None:
    looking = Looking()
    looking.kube.error = error
    for name in ("one", "two"):
        found = await looking.up(ObjectKind.CLAIM, name)
        assert ([each.name for each in found.unknown], found.missing) == ([name], ())
    assert ("get persistentvolumeclaims team two" in looking.kube.asked) is asked_again
    looking.kube.error = None
    await looking.clock.advance(look_ups.FORBIDDEN_SECONDS)
    assert [each.named.name for each in (await looking.up(ObjectKind.CLAIM, "three")).missing] == ["three"]


@pytest.mark.slow
async def test_thousands_of_runs_that_name_the_same_cost_one_request_and_a_second_one_when_it_may_have_changed() -> (
    None
):
    looking = Looking()
    looking.kube.answering.clear()
    runs = [asyncio.create_task(looking.up(ObjectKind.CLAIM, "data", "dta")) for _ in range(3000)]
    await asyncio.sleep(0)
    looking.kube.answering.set()
    assert {tuple(each.named.name for each in found.missing) for found in await asyncio.gather(*runs)} == {("dta",)}
    await looking.up(ObjectKind.CLAIM, "data", "dta")
    there, missing, listed = (f"{verb} persistentvolumeclaims team" for verb in ("get", "get", "list"))
    counts = looking.kube.asked
    assert (counts[f"{there} data"], counts[f"{missing} dta"]) == (1, 1)
    await looking.clock.advance(look_ups.MISSING_SECONDS)
    looking.kube.there.add(("persistentvolumeclaims", "team", "dta"))
    assert (await looking.up(ObjectKind.CLAIM, "data", "dta")).missing == ()
    assert (counts[f"{there} data"], counts[f"{missing} dta"], counts[listed]) == (1, 2, 1)


async def test_so_many_are_asked_for_at_once_whoever_asks() -> None:
    looking = Looking()
    looking.kube.answering.clear()
    task = asyncio.create_task(looking.up(ObjectKind.CONFIG_MAP, *(f"c{n}" for n in range(60))))
    for _ in range(200):
        await asyncio.sleep(0)
    assert looking.kube.most_at_once == 16
    looking.kube.answering.set()
    assert len((await task).missing) == 60


async def test_of_very_many_names_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "_MOST_REMEMBERED", 5)
    looking = Looking()
    await looking.up(ObjectKind.CONFIG_MAP, *(f"c{n}" for n in range(40)))
    assert len(looking.look_ups._known) == 5
    await looking.clock.advance(look_ups.MISSING_SECONDS)
    await looking.up(ObjectKind.CONFIG_MAP, "late")
    assert len(looking.look_ups._known) == 1
