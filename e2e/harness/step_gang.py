"""A gang of step servers on this machine, each at an address of its own, with real certificates of one attempt."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lockstep.worker.steps.credentials import AttemptGang, Peer, write_credentials
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.service import server_command

RUN_UID = "0d8f5f6e-1111-2222-3333-444455556666"


class Authority:
    """The CA of one attempt, as the operator has it."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steps")])
        self.certificate = self.certificate_signed_anew()

    def certificate_signed_anew(self) -> str:
        """The same authority, with another signature of its own."""
        return _pem(self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0)))

    def issue(self, *uris: str) -> tuple[str, str]:
        """Certificate and key of whoever says to be that."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "worker")])
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = self._signed(subject, key, x509.BasicConstraints(ca=False, path_length=None), names, usage)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return _pem(certificate), private.decode()

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: Any) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@dataclass
class StepNode:
    """One node: its server, and its files."""

    rank: int
    directory: Path
    listener: socket.socket
    environment: dict[str, str] = field(default_factory=dict)
    server: subprocess.Popen[bytes] | None = None
    told: int = -1

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()[:2]
        return str(host), int(port)

    def ends(self) -> list[dict[str, Any]]:
        """The rows for ``stepEnds`` since the last call."""
        return [row for row in self.rows() if row.get("code") or row.get("signal")]

    def rows(self) -> list[dict[str, Any]]:
        """All that it tells of, since the last call."""
        with contextlib.suppress(BlockingIOError):
            return [json.loads(line) for line in os.read(self.told, 1 << 16).splitlines()]
        return []


class StepGang:
    """Step servers of all ranks. Rank r has the address 127.0.0.(r + 1), slot r and the node gpu-(r + 1)."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        *,
        attempt: int = 1,
        incarnation: int = 1,
        env: Mapping[str, str] | None = None,
        own: tuple[str, ...] = (),
        first: str = "",
    ) -> None:
        """``first``: code that each server runs before it begins."""
        self.directory, self.attempt = directory, attempt
        self.authority = Authority()
        listeners = [_listening(f"127.0.0.{rank + 1}") for rank in range(nodes)]
        where = [listener.getsockname() for listener in listeners]
        peers = [Peer(address, port, slot, incarnation) for slot, (address, port) in enumerate(where)]
        names = [f"gpu-{rank + 1}.example.org" for rank in range(nodes)]
        self.gang = AttemptGang(RUN_UID, attempt, 0, peers, names)
        self.nodes = [StepNode(rank, directory / f"node-{rank}", listener) for rank, listener in enumerate(listeners)]
        for node in self.nodes:
            issued = self.authority.issue(self.gang.identity(node.rank))
            write_credentials(
                str(node.directory), self.gang._replace(rank=node.rank), self.authority.certificate, *issued
            )
            node.environment = {
                "PATH": os.environ["PATH"], VARIABLE: str(node.directory), "LOCKSTEP_NODE_RANK": str(node.rank),
                **(env or {}),
            }  # fmt: skip
            self.serve(node, own, first)

    def serve(self, node: StepNode, own: tuple[str, ...] = (), first: str = "") -> None:
        """Start its server."""
        node.told, tell = os.pipe()
        os.set_blocking(node.told, False)
        descriptors = (node.listener.fileno(), tell)
        command = server_command(*descriptors, own)
        command[4] = command[4].replace("from lockstep", f"{first}\nfrom lockstep")
        node.server = subprocess.Popen(command, env=node.environment, pass_fds=descriptors, start_new_session=True)
        os.close(tell)

    def credentials(self, name: str, *uris: str, by: Authority | None = None, rank: int = 0) -> Path:
        """Files of somebody who is, or says to be, something else, who trusts this gang's CA."""
        issued = (by or self.authority).issue(*uris)
        path = self.directory / name
        write_credentials(str(path), self.gang._replace(rank=rank), self.authority.certificate, *issued)
        return path

    def close(self) -> None:
        """Nothing of it is left."""
        for node in self.nodes:
            node.listener.close()
            if node.told >= 0:
                os.close(node.told)
            if node.server is not None:
                node.server.kill()
                node.server.wait()
        deadline = time.monotonic() + 20.0
        while left := list(self._left()):
            assert time.monotonic() < deadline, left
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(0.02)

    def _left(self) -> Iterator[int]:
        """Processes that have a node's directory in their environment; zombies have none."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.fsencode(self.directory) + b"/node-" in (process / "environ").read_bytes():
                    yield int(process.name)


def _listening(address: str) -> socket.socket:
    listener = socket.socket()
    listener.bind((address, 0))
    listener.listen(512)
    return listener


def lockstep_step(node: StepNode) -> list[str]:
    """The command, as a process of that node has it; for ``subprocess`` with the node's environment."""
    main = "import sys; sys.path.insert(0, sys.argv.pop(1)); from lockstep.worker.steps.command import main; main()"
    return [sys.executable, "-ISB", "-c", main, str(Path(__file__).parents[2] / "operator")]
