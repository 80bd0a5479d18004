"""How this machine reaches package registries, for one that has nothing but that from it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kindcluster.images import HOST_CERTIFICATES

_GO = ("GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
_INDEXES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT"),
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_HTTP_TIMEOUT"),
    *("UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST"),
)
_VARIABLES = (*_GO, *_PROXIES, *(name.upper() for name in _PROXIES), *_CERTIFICATES, *_INDEXES)
_FILES = (*map(Path, ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/uv/uv.toml")), HOST_CERTIFICATES)
OF_A_HOME = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml")
"""Files that lie there in any home."""


def variables(environment: Mapping[str, str], of_go: Mapping[str, str]) -> dict[str, str]:
    """Those that say where packages are and how to get there, Go's also where only its own file has them.

    Nothing else: what this machine says of compilers or caches is not for another one.
    """
    known = {**{name: of_go[name] for name in _GO if name in of_go}, **environment}
    return {name: known[name] for name in _VARIABLES if known.get(name)}


def files(handed_in: Mapping[str, str]) -> Iterator[Path]:
    """What has to be at the same place there: the usual ones, and those that `variables` name, where they exist."""
    named = (Path(value) for value in handed_in.values() if value.startswith("/"))
    return (path for path in dict.fromkeys((*_FILES, *named)) if path.is_file())


def of_go(names: Iterable[str] = _GO) -> dict[str, str]:
    """What Go says of itself here; nothing where there is no Go."""
    if shutil.which("go") is None:
        return {}
    told = subprocess.run(["go", "env", "-json", *names], capture_output=True, text=True, check=False).stdout
    return dict(json.loads(told or "{}"))
