"""What `lockstep submit` says to flags that people bring from sbatch and srun."""

from __future__ import annotations

import pytest
import typer
from typer.main import get_command

from lockstep.cli.commands import retry, submit
from lockstep.cli.errors import UsageError
from lockstep.cli.main import app, main
from lockstep.cli.submission.slurm_flags import names_of_slurm


def refused(*words: str, capsys: pytest.CaptureFixture[str], verb: str = "submit") -> str:
    with pytest.raises(SystemExit, match="2"):
        main([verb, *words, "run"])
    return capsys.readouterr().err


def not_ours(app: typer.Typer) -> list[str]:
    ours = {name for parameter in get_command(app).params for name in parameter.opts}
    return [flag for flag in names_of_slurm() if flag not in ours and flag not in ("-h", "--help")]


OF_SUBMIT = not_ours(submit.app)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "flag"),
    [
        *(("submit", flag) for flag in OF_SUBMIT),
        *(("retry", flag) for flag in not_ours(retry.app) if flag not in OF_SUBMIT),
        ("retry", "--partition"),
    ],
)
def test_every_flag_of_slurm_is_answered_with_our_word_for_it(
    verb: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(flag, capsys=capsys, verb=verb)
    assert said.startswith(f"error: {flag} is Slurm's; here: ")
    assert ("lockstep sbatch SCRIPT" in said) is (verb == "submit")
    assert "srun" not in said
    assert "use --constraint" not in said


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--mem=4G", "nodes are given whole"),
        ("-pgpu", "-q QUEUE"),
        ("-b", "--begin"),
        ("-W", "--wait"),
        ("--gres=gpu:a100:4", "--gpu-type TYPE"),
        ("--account", "the queue (-q) and the namespace (-n)"),
        ("--job-name=x", "--name NAME"),
        ("--wrap", "-- bash -c 'COMMAND'"),
    ],
)
def test_the_word_is_the_one_to_type(typed: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(typed, capsys=capsys)


@pytest.mark.parametrize("verb", ["submit", "retry"])
@pytest.mark.parametrize("typed", [("-o", "out.log"), ("--output=logs/x",), ("-o%j",)], ids=" ".join)
def test_a_file_for_output_is_answered_with_where_output_is(
    verb: str, typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(*typed, capsys=capsys, verb=verb)
    assert said.startswith("error: --output ")
    assert "is Slurm's; here: lockstep logs RUN has what is printed" in said


def test_a_form_of_output_that_there_is_not_is_no_file_of_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("-o", "wide", capsys=capsys)
    assert "there are name, json, yaml" in said
    assert "Slurm" not in said


@pytest.mark.parametrize("verb", ["submit", "retry"])
@pytest.mark.parametrize("typed", [("-n", "8"), ("-n16",)], ids=" ".join)
def test_a_number_of_tasks_is_no_namespace(
    verb: str, typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(*typed, capsys=capsys, verb=verb)
    assert "is Slurm's, and -n the namespace; here: -N NODES; --launcher Torchrun" in said
    assert "--namespace" in said


@pytest.mark.parametrize("typed", [("--namespace", "8"), ("-n", "8a"), ("-n", "20261")], ids=" ".join)
def test_a_namespace_may_be_a_number_all_the_same(typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["submit", *typed, "--image", "X", "--dry-run=client", "--", "mpirun", "-n", "8", "a"])
    assert not capsys.readouterr().err


def test_a_flag_that_nobody_has_is_refused_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no flag --imagee; did you mean --image?" in refused("--imagee", capsys=capsys)


def test_a_flag_of_ours_without_its_value_is_no_flag_of_slurm(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["submit", "run.yaml", "--time"])
    assert "requires an argument" in capsys.readouterr().err


def test_the_command_of_a_run_keeps_its_own_flags() -> None:
    assert UsageError("x").exit_code == 2
    assert app is not None
    with pytest.raises(SystemExit, match="0"):
        main(["submit", "--image", "X", "--dry-run=client", "--", "srun", "--mem=4G", "-p", "x"])
