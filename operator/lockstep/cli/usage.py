"""What typer has against a command line, as one sentence of ours with its remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from lockstep.cli.errors import UsageError

_OF_TYPER: type[Exception] = typer.BadParameter.__bases__[0]
"""All that it refuses: its own UsageError, which it exports under no name."""
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)
_RANGE = re.compile(r"(\d+)-(\d+)")


@contextmanager
def in_our_words(group: Any = None) -> Iterator[None]:
    """Raises UsageError in the place of typer's. Help, which it shows where nothing at all is typed, stays help.
    ``group``: the context of the verbs of which one is read."""
    try:
        yield
    except _OF_TYPER as refusal:
        error: Any = refusal
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        raise _told(error, error.ctx.command_path if error.ctx else _read(group)) from error


def _read(group: Any) -> str:
    return f"{group.command_path} {group.invoked_subcommand}" if group else "lockstep"


def _told(error: Any, path: str) -> UsageError:
    kind, remedy = type(error).__name__, f"{path} --help says what it takes"
    if kind == "NoSuchOption":
        meant = f"; did you mean {error.possibilities[0]}?" if error.possibilities else ""
        return UsageError(f"there is no flag {error.option_name}{meant}", remedy)
    if kind == "MissingParameter":
        return UsageError(f"{error.param.metavar or error.param.name} is missing", remedy)
    if extra := _EXTRA.fullmatch(error.message):
        return UsageError(f"{path} does not take {extra[1]}", remedy)
    if kind == "BadParameter" and error.param is not None:
        flag = max(error.param.opts, key=len)
        words = _of_value(flag, error)
        return UsageError(f"{flag} {words}") if words else UsageError(f"{flag}: {error.message}", remedy)
    return UsageError(f"{error.message[:1].lower()}{error.message[1:].rstrip('.')}", remedy)


def _of_value(flag: str, error: Any) -> str:
    """What is wrong with the value of a flag, and what to write; empty: the reader of values has words of its own."""
    from lockstep.cli.submission.field_words import no_choice

    problems: list[Any] = getattr(error.__cause__, "errors", list)()  # of pydantic
    if not problems:
        return ""
    kind, value, bounds = problems[0]["type"], problems[0]["input"], problems[0].get("ctx") or {}
    choices = re.findall("'([^']*)'", error.message.rpartition(" is not one of ")[2])
    if kind == "value_error" and choices:
        return no_choice(value, choices)
    if flag == "--nodes" and (sizes := _RANGE.fullmatch(str(value))):
        least, most = sizes.groups()
        return (
            f"is {value}; for a gang of {least} to {most} write nodes: {most}, elastic: {{min: {least}}} in a manifest"
        )
    if kind == "greater_than_equal":
        return f"is {value}; write {bounds['ge']} or more"
    if kind == "less_than_equal":
        return f"is {value}; write {bounds['le']} or less"
    if kind.startswith(("int_", "float_")):
        return f"is {value or 'empty'}; write a {'whole ' if kind.startswith('int') else ''}number"
    return ""
