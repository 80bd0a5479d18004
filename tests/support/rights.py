"""Rights such as ``secrets get lockstep-worker-tls`` in a scope: what the chart grants, and what requests needed.

Two rights are the same when scope, resource, verb and name are: what is granted for the cluster is not used by requests
in one namespace, and what is granted for any name is not used by requests for one that is always the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from harness.kube import OPERATOR_ACCOUNT, OPERATOR_NAMESPACE
from lockstep.api.base import names

RECORD = Path(__file__).parents[1] / "cluster" / "rights.yaml"
NODE_EVENTS_NAMESPACE = "default"
_DECISION = "authorization.k8s.io/decision"
_FIXED_NAMES = frozenset({names.CA_CONFIG_MAP})
"""Of objects in namespaces with runs. In the operator's own namespace every name is fixed."""
_WITHOUT_NAME = frozenset({"create", "list", "watch"})
"""Verbs that RBAC cannot bind to a name, or that the operator uses for all objects alone."""


class Scope(StrEnum):
    """Where a right is in force, or a request was made."""

    CLUSTER = "cluster"  # what has no namespace, and lists and watches over all namespaces
    RUNS = "runs"  # in namespaces with runs: any, unless the installation is for some
    NODE_EVENTS = "node-events"  # where Kubernetes puts events of nodes
    OWN = "own"  # the operator's namespace


class Right(NamedTuple):
    """``resource`` with its group and subresource, such as ``trainingruns.lockstep.dev/status``. ``name`` is empty
    where any will do."""

    scope: Scope
    resource: str
    verb: str
    name: str = ""

    @property
    def words(self) -> str:
        """All but the scope."""
        return f"{self.resource} {self.verb} {self.name}".rstrip()

    def __str__(self) -> str:
        return f"{self.scope}: {self.words}"


def right(scope: Scope, words: str) -> Right:
    """From its words."""
    return Right(scope, *words.split())


UNSEEN = {
    right(Scope.OWN, f"endpointslices.discovery.k8s.io {verb} lockstep-operator-ipv6"): "tests have addresses of IPv4"
    for verb in ("get", "update", "delete")
}
"""What is granted and no test needs, and why."""


def granted(objects: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What the roles that are bound to the operator allow.

    Roles whose name ends in -runs are for namespaces with runs: where these may be any they are bound for the cluster.
    """
    objects = list(objects)
    roles = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    return {
        Right(_scope(binding), _resource(group, *resource.partition("/")[::2]), verb, name)
        for binding in objects
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding") and _is_the_operators(binding)
        for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]["rules"]
        for group, resource in product(rule["apiGroups"], rule["resources"])
        for verb, name in product(rule["verbs"], rule.get("resourceNames", [""]))
    }


def _is_the_operators(binding: Mapping[str, Any]) -> bool:
    return any(subject["name"] == OPERATOR_ACCOUNT for subject in binding["subjects"])


def _scope(binding: Mapping[str, Any]) -> Scope:
    if binding["kind"] == "ClusterRoleBinding":
        return Scope.RUNS if binding["roleRef"]["name"].endswith("-runs") else Scope.CLUSTER
    return _scope_in(binding["metadata"]["namespace"], binding["roleRef"]["kind"] == "Role")


def _scope_in(namespace: str, is_for_node_events: bool) -> Scope:
    if namespace == OPERATOR_NAMESPACE:
        return Scope.OWN
    return Scope.NODE_EVENTS if namespace == NODE_EVENTS_NAMESPACE and is_for_node_events else Scope.RUNS


def _resource(group: str, resource: str, subresource: str) -> str:
    return f"{resource}{group and f'.{group}'}{subresource and f'/{subresource}'}"


def _needed(reference: Mapping[str, str], verb: str) -> Right:
    """The narrowest right that a request needs, by the audit log's ``objectRef``."""
    resource = _resource(reference.get("apiGroup", ""), reference["resource"], reference.get("subresource", ""))
    namespace, name = reference.get("namespace", ""), reference.get("name", "")
    scope = _scope_in(namespace, reference["resource"] == "events") if namespace else Scope.CLUSTER
    is_fixed = scope is Scope.OWN or (scope is Scope.RUNS and name in _FIXED_NAMES)
    return Right(scope, resource, verb, name if is_fixed and verb not in _WITHOUT_NAME else "")


def lacking(needed: Iterable[Right], grants: set[Right]) -> set[Right]:
    """Of what is needed what no grant allows, in its scope or for the cluster."""

    def allowing(need: Right) -> set[Right]:
        return {Right(scope, *need[1:3], name) for scope in (need.scope, Scope.CLUSTER) for name in (need.name, "")}

    return {need for need in needed if not allowing(need) & grants}


def listed(rights: Iterable[Right]) -> str:
    """One a line, for a failed assertion to show them all."""
    return "\n".join(sorted(map(str, rights)))


@dataclass
class AuditLogs:
    """What the operator did on the clusters whose state lies in ``folders``, since `begin`."""

    folders: Sequence[Path]
    _read: dict[Path, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Leave out what was there before."""
        self._read = {log: log.stat().st_size for log in self._logs()}

    def used(self) -> set[Right]:
        """Rights that requests needed and had."""
        return {right for right, _ in self._requests("allow")}

    def refused(self) -> list[str]:
        """Requests for which a right lacked: 403 by the authorizer."""
        return sorted({f"{right} ({uri})" for right, uri in self._requests("forbid")})

    def _logs(self) -> list[Path]:
        return [log for folder in self.folders for log in sorted(folder.glob("logs/audit*.log"))]

    def _requests(self, decision: str) -> Iterator[tuple[Right, str]]:
        for log in self._logs():
            with log.open() as lines:
                lines.seek(self._read.get(log, 0))
                for line in lines:
                    event = json.loads(line)
                    reference = event.get("objectRef")
                    if reference is None or event.get("annotations", {}).get(_DECISION) != decision:
                        continue
                    yield _needed(reference, event["verb"]), event["requestURI"]


def record(used: Mapping[Right, str]) -> None:
    """Write down what is not on record yet."""
    head = "".join(line for line in RECORD.read_text().splitlines(keepends=True) if line.startswith("#"))
    known = {**used, **recorded()}
    by_scope = {
        str(scope): {each.words: by for each, by in known.items() if each.scope is scope}
        for scope in sorted({each.scope for each in known})
    }
    RECORD.write_text(head + yaml.safe_dump(by_scope, width=200))


def recorded() -> dict[Right, str]:
    """By right the module of cluster tests that needs it."""
    by_scope = yaml.safe_load(RECORD.read_text()) or {}
    return {right(Scope(scope), words): by for scope, known in by_scope.items() for words, by in known.items()}
