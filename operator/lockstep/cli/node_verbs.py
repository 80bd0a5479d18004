"""`lockstep nodes` and its verbs, for those who run the cluster."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from lockstep.cli.options import Context, Kubeconfig, TableOutput

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)
Nodes = Annotated[list[str], typer.Argument(metavar="NODE...", show_default=False, help="Names of nodes.")]


@app.callback()
def nodes_verb(
    called: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Nodes on which nothing runs or failed as well.")] = False,
    output: TableOutput = "table",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Which run is on which node, and what failed there. For administrators."""
    from lockstep.cli import nodes
    from lockstep.cli.client import connect

    if called.invoked_subcommand is None:
        nodes.show(connect(None, context, kubeconfig), output, every=every, now=time.time())


@app.command("drain")
def drain_verb(
    node: Nodes,
    reason: Annotated[str, typer.Option("--reason", metavar="WORDS", help="Shown wherever somebody asks why.")] = "",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Empty nodes: their runs save first, then move the ranks that are there. Nothing new comes."""
    from lockstep.cli import nodes
    from lockstep.cli.client import connect

    nodes.drain(connect(None, context, kubeconfig), node, reason)


@app.command("undrain")
def undrain_verb(node: Nodes, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Let runs on drained nodes again."""
    from lockstep.cli import nodes
    from lockstep.cli.client import connect

    nodes.undrain(connect(None, context, kubeconfig), node)


@app.command("clear")
def clear_verb(node: Nodes, context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Forgive what failed on nodes so far, as after a repair."""
    from lockstep.cli import nodes
    from lockstep.cli.client import connect

    nodes.clear(connect(None, context, kubeconfig), node, time.time())
