"""Certificates for steps: by real handshakes, as workers make them."""

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.controller.workers import step_certificates
from lockstep.controller.workers.step_certificates import StepCertificates, StepIdentity, WorkerOfAttempt
from support.manual_clock import ManualClock

SECRET = b"s" * 32
RUN = "7f1c2a34-1111-2222-3333-444455556666"
SERVER = WorkerOfAttempt(RUN, 3, 0, 1)
PEER = WorkerOfAttempt(RUN, 3, 1, 4)


def certificates(secret: bytes = SECRET, *, ahead: float = 0.0) -> StepCertificates:
    """Of one leader, whose clock may be ``ahead``."""
    made = StepCertificates(ManualClock(now=time.time() + ahead))
    made.use(secret)
    return made


def context(where: Path, identity: StepIdentity | None, side: Any, trust: StepIdentity | None = None) -> ssl.SSLContext:
    """As strict as Python has become; names are compared by URI, after the handshake."""
    made = ssl.SSLContext(side)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    trusted = trust or identity
    assert trusted is not None
    made.load_verify_locations(cadata=msgspec.json.decode(trusted.ca))
    if identity is not None:
        pem = where / f"{side}.pem"
        pem.write_text(identity.certificate + identity.key)
        made.load_cert_chain(pem)
    return made


async def uris(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[Any, Any]:
    """What each side learns of the other. Raises ssl.SSLError where one does not know the other."""
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peercert")["subjectAltName"])
        writer.write(b"!")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server)
    writer: asyncio.StreamWriter | None = None
    try:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        told = writer.get_extra_info("peercert")["subjectAltName"]
        if await reader.read() != b"!":  # TLS 1.3: a server's refusal comes with what is read first
            raise ssl.SSLError("hung up")
        return told, await seen
    finally:
        if writer is not None:
            writer.transport.abort()
        listener.close()


@pytest.mark.parametrize("ahead", [0.0, 40.0 * 86_400])
async def test_workers_whom_two_leaders_told_know_each_other(tmp_path: Path, ahead: float) -> None:
    server = certificates().issued(SERVER)
    peer = certificates(ahead=-ahead).issued(PEER)
    listens = context(tmp_path, server, ssl.PROTOCOL_TLS_SERVER)
    calls = context(tmp_path, peer, ssl.PROTOCOL_TLS_CLIENT)
    of_server, of_peer = await uris(listens, calls)
    assert of_server == (("URI", f"lockstep://run/{RUN}/attempt/3/slot/0/incarnation/1"),)
    assert of_peer == (("URI", f"lockstep://run/{RUN}/attempt/3/slot/1/incarnation/4"),)


@pytest.mark.parametrize(
    ("stranger", "secret"),
    [
        (WorkerOfAttempt("another-run", 3, 1, 4), SECRET),
        (WorkerOfAttempt(RUN, 2, 1, 4), SECRET),
        (WorkerOfAttempt(RUN, 33, 1, 4), SECRET),
        (PEER, b"another secret, of 32 bytes long"),
        (None, SECRET),
    ],
    ids=["another run", "an older attempt", "a later attempt", "another operator", "no certificate"],
)
async def test_nobody_else_gets_through_the_handshake(
    tmp_path: Path, stranger: WorkerOfAttempt | None, secret: bytes
) -> None:
    server = certificates().issued(SERVER)
    other = certificates(secret).issued(stranger) if stranger is not None else None
    listens = context(tmp_path, server, ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises((ssl.SSLError, ConnectionError)):  # it trusts the server, and is not trusted
        await uris(listens, context(tmp_path, other, ssl.PROTOCOL_TLS_CLIENT, trust=server))


async def test_a_server_of_another_attempt_is_not_trusted(tmp_path: Path) -> None:
    older = certificates().issued(WorkerOfAttempt(RUN, 2, 0, 1))
    mine = certificates().issued(PEER)
    with pytest.raises(ssl.SSLCertVerificationError):
        await uris(
            context(tmp_path, older, ssl.PROTOCOL_TLS_SERVER, trust=mine),
            context(tmp_path, mine, ssl.PROTOCOL_TLS_CLIENT),
        )


def test_nobody_can_issue_by_a_workers_own_certificate(tmp_path: Path) -> None:
    mine = certificates().issued(PEER)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.load_verify_locations(cadata=mine.certificate)
    assert trust.get_ca_certs() == [], "it is no CA"


def test_each_answer_has_a_key_of_its_own() -> None:
    issuer = certificates()
    first, second = issuer.issued(PEER), issuer.issued(PEER)
    assert first.key != second.key
    assert first.ca == second.ca, "made and encoded once for the gang"


def test_another_secret_is_used_from_then_on() -> None:
    issuer = certificates()
    before = issuer.issued(PEER)
    issuer.use(b"t" * 32)
    assert issuer.issued(PEER).ca != before.ca


def test_without_a_secret_nothing_is_issued() -> None:
    with pytest.raises(RuntimeError, match="nothing to derive"):
        StepCertificates(ManualClock()).issued(PEER)


def test_authorities_of_attempts_long_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_certificates, "AUTHORITIES_KEPT", 2)
    issuer = certificates()
    for attempt in range(5):
        issuer.issued(WorkerOfAttempt(RUN, attempt, 0, 1))
    assert len(issuer._authorities) == 2


class Ticking(ManualClock):
    """Each look at it takes two milliseconds."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + 0.002 * self.looks


async def test_a_gang_that_asks_at_once_leaves_the_others_their_turn() -> None:
    issuer = StepCertificates(Ticking(now=time.time()))
    issuer.use(SECRET)
    wanted = [asyncio.ensure_future(issuer.issue(WorkerOfAttempt(RUN, 3, slot, 1))) for slot in range(64)]
    done = []
    while not all(each.done() for each in wanted):
        await asyncio.sleep(0)
        done.append(sum(each.done() for each in wanted))
    assert max(later - earlier for earlier, later in zip([0, *done], done, strict=False)) <= 4
    assert len({(await each).key for each in wanted}) == 64


async def test_one_that_hangs_up_holds_up_nobody() -> None:
    issuer = certificates()
    gone, waits = (asyncio.ensure_future(issuer.issue(PEER)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await waits).certificate


def test_an_attempt_has_a_token_by_any_leader_the_same_and_no_other_attempt_has_it() -> None:
    mine, another = certificates(), certificates(ahead=1000.0)
    assert mine.token(RUN, 3) == another.token(RUN, 3)
    others = {mine.token(RUN, 4), mine.token(RUN[:-1] + "7", 3), certificates(b"t" * 32).token(RUN, 3)}
    assert mine.token(RUN, 3) not in others
    assert len(others) == 3
    assert len(bytes.fromhex(mine.token(RUN, 3))) == 32


def test_without_the_operators_secret_there_is_no_token() -> None:
    with pytest.raises(RuntimeError, match="nothing to derive"):
        certificates(b"").token(RUN, 3)
