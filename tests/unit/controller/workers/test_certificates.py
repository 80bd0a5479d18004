"""Certificates of an operator that runs for years: renewed in time, the CA followed by another, nobody turned away."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from lockstep.api.base import names
from lockstep.controller.kube.errors import ApiError, KubeError, UnknownOutcome, UnreachableError
from lockstep.controller.workers.certificates import Certificates, first_material
from lockstep.controller.workers.succession import RENEW_CA_BEFORE, next_step
from lockstep.controller.workers.tls import (
    CA_LIFETIME,
    Material,
    SecretStore,
    ensure_material,
    new_material,
    server_context,
    stored,
)
from support.manual_clock import ManualClock
from support.tls import FakeSecret, client_of, handshake

HOSTS = ("lockstep-operator.lockstep-system.svc",)
DAY = 86_400.0
OVERLAP = timedelta(days=1)
EVERY = DAY / 4  # at 5 minutes a year takes long


class World:
    """One replica, its Secret, and the ConfigMap of one namespace."""

    def __init__(self) -> None:
        self.clock = ManualClock(now=time.time() - 60 * DAY)  # handshakes go by the real time
        self.secret = FakeSecret()
        self.trusted = ""  # by launches from now on
        self.steps_keys: set[bytes] = set()
        self.published: list[str] = []  # bundles, in order
        self.leads = True
        self.publishes = True
        self.is_away = False
        self.server: ssl.SSLContext
        self.keeping: asyncio.Task[None]

    async def begin(self) -> None:
        material = await ensure_material(self.secret.store, "system", HOSTS, self.clock.now())
        self.server = server_context(material)
        self.keeping = asyncio.ensure_future(self.replica(self.server).keep())

    def replica(self, server: ssl.SSLContext, *, leads: bool = True) -> Certificates:
        store = self.secret.store
        return Certificates(
            server,
            type(store)(self._read, store.create, store.replace),
            "system",
            HOSTS,
            self.clock,
            overlap=OVERLAP.total_seconds(),
            leads=lambda: leads and self.leads,
            trust=self._trust,
            steps=self.steps_keys.add,
            publish=self._publish,
            every=EVERY,
        )

    async def _read(self) -> Mapping[str, Any] | None:
        if self.is_away:
            raise OSError("connection refused")
        return await self.secret.read()

    def _trust(self, bundle: str) -> None:
        self.trusted = bundle

    async def _publish(self) -> bool:
        if self.publishes and self.published[-1:] != [self.trusted]:
            self.published.append(self.trusted)
        return self.publishes

    @property
    def material(self) -> Material:
        assert self.secret.object is not None
        return stored(self.secret.object)

    def ask(self) -> None:
        """Annotate the Secret, as an administrator would."""
        assert self.secret.object is not None
        self.secret.object["metadata"]["annotations"] = {names.ANNOTATION_ROTATE_CA: "now"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.begin()
    yield world
    world.keeping.cancel()


async def test_a_replica_that_starts_in_an_outage_waits_for_its_end() -> None:
    clock, secret = ManualClock(), FakeSecret()
    troubles: list[KubeError] = [
        UnreachableError("connection refused"),
        ApiError(503, "ServiceUnavailable", "no etcd"),
        ApiError(429, "TooManyRequests", "later"),
        UnknownOutcome("no answer", 0),
    ]

    async def read() -> Mapping[str, Any] | None:
        if troubles:
            raise troubles.pop()
        return await secret.read()

    store = SecretStore(read, secret.create, secret.replace)
    waiting = asyncio.ensure_future(first_material(store, "system", HOSTS, clock))
    await clock.advance(10)
    assert secret.object is not None
    assert await waiting == stored(secret.object)


async def test_a_replica_that_may_not_read_its_certificates_says_so_and_ends() -> None:
    async def read() -> Mapping[str, Any] | None:
        raise ApiError(403, "Forbidden", "secrets is forbidden")

    secret = FakeSecret()
    with pytest.raises(ApiError, match="forbidden"):
        await first_material(SecretStore(read, secret.create, secret.replace), "system", HOSTS, ManualClock())


@pytest.mark.slow
async def test_a_serving_certificate_is_renewed_in_time_and_through_an_outage(world: World) -> None:
    first = world.material
    await world.clock.advance(334 * DAY)
    assert world.material == first
    world.is_away = True
    await world.clock.advance(2 * DAY)
    assert not world.keeping.done()
    world.is_away = False
    await world.clock.advance(EVERY)
    assert world.material.cert != first.cert
    assert world.material.ca_cert == first.ca_cert


async def test_a_worker_one_step_behind_or_ahead_is_served_in_every_step_of_a_change_of_ca(world: World) -> None:
    first = world.material
    world.ask()
    servers, bundles = [first], [first.ca_bundle]
    for _ in range(40):
        await world.clock.advance(DAY / 8)
        if world.material != servers[-1]:
            servers.append(world.material)
            bundles.append(world.trusted)
    assert [bundle.count("BEGIN CERTIFICATE") for bundle in bundles] == [1, 2, 2, 1]
    assert world.published == bundles
    assert servers[-1].ca_cert != first.ca_cert
    assert servers[-1].old_ca_cert == servers[-1].next_ca_cert == b""
    for step, material in enumerate(servers):
        for bundle in bundles[max(0, step - 1) : step + 2]:
            assert await handshake(server_context(material), client_of(bundle), HOSTS[0]) == "TLSv1.3"
    assert world.steps_keys == {first.steps_key}, "and steps go on meanwhile"
    # And it was a change: who missed all of it is turned away.
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server_context(servers[-1]), client_of(bundles[0]), HOSTS[0])
    assert await handshake(world.server, client_of(bundles[-1]), HOSTS[0]) == "TLSv1.3"  # the context in use has it


@pytest.mark.slow
async def test_what_was_asked_for_is_done_once(world: World) -> None:
    world.ask()
    await world.clock.advance(30 * DAY)
    settled = world.material
    assert world.secret.object is not None
    assert names.ANNOTATION_ROTATE_CA not in world.secret.object["metadata"]["annotations"]
    await world.clock.advance(30 * DAY)
    assert world.material == settled


async def test_a_ca_that_has_a_year_left_gets_a_successor_by_itself() -> None:
    made = time.time()
    material = new_material(HOSTS, made)
    near_the_end = made + (CA_LIFETIME - RENEW_CA_BEFORE).total_seconds()

    def step(now: float) -> Material:
        return next_step(material, HOSTS, now, overlap=OVERLAP, published_for=timedelta(days=9), asked=False)

    assert step(near_the_end - DAY) == material
    assert step(near_the_end + DAY).next_ca_cert


async def test_no_step_is_taken_before_every_namespace_has_the_bundle(world: World) -> None:
    world.publishes = False
    world.ask()
    await world.clock.advance(10 * DAY)
    assert world.material.next_ca_cert
    world.publishes = True
    await world.clock.advance(EVERY)
    assert world.material.next_ca_cert  # known for a moment only
    await world.clock.advance(2 * EVERY)
    assert world.material.old_ca_cert


async def test_a_new_leader_gives_kubelets_their_time_again(world: World) -> None:
    world.ask()
    await world.clock.advance(DAY / 2)
    world.keeping.cancel()
    await world.clock.advance(10 * DAY)  # nobody led
    world.keeping = asyncio.ensure_future(world.replica(world.server).keep())
    await world.clock.advance(0)
    assert world.material.next_ca_cert
    await world.clock.advance(DAY)
    assert not world.material.next_ca_cert


async def test_a_standby_takes_no_step_and_takes_up_those_of_the_leader(world: World) -> None:
    context = server_context(world.material)
    standby = asyncio.ensure_future(world.replica(context, leads=False).keep())
    world.leads = False
    world.ask()
    await world.clock.advance(3 * DAY)
    assert world.material.next_ca_cert == b""
    world.leads = True
    await world.clock.advance(4 * DAY)
    bundle = world.material.ca_bundle
    assert bundle.count("BEGIN CERTIFICATE") == 1
    assert await handshake(context, client_of(bundle), HOSTS[0]) == "TLSv1.3"
    standby.cancel()


async def test_a_secret_that_was_deleted_is_made_anew_and_published_at_once(world: World) -> None:
    first = world.material
    world.secret.object = None
    await world.clock.advance(EVERY)
    assert world.material.ca_cert != first.ca_cert
    assert world.published[-1] == world.material.ca_bundle
    assert await handshake(world.server, client_of(world.published[-1]), HOSTS[0]) == "TLSv1.3"


async def test_what_steps_are_derived_from_outlives_a_write_by_an_earlier_release(world: World) -> None:
    first = world.material
    await world.clock.advance(EVERY)
    assert world.secret.object is not None
    del world.secret.object["data"]["steps.key"]
    await world.clock.advance(EVERY)
    assert world.material == first
    assert world.steps_keys == {first.steps_key}


async def test_two_cas_of_one_name_are_told_apart_by_their_keys(world: World) -> None:
    one, other = new_material(HOSTS, time.time()), new_material(HOSTS, time.time())
    subjects = {x509.load_pem_x509_certificate(each.ca_cert).subject for each in (one, other)}
    assert len(subjects) == 1
    both = one.ca_bundle + other.ca_bundle
    for material in (one, other):
        assert await handshake(server_context(material), client_of(both), HOSTS[0]) == "TLSv1.3"
