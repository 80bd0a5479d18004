"""Requests in the name of others: whose connection it is, and whose token."""

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.config import ConfigException

from lockstep.controller.kube.caller import CallerApi
from lockstep.controller.kube.credentials import Credentials, load_credentials
from lockstep.controller.kube.errors import UnreachableError
from lockstep.controller.workers.tls import new_authority
from support.manual_clock import ManualClock
from support.web_api import ApiServer

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: CA}}]
users: [{name: u, user: {client-certificate: CERT, client-key: KEY}}]
"""


async def test_no_client_certificate_of_the_operator_is_shown_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it the API server would take the caller for the operator, whatever token comes along."""
    certificate, key = new_authority(0.0)[:2]
    for name, content in (("CA", certificate), ("CERT", certificate), ("KEY", key)):
        (tmp_path / name).write_bytes(content)
    shown: list[ssl.SSLContext] = []
    load = ssl.SSLContext.load_cert_chain
    monkeypatch.setattr(
        ssl.SSLContext, "load_cert_chain", lambda self, *args: (shown.append(self), load(self, *args))[1]
    )
    path = tmp_path / "config"
    path.write_text(
        KUBECONFIG.replace(": CA", f": {tmp_path}/CA")
        .replace("CERT", f"{tmp_path}/CERT")
        .replace("KEY", f"{tmp_path}/KEY")
    )
    found = await load_credentials(str(path))
    assert shown == [found.ssl]
    assert isinstance(found.trust, ssl.SSLContext)
    assert found.trust is not found.ssl
    assert found.trust.verify_mode is ssl.CERT_REQUIRED


async def test_requests_of_others_go_by_the_trust_that_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    own, trust = ssl.create_default_context(), ssl.create_default_context()

    async def credentials() -> Credentials:
        return Credentials("https://127.0.0.1:1", own, None, ApiServer().credentials, trust)  # type: ignore[arg-type]

    shown: list[Any] = []
    request = aiohttp.ClientSession.request

    def seen(self: Any, *args: Any, **options: Any) -> Any:
        shown.append((options["ssl"], options["headers"]))
        return request(self, *args, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "request", seen)
    caller = CallerApi(credentials, ManualClock())
    with pytest.raises(UnreachableError):
        await caller.patch("/x", {}, "theirs")
    with pytest.raises(UnreachableError):
        async with caller.stream("/x", {}, "theirs"):
            pass
    assert [each[0] is trust for each in shown] == [True, True]
    assert {each[1]["Authorization"] for each in shown} == {"Bearer theirs"}
    await caller.close()


async def test_without_a_token_nothing_is_sent() -> None:
    api = ApiServer()
    caller = CallerApi(api.credentials, ManualClock())
    with pytest.raises(ValueError, match="token"):
        await caller.patch("/x", {}, "")
    await caller.close()


async def test_where_the_api_server_is_unknown_nothing_is_sent() -> None:
    async def broken() -> Credentials:
        raise ConfigException("no file")

    with pytest.raises(UnreachableError):
        await CallerApi(broken, ManualClock()).patch("/x", {}, "t")
