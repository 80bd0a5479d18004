"""The page's own files: read once, served from memory, each by its exact name."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, its type, and a tag that changes with its content."""

    body: bytes
    content_type: str
    tag: str


def load() -> Mapping[str, Asset]:
    """By name. Nothing but what is in the package can ever be served: a request names a key, never a path."""
    found: dict[str, Asset] = {}
    for file in files("lockstep.controller.web").joinpath("static").iterdir():
        suffix = file.name[file.name.rfind(".") :]
        if file.is_file() and suffix in _TYPES:
            body = file.read_bytes()
            found[file.name] = Asset(body, _TYPES[suffix], f'"{hashlib.sha256(body).hexdigest()[:20]}"')
    return found
