"""The commands that the documentation shows are ones that the CLI takes."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from lockstep.cli.main import app
from support.shown_commands import PAGES, shown

CLI = typer.main.get_command(app)
VERB = re.compile(r"(?:kubectl )?lockstep (.*)")
COMMANDS = [pytest.param(found[1], id=str(each)) for each in shown() if (found := VERB.match(each.line))]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_that_is_shown_makes_sense(line: str) -> None:
    words = shlex.split(line, comments=True)
    command, context = CLI, CLI.make_context("lockstep", list(words))
    while isinstance(command, TyperGroup):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, name
        command, context = found, found.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_verbs_that_a_page_names_exist(page: Path) -> None:
    assert isinstance(CLI, TyperGroup)
    named = re.findall(r"`lockstep ([a-z]+)\b", page.read_text(encoding="utf-8"))
    assert set(named) <= set(CLI.commands)


def test_commands_are_found_at_all() -> None:
    assert len(COMMANDS) > 10
