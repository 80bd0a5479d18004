"""The worker API's certificates: a CA of our own and a serving certificate, kept in one Secret.

The CA's key never leaves the Secret. Workers get its certificate in a ConfigMap and trust nothing else. How one CA
follows another is in ``succession``. Beside them lies what the certificates of steps are derived from
(``step_certificates``), which no change of CA touches.
"""

import ipaddress
import os
import ssl
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SECRET_NAME = "lockstep-worker-tls"
CA_LIFETIME = timedelta(days=3650)
SERVING_LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
BACKDATED = timedelta(days=1)
"""Nodes' clocks may be behind ours."""
KEPT_NAMES = 64
"""Of earlier certificates, in the one that is served."""
_KEYS = {"ca.crt": "ca_cert", "ca.key": "ca_key", "tls.crt": "cert", "tls.key": "key"}
STEPS_KEY_BYTES = 32
_SUCCESSION_KEYS = {"next-ca.crt": "next_ca_cert", "next-ca.key": "next_ca_key", "old-ca.crt": "old_ca_cert"}
_OPTIONAL_KEYS = {**_SUCCESSION_KEYS, "steps.key": "steps_key"}


@dataclass(frozen=True, slots=True)
class Material:
    """CA and serving certificate with their keys, PEM; the CA's successor or predecessor while there is one; and 32
    random bytes, from which the keys of steps' CAs are derived."""

    ca_cert: bytes
    ca_key: bytes
    cert: bytes
    key: bytes
    next_ca_cert: bytes = b""
    next_ca_key: bytes = b""
    old_ca_cert: bytes = b""
    steps_key: bytes = b""

    @property
    def ca_bundle(self) -> str:
        """What workers trust."""
        return (self.ca_cert + self.next_ca_cert + self.old_ca_cert).decode()


@dataclass(frozen=True, slots=True)
class SecretStore:
    """The Secret's three operations. Errors other than those named are raised."""

    read: Callable[[], Awaitable[Mapping[str, Any] | None]]
    """The Secret object, or None when there is none."""
    create: Callable[[Mapping[str, Any]], Awaitable[bool]]
    """False when one exists already (409)."""
    replace: Callable[[Mapping[str, Any]], Awaitable[bool]]
    """False when it changed since it was read (409)."""


async def ensure_material(
    secrets: SecretStore, namespace: str, hosts: Sequence[str], now: float, steps_key: bytes = b""
) -> Material:
    """The material in the Secret: made if absent or its CA has run out, its serving certificate made anew when due.

    ``hosts`` are the names and IP addresses that workers reach the operator by. ``steps_key`` is what this replica has
    read there before: a replica of an earlier release writes the Secret without. Replicas may do this
    at the same time: whoever is second takes what the first one wrote. Raises ValueError for a CA that cannot be used.
    """
    for _ in range(5):
        secret = await secrets.read()
        if secret is None:
            material = new_material(hosts, now)
            if await secrets.create(secret_of(namespace, material)):
                return material
            continue
        found = stored(secret)
        material = found if found.steps_key else replace(found, steps_key=steps_key or new_steps_key())
        if time_left(material.ca_cert, now) <= timedelta(0):
            # Nobody trusts it any more: there is no successor to wait for.
            anew = Material(*new_authority(now), material.cert, material.key, steps_key=material.steps_key)
            material = with_new_serving(anew, hosts, now)
        elif serving_is_due(material, hosts, now):
            material = with_new_serving(material, hosts, now)
        if material == found:
            return material
        if await secrets.replace(secret_of(namespace, material, secret)):
            return material
    raise RuntimeError(f"Secret {namespace}/{SECRET_NAME} changes faster than it can be written")


def new_material(hosts: Sequence[str], now: float) -> Material:
    """A new CA and a serving certificate by it."""
    return with_new_serving(Material(*new_authority(now), b"", b"", steps_key=new_steps_key()), hosts, now)


def new_steps_key() -> bytes:
    """What the keys of steps' CAs are derived from from now on."""
    return os.urandom(STEPS_KEY_BYTES)


def new_authority(now: float) -> tuple[bytes, bytes]:
    """Certificate and key of a new CA, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = common_name("Lockstep worker CA")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        builder(name, name, key.public_key(), now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return pem(certificate), key_pem(key)


def with_new_serving(material: Material, hosts: Sequence[str], now: float) -> Material:
    """The same CA, another serving key and certificate, for ``hosts`` and for the names of the one there was.

    Pods dial what they were made with for as long as they live, and replicas of two configurations share the Secret.
    """
    ca = x509.load_pem_x509_certificate(material.ca_cert)
    ca_key = serialization.load_pem_private_key(material.ca_key, None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        builder(common_name("lockstep-operator"), ca.subject, key.public_key(), now, SERVING_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names_after(material.cert, hosts)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return replace(material, cert=pem(certificate), key=key_pem(key))


def serving_is_due(material: Material, hosts: Sequence[str], now: float) -> bool:
    """The serving certificate runs out within 30 days, lacks a host or its key, is damaged, or not by this CA."""
    try:
        certificate = x509.load_pem_x509_certificate(material.cert)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(material.ca_cert))
        names = _names_of(certificate)
        if not _belong_together(certificate, material.key):
            return True
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return True
    return time_left(material.cert, now) < RENEW_BEFORE or any(_general_name(host) not in names for host in hosts)


def server_context(material: Material) -> ssl.SSLContext:
    """TLS 1.2 or newer with the serving certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_serving(context, material)
    return context


def load_serving(context: ssl.SSLContext, material: Material) -> None:
    """Put the serving certificate into a context, also one in use: new connections then get it."""
    # OpenSSL reads files only; one in memory keeps the key off disks and works on a read-only root.
    chain = os.memfd_create("lockstep-serving", os.MFD_CLOEXEC)
    try:
        with open(chain, "wb", closefd=False) as file:
            file.write(material.cert + material.key)
        context.load_cert_chain(f"/proc/self/fd/{chain}")
    finally:
        os.close(chain)


def age(certificate: bytes, now: float) -> timedelta:
    """How long ago it was made here; PEM."""
    made = x509.load_pem_x509_certificate(certificate).not_valid_before_utc + BACKDATED
    return datetime.fromtimestamp(now, UTC) - made


def time_left(certificate: bytes, now: float) -> timedelta:
    """Until it is not valid any more; PEM."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc - datetime.fromtimestamp(now, UTC)


def secret_of(namespace: str, material: Material, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The Secret with the material, in place of the one ``before`` and of no other."""
    values = {key: getattr(material, name) for key, name in (_KEYS | _OPTIONAL_KEYS).items()}
    data = {key: b64encode(value).decode() for key, value in values.items() if value}
    metadata = dict(before["metadata"]) if before else {"name": SECRET_NAME, "namespace": namespace}
    kind = before.get("type", "Opaque") if before else "Opaque"  # cannot be changed
    # The resourceVersion in it makes sure that nobody else's change is overwritten.
    return {"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": data}


def stored(secret: Mapping[str, Any]) -> Material:
    """The material in a Secret. Raises ValueError."""
    data = secret.get("data") or {}
    missing = [key for key in _KEYS if not data.get(key)]
    if missing:
        # Not ours to repair: running workers trust the CA that may still be in there.
        raise ValueError(f"Secret {SECRET_NAME} lacks {', '.join(missing)}; delete it to have it made anew")
    material = Material(**{name: b64decode(data.get(key, "")) for key, name in (_KEYS | _OPTIONAL_KEYS).items()})
    if not _is_authority(material.ca_cert, material.ca_key):
        raise ValueError(
            f"Secret {SECRET_NAME}: ca.crt and ca.key are no certificate with its key, by an elliptic curve; "
            "put them right, or delete the Secret to have it made anew"
        )
    # A damaged successor or predecessor is none: what is in use works without.
    if not _is_authority(material.next_ca_cert, material.next_ca_key):
        material = replace(material, next_ca_cert=b"", next_ca_key=b"")
    if len(material.steps_key) != STEPS_KEY_BYTES:
        material = replace(material, steps_key=b"")
    return material if _is_certificate(material.old_ca_cert) else replace(material, old_ca_cert=b"")


def _is_authority(certificate: bytes, key: bytes) -> bool:
    try:
        return _belong_together(x509.load_pem_x509_certificate(certificate), key)
    except (ValueError, TypeError):
        return False


def _is_certificate(text: bytes) -> bool:
    try:
        x509.load_pem_x509_certificate(text)
    except ValueError:
        return False
    return True


def _belong_together(certificate: x509.Certificate, key: bytes) -> bool:
    """Whether ``key`` is the certificate's, and of our kind. Raises ValueError or TypeError where it is no key."""
    private = serialization.load_pem_private_key(key, None)
    return isinstance(private, ec.EllipticCurvePrivateKey) and private.public_key() == certificate.public_key()


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: float,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    """A certificate without extensions, valid from a day before ``now`` on."""
    moment = datetime.fromtimestamp(int(now), UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(moment + lifetime)
    )


def key_usage(*, certificates: bool) -> x509.KeyUsage:
    """To sign certificates, or what a handshake has signed."""
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _names_after(served: bytes, hosts: Sequence[str]) -> list[x509.GeneralName]:
    """``hosts``, then the names of the certificate ``served`` until now, the newest first."""
    wanted = list(dict.fromkeys(_general_name(host) for host in hosts))
    try:
        before = _names_of(x509.load_pem_x509_certificate(served))
    except (ValueError, x509.ExtensionNotFound):
        return wanted
    return wanted + [name for name in before if name not in wanted][:KEPT_NAMES]


def _names_of(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def common_name(name: str) -> x509.Name:
    """A subject or issuer."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def pem(certificate: x509.Certificate) -> bytes:
    """As text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """As text, in the clear."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
