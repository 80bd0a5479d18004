"""What the operator was refused for want of rights, by the API server's own record of requests."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from harness.kube import OPERATOR_NAMESPACE

PATTERN = r'"code":40[13]|"resource":"(cluster)?rolebindings"'
"""For grep -E: the lines of the record that count here."""
_NAME = "lockstep-operator"
_OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{_NAME}"
_BINDINGS = ("clusterrolebindings", "rolebindings")
_REFUSED = (401, 403)
_POD = "authentication.kubernetes.io/pod-name"
_STILL = "9999"  # sorts after every moment
Entry = dict[str, Any]


def refused(record: Iterable[str], outgoing: Collection[str] = ()) -> list[str]:
    """Oldest first, less what came of its rights being taken away: `helm uninstall` does that while its pods end.

    ``record`` are lines of an audit log, in any order. All moments in it are of one clock, as there is one API server.
    ``outgoing``: pods that are not asked about, as they run on under the rights of another release.
    """
    entries = sorted(map(json.loads, record), key=lambda entry: str(entry["stageTimestamp"]))
    without = _without_rights(entries)
    return [
        f"{entry['verb']} {entry['requestURI']}: {entry['responseStatus'].get('message', '')}"
        for entry in entries
        if entry["responseStatus"]["code"] in _REFUSED and entry["user"]["username"] == _OPERATOR
        if not set(entry["user"].get("extra", {}).get(_POD, ())) & set(outgoing)
        if not any(
            entry["stageTimestamp"] >= begin and entry["requestReceivedTimestamp"] <= end for begin, end in without
        )
    ]


def _without_rights(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """From when the first of its bindings was taken until all were given back, as often as that happened."""
    periods: list[tuple[str, str]] = []
    missing: dict[tuple[str, ...], str] = {}
    for entry in entries:
        if not _binds_it(entry) or entry["responseStatus"]["code"] >= 300:
            continue
        which = tuple(entry["objectRef"].get(part, "") for part in ("resource", "namespace", "name"))
        if entry["verb"] == "delete":
            missing[which] = entry["requestReceivedTimestamp"]
        elif which in missing:
            begin = min(missing.values())
            del missing[which]
            periods.append((begin, entry["stageTimestamp"]))
    return periods + ([(min(missing.values()), _STILL)] if missing else [])


def _binds_it(entry: Entry) -> bool:
    """Whether it is about a binding of the operator's account to its rights."""
    what = entry.get("objectRef", {})
    return what.get("resource") in _BINDINGS and str(what.get("name", "")).startswith(_NAME)
