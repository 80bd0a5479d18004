"""An OpenTelemetry collector of this machine, which keeps what it is sent."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Takes OTLP over HTTP at ``url``."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        requests = self.requests

        class Take(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_known = self.path == "/v1/traces"
                if is_known:
                    requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200 if is_known else 404)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Take)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[Collector]:
        """One that listens, until the end."""
        collector = cls()
        threading.Thread(target=collector._server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            collector._server.shutdown()
            collector._server.server_close()

    def names(self) -> set[str]:
        """Of the spans that came."""
        return {
            span.name
            for request in self.requests
            for of_one in request.resource_spans
            for scope in of_one.scope_spans
            for span in scope.spans
        }
