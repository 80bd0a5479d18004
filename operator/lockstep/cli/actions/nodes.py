"""`lockstep nodes drain`, `undrain` and `clear`: the ways to empty a node, or to forgive it."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from lockstep.api.base import names
from lockstep.api.base.times import to_rfc3339
from lockstep.cli.client import Cluster, Json, core_path
from lockstep.cli.errors import NODES_ARE_THE_CLUSTERS, if_forbidden


def drain(cluster: Cluster, chosen: Sequence[str], reason: str) -> None:
    """Ask the gangs to leave nodes after a save, and keep new ones away."""
    for node in chosen:
        patch = {"metadata": {"annotations": {names.ANNOTATION_DRAIN: reason}}, "spec": {"unschedulable": True}}
        _change(cluster, node, patch, "is being drained: its runs save, then move their ranks; watch lockstep nodes")


def undrain(cluster: Cluster, chosen: Sequence[str]) -> None:
    """Let runs on again."""
    for node in chosen:
        patch = {"metadata": {"annotations": {names.ANNOTATION_DRAIN: None}}, "spec": {"unschedulable": False}}
        _change(cluster, node, patch, "takes runs again")


def clear(cluster: Cluster, chosen: Sequence[str], now: float) -> None:
    """Forgive what failed on nodes so far."""
    for node in chosen:
        with if_forbidden(NODES_ARE_THE_CLUSTERS):
            raw = cluster.get(core_path(None, "nodes", node))
        annotations = {
            names.ANNOTATION_FIRST_FAILURES: None,
            names.ANNOTATION_SUSPECT: None,
            names.ANNOTATION_FAILURES_CLEARED: to_rfc3339(now),
        }
        before = raw["spec"].get("taints", [])
        kept = [taint for taint in before if taint["key"] != names.TAINT_SUSPECT]
        patch: Json = {"metadata": {"annotations": annotations, "resourceVersion": raw["metadata"]["resourceVersion"]}}
        if len(kept) < len(before):
            patch["spec"] = {"taints": kept}
        _change(cluster, node, patch, "has a clean record")


def _change(cluster: Cluster, node: str, patch: Json, done: str) -> None:
    with if_forbidden(NODES_ARE_THE_CLUSTERS):
        cluster.merge_patch(core_path(None, "nodes", node), patch)
    typer.echo(f"node/{node} {done}")
