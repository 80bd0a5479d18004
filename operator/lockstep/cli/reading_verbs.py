"""The verbs that only read runs: queue, info, status, explain, logs, events, history, bundle, render, wait."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lockstep.cli.errors import UsageError
from lockstep.cli.options import (
    AllNamespaces,
    Context,
    Kubeconfig,
    Namespace,
    OperatorNamespace,
    Run,
    Selector,
    TableOutput,
    TextOutput,
    timeout_seconds,
)
from lockstep.cli.output import echo

app = typer.Typer()


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
    operator_namespace: OperatorNamespace = "lockstep-system",
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say why a run waits or why it stopped, which rank and node were first, and what comes next."""
    from lockstep.cli import explain
    from lockstep.cli.client import connect

    explain.show(connect(namespace, context, kubeconfig), run, output, operator_namespace)


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

    seconds = timeout_seconds(timeout)
    cluster = connect(namespace, context, kubeconfig)
    reached = verb.until(cluster, runs.fetch(cluster, run), goal, seconds)
    state, reason = runs.state_of(reached)
    echo(f"{run} is {state}{f' ({reason})' if reason else ''}")
