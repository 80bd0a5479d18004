"""Rights in words such as ``pods create``: those that the chart grants, and those that requests needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

RECORD = Path(__file__).parents[1] / "cluster" / "rights.yaml"
_DECISION = "authorization.k8s.io/decision"
_ROLES = ("Role", "ClusterRole")


def right(group: str, resource: str, subresource: str, verb: str) -> str:
    """``trainingruns.lockstep.dev/status patch``."""
    return f"{resource}{group and f'.{group}'}{subresource and f'/{subresource}'} {verb}"


def granted(objects: Iterable[Mapping[str, Any]]) -> set[str]:
    """What the roles that are bound to the operator allow."""
    objects = list(objects)
    bound = {each["roleRef"]["name"] for each in objects if each["kind"] in ("RoleBinding", "ClusterRoleBinding")}
    roles = [each for each in objects if each["kind"] in _ROLES and each["metadata"]["name"] in bound]
    return {
        right(group, *(resource.partition("/")[::2]), verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@dataclass
class AuditLogs:
    """What the operator did on the clusters whose state lies in ``folders``, since `begin`."""

    folders: Sequence[Path]
    _read: dict[Path, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Leave out what was there before."""
        self._read = {log: log.stat().st_size for log in self._logs()}

    def used(self) -> dict[str, str]:
        """Rights that requests needed and had, with one such request each."""
        return dict(self._requests("allow"))

    def refused(self) -> list[str]:
        """Requests for which a right lacked: 403 by the authorizer."""
        return sorted({f"{words} ({uri})" for words, uri in self._requests("forbid")})

    def _logs(self) -> list[Path]:
        return [log for folder in self.folders for log in sorted(folder.glob("logs/audit*.log"))]

    def _requests(self, decision: str) -> Iterator[tuple[str, str]]:
        for log in self._logs():
            with log.open() as lines:
                lines.seek(self._read.get(log, 0))
                for line in lines:
                    event = json.loads(line)
                    reference = event.get("objectRef")
                    if reference is None or event.get("annotations", {}).get(_DECISION) != decision:
                        continue
                    group, subresource = reference.get("apiGroup", ""), reference.get("subresource", "")
                    yield right(group, reference["resource"], subresource, event["verb"]), event["requestURI"]


def record(used: Mapping[str, str]) -> None:
    """Write down what is not on record yet."""
    head = "".join(line for line in RECORD.read_text().splitlines(keepends=True) if line.startswith("#"))
    RECORD.write_text(head + yaml.safe_dump({**used, **recorded()}, width=200))


def recorded() -> dict[str, str]:
    """By right the module of cluster tests that needs it."""
    return dict(yaml.safe_load(RECORD.read_text()) or {})
