"""The commands that the documentation shows are ones that the CLI takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from harness.shown_commands import PAGES, mentioned, shown, shown_on
from lockstep.cli.main import app

CLI = typer.main.get_command(app)
VERB = re.compile(r"(?:kubectl )?lockstep (?!VERB\b)(.*)")
COMMANDS = [pytest.param(found[1], id=str(each)) for each in shown() if (found := VERB.match(each.line))]
MENTIONED = [pytest.param(found[1], id=str(each)) for each in mentioned() if (found := VERB.match(each.line))]


def parse(line: str) -> None:
    """As the CLI does, up to where a verb would begin its work. Raises click's UsageError."""
    words = shlex.split(line, comments=True)
    command, context = CLI, CLI.make_context("lockstep", list(words))
    while isinstance(command, TyperGroup) and (left := [*context._protected_args, *context.args]):
        name, found, rest = command.resolve_command(context, left)
        assert found is not None, name
        if isinstance(found, TyperGroup) and not rest:  # said of all its verbs
            return
        command, context = found, found.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_line_that_is_shown_makes_sense(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", MENTIONED)
def test_a_command_in_a_sentence_has_verbs_and_options_that_there_are(line: str) -> None:
    """What it is about may be left out: `lockstep hold --queue` names a feature."""
    filled_in = re.sub(r"\$\([^)]*\)", "it", line).replace("--rank R", "--rank 3")
    try:
        parse(filled_in)
    except typer.BadParameter as error:
        if not str(error).startswith("Missing parameter"):
            raise


def verbs(command: Any, path: str = "lockstep") -> Iterator[tuple[str, Any]]:
    """Every verb, and every group of some, by what a user types."""
    for name, found in getattr(command, "commands", {}).items():
        yield f"{path} {name}", found
        yield from verbs(found, f"{path} {name}")


@pytest.mark.parametrize(("typed", "verb"), [pytest.param(*each, id=each[0]) for each in verbs(CLI)])
def test_help_of_every_verb_ends_with_examples_that_make_sense(typed: str, verb: Any) -> None:
    examples = re.findall(r"^  lockstep (.*)$", verb.epilog or "", re.MULTILINE)
    assert examples
    for line in examples:
        assert f"lockstep {line} ".startswith(f"{typed} ")
        parse(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_verbs_that_a_page_names_exist(page: Path) -> None:
    assert isinstance(CLI, TyperGroup)
    named = re.findall(r"`lockstep ([a-z]+)\b", page.read_text(encoding="utf-8"))
    assert set(named) <= set(CLI.commands)


PAGES_THAT_INSTALL = [*PAGES, Path(__file__).parents[3] / "charts" / "lockstep" / "README.md"]


@pytest.mark.parametrize("page", PAGES_THAT_INSTALL, ids=lambda page: page.stem)
def test_what_needs_the_operator_that_was_installed_waits_until_it_runs(page: Path) -> None:
    rolled_out = True
    for command in shown_on(page):
        if re.match(r"helm (install|upgrade) ", command.line) and not command.refusal:
            rolled_out = False
        elif " rollout status " in command.line:
            rolled_out = True
        elif re.match(r"helm test|lockstep ui", command.line):
            assert rolled_out, command


def test_commands_are_found_at_all() -> None:
    assert len(COMMANDS) > 10
    assert len(MENTIONED) > 30
