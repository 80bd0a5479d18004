"""Who is who in a step: certificates of one run, attempt, slot and incarnation, and the files that hold them."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Sequence, Tuple

from lockstep.worker.steps.place import PEERS

if TYPE_CHECKING:  # what starts these programs wants them to start quickly
    from lockstep.worker.settings import JSON


_AUTHORITY, _NODE = "ca.pem", "node.pem"
_P256_KEY = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200")  # what is before one in a certificate
_P256_BYTES = 65
_MOST_SLOTS = 1 << 17  # as for the operator: what is wrong is not to be unfolded into memory without end


class CredentialError(Exception):
    """There are no such files, or they say nothing that could be used; the words say which."""


class Peer(NamedTuple):
    """The worker that has a rank. ``slot`` -1: START does not tell."""

    address: str
    port: int
    slot: int
    incarnation: int


class AttemptGang(NamedTuple):
    """All workers of one attempt by rank, and which of them this is. ``names``: what Kubernetes calls their nodes."""

    run_uid: str
    attempt: int
    rank: int
    peers: Sequence[Peer]
    names: Sequence[str] = ()

    def identity(self, rank: int) -> str:
        """What the certificate of a rank's worker says."""
        peer = self.peers[rank]
        return f"lockstep://run/{self.run_uid}/attempt/{self.attempt}/slot/{peer.slot}/incarnation/{peer.incarnation}"

    def named(self, rank: int) -> str:
        """The rank, for people."""
        peer = self.peers[rank]
        return f"rank {rank} at {peer.address} port {peer.port}"


def gang_of(
    run_uid: str, rank: int, start: JSON, addresses: Sequence[str], ports: Sequence[int], names: Any = None
) -> AttemptGang:
    """From START and what comes with it. Raises ValueError, KeyError, TypeError."""
    members: Dict[int, int] = {}
    for member in start["members"]:
        for slot in _unfolded(member["slots"]):
            members[slot] = int(member["incarnation"])
    order = _unfolded(start.get("order") or "") or sorted(members)
    if not len(order) == len(addresses) == len(ports):
        raise ValueError(f"{len(order)} ranks, {len(addresses)} addresses, {len(ports)} ports")
    peers = [
        Peer(address, int(port), slot, members[slot])
        for slot, address, port in zip(order, addresses, ports)  # noqa: B905, strict is younger than Python 3.8
    ]
    return AttemptGang(run_uid, int(start["attempt"]), rank, peers, names_of(names, len(peers)))


def names_of(said: Any, ranks: int) -> List[str]:
    """What Kubernetes calls the nodes; empty where START does not say. Raises ValueError, KeyError, TypeError."""
    if said is None:
        return []
    names = [str(said["head"] + rest + said["tail"]) for rest in str(said["rest"]).split(",")]
    if len(names) != ranks:
        raise ValueError(f"{ranks} ranks, {len(names)} names")
    return names


def _unfolded(text: str) -> List[int]:
    """ "0-2,5" in its order. Raises ValueError."""
    numbers: List[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        run = range(int(first), int(last if dash else first) + 1)
        if run.start < 0 or run.stop > _MOST_SLOTS or len(numbers) > _MOST_SLOTS:
            raise ValueError(f"{part[:32]!r} is beyond {_MOST_SLOTS - 1}")
        numbers += run
    return numbers


def write_credentials(directory: str, gang: AttemptGang, authority: str, certificate: str, key: str) -> None:
    """Into a directory that nobody else reads. Raises OSError."""
    os.mkdir(directory, 0o700)
    peers = json.dumps(dict(gang._asdict(), peers=[list(peer) for peer in gang.peers]))
    for name, text in ((_AUTHORITY, authority), (_NODE, certificate + "\n" + key), (PEERS, peers)):
        descriptor = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)


def read_gang(directory: str) -> AttemptGang:
    """Raises CredentialError."""
    try:
        with open(os.path.join(directory, PEERS)) as stream:
            found = json.load(stream)
        peers = [Peer(*peer) for peer in found["peers"]]
        return AttemptGang(found["run_uid"], found["attempt"], found["rank"], peers, found["names"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CredentialError(f"who the nodes of the gang are cannot be read in {directory}: {error}") from None


def tls_context(directory: str, *, server: bool) -> ssl.SSLContext:
    """Both sides show a certificate of this attempt's CA, and nobody else is trusted. Raises CredentialError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if ssl.HAS_TLSv1_3 else ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # nodes are told apart by what their certificates say of run and slot
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # nothing is resumed
    try:
        context.load_verify_locations(os.path.join(directory, _AUTHORITY))
        context.load_cert_chain(os.path.join(directory, _NODE))
    except (OSError, ValueError) as error:
        raise CredentialError(f"the certificates of {directory} cannot be used: {error}") from None
    return context


def knock_of(directory: str) -> str:
    """What a client says in the first words of its handshake, in the place of a server's name.

    Only the gang can know it, so that a server need not begin a handshake with everybody; it proves nothing. It comes
    of the key of the attempt's CA, as that may have signed another certificate of itself for each worker. Raises
    CredentialError.
    """
    try:
        with open(os.path.join(directory, _AUTHORITY)) as stream:
            authority = ssl.PEM_cert_to_DER_cert(stream.read().strip())
        at = authority.index(_P256_KEY) + len(_P256_KEY)
        return hashlib.sha256(authority[at : at + _P256_BYTES]).hexdigest()[:40] + ".lockstep"
    except (OSError, ValueError) as error:
        raise CredentialError(f"the certificates of {directory} cannot be read: {error}") from None


def said_identity(tls: ssl.SSLSocket) -> str:
    """What the peer's certificate says that it is; empty where it says nothing, or several things."""
    names: Tuple[Tuple[str, Any], ...] = (tls.getpeercert() or {}).get("subjectAltName", ())  # type: ignore[assignment]
    uris = [value for kind, value in names if kind == "URI"]
    return str(uris[0]) if len(uris) == 1 == len(names) else ""
