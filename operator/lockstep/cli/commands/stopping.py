"""The verbs that stop runs and let them go on: cancel, suspend, resume."""

from __future__ import annotations

import typer

from lockstep.cli.options import Chosen, Target, verb

app = typer.Typer()


@verb(app, "cancel", "lockstep cancel hello", 'lockstep cancel "sweep_[3-5]"', "lockstep cancel -l team=nlp")
def cancel(chosen: Chosen, target: Target) -> None:
    """End runs or arrays (SET, SET_[3-5]) for good and keep their records. Checkpoints stay."""
    from lockstep.cli.actions.change import CANCEL, apply

    apply(target.connect(), chosen.runs, chosen.selector, CANCEL, chosen.output)


@verb(app, "suspend", "lockstep suspend hello")
def suspend(chosen: Chosen, target: Target) -> None:
    """Stop runs and give their nodes back; pending ones are held."""
    from lockstep.cli.actions.change import SUSPEND, apply

    apply(target.connect(), chosen.runs, chosen.selector, SUSPEND, chosen.output)


@verb(app, "resume", "lockstep resume hello")
def resume(chosen: Chosen, target: Target) -> None:
    """Requeue suspended runs; they go on from their newest valid checkpoint."""
    from lockstep.cli.actions.change import RESUME, apply

    apply(target.connect(), chosen.runs, chosen.selector, RESUME, chosen.output)
