"""Manifest: a directory with a manifest.json, written last, that names every file with its size and checksum."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from lockstep.worker.checkpoints.formats.findings import (
    VALID,
    CheckpointEntry,
    Finding,
    Format,
    InvalidError,
    ListedFile,
    Reading,
    read_up_to,
)

MANIFEST = "Manifest"
MARKER = "manifest.json"
MANIFEST_FORMAT = "lockstep/1"
MAX_MANIFEST_BYTES = 64 << 20


def is_manifest(entry: CheckpointEntry) -> bool:
    """Whether the directory has a manifest, or is called as one that should."""
    return MARKER in entry.files or entry.name.startswith(("step-", "rank-"))


def read_manifest(entry: CheckpointEntry) -> Reading:
    """Raises InvalidError, OSError."""
    try:
        with open(entry.at(MARKER), "rb") as stream:
            committed_at = os.fstat(stream.fileno()).st_mtime
            text = read_up_to(MAX_MANIFEST_BYTES, stream)
    except FileNotFoundError:
        raise InvalidError(f"no {MARKER}: it was never committed") from None
    if len(text) > MAX_MANIFEST_BYTES:
        raise InvalidError(f"{MARKER} is too large")
    try:
        manifest = json.loads(text.decode("utf-8"))
        if manifest.get("format") != MANIFEST_FORMAT:
            raise InvalidError(f"{MARKER} is of format {manifest.get('format')!r}")
        files = [
            ListedFile(inside(entry["name"]), whole(entry["bytes"]), True, "crc32:" + str(entry["crc32"]).lower())
            for entry in manifest["files"]
        ]
        finding = Finding(
            VALID, format=MANIFEST, attempt=whole(manifest["attempt"]), world=whole(manifest["world"]),
            run_uid=str(manifest["runUID"]), bytes=sum(listed.bytes for listed in files), committed_at=committed_at,
        )  # fmt: skip
        stated_step = whole(manifest["step"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidError(f"{MARKER} is not readable: {error!r}") from None
    if entry.step is not None and stated_step != entry.step:
        raise InvalidError(f"{MARKER} says step {stated_step}")
    if not files:
        raise InvalidError(f"{MARKER} lists no file")
    return finding, sorted(files)


def inside(name: Any) -> str:
    """A file name that stays below its directory. Raises ValueError for any other."""
    if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
        raise ValueError(f"bad file name {name!r}")
    return name


def whole(number: Any) -> int:
    """A number of things. Raises ValueError for anything else."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"bad number {number!r}")
    return number


FORMAT = Format(MANIFEST, is_manifest, read_manifest, re.compile(r"^(?:.*[^0-9])?(\d{1,15})$"), (MARKER,))
