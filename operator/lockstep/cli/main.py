"""`lockstep` and `kubectl lockstep`: the verbs and their flags.

Each verb imports what it needs when it runs: reading a kubeconfig alone takes most of a second, which
`--help` and shell completion need not spend.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from lockstep import __version__
from lockstep.cli import admission_verbs, node_verbs
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
    time_limit: Annotated[
        str | None, typer.Option("--time", "-t", metavar="TIME", help="Time limit: 2h, or as in Slurm 90 or 1-12:00.")
    ] = None,
    time_min: Annotated[
        str | None, typer.Option("--time-min", metavar="TIME", help="It may be cut to this, to start sooner.")
    ] = None,
    priority_class: Annotated[str | None, typer.Option("--priority-class", metavar="NAME")] = None,
    nice: Annotated[int | None, typer.Option("--nice", min=0, help="Points of priority to give up.")] = None,
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Not before: 2026-12-01T08:00, 18:00, now+2h.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Only if its time limit ends before.")
    ] = None,
    dependency: Annotated[
        str | None,
        typer.Option(
            "--dependency",
            "-d",
            metavar="LIST",
            help="afterok:RUN[:RUN], afterany, afternotok, after, singleton=WORD; of arrays aftercorr:NAME.",
        ),
    ] = None,
    array: Annotated[
        str, typer.Option("--array", "-a", metavar="INDICES", help="A run for each index: 0-99, 0-99:2 or 1,3,7-9%2.")
    ] = "",
    hold: Annotated[bool, typer.Option("--hold", "-H", help="Wait until it is released.")] = False,
    test_only: Annotated[bool, typer.Option("--test-only", help="Only ask when and where it would start.")] = False,
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
    from lockstep.cli import arrays, submit, trial
    from lockstep.cli import output as out
    from lockstep.cli.client import connect
    from lockstep.cli.schedule import Schedule

    schedule = Schedule(time_limit, time_min, priority_class, nice, begin, deadline, dependency, hold)
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
    for manifest in manifests:
        schedule.put_into(manifest, time.time())
    if array:
        manifests = [arrays.wrapped(manifest, array) for manifest in manifests]
    for manifest in manifests:
        if not arrays.is_set(manifest):
            arrays.refuse_outside_of_arrays(manifest)
        elif wait or test_only:
            raise UsageError("--wait and --test-only are for single runs", "leave --array out to ask for one of them")
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
    if test_only and (wait or dry_run != "none"):
        raise UsageError("--test-only starts nothing: leave --wait and --dry-run out")
    cluster = connect(namespace, context, kubeconfig)
    if dry_run == "none":
        submit.name_user(cluster, manifests)
    for manifest in manifests:
        said = manifest["metadata"].get("namespace")
        if namespace and said and namespace != said:
            raise UsageError(f"the manifest says namespace {said}, -n says {namespace}")
        cluster.namespace = said or cluster.namespace
        submit.refuse_bad(manifest, submit.namespace_labels(cluster, cluster.namespace))
        if test_only:
            trial.show(cluster, manifest, output)
            continue
        raw = submit.create(cluster, manifest, dry_run=dry_run == "server")
        submit.show_created(raw, output, dry_run=dry_run == "server")
        if wait and dry_run == "none":
            submit.await_end(cluster, raw)


@app.command("queue")
def queue_verb(
    with_finished: Annotated[bool, typer.Option("--finished", help="Finished runs too.")] = False,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only runs of this queue.")] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Go on printing changes.")] = False,
    start: Annotated[bool, typer.Option("--start", help="When those who wait are expected to start.")] = False,
    queues: Annotated[
        bool, typer.Option("--queues", help="The queues themselves; the same as the verb queues.")
    ] = False,
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    output: TableOutput = "table",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show who holds nodes and who waits, in order."""
    from lockstep.cli import queue as verb
    from lockstep.cli import queues as queue_objects
    from lockstep.cli.client import connect

    if (start or queues) and (with_finished or watch or (start and queues)):
        raise UsageError("--start and --queues go with no --finished, no --watch, and not with each other")
    if queues:
        queue_objects.show(connect(namespace, context, kubeconfig), output)
        return
    if start:
        cluster = connect(namespace, context, kubeconfig)
        verb.show_starts(cluster, everywhere=all_namespaces, selector=selector, queue=queue, form=output)
        return
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


@app.command("status")
def status_verb(
    run: Run,
    output: TextOutput = "text",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show what became of each index of an array; of a run the same as info."""
    from lockstep.cli import arrays, info
    from lockstep.cli.client import connect

    cluster = connect(namespace, context, kubeconfig)
    raw = arrays.fetch(cluster, run)
    if raw is None:
        info.show(cluster, run, output)
    else:
        arrays.show_status(cluster, raw, output)


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
    source: Annotated[
        str, typer.Option("--from", metavar="FILE", help="The operator's history file; also of runs that are gone.")
    ] = "",
    output: TableOutput = "table",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show every attempt of a run, what ended it and what was done; -o wide says it in words."""
    from lockstep.cli import history
    from lockstep.cli.client import connect

    if source:
        history.show_recorded(source, namespace or "default", run, output)
        return
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
    from lockstep.cli import runs
    from lockstep.cli import wait as verb
    from lockstep.cli.client import connect

    seconds = _seconds(timeout)
    cluster = connect(namespace, context, kubeconfig)
    reached = verb.until(cluster, runs.fetch(cluster, run), goal, seconds)
    state, reason = runs.state_of(reached)
    typer.echo(f"{run} is {state}{f' ({reason})' if reason else ''}")


@app.command("bundle")
def bundle_verb(
    run: Run,
    target: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="RUN-bundle.tar.gz by default.")] = "",
    tail: Annotated[int, typer.Option("--tail", min=1, max=100_000, help="Lines of each pod's log.")] = 1000,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Collect everything that is known of a run in one file, to look into or to send to somebody."""
    from lockstep.cli import bundle
    from lockstep.cli.client import connect

    bundle.make(connect(namespace, context, kubeconfig), run, target, tail)


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


class _SaveByDefault(TyperGroup):
    """`checkpoint RUN` is short for `checkpoint save RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A first word that is no verb names a run."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["save", *args]
        return super().parse_args(ctx, args)


app.registered_commands += admission_verbs.app.registered_commands
app.add_typer(node_verbs.app, name="nodes")
checkpoint = typer.Typer(cls=_SaveByDefault, no_args_is_help=True, help="Have a run save now; judge checkpoints.")
app.add_typer(checkpoint, name="checkpoint")


@checkpoint.command("save")
def checkpoint_save_verb(
    run: Run,
    wait: Annotated[bool, typer.Option("--wait", help="Until it is valid on all ranks; fail unless it is.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="DURATION", help="Of --wait: e.g. 90s; for ever by default.")
    ] = None,
    output: ObjectOutput = "name",
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Ask all ranks of a run to save now, at one step. `checkpoint RUN` does the same."""
    from lockstep.cli import save as verb
    from lockstep.cli.client import connect

    seconds = _seconds(timeout)
    cluster = connect(namespace, context, kubeconfig)
    raw, token = verb.ask(cluster, run)
    if not wait:
        verb.show_asked(raw, output)
        return
    typer.echo(f"{run}: {verb.answer(cluster, raw, token, seconds)}")


@checkpoint.command("verify")
def checkpoint_verify_verb(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A checkpoint, or a directory of some.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="As in checkpoint.format.")] = "Auto",
    quick: Annotated[bool, typer.Option("--quick", help="Compare no checksums.")] = False,
    skew: Annotated[
        float | None,
        typer.Option("--skew", metavar="SECONDS", min=0, help="Clocks may be so far apart; 2 by default."),
    ] = None,
) -> None:
    """Say whether a checkpoint is complete: exit code 0 Valid, 1 Invalid, 2 Unknown. Of several, the newest counts."""
    from lockstep.cli import checkpoint as verb

    raise typer.Exit(verb.verify(path, form, not quick, skew))


def _seconds(timeout: str | None) -> float | None:
    from lockstep.api.durations import parse_duration

    try:
        return None if timeout is None else parse_duration(timeout)
    except ValueError as error:
        raise UsageError(f"--timeout {error}") from error


def _listed(words: str | None) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()] if words else []
