"""A small client of the Kubernetes API: blocking, standard library only, many requests at once when asked."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.errors import ApiError

MERGE_PATCH = "application/merge-patch+json"
CONNECTIONS = 16  # at once; more gain nothing on a small machine


@dataclass(frozen=True)
class Request:
    """One API call. `absence_is_fine` takes a 404 for an answer, as deletes of what may be gone do."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    content_type: str = "application/json"
    absence_is_fine: bool = False


class ApiClient:
    """Talks to one API server as the holder of a client certificate."""

    def __init__(self, url: str, ca_file: Path, cert_file: Path, key_file: Path) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or 443
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._tls.load_cert_chain(cert_file, key_file)

    def get(self, path: str) -> dict[str, Any]:
        return self.send(Request("GET", path))

    def send(self, request: Request, *, timeout: float = 30.0) -> dict[str, Any]:
        """The decoded answer ({} when it is no JSON object). Raises ApiError."""
        with closing(self._connect(timeout)) as connection:
            return _exchange(connection, request)

    def send_all(self, requests: Sequence[Request], *, timeout: float = 60.0) -> list[dict[str, Any]]:
        """Sends the requests over a few connections at once; answers in the order of the requests.

        Raises the first ApiError; the requests of the other connections are still sent.
        """

        def send_share(share: Sequence[Request]) -> list[dict[str, Any]]:
            with closing(self._connect(timeout)) as connection:
                return [_exchange(connection, request) for request in share]

        width = min(CONNECTIONS, len(requests))
        shares = [requests[offset::width] for offset in range(width)]
        answers: list[dict[str, Any]] = [{} for _ in requests]
        with ThreadPoolExecutor(max(width, 1)) as pool:
            for offset, share_answers in enumerate(pool.map(send_share, shares)):
                answers[offset::width] = share_answers
        return answers

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)


def _exchange(connection: http.client.HTTPSConnection, request: Request) -> dict[str, Any]:
    body = None if request.body is None else json.dumps(request.body)
    headers = {"Accept": "application/json", "User-Agent": "localcluster"} | (
        {"Content-Type": request.content_type} if body else {}
    )
    try:
        connection.request(request.method, request.path, body, headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ApiError(0, f"{request.method} {request.path}: {error!r}") from error
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    if response.status >= 400 and not (response.status == 404 and request.absence_is_fine):
        said = answer.get("message") or content.decode(errors="replace")
        raise ApiError(response.status, f"{request.method} {request.path}: {response.status} {said}")
    return answer
