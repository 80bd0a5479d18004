"""A long admission cycle is decided beside the event loop, on what nothing changes any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import pytest

from lockstep.controller.reconcile import threaded_admission
from lockstep.controller.reconcile.threaded_admission import ASIDE_FROM, decide_cycle, detached
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, Leadership, NodeView
from lockstep.core.model.tunables import Tunables

NOW = 1_800_000_000.0


def snapshot(nodes: int) -> ClusterSnapshot:
    names = [f"node-{number}" for number in range(nodes)]
    views = {name: NodeView(name, f"uid-{name}", {}, {}) for name in names}
    return ClusterSnapshot(
        runs=(),
        queues={},
        nodes=views,
        gang_pods=(),
        foreign_requests={},
        in_flight={},
        leadership=Leadership(NOW),
    )


def test_a_long_pass_leaves_the_loop_to_the_lease_and_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Event()

    def wait_for_the_loop(*_: Any) -> ClusterPlan:
        assert renewed.wait(20)
        return ClusterPlan()

    async def admit_and_renew() -> None:
        asyncio.get_running_loop().call_later(0.01, renewed.set)
        await decide_cycle(snapshot(ASIDE_FROM), Tunables(), NOW, CycleMemory())

    monkeypatch.setattr(threaded_admission, "admit_isolating_failures", wait_for_the_loop)
    asyncio.run(admit_and_renew())


def test_a_short_pass_is_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def note_the_thread(*_: Any) -> ClusterPlan:
        seen.append(threading.current_thread())
        return ClusterPlan()

    monkeypatch.setattr(threaded_admission, "admit_isolating_failures", note_the_thread)
    asyncio.run(decide_cycle(snapshot(3), Tunables(), NOW, CycleMemory()))
    assert seen == [threading.main_thread()]


def test_what_a_long_pass_looks_at_does_not_change_under_its_eyes() -> None:
    """Every table, those to come included: each of them is a view into the store's."""
    live: dict[Any, Any] = {}
    tables: dict[str, Any] = dict.fromkeys(tables_of(snapshot(0)), MappingProxyType(live))
    kueue: dict[str, Any] = dict.fromkeys(tables_of(Kueue()), MappingProxyType(live))
    seen = detached(replace(snapshot(0), **tables, kueue=Kueue(**kueue)))
    live["late"] = "news"
    assert len(tables) >= 9
    assert not any(getattr(seen, name) for name in tables)
    assert not any(getattr(seen.kueue, name) for name in kueue)


def tables_of(views: ClusterSnapshot | Kueue) -> list[str]:
    return [field.name for field in fields(views) if isinstance(getattr(views, field.name), Mapping)]
