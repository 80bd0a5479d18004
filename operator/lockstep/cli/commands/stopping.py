"""The verbs that stop runs and let them go on: cancel, suspend, resume."""

from __future__ import annotations

import typer

from lockstep.cli.options import ObjectOutput, Runs, Selector, Target, verb

app = typer.Typer()


@verb(app, "cancel")
def cancel(run: Runs = None, selector: Selector = "", output: ObjectOutput = "name", *, target: Target) -> None:
    """End runs or arrays (SET, SET_[3-5]) for good and keep their records. Checkpoints stay."""
    from lockstep.cli.actions.change import CANCEL, apply

    apply(target.connect(), run, selector, CANCEL, output)


@verb(app, "suspend")
def suspend(run: Runs = None, selector: Selector = "", output: ObjectOutput = "name", *, target: Target) -> None:
    """Stop runs and give their nodes back, or hold them while they wait."""
    from lockstep.cli.actions.change import SUSPEND, apply

    apply(target.connect(), run, selector, SUSPEND, output)


@verb(app, "resume")
def resume(run: Runs = None, selector: Selector = "", output: ObjectOutput = "name", *, target: Target) -> None:
    """Let suspended runs queue again; they go on from their newest valid checkpoint."""
    from lockstep.cli.actions.change import RESUME, apply

    apply(target.connect(), run, selector, RESUME, output)
