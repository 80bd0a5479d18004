"""Events of our own kinds as they come in: a line of a watch, read before kopf decodes it, then a handler."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import orjson

from lockstep.api.base import names
from lockstep.controller import handlers
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials
from lockstep.controller.kube.kopf_session import WatchedKind, WatchFilter
from lockstep.controller.store.own_kinds import OwnKinds
from lockstep.controller.store.store import Store
from support.manual_clock import ManualClock

_HANDLERS: dict[str, Any] = {
    names.RUNS: handlers.training_run,
    names.RUN_SETS: handlers.training_run_set,
    names.QUEUES: handlers.training_queue,
}


async def no_credentials() -> Credentials:
    raise AssertionError("kopf is not started here")


def kinds_of(store: Store) -> OwnKinds:
    """Of an operator that never begins to watch."""
    return OwnKinds(store, cast(KubeClient, None), ManualClock(), no_credentials)


def line(type: str, raw: Any) -> bytes:  # noqa: A002 - the API's name
    """Of a watch; ``raw`` is the object, or its JSON."""
    text = raw if isinstance(raw, bytes | msgspec.Raw) else orjson.dumps(raw)
    return b'{"type":"%b","object":%b}\n' % (type.encode(), bytes(text))


def passed(kind: WatchedKind, text: bytes) -> list[Any]:
    """What kopf is given of it, as kopf decodes that."""
    return [json.loads(line.decode("utf-8")) for line in WatchFilter(kind).feed(text).splitlines()]


def hear(store: Store, raw: Any, type: str = "MODIFIED", plural: str = names.RUNS) -> int:  # noqa: A002
    """Have ``store`` hear of ``raw`` by a watch; how many handlers were called."""
    kinds = kinds_of(store)
    kind = {each.resource.plural: each for each in (kinds.runs, kinds.run_sets, kinds.queues)}[plural]
    events = [event for event in passed(kind, line(type, raw)) if event["type"] != "BOOKMARK"]
    for event in events:
        try:
            _HANDLERS[plural](type=event["type"], event=event, memo=kinds).send(None)
        except StopIteration:
            continue
        raise AssertionError("a handler waits for something")
    return len(events)
