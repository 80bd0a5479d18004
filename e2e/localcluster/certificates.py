"""Keys and certificates of one local cluster: an authority for Kubernetes, one for etcd, and their clients.

The two authorities are separate so that a Kubernetes client certificate opens no door to etcd.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trustme import CA, KeyType, LeafCert

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
    """A Kubernetes client: its user name, its group, and the file names of its certificate and key."""

    file: str
    user: str
    group: str = "lockstep-local"


IDENTITIES = (
    Identity("admin", "lockstep-local-admin", "system:masters"),
    Identity("scheduler", "system:kube-scheduler"),
    Identity("controller-manager", "system:kube-controller-manager"),
    # kwok plays every simulated node and its pods: no narrower role fits.
    Identity("kwok", "kwok", "system:masters"),
    # What the API server shows to kubelets, for logs and exec.
    Identity("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
)


def write_all(directory: Path, extra_names: Sequence[str] = ()) -> None:
    """Writes every key and certificate of a new cluster as PEM files into `directory` (keys readable by the
    owner only). `extra_names` are further DNS names or addresses of the API server's serving certificate."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)

    kubernetes = CA(organization_unit_name="lockstep-local")
    kubernetes.cert_pem.write_to_path(directory / "ca.crt")
    _write(directory, "server", kubernetes.issue_cert(*SERVER_NAMES, *extra_names, common_name="kube-apiserver"))
    for identity in IDENTITIES:
        # Go takes no certificate without any name of a host.
        client = kubernetes.issue_cert(identity.file, common_name=identity.user, organization_name=identity.group)
        _write(directory, identity.file, client)

    etcd = CA(organization_unit_name="lockstep-local-etcd")
    etcd.cert_pem.write_to_path(directory / "etcd-ca.crt")
    _write(directory, "etcd", etcd.issue_cert("127.0.0.1", "localhost", common_name="etcd"))
    _write(directory, "etcd-client", etcd.issue_cert("etcd-client", common_name="kube-apiserver"))

    # Its key signs tokens, its certificate is where the API server finds the public key.
    _write(directory, "service-account", kubernetes.issue_cert("service-account", key_type=KeyType.RSA))


def _write(directory: Path, file: str, issued: LeafCert) -> None:
    """`file`.crt and `file`.key."""
    issued.cert_chain_pems[0].write_to_path(directory / f"{file}.crt")
    key = directory / f"{file}.key"
    os.close(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600))
    issued.private_key_pem.write_to_path(key)
