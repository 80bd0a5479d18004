"""How data reaches the terminal: aligned columns, ages, objects, and colour where somebody looks."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from lockstep.cli.errors import CliError
from lockstep.core.model import sanitise
from lockstep.core.model.reasons import Outcome, Phase
from lockstep.present.amounts import NONE

_COLOURS: Mapping[str, str] = {
    Phase.RUNNING: typer.colors.GREEN,
    Outcome.SUCCEEDED: typer.colors.GREEN,
    Outcome.FAILED: typer.colors.RED,
    Phase.RECOVERING: typer.colors.YELLOW,
    Phase.STOPPING: typer.colors.YELLOW,
    Phase.LAUNCHING: typer.colors.CYAN,
}
_OWN_COLOUR = re.compile("\x1b\\[(?:0|3[1236])m")


def note(text: str) -> None:
    """Say something that is not data."""
    echo(text, err=True)


def raise_failures(failures: Sequence[CliError]) -> None:
    """End with the last of them, where there are any, once the others are told."""
    for failure in failures[:-1]:
        note(f"error: {failure}")
    if failures:
        raise failures[-1]


def print_lines(lines: Iterable[str]) -> None:
    """Data, line by line."""
    for line in lines:
        echo(line)


def echo(text: str, *, err: bool = False) -> None:
    """As typer.echo, without what a terminal would obey in words of others; colours of ours are left."""
    own = _OWN_COLOUR.findall(text) if _colourful() else []
    pieces = _OWN_COLOUR.split(text) if own else [text]
    shown = [sanitise.lines(piece) for piece in pieces]
    typer.echo("".join(piece + colour for piece, colour in zip(shown, [*own, ""], strict=True)), err=err)


def print_object(raw: Mapping[str, Any], form: str) -> None:
    """An API object (or a list of them) as ``json``, ``yaml`` or ``name``."""
    if form == "name":
        for item in raw.get("items", [raw]):
            typer.echo(object_name(item))
    elif form == "json":
        typer.echo(json.dumps(_without_managed_fields(raw), indent=4))
    else:
        from lockstep.cli.yaml_text import as_yaml

        typer.echo(as_yaml(_without_managed_fields(raw)), nl=False)


def print_done(raw: Mapping[str, Any], form: str, done: str) -> None:
    """What was done to an object (``trainingrun.lockstep.dev/hello cancelled``), or the object."""
    if form == "name":
        typer.echo(f"{object_name(raw)} {done}")
    else:
        print_object(raw, form)


def object_name(raw: Mapping[str, Any]) -> str:
    """As kubectl names a run: ``trainingrun.lockstep.dev/hello``."""
    group, slash, _ = raw["apiVersion"].partition("/")
    kind = raw["kind"].lower()
    return f"{kind}.{group}/{raw['metadata']['name']}" if slash else f"{kind}/{raw['metadata']['name']}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as kubectl aligns them; empty cells show as ``-``, in the last column as nothing."""
    shown = [[sanitise.line(cell) for cell in row] for row in rows]
    cells = [list(header), *([*(cell or NONE for cell in row[:-1]), row[-1]] for row in shown)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [_row(cells[0], widths), *(_row(row, widths, coloured=True) for row in cells[1:])]


def state_word(state: str) -> str:
    """A run's state in its colour."""
    return typer.style(state, fg=_COLOURS.get(state)) if _colourful() and state in _COLOURS else state


def _row(cells: Sequence[str], widths: Sequence[int], *, coloured: bool = False) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    line = "   ".join(padded).rstrip()
    if coloured:
        state = next((cell for cell in cells if cell in _COLOURS), "")
        return line.replace(state, state_word(state), 1) if state else line
    return line


def _colourful() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _without_managed_fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """As kubectl does: who set which field is noise to people and programs alike."""
    if "items" in raw:
        return {**raw, "items": [_without_managed_fields(item) for item in raw["items"]]}
    metadata = {key: value for key, value in raw.get("metadata", {}).items() if key != "managedFields"}
    return {**raw, "metadata": metadata}
