"""Flags that several verbs share, named as kubectl names them, and the cluster that a verb is for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Annotated, Any, Literal, get_origin, get_type_hints

import typer
from typer import Argument
from typer.core import TyperCommand

from lockstep.api.base.durations import parse_duration
from lockstep.cli import client
from lockstep.cli.errors import UsageError

_EMPTY_IN_KUBECTL = ("namespace", "context", "kubeconfig", "selector")


def flag(shown: str, words: str | None = None, **bounds: Any) -> Any:
    """An option, named as in ``--namespace -n NAME``, and its help in words."""
    names = [word for word in shown.split() if word.startswith("-")]
    value = next((word for word in shown.split() if word not in names), None)
    return typer.Option(*names, metavar=value, help=words, callback=_not_empty, **bounds)


def _not_empty(context: typer.Context, parameter: typer.CallbackParam, given: Any) -> Any:
    """What a flag was given. Raises UsageError on nothing, as a variable of the shell that is not set leaves it: to
    take that for no flag would make another run than was meant. kubectl's own flags are as in kubectl."""
    source = context.get_parameter_source(parameter.name or "")
    is_typed = source is not None and source.name == "COMMANDLINE"
    values = given if isinstance(given, list) else [given]
    if is_typed and "" in values and parameter.name not in _EMPTY_IN_KUBECTL:
        raise UsageError(f"{max(parameter.opts, key=len)} is empty", "give it a value, or leave it out")
    return given


def _bare(run: str) -> str:
    """``hello`` from ``trainingrun.lockstep.dev/hello``, so that `-o name` of one verb feeds another."""
    name = run.rpartition("/")[2]
    if not name:
        raise UsageError(f"{run!r} names no run", "lockstep queue lists those there are")
    return name


def _all_bare(runs: list[str] | None) -> list[str] | None:
    return [_bare(run) for run in runs] if runs else runs


Namespace = Annotated[str | None, flag("--namespace -n NAME", "Namespace; that of the context by default.")]
OperatorNamespace = Annotated[str, flag("--operator-namespace NAME", "Where the operator runs.")]
AllNamespaces = Annotated[bool, flag("--all-namespaces -A", "Runs of every namespace.")]
Selector = Annotated[str, flag("--selector -l LABELS", "Only runs with these labels, e.g. team=nlp.")]
Context = Annotated[str | None, flag("--context NAME", "Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, flag("--kubeconfig FILE", "Instead of KUBECONFIG or ~/.kube/config.")]
Run = Annotated[str, Argument(metavar="RUN", show_default=False, callback=_bare, help="Name of the run.")]
Runs = Annotated[
    list[str] | None, Argument(metavar="RUN...", show_default=False, callback=_all_bare, help="Names of runs.")
]

Table = Literal["table", "wide", "json", "yaml", "name"]
Text = Literal["text", "json", "yaml", "name"]
Object = Literal["name", "json", "yaml"]
Goal = Literal["finished", "succeeded", "running", "admitted"]

TableOutput = Annotated[Table, flag("--output -o", "json and yaml are the API's own objects.")]
TextOutput = Annotated[Text, flag("--output -o", "json and yaml are the API's own object.")]
ObjectOutput = Annotated[Object, flag("--output -o", "json and yaml are the API's own object.")]


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs that a verb lists, and how."""

    all_namespaces: AllNamespaces = False
    selector: Selector = ""
    output: TableOutput = "table"
    queue: str = ""  # empty: of all queues

    def path(self, cluster: client.Cluster) -> str:
        """Where they are listed."""
        return client.runs_path(None if self.all_namespaces else cluster.namespace)

    def where(self, cluster: client.Cluster) -> str:
        """The same in words."""
        return "in any namespace" if self.all_namespaces else f"in namespace {cluster.namespace}"

    def query(self) -> dict[str, str]:
        """Parameters of a list or watch."""
        query = {"labelSelector": self.selector} if self.selector else {}
        return query | ({"fieldSelector": f"spec.queue={self.queue}"} if self.queue else {})


@dataclass(frozen=True, slots=True)
class Chosen:
    """The runs that a verb changes, and how it says what it has done. Raises UsageError unless there are names or a
    selector, and not both."""

    runs: Runs = None
    selector: Selector = ""
    output: ObjectOutput = "name"

    def __post_init__(self) -> None:
        if bool(self.runs) == bool(self.selector):
            raise UsageError("name runs, or choose them with -l", "e.g. lockstep cancel hello, or -l team=nlp")


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The cluster that a verb is for."""

    context: Context = None
    kubeconfig: Kubeconfig = None

    def connect(self, namespace: str | None = None) -> client.Cluster:
        """The cluster. Raises CliError where there is no way to it."""
        return client.connect(namespace, self.context, self.kubeconfig)


@dataclass(frozen=True, slots=True)
class Target:
    """The namespace of a cluster that a verb is for."""

    namespace: Namespace = None
    context: Context = None
    kubeconfig: Kubeconfig = None

    def connect(self) -> client.Cluster:
        """The cluster, with this namespace. Raises CliError where there is no way to it."""
        return client.connect(self.namespace, self.context, self.kubeconfig)


def verb(
    app: typer.Typer, name: str, *examples: str, cls: type[TyperCommand] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a verb to ``app``, by ``with_flags``; its help ends with the examples. ``cls`` reads its command line."""
    return lambda function: app.command(name, epilog=epilog(*examples), cls=cls)(with_flags(function))


def epilog(*examples: str) -> str:
    """The end of a verb's help. Lines are left as they are: a command is to be copied."""
    return "\n".join(("\b", f"Example{'s' if len(examples) > 1 else ''}:", *(f"  {line}" for line in examples)))


def with_flags(function: Callable[..., None]) -> Callable[..., None]:
    """``function`` as typer reads it: each dataclass among its parameters gives way to flags, which are its fields.

    Help shows those of the target last.
    """
    signature = inspect.signature(function, eval_str=True)
    groups: dict[str, Any] = {p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)}
    flags = {name: list(_flags(group)) for name, group in groups.items()}

    @functools.wraps(function)
    def run(**given: Any) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in flags[name]}) for name, group in groups.items()}
        function(**given, **made)

    order = sorted(signature.parameters.values(), key=lambda p: p.annotation in (Target, ClusterTarget))
    parameters = chain.from_iterable(flags.get(p.name, [p]) for p in order)
    run.__signature__ = signature.replace(parameters=[*parameters])  # type: ignore[attr-defined]
    return run


def _flags(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if get_origin(hints[field.name]) is Annotated:
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )


def timeout_seconds(timeout: str | None) -> float | None:
    """Seconds of ``--timeout``; None: for ever. Raises UsageError on what is no duration."""
    return None if timeout is None else seconds_of("--timeout", timeout)


def seconds_of(flag: str, text: str) -> float:
    """Seconds of a duration. Raises UsageError, which names the flag."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag} {error}") from error
