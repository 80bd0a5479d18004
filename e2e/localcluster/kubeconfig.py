"""Kubeconfig files: self-contained, readable by their owner only."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def with_certificate(url: str, ca_file: Path, cert_file: Path, key_file: Path) -> dict[str, Any]:
    user = {"client-certificate-data": _base64(cert_file), "client-key-data": _base64(key_file)}
    return _kubeconfig(url, ca_file, user)


def with_token(url: str, ca_file: Path, token: str) -> dict[str, Any]:
    return _kubeconfig(url, ca_file, {"token": token})


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(dict(content), file, sort_keys=False)
    unfinished.replace(path)


def _kubeconfig(url: str, ca_file: Path, user: Mapping[str, str]) -> dict[str, Any]:
    name = "lockstep-local"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": _base64(ca_file)}}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
