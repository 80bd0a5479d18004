"""The verbs that only read runs: queue, info, status, explain, logs, events, history, report,
bundle, render, wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import typer
from typer import Argument

from lockstep.cli.errors import UsageError
from lockstep.cli.options import (
    AllNamespaces,
    ClusterTarget,
    Goal,
    Namespace,
    OperatorNamespace,
    Run,
    Selection,
    TableOutput,
    Target,
    TextOutput,
    flag,
    timeout_seconds,
    verb,
)
from lockstep.cli.output import echo

app = typer.Typer()


@verb(app, "queue", "lockstep queue --me", "lockstep queue -A -q research --start")
def queue(
    target: Target,
    with_finished: Annotated[bool, flag("--finished", "Finished runs too.")] = False,
    queue: Annotated[str, flag("--queue -q", "Only runs of this queue.")] = "",
    user: Annotated[str, flag("--user -u NAME", "Only runs that NAME has submitted.")] = "",
    me: Annotated[bool, flag("--me", "Only runs that you have submitted.")] = False,
    watch: Annotated[bool, flag("--watch", "Go on printing changes.")] = False,
    start: Annotated[bool, flag("--start", "When pending runs are expected to start.")] = False,
    queues: Annotated[bool, flag("--queues", "The queues themselves; the same as the verb queues.")] = False,
    *,
    selection: Selection,
) -> None:
    """Show running and pending runs, in order."""
    from lockstep.cli.user import asked_for
    from lockstep.cli.views.queue import show, show_starts
    from lockstep.cli.views.queues import show as show_queues

    if (user or me) and (start or queues or (user and me)):
        raise UsageError("--user and --me go with no --start, no --queues, and not with each other")
    if (start or queues) and (with_finished or watch or (start and queues)):
        raise UsageError("--start and --queues go with no --finished, no --watch, and not with each other")
    cluster, selection = target.connect(), replace(selection, queue=queue)
    if queues:
        show_queues(cluster, selection.output)
    elif start:
        show_starts(cluster, selection)
    else:
        who = asked_for(cluster, user, me=me)
        show(cluster, selection, with_finished=with_finished, watch=watch, user=who)


@verb(app, "info", "lockstep info hello")
def info(target: Target, run: Run, output: TextOutput = "text") -> None:
    """Show everything about one run: conditions, which rank is where, checkpoints, attempts."""
    from lockstep.cli.views.info import show

    show(target.connect(), run, output)


@verb(app, "status", "lockstep status sweep")
def status(target: Target, run: Run, output: TextOutput = "text") -> None:
    """Show the outcome of each index of an array; of a run the same as info."""
    from lockstep.cli import arrays, runs
    from lockstep.cli.views import array_status, info

    cluster = target.connect()
    name = runs.by_number(cluster, run)
    raw = arrays.fetch(cluster, name)
    if raw is None:
        info.show(cluster, name, output)
    else:
        array_status.show(cluster, raw, output)


@verb(app, "explain", "lockstep explain hello")
def explain(
    target: ClusterTarget,
    run: Run,
    everything: Annotated[bool, flag("--all", "Paths, all who wait in front, all that was passed over.")] = False,
    output: TextOutput = "text",
    namespace: Namespace = None,
    operator_namespace: OperatorNamespace = "lockstep-system",
) -> None:
    """Show the pending reason of a run, or why it stopped, which rank and node failed first, and what comes next."""
    from lockstep.cli.views.explain import show

    show(target.connect(namespace), run, output, operator_namespace, everything=everything)


@verb(app, "logs", "lockstep logs hello --rank 0 -f", "lockstep logs hello --attempt 2 --tail 50")
def logs(
    target: Target,
    run: Run,
    rank: Annotated[str, flag("--rank -r RANKS", "E.g. 0 or 0-3,7; all by default.")] = "",
    attempt: Annotated[int | None, flag("--attempt", "Only what this attempt wrote.", min=1)] = None,
    follow: Annotated[bool, flag("--follow -f", "Go on as more is written.")] = False,
    tail: Annotated[int | None, flag("--tail", "Only so many last lines of each rank.", min=0)] = None,
    timestamps: Annotated[bool, flag("--timestamps", "The moment in front of every line.")] = False,
) -> None:
    """Print what ranks wrote; with several, the rank in front of every line."""
    from lockstep.cli.views.logs import Wanted, parsed, show

    parsed(rank)
    show(target.connect(), run, rank, Wanted(attempt=attempt, follow=follow, tail=tail, timestamps=timestamps))


@verb(app, "events", "lockstep events hello --pods")
def events(
    target: Target,
    run: Run,
    pods: Annotated[bool, flag("--pods", "Those of the run's pods too.")] = False,
    output: TableOutput = "table",
) -> None:
    """Show the events of a run, oldest first."""
    from lockstep.cli.views.events import show

    show(target.connect(), run, with_pods=pods, form=output)


@verb(app, "history", "lockstep history hello -o wide")
def history(
    target: Target,
    run: Run,
    source: Annotated[str, flag("--from FILE", "The operator's history file; also of runs that are gone.")] = "",
    output: TableOutput = "table",
) -> None:
    """Show every attempt of a run, what ended it and what recovery did; -o wide says it in words."""
    from lockstep.cli.views.history import show, show_recorded

    if source:
        show_recorded(source, target.namespace or "default", run, output)
    else:
        show(target.connect(), run, output)


@verb(
    app,
    "report",
    "lockstep report --by user --since 30d -A",
    "lockstep report --by queue -A --from history.jsonl -o csv",
)
def report(
    target: Target,
    by: Annotated[Literal["user", "queue", "namespace"], flag("--by", "What to sum up by.")] = "user",
    since: Annotated[str, flag("--since TIME", "30d, or a date: what ended before is left out.")] = "30d",
    files: Annotated[
        list[str] | None, flag("--from FILE", "The operator's history, which has deleted runs; may be repeated.")
    ] = None,
    offline: Annotated[bool, flag("--offline", "Only the files of --from; no cluster is asked.")] = False,
    everywhere: AllNamespaces = False,
    output: Annotated[Literal["table", "csv", "json"], flag("--output -o")] = "table",
) -> None:
    """Show who used how many GPU-hours, how well, how long runs waited, and what failed; for administrators."""
    import time

    from lockstep.cli.views.report import begin_of, show

    if offline and not files:
        raise UsageError("--offline without --from FILE leaves nothing to report")
    now = time.time()
    begin = begin_of(since, now)
    cluster = None if offline else target.connect()
    namespace = None if everywhere else target.namespace or (cluster.namespace if cluster else "default")
    show(cluster, files or (), namespace, by, begin, now, output)


@verb(app, "bundle", "lockstep bundle hello")
def bundle(
    target: Target,
    run: Run,
    path: Annotated[str, flag("--output -o FILE", "RUN-bundle.tar.gz by default.")] = "",
    tail: Annotated[int, flag("--tail", "Lines of each pod's log.", min=1, max=100_000)] = 1000,
) -> None:
    """Collect everything that is known of a run in one file, to look into or to send to somebody."""
    from lockstep.cli.views.bundle import make

    make(target.connect(), run, path, tail)


@verb(app, "render", "lockstep render run.yaml")
def render(
    target: Target,
    source: Annotated[str, Argument(metavar="RUN | FILE", show_default=False)],
    slot: Annotated[int, flag("--slot", "Whose pod.", min=0)] = 0,
    output: Annotated[Literal["yaml", "json"], flag("--output -o")] = "yaml",
) -> None:
    """Print the pod that is made for a slot of a run, or of a manifest that is not submitted."""
    from lockstep.cli import runs
    from lockstep.cli.views.render import is_file, run_of_file, show

    if is_file(source):
        show(run_of_file(source, target.namespace or "default"), slot, output)
        return
    cluster = target.connect()
    show(runs.whole(cluster, runs.view(runs.fetch(cluster, source))), slot, output)


@verb(app, "wait", "lockstep wait hello --for running --timeout 30m")
def wait(
    target: Target,
    run: Run,
    goal: Annotated[Goal, flag("--for", "What to wait for.")] = "finished",
    timeout: Annotated[str | None, flag("--timeout DURATION", "E.g. 90s, 30m, 2h; for ever by default.")] = None,
) -> None:
    """Wait for a run: exit code 0 when it has come so far, 1 when it cannot any more, 124 when the time is up."""
    from lockstep.cli import runs
    from lockstep.cli.actions.wait import until
    from lockstep.present.runs import state_of

    seconds = timeout_seconds(timeout)
    cluster = target.connect()
    found = until(cluster, runs.fetch(cluster, run), goal, seconds)
    state, reason = state_of(found)
    echo(f"{found.name} is {state}{f' ({reason})' if reason else ''}")
