"""kopf itself, watching our own kinds on an API server that says what no API server should."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from lockstep.api.base import names
from lockstep.api.base.nesting import TOO_DEEP, UNREADABLE
from lockstep.controller.store import own_kinds
from support.own_api import OwnApi, Watching
from support.own_events import line

RUN_SPEC = {"nodes": 1, "image": "trainer", "command": ["train"]}


def run(name: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    kind = {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND}
    return kind | {"metadata": metadata | {"resourceVersion": str(version)}, "spec": RUN_SPEC} | more


def deep(name: str, version: int, levels: int) -> bytes:
    nested = b'{"a":' * levels + b"1" + b"}" * levels
    return orjson.dumps(run(name, version)).replace(b'"spec":{', b'"spec":{"podTemplate":' + nested + b",")


def no_text(name: str, version: int) -> bytes:
    return orjson.dumps(run(name, version)).replace(b'"train"', b'"\xff\xfe"')


@pytest.fixture
async def watching(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watching]:
    monkeypatch.setattr(random, "uniform", lambda least, most: least)
    async with OwnApi().serving() as api, Watching(api).begun() as watching:
        yield watching


@pytest.mark.slow
async def test_what_is_listed_and_what_happens_then_is_in_the_store(watching: Watching) -> None:
    api = watching.api
    await watching.until_watching()
    await api.say(names.RUNS, line("ADDED", run("one", 101)))
    await api.say(names.QUEUES, line("ADDED", {"metadata": run("q", 102)["metadata"], "spec": {}}))
    spec = {"indices": "0-1", "template": {"spec": RUN_SPEC}}
    await api.say(names.RUN_SETS, line("ADDED", run("many", 103, spec=spec)))
    await watching.until(lambda: watching.runs == {"one": ""})
    await watching.until(lambda: len(watching.store.queues.cache) == len(watching.store.run_sets.cache) == 1)
    await api.say(names.RUNS, line("DELETED", run("one", 104)))
    await watching.until(lambda: not watching.runs)
    assert api.other == []


async def test_hostile_objects_neither_end_kopf_nor_hold_up_others(watching: Watching) -> None:
    """The API server takes 10,000 levels, and no bytes that are no text; who knows what it had stored before."""
    await watching.until_watching()
    big = run("big", 104)
    big["spec"] = RUN_SPEC | {"podTemplate": {"metadata": {"annotations": {"a": "x" * 2**20}}}}
    lines = [
        line("ADDED", deep("deep", 101, 9_000)),
        line("ADDED", deep("deepest", 102, 9_990)),
        line("ADDED", no_text("no-text", 103)),
        line("ADDED", big),
        b'{"type":"ADDED","object":{"metadata":{"uid":\n',
        line("ADDED", run("plain", 105)),
    ]
    await watching.api.say(names.RUNS, b"".join(lines))
    told = f"spec.podTemplate: {TOO_DEEP}"
    expected = {"deep": told, "deepest": told, "no-text": f"spec: {UNREADABLE}", "big": "", "plain": ""}
    await watching.until(lambda: watching.runs == expected)


async def test_hostile_objects_in_a_list_are_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async with OwnApi().serving() as api:
        objects = {"deep": deep("deep", 1, 9_000), "no-text": no_text("no-text", 2), "plain": orjson.dumps(run("p", 3))}
        api.objects[names.RUNS].update(objects)
        async with Watching(api).begun() as watching:
            await watching.until_watching()
            told = {"deep": f"spec.podTemplate: {TOO_DEEP}", "no-text": f"spec: {UNREADABLE}", "p": ""}
            assert watching.runs == told


@pytest.mark.slow
async def test_a_run_deleted_while_a_watch_was_down_is_gone_once_that_has_expired(watching: Watching) -> None:
    api = watching.api
    await watching.until_watching()
    await api.say(names.RUNS, line("ADDED", run("one", 101)), line("ADDED", run("two", 102)))
    await watching.until(lambda: len(watching.runs) == 2)
    api.objects[names.RUNS]["two"] = orjson.dumps(run("two", 102))
    api.version = 110
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    await api.say(names.RUNS, line("ERROR", gone))
    await watching.until(lambda: set(watching.runs) == {"two"})


async def test_a_run_whose_deletion_no_watch_ever_tells_is_gone_with_the_next_list(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_kinds, "_LIST_EVERY", 0.1)  # a minute
    await watching.until_watching()
    await watching.api.say(names.RUNS, line("ADDED", run("one", 101)))
    await watching.until(lambda: watching.runs == {"one": ""})
    watching.api.version = 110
    comparing = asyncio.create_task(watching.kinds.compare())
    await watching.until(lambda: not watching.runs)
    comparing.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("code", [400, 403, 404, 410, 422, 429, 500, 504])
async def test_no_answer_of_the_api_server_ends_kopf(watching: Watching, code: int) -> None:
    api = watching.api
    await watching.until_watching()
    api.refusals["watch", names.RUNS] = [code, code]
    api.refusals["list", names.RUNS] = [code]
    api.break_watches(names.RUNS)
    await watching.until(lambda: not api.refusals["watch", names.RUNS])
    await watching.until_watching()
    await api.say(names.RUNS, line("ADDED", run("one", 101)))
    await watching.until(lambda: watching.runs == {"one": ""})


@pytest.mark.slow
async def test_an_error_in_a_watch_has_the_kind_listed_anew(watching: Watching) -> None:
    api = watching.api
    await watching.until_watching()
    api.objects[names.RUNS]["one"] = orjson.dumps(run("one", 101))
    await api.say(names.RUNS, line("ERROR", {"kind": "Status", "code": 500, "message": "etcd is ill"}))
    await watching.until(lambda: watching.runs == {"one": ""})
    await watching.until_watching()


async def test_a_watch_goes_on_behind_echoes_too(watching: Watching) -> None:
    api = watching.api
    await watching.until_watching()
    watching.store.runs.apply(run("one", 150))  # the answer to a write of ours
    await api.say(names.RUNS, line("MODIFIED", run("one", 150)))
    begun = len(api.asked)
    api.break_watches(names.RUNS)
    await watching.until(lambda: ("watch", names.RUNS, "150") in api.asked[begun:])


@pytest.mark.slow
async def test_arrays_are_watched_once_they_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade without their CRD."""
    monkeypatch.setattr(own_kinds, "_ASK_EVERY", 0.05)
    async with OwnApi().serving() as api:
        api.served.remove(names.RUN_SETS)
        async with Watching(api).begun() as watching:
            await watching.until_watching()
            await watching.kinds.list_now()
            assert set(watching.kinds.ages()) == {"runs", "own-kinds"}
            api.served.add(names.RUN_SETS)
            await watching.until(lambda: api.watched(names.RUN_SETS))
            await watching.until_watching()
            assert max(watching.kinds.ages().values()) < 60


async def test_kopf_waits_for_the_definitions_of_runs_and_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_kinds, "_ASK_EVERY", 0.05)
    async with OwnApi().serving() as api:
        api.served.clear()
        async with Watching(api).begun() as watching:
            await watching.until(lambda: watching.task is not None)
            assert not any(age < 60 for age in watching.kinds.ages().values())
            api.served.update({names.RUNS, names.RUN_SETS, names.QUEUES})
            await watching.until_watching()


@pytest.mark.slow
async def test_a_token_that_is_refused_is_read_anew(watching: Watching) -> None:
    api = watching.api
    await watching.until_watching()
    api.refusals["watch", names.RUNS] = [401]
    api.break_watches(names.RUNS)
    await watching.until(lambda: not api.refusals["watch", names.RUNS])
    await watching.until_watching()
    assert json.dumps(api.other) == "[]"
