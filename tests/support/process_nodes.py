"""What the API server says of pods on process nodes, and what this machine runs of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def terminated(pod: Json) -> Json:
    ended: Json = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return ended


def waiting(pod: Json) -> Json:
    statuses = pod["status"].get("containerStatuses") or [{}]
    return (statuses[0].get("state") or {}).get("waiting") or {}


def conditions(body: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in body["status"]["conditions"]}


def processes_with(word: str) -> list[int]:
    """PIDs on this machine whose command line has ``word`` in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
