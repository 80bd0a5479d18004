"""Flags that are declared once, as fields of a dataclass, and what typer makes of them."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
import typer.main

from lockstep.cli.errors import UsageError
from lockstep.cli.main import main
from lockstep.cli.options import ClusterTarget, seconds_of, verb


@dataclass(frozen=True)
class Group:
    size: Annotated[int, typer.Option("--size", "-s", min=1)] = 1
    note: str = "not a flag"


def test_each_field_with_an_option_is_a_flag_in_its_place() -> None:
    app, seen = typer.Typer(), []

    @verb(app, "make", "lockstep make a -s 2")
    def make(name: str, *, group: Group, last: Annotated[bool, typer.Option("--last")] = False) -> None:
        seen.append((name, group, last))

    command = typer.main.get_command(app)
    assert [option.name for option in command.params][:3] == ["name", "size", "last"]
    command(["a", "-s", "2", "--last"], standalone_mode=False)
    command(["b"], standalone_mode=False)
    assert seen == [("a", Group(2), True), ("b", Group(), False)]


def test_flags_of_the_target_come_last() -> None:
    app = typer.Typer()

    @verb(app, "make", "lockstep make")
    def make(target: ClusterTarget, *, group: Group) -> None: ...

    assert [option.name for option in typer.main.get_command(app).params][:3] == ["size", "context", "kubeconfig"]


def test_help_shows_examples_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(rich_markup_mode=None)

    @verb(app, "make", "lockstep make a", "lockstep make b")
    def make(name: str) -> None:
        """Make it."""

    with pytest.raises(SystemExit, match="0"):
        app(["--help"])
    assert capsys.readouterr().out.rstrip().endswith("  Examples:\n    lockstep make a\n    lockstep make b")


def test_a_duration_that_is_none_is_refused_by_its_flag() -> None:
    assert seconds_of("--older-than", "2h") == 7200
    with pytest.raises(UsageError, match="--older-than"):
        seconds_of("--older-than", "soon")


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "run.yaml", "--from", ""],
        ["submit", "run.yaml", "--array="],
        ["submit", "run.yaml", "--code", ""],
        ["submit", "run.yaml", "--env", "A=1", "--env", ""],
        ["retry", "llama", "--name", ""],
        ["queue", "-q", ""],
    ],
)
def test_a_flag_without_a_value_as_of_a_variable_that_is_not_set_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert " is empty\n  give it a value, or leave it out" in capsys.readouterr().err


def test_flags_of_kubectl_may_be_empty_as_they_may_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cancel", "-n", "", "--context", "", "-l", ""])
    assert "is empty" not in capsys.readouterr().err
