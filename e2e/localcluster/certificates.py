"""Keys and certificates of one local cluster: an authority for Kubernetes, one for etcd, and their clients.

The two authorities are separate so that a Kubernetes client certificate opens no door to etcd.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=365)
CLOCK_TOLERANCE = datetime.timedelta(hours=1)
SERVER_NAMES = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",  # the first address of the service range: what in-cluster clients are told to use
)


@dataclass(frozen=True)
class Identity:
    """A Kubernetes client: its user name, its groups, and the file names of its certificate and key."""

    file: str
    user: str
    groups: tuple[str, ...] = ()


IDENTITIES = (
    Identity("admin", "lockstep-local-admin", ("system:masters",)),
    Identity("scheduler", "system:kube-scheduler"),
    Identity("controller-manager", "system:kube-controller-manager"),
    # kwok plays every simulated node and its pods: no narrower role fits.
    Identity("kwok", "kwok", ("system:masters",)),
    # What the API server shows to kubelets, for logs and exec.
    Identity("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)),
)


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def write_all(directory: Path, extra_names: Sequence[str] = ()) -> None:
    """Writes every key and certificate of a new cluster as PEM files into `directory` (keys readable by the
    owner only). `extra_names` are further DNS names or addresses of the API server's serving certificate."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)

    kubernetes = _new_authority("lockstep-local")
    _write_certificate(directory / "ca.crt", kubernetes.certificate)
    _write_key(directory / "ca.key", kubernetes.key)
    _issue(directory, "server", kubernetes, "kube-apiserver", names=(*SERVER_NAMES, *extra_names))
    for identity in IDENTITIES:
        _issue(directory, identity.file, kubernetes, identity.user, groups=identity.groups)

    etcd = _new_authority("lockstep-local-etcd")
    _write_certificate(directory / "etcd-ca.crt", etcd.certificate)
    _issue(directory, "etcd", etcd, "etcd", names=("127.0.0.1", "localhost"))
    _issue(directory, "etcd-client", etcd, "kube-apiserver")

    signing_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(directory / "service-account.key", signing_key)
    public = signing_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (directory / "service-account.pub").write_bytes(public)


def _new_authority(name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _unsigned(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _issue(
    directory: Path,
    file: str,
    authority: Authority,
    user: str,
    *,
    groups: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """Writes `file`.crt and `file`.key: a client certificate, and a serving one too when it has names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    # etcd dials itself with its serving certificate, so a serving certificate is a client's as well.
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if names else [])]
    builder = (
        _unsigned(subject, authority.certificate.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
    _write_certificate(directory / f"{file}.crt", builder.sign(authority.key, hashes.SHA256()))
    _write_key(directory / f"{file}.key", key)


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + VALIDITY)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
