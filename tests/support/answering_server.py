"""What listens where an API server is expected, and answers every request as it is told, or not at all."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Answer = Callable[[BaseHTTPRequestHandler], None]


def says(status: int, body: bytes | Any, kind: str = "application/json") -> Answer:
    """An answer of HTTP; what is not bytes as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return answer


def refuses(status: int, reason: str, message: str, **details: Any) -> Answer:
    """An API server's Status."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return says(status, said | {"message": message, "details": details})


def hangs_up(request: BaseHTTPRequestHandler) -> None:
    """The connection ends without a word."""
    request.close_connection = True
    request.connection.close()


def breaks_off(request: BaseHTTPRequestHandler) -> None:
    """It ends in the middle of an answer."""
    request.send_response(200)
    request.send_header("Content-Length", "100000")
    request.end_headers()
    request.wfile.write(b'{"metadata": {')
    hangs_up(request)


@contextlib.contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The address of such a server."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with contextlib.suppress(OSError):  # whoever asked has gone
                answer(self)

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def finish(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                super().finish()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.asynccontextmanager
async def answering_here(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The address of one in this event loop; what it answers is cut off when whoever asked goes away."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def kubeconfig(path: Path, server: str, **user: Any) -> Path:
    """One that leads there, in namespace ``team``."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "there",
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "me", "namespace": "team"}}],
        "clusters": [{"name": "there", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": user or {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path
