"""The part of the kubelet's own API that `kubectl logs` needs, served on every node's address."""

import asyncio
import ssl
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from localcluster.processnodes.network import listen_inside
from localcluster.processnodes.node import LOG_PORT, Node

_POLL_SECONDS = 0.2
_CHUNK = 1 << 16


async def serve_logs(node: Node, logs: Path, tls: ssl.SSLContext) -> web.AppRunner:
    """Answer for one node, inside its network, so that a partition cuts its logs off too."""

    async def container_logs(request: web.Request) -> web.StreamResponse:
        return await _container_logs(request, node, logs)

    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    listener = listen_inside(node.machine.pid, node.machine.address, LOG_PORT)
    await web.SockSite(runner, listener, ssl_context=tls).start()
    return runner


async def _container_logs(request: web.Request, node: Node, logs: Path) -> web.StreamResponse:
    place, query = request.match_info, request.query
    file = _log_file(logs, place, previous=query.get("previous") == "true")
    if file is None:
        raise web.HTTPNotFound(text=f"no log of container {place['container']} on node {node.name}")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    with file.open("rb") as stream:
        stream.seek(_start_of_tail(file, query))
        while True:
            # Asked before reading, so that what is written last is still read.
            is_over = not any(
                run.is_running(place["container"]) for run in node.runs.values() if run.logs == file.parent
            )
            while chunk := stream.read(_CHUNK):
                await response.write(chunk)
            if is_over or query.get("follow") != "true":
                return response
            await asyncio.sleep(_POLL_SECONDS)


def _log_file(logs: Path, place: Mapping[str, str], *, previous: bool) -> Path | None:
    """The log of the newest pod of that name: an older one has gone before it."""
    folders = sorted(logs.glob(f"{place['namespace']}_{place['pod']}_*"), key=lambda path: path.stat().st_mtime)
    file = folders[-1] / f"{place['container']}{'.previous' if previous else ''}.log" if folders else None
    return file if file is not None and file.exists() else None


def _start_of_tail(file: Path, query: Mapping[str, str]) -> int:
    """Where the last ``tailLines`` lines begin."""
    if "tailLines" not in query:
        return 0
    content = file.read_bytes()
    wanted = int(query["tailLines"])
    if wanted == 0:
        return len(content)
    return sum(len(line) for line in content.splitlines(keepends=True)[:-wanted])


def self_signed() -> ssl.SSLContext:
    """TLS for the log endpoint: the local API server takes any certificate from a kubelet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "process-node")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(certificate.public_bytes(serialization.Encoding.PEM) + private)
        pair.flush()
        context.load_cert_chain(pair.name)
    return context
