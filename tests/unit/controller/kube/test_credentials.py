"""Credentials of a pod's service account, and what kopf is given of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kubernetes.aio.config import incluster_config

from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.credentials import Credentials, load_credentials
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.store.own_kinds import OwnKinds
from lockstep.controller.store.store import Store
from lockstep.controller.workers.tls import new_authority
from support.manual_clock import ManualClock


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a service account, as in a pod."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return tmp_path


def own_kinds(clock: ManualClock, token: dict[str, str]) -> OwnKinds:
    async def authorization() -> str:
        return f"Bearer {token['now']}"

    async def load() -> Credentials:
        return Credentials("https://[fd00::1]:443", False, None, authorization)

    return OwnKinds(Store(WorkQueue(clock), clock), KubeClient(load, clock), clock, load)


async def test_a_pods_token_is_that_of_the_file_whenever_it_is_read_anew(account: Path) -> None:
    (account / "ca.crt").write_bytes(new_authority(0.0)[0])
    for token in ("first", "second"):
        (account / "token").write_text(token)
        credentials = await load_credentials()
        assert credentials.server == "https://[fd00::1]:443"
        assert (await credentials.authorization() or "").lower() == f"bearer {token}"


async def test_kopf_sends_what_is_there_now_each_time_it_was_refused_and_asks_no_faster_than_that_changes() -> None:
    clock, token = ManualClock(), {"now": "first"}
    kinds = own_kinds(clock, token)
    first = await kinds.log_in()
    refused = asyncio.create_task(kinds.log_in())
    await clock.advance(1.0)
    assert not refused.done()
    token["now"] = "second"
    await clock.advance(1.0)
    second = await refused
    sent = [each.aiohttp_session.headers["Authorization"] for each in (first, second)]
    assert sent == ["Bearer first", "Bearer second"]
    assert first.server == second.server == "https://[fd00::1]:443"
    for each in (first, second):
        await each.aiohttp_session.close()
