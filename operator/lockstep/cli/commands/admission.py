"""The verbs about the order of admission: prio, queues, hold, release, requeue."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.options import (
    AllNamespaces,
    ClusterTarget,
    ObjectOutput,
    Runs,
    Selector,
    TableOutput,
    Target,
    verb,
)

app = typer.Typer()
ByQueue = Annotated[
    bool, typer.Option("--queue", help="For administrators: by heldRuns of the run's queue, whatever its user says.")
]


@verb(app, "prio")
def prio(
    run: Runs = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: TableOutput = "table",
    *,
    target: Target,
) -> None:
    """Show what the priority of runs that wait is made of, the first in line first."""
    from lockstep.cli.views.priorities import show

    show(target.connect(), run, everywhere=all_namespaces, selector=selector, form=output)


@verb(app, "queues")
def queues(output: TableOutput = "table", *, target: ClusterTarget) -> None:
    """Show the queues: what they may use, use and borrow, who waits. Needs the right to read them."""
    from lockstep.cli.views.queues import show

    show(target.connect(), output)


@verb(app, "hold")
def hold(
    run: Runs = None,
    by_queue: ByQueue = False,
    selector: Selector = "",
    output: ObjectOutput = "name",
    *,
    target: Target,
) -> None:
    """Keep runs that wait from getting nodes. What runs is refused: suspend stops it."""
    from lockstep.cli.actions import hold

    hold.hold(target.connect(), run, selector, output, by_queue=by_queue)


@verb(app, "release")
def release(
    run: Runs = None,
    by_queue: ByQueue = False,
    selector: Selector = "",
    output: ObjectOutput = "name",
    *,
    target: Target,
) -> None:
    """Let held runs wait for nodes again."""
    from lockstep.cli.actions import hold

    hold.release(target.connect(), run, selector, output, by_queue=by_queue)


@verb(app, "requeue")
def requeue(run: Runs = None, selector: Selector = "", output: ObjectOutput = "name", *, target: Target) -> None:
    """Have runs save, give their nodes back, and queue again."""
    from lockstep.cli.actions import hold

    hold.requeue(target.connect(), run, selector, output)
