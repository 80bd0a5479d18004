"""Flags that several verbs share, named as kubectl names them."""

from typing import Annotated, Literal

import typer

from lockstep.cli.errors import UsageError


def _bare(run: str) -> str:
    """``hello`` from ``trainingrun.lockstep.dev/hello``, so that `-o name` of one verb feeds another."""
    return run.rpartition("/")[2]


def _all_bare(runs: list[str] | None) -> list[str] | None:
    return [_bare(run) for run in runs] if runs else runs


Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace; that of the context by default.")
]
OperatorNamespace = Annotated[
    str, typer.Option("--operator-namespace", metavar="NAME", help="Where the operator runs.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Runs of every namespace.")]
Selector = Annotated[
    str, typer.Option("--selector", "-l", metavar="LABELS", help="Only runs with these labels, e.g. team=nlp.")
]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", metavar="FILE", help="Instead of KUBECONFIG or ~/.kube/config.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", show_default=False, callback=_bare, help="Name of the run.")]
Runs = Annotated[
    list[str] | None, typer.Argument(metavar="RUN...", show_default=False, callback=_all_bare, help="Names of runs.")
]

Table = Literal["table", "wide", "json", "yaml", "name"]
Text = Literal["text", "json", "yaml", "name"]
Object = Literal["name", "json", "yaml"]

TableOutput = Annotated[Table, typer.Option("--output", "-o", help="json and yaml are the API's own objects.")]
TextOutput = Annotated[Text, typer.Option("--output", "-o", help="json and yaml are the API's own object.")]
ObjectOutput = Annotated[Object, typer.Option("--output", "-o", help="json and yaml are the API's own object.")]


def timeout_seconds(timeout: str | None) -> float | None:
    """Seconds of ``--timeout``; None: for ever. Raises UsageError on what is no duration."""
    from lockstep.api.base.durations import parse_duration

    try:
        return None if timeout is None else parse_duration(timeout)
    except ValueError as error:
        raise UsageError(f"--timeout {error}") from error
