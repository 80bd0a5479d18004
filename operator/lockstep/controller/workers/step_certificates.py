"""Certificates for steps: by them the workers of one attempt know each other, and nobody else is known to them.

Each attempt of each run has a CA of its own. Its key is derived from what lies in the operator's Secret, so that any
leader issues by the same CA and nothing of it is stored. A worker's certificate says in a URI whose it is: run,
attempt, slot and incarnation. It is given to nobody but the worker of that slot and incarnation, when that is to start
the attempt; it lasts as long as its CA, as an attempt may, and nobody trusts that CA any more once the attempt is over.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec import Raw

from lockstep.controller.runtime.clock import Clock
from lockstep.controller.workers.tls import builder, common_name, key_pem, key_usage, pem

LIFETIME = timedelta(days=3650)
AUTHORITIES_KEPT = 1024
AT_A_TIME = 0.005
"""Seconds that the event loop is held: all of a gang ask in the same moment."""
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256: a private key is a number below it."""
_TOKEN_BYTES = 32
_KEY_BYTES = 48  # so many more than a key has that the remainder is as good as evenly spread


@dataclass(frozen=True, slots=True)
class WorkerOfAttempt:
    """Who is named in a certificate."""

    run_uid: str
    attempt: int
    slot: int
    incarnation: int

    @property
    def uri(self) -> str:
        """As the certificate has it."""
        return f"lockstep://run/{self.run_uid}/attempt/{self.attempt}/slot/{self.slot}/incarnation/{self.incarnation}"


@dataclass(frozen=True, slots=True)
class StepIdentity:
    """What a worker gets: its attempt's CA, encoded once, and a certificate with its key, PEM."""

    ca: Raw
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    subject: x509.Name
    identifier: x509.AuthorityKeyIdentifier
    encoded: Raw


class StepCertificates:
    """Issues them. On the event loop's thread, a few milliseconds at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._secret = b""
        self._authorities: OrderedDict[tuple[str, int], _Authority] = OrderedDict()
        self._asked: deque[tuple[WorkerOfAttempt, asyncio.Future[StepIdentity]]] = deque()

    def use(self, secret: bytes) -> None:
        """Derive from it from now on."""
        if secret != self._secret:
            self._secret = secret
            self._authorities.clear()

    async def issue(self, worker: WorkerOfAttempt) -> StepIdentity:
        """Another certificate at each call. The caller knows that it talks to this worker."""
        loop = asyncio.get_running_loop()
        wanted: asyncio.Future[StepIdentity] = loop.create_future()
        self._asked.append((worker, wanted))
        if len(self._asked) == 1:
            loop.call_soon(self._issue_some)
        return await wanted

    def _issue_some(self) -> None:
        until = self._clock.monotonic() + AT_A_TIME
        while self._asked:
            worker, wanted = self._asked[0]
            if not wanted.done():  # who asked has hung up meanwhile
                try:
                    wanted.set_result(self.issued(worker))
                except Exception as error:
                    wanted.set_exception(error)
            self._asked.popleft()
            if self._asked and self._clock.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self._issue_some)
                return

    def issued(self, worker: WorkerOfAttempt) -> StepIdentity:
        """At once."""
        authority = self._authority(worker.run_uid, worker.attempt)
        key = ec.generate_private_key(ec.SECP256R1())
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            builder(
                common_name(f"slot {worker.slot}"), authority.subject, key.public_key(), self._clock.now(), LIFETIME
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(worker.uri)]), critical=False)
            .add_extension(authority.identifier, critical=False)
            .sign(authority.key, hashes.SHA256())
        )
        return StepIdentity(authority.encoded, pem(certificate).decode("ascii"), key_pem(key).decode("ascii"))

    def token(self, run_uid: str, attempt: int) -> str:
        """A secret that the workers of one attempt share, by any leader the same. It says nothing of any other."""
        if not self._secret:
            raise RuntimeError("there is nothing to derive the tokens of attempts from")
        info = f"lockstep token/{run_uid}/{attempt}".encode()
        return HKDF(hashes.SHA256(), _TOKEN_BYTES, salt=None, info=info).derive(self._secret).hex()

    def _authority(self, run_uid: str, attempt: int) -> _Authority:
        known = self._authorities.get((run_uid, attempt))
        if known is not None:
            self._authorities.move_to_end((run_uid, attempt))
            return known
        if not self._secret:
            raise RuntimeError("there is nothing to derive the certificates of steps from")
        key = _derived_key(self._secret, run_uid, attempt)
        subject = common_name(f"Lockstep steps of attempt {attempt}")
        certificate = (
            builder(subject, subject, key.public_key(), self._clock.now(), LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        encoded = Raw(msgspec.json.encode(pem(certificate).decode("ascii")))
        made = self._authorities[run_uid, attempt] = _Authority(key, subject, identifier, encoded)
        if len(self._authorities) > AUTHORITIES_KEPT:
            self._authorities.popitem(last=False)
        return made


def _derived_key(secret: bytes, run_uid: str, attempt: int) -> ec.EllipticCurvePrivateKey:
    info = f"lockstep steps/{run_uid}/{attempt}".encode()
    derived = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=info).derive(secret)
    return ec.derive_private_key(int.from_bytes(derived, "big") % (_ORDER - 1) + 1, ec.SECP256R1())
