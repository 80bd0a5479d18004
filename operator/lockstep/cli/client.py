"""The API server as the CLI uses it: plain JSON objects, and errors that name their remedy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, InsecureRequestWarning, MaxRetryError
from urllib3.util.ssl_ import create_urllib3_context

from lockstep.api.base import names
from lockstep.api.base.nesting import read_object
from lockstep.cli.errors import ApiServerError, CliError, NoApiServer, Unreachable, UsageError

Json = dict[str, Any]
Query = str | int | bool

Result = TypeVar("Result")
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_PAGE = 500
_TRIES = 5
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAMESPACE = "ask for the role edit in the namespace (it holds what Lockstep's verbs need), or name another with -n"
_WHOLE_CLUSTER = "name one namespace with -n, or ask for the ClusterRole lockstep-view in a ClusterRoleBinding"
_NO_FIELD, _UNCHECKED = "<nil>", "some validation rules were not checked"
_JSON = "application/json"
_LONGEST_NAME = 253
_LONGEST_WORDS = 300
_STRICT_X509 = 0x20  # ssl.VERIFY_X509_STRICT


class Cluster:
    """One API server as one user. ``namespace`` is the one that the flags or the context name, ``context`` that of the
    kubeconfig; empty: of none."""

    def __init__(self, api: Any, namespace: str, context: str = "") -> None:
        self.namespace, self.context = namespace, context
        self._api = api

    def get(self, path: str, **query: Query) -> Json:
        """One object. Raises ApiServerError and Unreachable, as every method here."""
        return self._decoded("GET", path, query)

    def metadata(self, path: str, *, first: int = 0) -> Json:
        """The same without anything but the metadata: of an object, or of so many of those at ``path``."""
        kind, query = ("PartialObjectMetadataList", {"limit": first}) if first else ("PartialObjectMetadata", {})
        return self._decoded("GET", path, query, accept=f"{_JSON};as={kind};g=meta.k8s.io;v=v1")

    def list(self, path: str, **query: Query) -> Json:
        """A whole list, read in pages."""
        found = self._page(path, {**query, "limit": _PAGE})
        token = found["metadata"].get("continue", "")
        while token:
            page = self._page(path, {**query, "limit": _PAGE, "continue": token})
            found["items"] += page["items"]
            token = page["metadata"].get("continue", "")
        found["metadata"].pop("continue", None)
        found["metadata"].pop("remainingItemCount", None)
        return found

    def _page(self, path: str, query: Mapping[str, Query]) -> Json:
        page = self._decoded("GET", path, query)
        items = page["items"] = page.get("items") or []
        if not isinstance(items, list) or not all(isinstance(each, dict) and each.get("metadata") for each in items):
            raise self._no_api_server()
        return page

    def create(self, path: str, body: Json, **query: Query) -> Json:
        """Create an object. Unknown fields are refused."""
        return self._decoded("POST", path, {"fieldValidation": "Strict", **query}, body)

    def merge_patch(self, path: str, patch: Json) -> Json:
        """Change some fields of an object."""
        return self._decoded("PATCH", path, {}, patch)

    def delete(self, path: str, uid: str) -> Json:
        """Delete an object, if it is still the one with this UID."""
        return self._decoded("DELETE", path, {}, {"preconditions": {"uid": uid}})

    def token(self) -> str:
        """What it signs in with; empty where that is a certificate or a password."""
        scheme, _, token = _signed_in_with(self._api.configuration).partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def watch(self, path: str, *, seconds: float, **query: Query) -> Iterator[tuple[str, Json]]:
        """Changes (ADDED, MODIFIED, DELETED and the object) for ``seconds`` at most. Raises ApiServerError 410 when
        the version to begin at is too old."""
        query |= {"watch": True, "allowWatchBookmarks": True, "timeoutSeconds": max(1, int(seconds))}
        buffer = b""
        for chunk in self.stream(path, read_timeout=seconds + _CONNECT_SECONDS, **query):
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                change = self._object(line, part="object")
                kind = str(change.get("type"))
                if kind == "ERROR":
                    raise _api_error(change["object"].get("code", 500), change["object"])
                if "resourceVersion" not in (change["object"].get("metadata") or ()):
                    raise self._no_api_server()
                yield kind, change["object"]
        if buffer.strip():
            raise self._no_api_server()  # whose answers end in whole lines

    def stream(self, path: str, *, read_timeout: float | None = None, **query: Query) -> Iterator[bytes]:
        """The body of an answer as it comes."""
        with closing(self._send("GET", path, query, timeout=(_CONNECT_SECONDS, read_timeout))) as response:
            try:
                yield from response.response.stream(2**16)
            except HTTPError as error:
                raise self._unreachable(error) from error

    def _decoded(
        self, method: str, path: str, query: Mapping[str, Query], body: Json | None = None, accept: str = _JSON
    ) -> Json:
        with closing(self._send(method, path, query, body, accept=accept)) as response:
            try:
                content = response.read()
            except HTTPError as error:
                raise self._unreachable(error) from error
        return self._object(content)

    def _object(self, content: bytes, *, part: str = "metadata") -> Json:
        """An API object. Raises NoApiServer: a proxy's page comes with 200 as well."""
        try:
            answer = read_object(content)
        except (ValueError, TypeError, msgspec.DecodeError):
            answer = {}
        if not isinstance(answer.get(part), dict):
            raise self._no_api_server()
        return answer

    def _no_api_server(self) -> NoApiServer:
        return NoApiServer(
            f"what answers at {self._api.configuration.host} is no API server",
            "check the server of that context in the kubeconfig, and proxies on the way (HTTPS_PROXY, a login page)",
        )

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Query],
        body: Json | None = None,
        timeout: tuple[float, float | None] = (_CONNECT_SECONDS, _ANSWER_SECONDS),
        accept: str = _JSON,
    ) -> Any:
        sent = "application/merge-patch+json" if method == "PATCH" else _JSON
        headers = {"Accept": accept, "User-Agent": "lockstep", "Content-Type": sent}
        words = [(key, str(value).lower() if isinstance(value, bool) else value) for key, value in query.items()]
        try:
            request = self._api.param_serialize(method, path, None, words, headers, auth_settings=["BearerToken"])
            _, url, headers, *_ = request
            response = self._api.call_api(method, url, headers, body, _request_timeout=timeout)
            if response.status >= 400:
                with closing(response):
                    raise _api_error(response.status, _status_object(response.read()))
            return response
        except UnicodeError as error:
            raise UsageError(f"it cannot be sent: {error}", "write it in UTF-8") from error
        except HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: HTTPError) -> Unreachable:
        why = error.reason if isinstance(error, MaxRetryError) and error.reason is not None else error
        return Unreachable(
            f"no answer from the API server at {self._api.configuration.host}: {_short(why)}",
            "check --context and --kubeconfig, or whether the cluster is up",
        )


def connect(namespace: str | None, context: str | None, kubeconfig: str | None) -> Cluster:
    """The cluster that the flags, KUBECONFIG, ~/.kube/config or the pod's service account lead to."""
    # Imported here: it takes most of a second, which `--help` need not spend.
    from kubernetes.client import ApiClient, Configuration
    from kubernetes.config import load_incluster_config

    configuration = Configuration()
    configuration.retries = urllib3.Retry(connect=1, read=0, redirect=0, other=0)
    found = chosen = ""
    try:
        if _inside_a_pod(kubeconfig, context):
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            found = (_SERVICE_ACCOUNT / "namespace").read_text().strip()
        else:
            files = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
            chosen, found = _load(files, context or "", configuration)
        _require_usable(configuration)
        api = ApiClient(configuration)
    except Exception as error:  # files of anybody's, programs that sign in, and their readers: whatever it is
        words = " ".join(str(error).removeprefix("Invalid kube-config file. ").split()) or type(error).__name__
        raise CliError(
            f"no usable kubeconfig: {words[:_LONGEST_WORDS]}", "set KUBECONFIG, or pass --kubeconfig and --context"
        ) from error
    if not configuration.verify_ssl:
        urllib3.disable_warnings(InsecureRequestWarning)  # who wrote insecure-skip-tls-verify knows
    tls = create_urllib3_context()
    tls.check_hostname = bool(configuration.verify_ssl)  # before urllib3 turns verification off
    tls.verify_flags &= ~_STRICT_X509  # Python 3.13 refuses CAs without a key identifier, which many clusters have
    api.rest_client.pool_manager.connection_pool_kw["ssl_context"] = tls
    return Cluster(api, namespace or found or "default", chosen)


def _load(files: str, context: str, configuration: Any) -> tuple[str, str]:
    """Read kubeconfigs. Returns the context's name and namespace. Raises as their reader does, and ValueError."""
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    read = KubeConfigMerger(files)  # type: ignore[no-untyped-call]
    if read.config is None:
        raise ValueError(f"there is none at {files}")
    # As kubectl has it: the first file that names one. To the merger it is the last, even with an empty name.
    named = (content.get("current-context") for content in read.config_files.values())
    chosen = context or next(filter(None, named), "")
    if not chosen:
        raise ValueError("it has no current-context; kubectl config use-context NAME sets one")
    loader = KubeConfigLoader(config_dict=read.config, active_context=chosen, config_base_path=None)  # type: ignore[no-untyped-call]
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    return chosen, loader.current_context["context"].get("namespace") or ""


def _signed_in_with(configuration: Any) -> str:
    """The header's value; empty where it is none."""
    return str((configuration.auth_settings().get("BearerToken") or {}).get("value") or "")


def _require_usable(configuration: Any) -> None:
    """Raises ValueError on what could not be sent to, or signed in with."""
    address = urlsplit(str(configuration.host))
    if address.scheme not in ("http", "https") or not address.hostname or re.search(r"\s", configuration.host):
        raise ValueError(f"its server {configuration.host!r} is no address; write https://HOST:PORT")
    _ = address.port  # raises as well
    token = _signed_in_with(configuration)
    if not token.isascii() or not token.isprintable():
        raise ValueError("its token has characters that no token has; is it cut, or was more than that pasted?")


def runs_path(namespace: str | None, name: str = "") -> str:
    """The path of the runs of a namespace (None: of all), or of one run."""
    return resource_path(f"/apis/{names.API_VERSION}", namespace, names.RUNS, name)


def core_path(namespace: str | None, resource: str, name: str = "") -> str:
    """The path of a resource of the core group."""
    return resource_path("/api/v1", namespace, resource, name)


def resource_path(group: str, namespace: str | None, resource: str, name: str = "") -> str:
    """The path of a resource of any group. Raises UsageError on what would lead elsewhere."""
    scope = f"/namespaces/{_word(namespace)}" if namespace is not None else ""
    return f"{group}{scope}/{resource}" + (f"/{_word(name)}" if name else "")


def _word(name: str) -> str:
    try:
        word = quote(name, safe="[]:,")
    except UnicodeError:
        word = ""
    if not word or word in (".", "..") or len(name) > _LONGEST_NAME:
        raise UsageError(f"{name[:_LONGEST_NAME]!a} is no name", "names are lower case letters, digits, - and .")
    return word


def retried(write: Callable[[], Result]) -> Result:
    """What ``write``, which reads first, comes to; once more where somebody else wrote in between, a few times."""
    for _ in range(_TRIES - 1):
        try:
            return write()
        except ApiServerError as error:
            if error.status != 409:
                raise
    return write()


def _inside_a_pod(kubeconfig: str | None, context: str | None) -> bool:
    if kubeconfig or context or os.environ.get("KUBECONFIG"):
        return False
    return not Path("~/.kube/config").expanduser().exists() and (_SERVICE_ACCOUNT / "token").exists()


def _status_object(content: bytes) -> Json:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"message": content.decode(errors="replace").strip()}


def _api_error(status: int, said: Json) -> ApiServerError:
    details = said.get("details") or {}
    message = said.get("message") or f"the API server answered {status}"
    remedy = ""
    name = details.get("name", "")
    if status == 401:
        message = "the API server does not accept these credentials"
        remedy = "log in again, or choose another --context"
    elif status == 403 and said.get("reason") == "Forbidden":
        remedy = _WHOLE_CLUSTER if "at the cluster scope" in message else _NAMESPACE
    elif status == 404 and not name:
        message = "this cluster does not know TrainingRuns"
        remedy = "install Lockstep there first, or choose another --context"
    told = [(cause.get("field", ""), cause.get("message", "")) for cause in details.get("causes") or ()]
    causes = tuple(
        ("", _plain(f"{field}: {words}")) if field == _NO_FIELD else (field, words)
        for field, words in told
        if _UNCHECKED not in words
    )
    return ApiServerError(status, _plain(message), remedy, name=name, causes=causes)


def _plain(message: str) -> str:
    """Without its placeholder before rules on the whole object, and without those that it did not get to."""
    message = re.sub(rf",? ?{_NO_FIELD}: Invalid value: null: {_UNCHECKED}[^],]*", "", message)
    return re.sub(rf'{_NO_FIELD}: (Invalid value: ("object": )?)?', "", message)


def _short(error: object) -> str:
    """The words at the end of what urllib3 wraps several times over."""
    return str(error).rpartition(": ")[2].strip("'\")> ") or str(error)
