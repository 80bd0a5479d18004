"""The verbs about the order of runs that wait: prio, hold, release, requeue, queues."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    ObjectOutput,
    Runs,
    Selector,
    TableOutput,
)

app = typer.Typer()
ByQueue = Annotated[
    bool, typer.Option("--queue", help="For administrators: by heldRuns of the run's queue, whatever its user says.")
]


@app.command("prio")
def prio_verb(
    run: Runs = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: TableOutput = "table",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what the priority of runs that wait is made of, the first in line first."""
    from lockstep.cli import prio
    from lockstep.cli.client import connect

    cluster = connect(namespace, context, kubeconfig)
    prio.show(cluster, run, everywhere=all_namespaces, selector=selector, form=output)


@app.command("queues")
def queues_verb(output: TableOutput = "table", context: Context = None, kubeconfig: Kubeconfig = None) -> None:
    """Show the queues: what they may use, use and borrow, who waits. Needs the right to read them."""
    from lockstep.cli import queues
    from lockstep.cli.client import connect

    queues.show(connect(None, context, kubeconfig), output)


@app.command("hold")
def hold_verb(
    run: Runs = None,
    by_queue: ByQueue = False,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Keep runs that wait from getting nodes. What runs is refused: suspend stops it."""
    from lockstep.cli import hold
    from lockstep.cli.client import connect

    hold.hold(connect(namespace, context, kubeconfig), run, selector, output, by_queue=by_queue)


@app.command("release")
def release_verb(
    run: Runs = None,
    by_queue: ByQueue = False,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let held runs wait for nodes again."""
    from lockstep.cli import hold
    from lockstep.cli.client import connect

    hold.release(connect(namespace, context, kubeconfig), run, selector, output, by_queue=by_queue)


@app.command("requeue")
def requeue_verb(
    run: Runs = None,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Have runs save, give their nodes back, and queue again."""
    from lockstep.cli import hold
    from lockstep.cli.client import connect

    hold.requeue(connect(namespace, context, kubeconfig), run, selector, output)
