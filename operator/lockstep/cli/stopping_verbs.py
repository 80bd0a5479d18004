"""The verbs that stop runs and let them go on: cancel, suspend, resume."""

from __future__ import annotations

import typer

from lockstep.cli.options import Context, Kubeconfig, Namespace, ObjectOutput, Runs, Selector

app = typer.Typer()


@app.command("cancel")
def cancel_verb(
    run: Runs = None,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """End runs or arrays (SET, SET_[3-5]) for good and keep their records. Checkpoints stay."""
    from lockstep.cli import change
    from lockstep.cli.client import connect

    change.apply(connect(namespace, context, kubeconfig), run, selector, change.CANCEL, output)


@app.command("suspend")
def suspend_verb(
    run: Runs = None,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Stop runs and give their nodes back, or hold them while they wait."""
    from lockstep.cli import change
    from lockstep.cli.client import connect

    change.apply(connect(namespace, context, kubeconfig), run, selector, change.SUSPEND, output)


@app.command("resume")
def resume_verb(
    run: Runs = None,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let suspended runs queue again; they go on from their newest valid checkpoint."""
    from lockstep.cli import change
    from lockstep.cli.client import connect

    change.apply(connect(namespace, context, kubeconfig), run, selector, change.RESUME, output)
