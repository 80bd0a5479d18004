"""The worker API's CA and serving certificate."""

import ssl
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509

from lockstep.controller.workers.tls import (
    CA_LIFETIME,
    KEPT_NAMES,
    Material,
    SecretStore,
    ensure_material,
    load_serving,
    new_material,
    secret_of,
    server_context,
    serving_is_due,
    time_left,
    with_new_serving,
)
from support.tls import FakeSecret, client_of, handshake

NOW = 1_750_000_000.0
DAY = 86_400.0
HOSTS = ("lockstep-operator.lockstep-system.svc", "127.0.0.1")


async def ensured(secret: FakeSecret, *, hosts: tuple[str, ...] = HOSTS, now: float = NOW) -> Material:
    return await ensure_material(secret.store, "lockstep-system", hosts, now)


async def test_what_was_made_once_is_found_again() -> None:
    secret = FakeSecret()
    made = await ensured(secret)
    assert await ensured(secret) == made
    assert secret.writes == 1
    assert "PRIVATE KEY" not in made.ca_bundle


@pytest.mark.parametrize("lacks", ["", "too short"])
async def test_what_steps_are_derived_from_is_made_in_a_secret_of_an_earlier_release(lacks: str) -> None:
    secret = FakeSecret()
    before = await ensured(secret)
    assert len(before.steps_key) == 32
    assert secret.object is not None
    secret.object = secret_of("lockstep-system", replace(before, steps_key=lacks.encode()), secret.object)
    first, second = await ensured(secret), await ensured(secret)
    assert first == second == replace(before, steps_key=first.steps_key), "and nothing else is made anew"
    assert first.steps_key not in (before.steps_key, b"")
    assert len(first.steps_key) == 32


async def test_two_replicas_that_make_it_at_once_end_up_with_one() -> None:
    secret = FakeSecret()
    before = await ensured(secret)
    assert secret.object is not None
    secret.object = secret_of("lockstep-system", replace(before, steps_key=b""), secret.object)
    seen, first_read = secret.object, True

    async def read_before_the_other_wrote() -> Mapping[str, Any] | None:
        nonlocal first_read
        found, first_read = (seen if first_read else secret.object), False
        return found

    other = await ensured(secret)
    store = SecretStore(read_before_the_other_wrote, secret.create, secret.replace)
    late = await ensure_material(store, "lockstep-system", HOSTS, NOW)
    assert late.steps_key == other.steps_key


async def test_what_an_earlier_release_leaves_out_of_the_secret_is_put_back() -> None:
    secret = FakeSecret()
    before = await ensured(secret)
    assert secret.object is not None
    secret.object = secret_of("lockstep-system", replace(before, steps_key=b""), secret.object)
    assert await ensure_material(secret.store, "lockstep-system", HOSTS, NOW, before.steps_key) == before


async def test_a_ca_that_has_run_out_changes_nothing_for_steps() -> None:
    secret = FakeSecret()
    before = await ensured(secret)
    after = await ensured(secret, now=NOW + CA_LIFETIME.total_seconds() + DAY)
    assert after.ca_cert != before.ca_cert
    assert after.steps_key == before.steps_key


async def test_two_replicas_that_start_together_end_up_with_one_ca() -> None:
    secret = FakeSecret()
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
    secret = FakeSecret()
    first = await ensured(secret)
    second = await ensured(secret, hosts=hosts, now=now)
    assert (second.cert != first.cert) is renewed
    assert (second.ca_cert, second.ca_key) == (first.ca_cert, first.ca_key)
    assert not serving_is_due(second, hosts, now)
    assert await ensured(secret, hosts=hosts, now=now) == second


def served_names(material: Material) -> list[str]:
    certificate = x509.load_pem_x509_certificate(material.cert)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


async def test_workers_that_dial_the_address_of_before_are_served_after_it_was_changed() -> None:
    secret, now = FakeSecret(), time.time()
    await ensured(secret, now=now)
    material = await ensured(secret, hosts=("lockstep.example",), now=now)
    for host in ("lockstep.example", *HOSTS):
        assert await handshake(server_context(material), client_of(material.ca_bundle), host) == "TLSv1.3"
    renewed = await ensured(secret, hosts=("lockstep.example",), now=now + 336 * DAY)
    assert served_names(renewed) == served_names(material)


async def test_a_ca_that_takes_the_place_of_one_that_ran_out_signs_for_the_names_of_before() -> None:
    secret = FakeSecret()
    await ensured(secret)
    late = await ensured(secret, hosts=("lockstep.example",), now=NOW + CA_LIFETIME.total_seconds() + DAY)
    assert served_names(late) == ["lockstep.example", *HOSTS]


async def test_two_replicas_with_other_addresses_do_not_make_the_certificate_in_turns() -> None:
    secret = FakeSecret()
    for _ in range(3):
        await ensured(secret)
        await ensured(secret, hosts=("lockstep.example",))
    assert secret.writes == 2


async def test_two_replicas_with_other_addresses_that_write_at_once_end_up_with_those_of_both() -> None:
    secret = FakeSecret()
    await ensured(secret, hosts=("first.example",))
    seen, first_read = secret.object, True

    async def read_before_the_other_wrote() -> Mapping[str, Any] | None:
        nonlocal first_read
        found, first_read = (seen if first_read else secret.object), False
        return found

    await ensured(secret, hosts=("second.example",))
    store = SecretStore(read_before_the_other_wrote, secret.create, secret.replace)
    late = await ensure_material(store, "lockstep-system", ("third.example",), NOW)
    assert served_names(late) == ["third.example", "second.example", "first.example"]


async def test_names_of_before_are_forgotten_the_oldest_first_where_they_become_many() -> None:
    secret = FakeSecret()
    for each in range(KEPT_NAMES + 3):
        material = await ensured(secret, hosts=(f"{each}.example", *HOSTS))
    newest = [f"{each}.example" for each in reversed(range(2, KEPT_NAMES + 3))]
    assert served_names(material) == [newest[0], *HOSTS, *newest[1:]]


async def test_a_certificate_by_another_ca_is_replaced() -> None:
    ours, theirs = new_material(HOSTS, NOW), new_material(HOSTS, NOW)
    assert serving_is_due(Material(ours.ca_cert, ours.ca_key, theirs.cert, theirs.key), HOSTS, NOW)


async def test_a_secret_with_something_missing_is_not_overwritten() -> None:
    secret = FakeSecret()
    await ensured(secret)
    assert secret.object is not None
    del secret.object["data"]["ca.key"]
    with pytest.raises(ValueError, match=r"lacks ca\.key; delete it"):
        await ensured(secret)
    assert secret.writes == 1


ANOTHER = new_material(HOSTS, NOW)


@pytest.mark.parametrize(
    "damage",
    [{"ca_cert": b"half a certif"}, {"ca_key": b"x"}, {"ca_key": ANOTHER.ca_key}],
    ids=["no certificate", "no key", "the key of another"],
)
async def test_a_ca_that_signs_nothing_is_told_and_not_overwritten(damage: dict[str, bytes]) -> None:
    secret = FakeSecret()
    await secret.create(secret_of("lockstep-system", replace(new_material(HOSTS, NOW), **damage)))
    with pytest.raises(ValueError, match=r"ca\.crt and ca\.key .* delete the Secret"):
        await ensured(secret)
    assert secret.writes == 1


@pytest.mark.parametrize(
    "damage",
    [{"cert": b"half a certif"}, {"key": b"x"}, {"key": ANOTHER.key}, {"cert": ANOTHER.cert, "key": ANOTHER.key}],
    ids=["no certificate", "no key", "the key of another", "another's"],
)
async def test_a_damaged_serving_certificate_is_made_anew(damage: dict[str, bytes]) -> None:
    whole, secret = new_material(HOSTS, time.time()), FakeSecret()
    await secret.create(secret_of("lockstep-system", replace(whole, **damage)))
    mended = await ensured(secret, now=time.time())
    assert mended.ca_cert == whole.ca_cert
    assert await handshake(server_context(mended), client_of(whole.ca_bundle), HOSTS[0]) == "TLSv1.3"
    assert (await ensured(secret, now=time.time()), secret.writes) == (mended, 2)


@pytest.mark.parametrize(
    "damage",
    [{"next_ca_cert": ANOTHER.ca_cert}, {"next_ca_cert": b"x", "next_ca_key": b"x"}, {"old_ca_cert": b"x"}],
    ids=["a successor without its key", "no successor", "no predecessor"],
)
async def test_what_is_in_use_works_without_a_damaged_successor_or_predecessor(damage: dict[str, bytes]) -> None:
    whole, secret = new_material(HOSTS, NOW), FakeSecret()
    await secret.create(secret_of("lockstep-system", replace(whole, **damage)))
    assert await ensured(secret) == whole


async def test_a_ca_that_ran_out_while_no_operator_ran_is_replaced_at_once() -> None:
    secret = FakeSecret()
    first = await ensured(secret)
    late = NOW + CA_LIFETIME.total_seconds() + DAY
    second = await ensured(secret, now=late)
    assert second.ca_cert != first.ca_cert
    assert time_left(second.ca_cert, late) > CA_LIFETIME - timedelta(days=1)


@pytest.fixture
def material() -> Material:
    return new_material(HOSTS, time.time())


@pytest.mark.parametrize("hostname", HOSTS)
async def test_a_worker_that_trusts_the_ca_accepts_name_and_address(material: Material, hostname: str) -> None:
    assert await handshake(server_context(material), client_of(material.ca_bundle), hostname) == "TLSv1.3"


async def test_tls_1_2_is_spoken_and_nothing_older(material: Material) -> None:
    client = client_of(material.ca_bundle)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert await handshake(server_context(material), client, HOSTS[0]) == "TLSv1.2"
    assert server_context(material).minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_worker_with_another_ca_refuses_the_operator(material: Material) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server_context(material), client_of(new_material(HOSTS, NOW).ca_bundle), HOSTS[0])


async def test_a_renewed_certificate_is_taken_up_by_a_context_in_use(material: Material) -> None:
    server = server_context(material)
    client = client_of(material.ca_bundle)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(server, client, "10.96.0.7")
    load_serving(server, with_new_serving(material, [*HOSTS, "10.96.0.7"], time.time()))
    assert await handshake(server, client, "10.96.0.7")
