"""Which PodGroups the API server serves, looked at again and again."""

import asyncio
from typing import cast

import pytest

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.store.pod_groups import PodGroupApi
from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupKind, PodGroupSettings
from support.manual_clock import ManualClock

ALPHA = "scheduling.k8s.io/v1alpha2"


class Kube:
    """Serves what it is told to, or nothing at all."""

    def __init__(self, *versions: str) -> None:
        self.versions = versions
        self.fails = False
        self.asked: list[str] = []

    async def served(self, group_version: str) -> frozenset[str]:
        self.asked.append(group_version)
        if self.fails:
            raise UnreachableError("connection refused")
        return frozenset({"podgroups", "workloads"} if group_version in self.versions else {"workloads"})


def follow(kube: Kube, kind: PodGroupKind) -> tuple[PodGroupApi, ManualClock, list[str]]:
    told: list[str] = []
    clock = ManualClock()
    settings = PodGroupSettings(kind=kind)
    api = PodGroupApi(cast(KubeClient, kube), clock, settings, lambda found: told.append(found.api_version))
    return api, clock, told


async def test_a_change_is_told_once() -> None:
    kube = Kube(ALPHA)
    api, _, told = follow(kube, PodGroupKind.AUTO)
    for _ in range(3):
        assert await api.discover()
    assert told == [ALPHA]
    kube.versions = (VOLCANO,)
    await api.discover()
    kube.versions = ()
    await api.discover()
    assert told == [ALPHA, VOLCANO, ""]


async def test_what_was_known_counts_on_while_the_api_server_is_away() -> None:
    kube = Kube(ALPHA)
    api, _, told = follow(kube, PodGroupKind.NATIVE)
    await api.discover()
    kube.fails = True
    assert not await api.discover()
    assert told == [ALPHA]


async def test_an_operator_that_does_not_use_them_asks_for_nothing() -> None:
    kube = Kube(ALPHA)
    api, _, told = follow(kube, PodGroupKind.DISABLED)
    await api.discover_until_known()
    await api.follow()
    assert kube.asked == []
    assert told == []


async def test_nothing_is_decided_before_discovery_has_answered() -> None:
    kube = Kube(ALPHA)
    kube.fails = True
    api, clock, told = follow(kube, PodGroupKind.NATIVE)
    known = asyncio.create_task(api.discover_until_known())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not known.done()
    kube.fails = False
    await clock.advance(5.0)
    await asyncio.wait_for(known, 20)
    assert told == [ALPHA]


async def test_what_is_installed_later_is_found_within_a_minute() -> None:
    kube = Kube()
    api, clock, told = follow(kube, PodGroupKind.VOLCANO)
    await api.discover()
    following = asyncio.create_task(api.follow())
    await asyncio.sleep(0)
    kube.versions = (VOLCANO,)
    await clock.advance(61.0)
    assert told == [VOLCANO]
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
