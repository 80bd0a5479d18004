"""The verbs that change runs, and the order in which they are admitted: cancel, suspend, resume, prio, queues, hold,
release, requeue."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.options import Chosen, ClusterTarget, Runs, Selection, TableOutput, Target, flag, verb

app = typer.Typer()
ByQueue = Annotated[
    bool, flag("--queue", "For administrators: by heldRuns of the run's queue, whatever its user says.")
]


@verb(app, "cancel", "lockstep cancel hello", 'lockstep cancel "sweep_[3-5]"', "lockstep cancel -l team=nlp")
def cancel(target: Target, chosen: Chosen) -> None:
    """End runs or arrays (SET, SET_[3-5]) for good and keep their records. Checkpoints stay."""
    from lockstep.cli.actions import change

    change.apply(target.connect(), chosen, change.CANCEL)


@verb(app, "suspend", "lockstep suspend hello")
def suspend(target: Target, chosen: Chosen) -> None:
    """Stop runs and give their nodes back; pending ones are held."""
    from lockstep.cli.actions import change

    change.apply(target.connect(), chosen, change.SUSPEND)


@verb(app, "resume", "lockstep resume hello")
def resume(target: Target, chosen: Chosen) -> None:
    """Requeue suspended runs; they go on from their newest valid checkpoint."""
    from lockstep.cli.actions import change

    change.apply(target.connect(), chosen, change.RESUME)


@verb(app, "prio", "lockstep prio -A")
def prio(target: Target, run: Runs = None, *, selection: Selection) -> None:
    """Show the priority of pending runs by factor, the first in line first."""
    from lockstep.cli.views.priorities import show

    show(target.connect(), run, selection)


@verb(app, "queues", "lockstep queues -o wide")
def queues(target: ClusterTarget, output: TableOutput = "table") -> None:
    """Show the queues: what they may use, use and borrow, what is pending. Needs the right to read them."""
    from lockstep.cli.views.queues import show

    show(target.connect(), output)


@verb(app, "hold", "lockstep hold hello")
def hold(target: Target, by_queue: ByQueue = False, *, chosen: Chosen) -> None:
    """Hold pending runs back from admission. What runs is refused: suspend stops it."""
    from lockstep.cli.actions import hold

    hold.hold(target.connect(), chosen, by_queue=by_queue)


@verb(app, "release", "lockstep release hello")
def release(target: Target, by_queue: ByQueue = False, *, chosen: Chosen) -> None:
    """Release held runs to admission."""
    from lockstep.cli.actions import hold

    hold.release(target.connect(), chosen, by_queue=by_queue)


@verb(app, "requeue", "lockstep requeue hello")
def requeue(target: Target, chosen: Chosen) -> None:
    """Have runs save, give their nodes back, and requeue."""
    from lockstep.cli.actions import hold

    hold.requeue(target.connect(), chosen)
