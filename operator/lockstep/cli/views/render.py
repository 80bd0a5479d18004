"""`lockstep render`: the pod that the operator makes for a slot, by the operator's own function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lockstep.cli import runs
from lockstep.cli.client import Json
from lockstep.cli.errors import CliError
from lockstep.cli.output import note, print_object
from lockstep.cli.submission import manifests, refusals
from lockstep.core.model import assignment as slots
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.tunables import Tunables
from lockstep.core.pods.gang import dry_run_body, pod_body

_NO_UID = "00000000-0000-0000-0000-000000000000"


def is_file(target: str) -> bool:
    """Whether ``target`` means a manifest rather than a run."""
    return target == "-" or "/" in target or target.endswith((".yaml", ".yml", ".json")) or Path(target).is_file()


def run_of_file(target: str, namespace: str) -> RunView:
    """The run that a manifest describes, as if it had just been created."""
    manifest = manifests.read_one_run(target)
    refusals.refuse_bad(manifest, None)
    metadata = {"namespace": namespace, "uid": _NO_UID, "resourceVersion": "0"} | manifest["metadata"]
    metadata |= {"creationTimestamp": "1970-01-01T00:00:00Z"}
    metadata.setdefault("name", f"{metadata.get('generateName', '')}xxxxx")
    return runs.view({**manifest, "metadata": metadata})


def show(run: RunView, slot: int, form: str) -> None:
    """Print the pod as ``yaml`` or ``json``."""
    print_object(rendered(run, slot), form)


def rendered(run: RunView, slot: int) -> Json:
    """The pod. Raises CliError on a spec that does not parse and on a slot that there is not."""
    if run.spec is None or run.spec_error:
        raise CliError(f"the spec of {run.name} is not valid: {run.spec_error}")
    count = len(run.status.assignment.nodes) or run.spec.nodes + run.spec.spare_nodes
    if not 0 <= slot < count:
        raise CliError(f"{run.name} has slots 0-{count - 1}, not {slot}")
    note("The operator's own settings (its address, the worker's ConfigMap, storages) are shown with their defaults.")
    tunables = _tunables(run)
    assignment = run.status.assignment
    if slots.is_held(assignment):
        node, incarnation = assignment.nodes[slot], assignment.incarnations[slot]
        if not node:
            raise CliError(f"slot {slot} of {run.name} waits for a node")
        return pod_body(run, run.status, tunables, slot, incarnation, node)
    if slot:
        raise CliError(
            f"{run.name} has no nodes yet, so only slot 0 can be shown", "the other slots differ in name and node only"
        )
    note("No nodes are chosen yet: the node is left out, and open amounts of cpu and memory are placeholders.")
    return dry_run_body(run, tunables, node="")


def _tunables(run: RunView) -> Tunables:
    """Defaults, with a stand-in for the directory of a local storage that only the operator knows."""
    checkpoint = run.spec.checkpoint if run.spec is not None else None
    local = checkpoint.local if checkpoint is not None else None
    storages = {local.storage: f"/{local.storage}"} if local is not None else {}
    return replace(Tunables(), gang=GangSettings(local_storages=storages))
