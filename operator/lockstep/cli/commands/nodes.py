"""`lockstep nodes` and its verbs, for those who run the cluster."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from typer import Argument

from lockstep.cli.actions import nodes as actions
from lockstep.cli.client import Cluster
from lockstep.cli.errors import UsageError
from lockstep.cli.options import ClusterTarget, OperatorNamespace, TableOutput, epilog, flag, verb, with_flags
from lockstep.cli.verbs import Verbs

app = typer.Typer(cls=Verbs, invoke_without_command=True, no_args_is_help=False)
_OF_THE_TARGET = ("context", "kubeconfig")
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
        return
    for each in called.command.params:
        if each.name in _OF_THE_TARGET:
            continue
        source = called.get_parameter_source(each.name or "")
        if source is not None and source.name == "COMMANDLINE":
            words = f"{each.opts[0]} is of lockstep nodes alone, and not of {called.invoked_subcommand}"
            raise UsageError(words, "leave it out")
    called.obj = target


def _cluster(called: typer.Context, target: ClusterTarget) -> Cluster:
    """The one that is named behind the verb, or else in front of it."""
    before: ClusterTarget = called.obj
    return ClusterTarget(target.context or before.context, target.kubeconfig or before.kubeconfig).connect()


@verb(app, "drain", 'lockstep nodes drain gpu-1 --reason "fan broken"')
def drain(
    called: typer.Context,
    target: ClusterTarget,
    node: Nodes,
    reason: Annotated[str, flag("--reason WORDS", "Shown wherever somebody asks why.")] = "",
) -> None:
    """Drain nodes without evictions: their runs save first, then move the ranks that are there. Nothing new comes."""
    actions.drain(_cluster(called, target), node, reason)


@verb(app, "undrain", "lockstep nodes undrain gpu-1")
def undrain(called: typer.Context, target: ClusterTarget, node: Nodes) -> None:
    """Let runs on drained nodes again."""
    actions.undrain(_cluster(called, target), node)


@verb(app, "clear", "lockstep nodes clear gpu-1")
def clear(called: typer.Context, target: ClusterTarget, node: Nodes) -> None:
    """Forget the failures recorded on nodes, as after a repair."""
    actions.clear(_cluster(called, target), node, time.time())
