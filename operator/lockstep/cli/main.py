"""`lockstep` and `kubectl lockstep`: the verbs and their flags.

Each verb imports what it needs when it runs: reading a kubeconfig alone takes most of a second, which
`--help` and shell completion need not spend.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from lockstep import __version__
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    ObjectOutput,
    Run,
    Runs,
    Selector,
    TableOutput,
    TextOutput,
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and leave with its exit code (docs/cli.md lists them)."""
    called = Path(sys.argv[0]).name
    try:
        app(arguments, prog_name="kubectl lockstep" if called.startswith("kubectl-") else "lockstep")
    except CliError as error:
        typer.echo(f"error: {error}", err=True)
        if error.remedy:
            typer.echo(f"  {error.remedy}", err=True)
        sys.exit(error.exit_code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def lockstep(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """LLM training as one gang on Kubernetes: submit runs, see why they wait, what they do, why they stopped."""


@app.command("submit")
def submit_verb(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="FILE | -- COMMAND...", show_default=False)] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", "-N", min=1, help="Whole nodes; 1 by default.")] = None,
    image: Annotated[str | None, typer.Option("--image", help="Image of the training container.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option("--gpus-per-node", min=0, help="All by default.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Queue to wait in.")] = None,
    launcher: Annotated[
        Literal["Plain", "Torchrun", "JAX"] | None, typer.Option("--launcher", help="How a node's processes start.")
    ] = None,
    checkpoint_claim: Annotated[
        str | None, typer.Option("--checkpoint-claim", metavar="CLAIM", help="Claim of the shared checkpoint tier.")
    ] = None,
    shm_size: Annotated[str | None, typer.Option("--shm-size", metavar="SIZE", help="E.g. 200Gi.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="May be repeated.")] = None,
    nodelist: Annotated[
        str | None, typer.Option("--nodelist", "-w", metavar="NODES", help="Only these nodes, by comma.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option("--exclude", "-x", metavar="NODES", help="Not these nodes, by comma.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the end; fail unless it succeeds.")] = False,
    dry_run: Annotated[
        Literal["none", "client", "server"], typer.Option("--dry-run", help="client prints the manifest; server asks.")
    ] = "none",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create a run from a manifest (- for standard input), or from flags and a command after --."""
    from lockstep.cli import output as out
    from lockstep.cli import submit
    from lockstep.cli.client import connect

    flags = submit.Flags(
        nodes=nodes,
        image=image,
        gpus_per_node=gpus_per_node,
        queue=queue,
        launcher=launcher,
        claim=checkpoint_claim,
        shm_size=shm_size,
        env=env or (),
        only_nodes=_listed(nodelist),
        exclude_nodes=_listed(exclude),
    )
    manifests = submit.manifests_of(arguments or (), flags, name)
    if dry_run == "client":
        for index, manifest in enumerate(manifests):
            submit.refuse_malformed(manifest)
            submit.refuse_bad(manifest, None)
            if index and output != "json":
                typer.echo("---")
            out.print_object(manifest, "yaml" if output == "name" else output)
        return
    if wait and len(manifests) > 1:
        raise UsageError("--wait needs a manifest with one run")
    cluster = connect(namespace, context, kubeconfig)
    for manifest in manifests:
        said = manifest["metadata"].get("namespace")
        if namespace and said and namespace != said:
            raise UsageError(f"the manifest says namespace {said}, -n says {namespace}")
        cluster.namespace = said or cluster.namespace
        submit.refuse_bad(manifest, submit.namespace_labels(cluster, cluster.namespace))
        raw = submit.create(cluster, manifest, dry_run=dry_run == "server")
        submit.show_created(raw, output, dry_run=dry_run == "server")
        if wait and dry_run == "none":
            submit.await_end(cluster, raw)


@app.command("queue")
def queue_verb(
    with_finished: Annotated[bool, typer.Option("--finished", help="Finished runs too.")] = False,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only runs of this queue.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Go on printing changes.")] = False,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: TableOutput = "table",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show who holds nodes and who waits, in order."""
    from lockstep.cli import queue as verb
    from lockstep.cli.client import connect

    verb.show(
        connect(namespace, context, kubeconfig),
        everywhere=all_namespaces,
        selector=selector,
        with_finished=with_finished,
        queue=queue,
        form=output,
        watch=watch,
    )


@app.command("info")
def info_verb(
    run: Run,
    output: TextOutput = "text",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show everything about one run: conditions, which rank is where, checkpoints, attempts."""
    from lockstep.cli import info
    from lockstep.cli.client import connect

    info.show(connect(namespace, context, kubeconfig), run, output)


@app.command("explain")
def explain_verb(
    run: Run,
    output: TextOutput = "text",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say why a run waits or why it stopped, which rank and node were first, and what comes next."""
    from lockstep.cli import explain
    from lockstep.cli.client import connect

    explain.show(connect(namespace, context, kubeconfig), run, output)


@app.command("logs")
def logs_verb(
    run: Run,
    rank: Annotated[str, typer.Option("--rank", "-r", metavar="RANKS", help="E.g. 0 or 0-3,7; all by default.")] = "",
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Only what this attempt wrote.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as more is written.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only so many last lines of each rank.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="The moment in front of every line.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print what ranks wrote; with several, the rank in front of every line."""
    from lockstep.cli import logs
    from lockstep.cli.client import connect

    wanted = logs.Wanted(attempt=attempt, follow=follow, tail=tail, timestamps=timestamps)
    logs.show(connect(namespace, context, kubeconfig), run, rank, wanted)


@app.command("events")
def events_verb(
    run: Run,
    pods: Annotated[bool, typer.Option("--pods", help="Those of the run's pods too.")] = False,
    output: TableOutput = "table",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what was said of a run, oldest first."""
    from lockstep.cli import events
    from lockstep.cli.client import connect

    events.show(connect(namespace, context, kubeconfig), run, with_pods=pods, form=output)


@app.command("history")
def history_verb(
    run: Run,
    output: TableOutput = "table",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show every attempt of a run, what ended it and what was done; -o wide says it in words."""
    from lockstep.cli import history
    from lockstep.cli.client import connect

    history.show(connect(namespace, context, kubeconfig), run, output)


@app.command("cancel")
def cancel_verb(
    run: Runs = None,
    selector: Selector = "",
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """End runs for good and keep their records. Checkpoints stay."""
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


@app.command("wait")
def wait_verb(
    run: Run,
    goal: Annotated[
        Literal["finished", "succeeded", "running", "admitted"], typer.Option("--for", help="What to wait for.")
    ] = "finished",
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="E.g. 90s, 30m, 2h; for ever by default.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait for a run: exit code 0 when it has come so far, 1 when it cannot any more, 124 when the time is up."""
    from lockstep.api.durations import parse_duration
    from lockstep.cli import runs
    from lockstep.cli import wait as verb
    from lockstep.cli.client import connect

    try:
        seconds = None if timeout is None else parse_duration(timeout)
    except ValueError as error:
        raise UsageError(f"--timeout {error}") from error
    cluster = connect(namespace, context, kubeconfig)
    reached = verb.until(cluster, runs.fetch(cluster, run), goal, seconds)
    state, reason = runs.state_of(reached)
    typer.echo(f"{run} is {state}{f' ({reason})' if reason else ''}")


@app.command("render")
def render_verb(
    target: Annotated[str, typer.Argument(metavar="RUN | FILE", show_default=False)],
    slot: Annotated[int, typer.Option("--slot", min=0, help="Whose pod.")] = 0,
    output: Annotated[Literal["yaml", "json"], typer.Option("--output", "-o")] = "yaml",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the pod that is made for a slot of a run, or of a manifest that is not submitted."""
    from lockstep.cli import render, runs
    from lockstep.cli.client import connect

    if render.is_file(target):
        render.show(render.of_file(target, namespace or "default"), slot, output)
        return
    cluster = connect(namespace, context, kubeconfig)
    render.show(runs.whole(cluster, runs.view(runs.fetch(cluster, target))), slot, output)


def _listed(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()] if words else []
