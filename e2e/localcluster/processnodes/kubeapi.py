"""A small asynchronous Kubernetes client: requests, and list + watch that survives outages."""

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
import yaml

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
REQUEST_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_WATCH_SECONDS = 300


class ApiError(Exception):
    """The API server refused. ``status`` is the HTTP code, ``reason`` the machine-readable word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


# What an outage of the API server looks like from here; a reconciling caller tries again.
UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError)


class KubeApi:
    """One connection pool to one API server, of at most ``connections`` (0: any number).

    A request has ``seconds`` for its answer unless it says otherwise. Use as an asynchronous context manager.
    """

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        token: str = "",
        connections: int = 64,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self.server = server.rstrip("/")
        self._seconds = seconds
        self._tls = tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path, connections: int = 64, seconds: float = REQUEST_SECONDS) -> Self:
        """Read the current context: server, CA, and a client certificate or token."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        tls = None
        if cluster["server"].startswith("https"):
            tls = ssl.create_default_context(cadata=_pem(path, cluster, "certificate-authority"))
            if "client-certificate" in user or "client-certificate-data" in user:
                with tempfile.TemporaryDirectory() as scratch:
                    pair = Path(scratch) / "client.pem"  # OpenSSL only loads key pairs from files
                    certificate = _pem(path, user, "client-certificate")
                    pair.write_text(f"{certificate}\n{_pem(path, user, 'client-key')}")
                    tls.load_cert_chain(pair)
        return cls(cluster["server"], tls, user.get("token", ""), connections, seconds)

    async def __aenter__(self) -> Self:
        # `ssl=True` is aiohttp's default verification; only plain http servers come without a context.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=self._connections, ssl=self._tls or True)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> Json:
        """One call of at most ``seconds``; the decoded answer. Raises ApiError, or one of UNREACHABLE."""
        content = None if body is None else json.dumps(body).encode()
        answer: Json = json.loads(
            await self.send(method, path, content, params=params, content_type=content_type, seconds=seconds)
        )
        return answer

    async def send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> bytes:
        """As ``request``, of what is encoded already and without decoding the answer."""
        assert self._session is not None
        async with self._session.request(
            method,
            self.server + path,
            params=params,
            data=content,
            headers={"Content-Type": content_type},
            timeout=aiohttp.ClientTimeout(total=seconds or self._seconds),
        ) as response:
            answer = await response.read()
            if response.status >= 400:
                raise _error(response.status, answer.decode(errors="replace"))
            return answer

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Json) -> Json:
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Json) -> Json:
        """A JSON merge patch: null removes, lists are replaced whole."""
        return await self.request("PATCH", path, body, content_type=MERGE_PATCH)

    async def delete(self, path: str, uid: str, grace: int) -> None:
        """Delete one object if it still has this UID; one that is gone is fine."""
        body = {"gracePeriodSeconds": grace, "preconditions": {"uid": uid}}
        try:
            await self.request("DELETE", path, body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def follow(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[tuple[str, Any]]:
        """List, then watch, for ever; after an outage or an expired version, list again.

        Yields ``("LIST", [objects])`` after each list and ``("ADDED" | "MODIFIED" | "DELETED", object)``.
        """
        while True:
            try:
                listing = await self.get(path, params)
                yield "LIST", listing["items"]
                async for event in self._watch(path, params or {}, listing["metadata"]["resourceVersion"]):
                    yield event
            except (ApiError, *UNREACHABLE):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _watch(self, path: str, params: Mapping[str, str], version: str) -> AsyncIterator[tuple[str, Any]]:
        """Watch from ``version`` until the server ends it in a way that needs a new list."""
        assert self._session is not None
        query = dict(params) | {"watch": "1", "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_SECONDS)
        while True:
            query["resourceVersion"] = version
            async with self._session.get(self.server + path, params=query, timeout=timeout) as response:
                if response.status >= 400:
                    raise _error(response.status, await response.text())
                rest = b""
                # Big chunks, split here: the line reader is cut off by the server under load.
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            return
                        version = event["object"]["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], event["object"]


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _pem(kubeconfig: Path, section: Json, key: str) -> str:
    """The text of a PEM entry given inline (``<key>-data``) or as a file beside the kubeconfig."""
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"]).decode()
    return (kubeconfig.parent / str(section[key])).read_text()


def _error(status: int, text: str) -> ApiError:
    try:
        answer = json.loads(text)
        return ApiError(status, answer.get("reason", ""), answer.get("message", text))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:300])
