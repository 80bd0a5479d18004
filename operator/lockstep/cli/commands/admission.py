"""The verbs about the order of admission: prio, queues, hold, release, requeue."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.options import (
    AllNamespaces,
    Chosen,
    ClusterTarget,
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


@verb(app, "prio", "lockstep prio -A")
def prio(
    run: Runs = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: TableOutput = "table",
    *,
    target: Target,
) -> None:
    """Show the priority of pending runs by factor, the first in line first."""
    from lockstep.cli.views.priorities import show

    show(target.connect(), run, everywhere=all_namespaces, selector=selector, form=output)


@verb(app, "queues", "lockstep queues -o wide")
def queues(output: TableOutput = "table", *, target: ClusterTarget) -> None:
    """Show the queues: what they may use, use and borrow, what is pending. Needs the right to read them."""
    from lockstep.cli.views.queues import show

    show(target.connect(), output)


@verb(app, "hold", "lockstep hold hello")
def hold(by_queue: ByQueue = False, *, chosen: Chosen, target: Target) -> None:
    """Keep pending runs from being admitted. What runs is refused: suspend stops it."""
    from lockstep.cli.actions import hold

    hold.hold(target.connect(), chosen.runs, chosen.selector, chosen.output, by_queue=by_queue)


@verb(app, "release", "lockstep release hello")
def release(by_queue: ByQueue = False, *, chosen: Chosen, target: Target) -> None:
    """Let held runs be admitted again."""
    from lockstep.cli.actions import hold

    hold.release(target.connect(), chosen.runs, chosen.selector, chosen.output, by_queue=by_queue)


@verb(app, "requeue", "lockstep requeue hello")
def requeue(chosen: Chosen, target: Target) -> None:
    """Have runs save, give their nodes back, and requeue."""
    from lockstep.cli.actions import hold

    hold.requeue(target.connect(), chosen.runs, chosen.selector, chosen.output)
