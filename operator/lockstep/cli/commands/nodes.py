"""`lockstep nodes` and its verbs, for those who run the cluster."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from typer import Argument

from lockstep.cli.actions import nodes as actions
from lockstep.cli.options import ClusterTarget, OperatorNamespace, TableOutput, epilog, flag, verb, with_flags

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)
Nodes = Annotated[list[str], Argument(metavar="NODE...", show_default=False, help="Names of nodes.")]


@app.callback(epilog=epilog("lockstep nodes --all", "lockstep nodes drain gpu-1"))
@with_flags
def nodes(
    called: typer.Context,
    target: ClusterTarget,
    every: Annotated[bool, flag("--all", "Nodes on which nothing runs or failed as well.")] = False,
    output: TableOutput = "table",
    operator_namespace: OperatorNamespace = "lockstep-system",
) -> None:
    """Which run is on which node, and what failed there. For administrators."""
    from lockstep.cli.views.nodes import show

    if called.invoked_subcommand is None:
        show(target.connect(), output, operator_namespace, every=every, now=time.time())


@verb(app, "drain", 'lockstep nodes drain gpu-1 --reason "fan broken"')
def drain(
    target: ClusterTarget,
    node: Nodes,
    reason: Annotated[str, flag("--reason WORDS", "Shown wherever somebody asks why.")] = "",
) -> None:
    """Drain nodes without evictions: their runs save first, then move the ranks that are there. Nothing new comes."""
    actions.drain(target.connect(), node, reason)


@verb(app, "undrain", "lockstep nodes undrain gpu-1")
def undrain(target: ClusterTarget, node: Nodes) -> None:
    """Let runs on drained nodes again."""
    actions.undrain(target.connect(), node)


@verb(app, "clear", "lockstep nodes clear gpu-1")
def clear(target: ClusterTarget, node: Nodes) -> None:
    """Forget the failures recorded on nodes, as after a repair."""
    actions.clear(target.connect(), node, time.time())
