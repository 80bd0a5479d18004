"""The worker API's CA and serving certificate."""

import asyncio
import ssl
import time
from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.controller.clock import ManualClock
from lockstep.controller.tls import (
    RENEWAL_CHECK_SECONDS,
    Material,
    SecretStore,
    ensure_material,
    keep_renewed,
    load_serving,
    new_material,
    server_context,
    serving_is_due,
    with_new_serving,
)

NOW = 1_750_000_000.0
DAY = 86_400.0
HOSTS = ("lockstep-operator.lockstep-system.svc", "127.0.0.1")


class Secret:
    """One Secret with the API server's rules for create and replace."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0

    async def read(self) -> Mapping[str, Any] | None:
        return self.object

    async def create(self, body: Mapping[str, Any]) -> bool:
        if self.object is not None:
            return False
        self._store(body)
        return True

    async def replace(self, body: Mapping[str, Any]) -> bool:
        assert self.object is not None
        if body["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"]:
            return False
        self._store(body)
        return True

    def _store(self, body: Mapping[str, Any]) -> None:
        self.version += 1
        self.writes += 1
        self.object = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    @property
    def store(self) -> SecretStore:
        return SecretStore(self.read, self.create, self.replace)


async def ensured(secret: Secret, *, hosts: tuple[str, ...] = HOSTS, now: float = NOW) -> Material:
    return await ensure_material(secret.store, "lockstep-system", hosts, now)


async def test_what_was_made_once_is_found_again() -> None:
    secret = Secret()
    made = await ensured(secret)
    assert await ensured(secret) == made
    assert secret.writes == 1
    assert "PRIVATE KEY" not in made.ca_bundle


async def test_two_replicas_that_start_together_end_up_with_one_ca() -> None:
    secret = Secret()
    await ensured(secret)
    taken = secret.object
    first_read = True

    async def read_before_the_other_wrote() -> Mapping[str, Any] | None:
        nonlocal first_read
        seen, first_read = (None if first_read else taken), False
        return seen

    store = SecretStore(read_before_the_other_wrote, secret.create, secret.replace)
    late = await ensure_material(store, "lockstep-system", HOSTS, NOW)
    assert late == await ensured(secret)
    assert secret.writes == 1


@pytest.mark.parametrize(
    ("hosts", "now", "renewed"),
    [
        (HOSTS, NOW + 334 * DAY, False),
        (HOSTS, NOW + 336 * DAY, True),
        ((*HOSTS, "10.96.0.7"), NOW, True),
        ((*HOSTS, "lockstep.example"), NOW, True),
        (HOSTS[:1], NOW, False),
    ],
    ids=["31 days left", "29 days left", "a new address", "a new name", "a host less"],
)
async def test_the_serving_certificate_is_made_anew_when_due_and_the_ca_never(
    hosts: tuple[str, ...], now: float, renewed: bool
) -> None:
    secret = Secret()
    first = await ensured(secret)
    second = await ensured(secret, hosts=hosts, now=now)
    assert (second.cert != first.cert) is renewed
    assert (second.ca_cert, second.ca_key) == (first.ca_cert, first.ca_key)
    assert not serving_is_due(second, hosts, now)
    assert await ensured(secret, hosts=hosts, now=now) == second


async def test_a_certificate_by_another_ca_is_replaced() -> None:
    ours, theirs = new_material(HOSTS, NOW), new_material(HOSTS, NOW)
    assert serving_is_due(Material(ours.ca_cert, ours.ca_key, theirs.cert, theirs.key), HOSTS, NOW)


async def test_a_secret_with_something_missing_is_not_overwritten() -> None:
    secret = Secret()
    await ensured(secret)
    assert secret.object is not None
    del secret.object["data"]["ca.key"]
    with pytest.raises(ValueError, match=r"lacks ca\.key; delete it"):
        await ensured(secret)
    assert secret.writes == 1


async def handshake(server: ssl.SSLContext, client: ssl.SSLContext, hostname: str) -> str | None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=server)
    port = listener.sockets[0].getsockname()[1]
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=hostname)
        version: str | None = writer.get_extra_info("ssl_object").version()
        writer.close()
        return version
    finally:
        listener.close()
        await listener.wait_closed()


def client_of(material: Material) -> ssl.SSLContext:
    """As strict as Python has become: the worker runs on whatever the user's image brings."""
    context = ssl.create_default_context(cadata=material.ca_bundle)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@pytest.fixture
def material() -> Material:
    return new_material(HOSTS, time.time())


@pytest.mark.parametrize("hostname", HOSTS)
async def test_a_worker_that_trusts_the_ca_accepts_name_and_address(material: Material, hostname: str) -> None:
    assert await handshake(server_context(material), client_of(material), hostname) == "TLSv1.3"


async def test_tls_1_2_is_spoken_and_nothing_older(material: Material) -> None:
    client = client_of(material)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await handshake(server_context(material), client, HOSTS[0]) == "TLSv1.2"
    assert server_context(material).minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_worker_with_another_ca_refuses_the_operator(material: Material) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server_context(material), client_of(new_material(HOSTS, NOW)), HOSTS[0])


async def test_a_renewed_certificate_is_taken_up_by_a_context_in_use(material: Material) -> None:
    server = server_context(material)
    client = client_of(material)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server, client, "10.96.0.7")
    load_serving(server, with_new_serving(material, [*HOSTS, "10.96.0.7"], time.time()))
    assert await handshake(server, client, "10.96.0.7")


async def test_an_operator_that_runs_for_a_year_renews_its_certificate_and_survives_an_outage() -> None:
    secret, clock = Secret(), ManualClock(now=time.time())
    first = await ensured(secret, now=clock.now())
    server = server_context(first)
    failing = False

    async def read() -> Mapping[str, Any] | None:
        if failing:
            raise OSError("connection refused")
        return await secret.read()

    store = SecretStore(read, secret.create, secret.replace)
    renewing = asyncio.ensure_future(keep_renewed(server, store, "lockstep-system", HOSTS, clock))
    await clock.advance(334 * DAY)
    assert secret.writes == 1
    failing = True
    await clock.advance(2 * DAY)
    assert not renewing.done()
    failing = False
    await clock.advance(RENEWAL_CHECK_SECONDS)
    assert secret.writes == 2
    renewing.cancel()
