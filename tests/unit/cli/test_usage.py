"""A command line that makes no sense is answered as everything else is: one sentence, and what to do."""

from __future__ import annotations

import pytest

from lockstep.cli.main import main

HELP = "  lockstep {} --help says what it takes\n"


def refused(typed: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="2"):
        main(typed.split())
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("queue hello", "lockstep queue does not take hello\n" + HELP.format("queue")),
        ("info", "RUN is missing\n" + HELP.format("info")),
        ("nodes drain", "NODE... is missing\n" + HELP.format("nodes drain")),
        ("queue --frobnicate", "there is no flag --frobnicate\n" + HELP.format("queue")),
        ("report --sinse 2d", "there is no flag --sinse; did you mean --since?\n" + HELP.format("report")),
        ("--frobnicate", "there is no flag --frobnicate\n  lockstep --help says what it takes\n"),
        ("wait hello --for foo", '--for is "foo"; there are finished, succeeded, running, admitted\n'),
        ("report --by team", '--by is "team"; there are user, queue, namespace\n'),
        ("queue -o tabel", '--output is "tabel"; write table; there are table, wide, json, yaml, name\n'),
        ("submit --checkpoint-format torch", '--checkpoint-format is "torch"; write Torch; there are Auto, Manifest, '),
        ("submit run.yaml -N 0", "--nodes is 0; write 1 or more\n"),
        ("bundle hello --tail 9999999", "--tail is 9999999; write 100000 or less\n"),
        ("submit run.yaml -N two", "--nodes is two; write a whole number\n"),
        ("submit run.yaml --nodes=", "--nodes is empty; write a whole number\n"),
        ("checkpoint verify . --skew x", "--skew is x; write a number\n"),
        ("submit run.yaml --nodes=2-4", "--nodes is 2-4; for a gang of 2 to 4 write nodes: 4, elastic: {min: 2} in"),
        ("frobnicate", "there is no verb frobnicate\n  lockstep --help lists its verbs\n"),
        ("explian hello", "there is no verb explian; did you mean explain?\n"),
        (
            "nodes gpu-1",
            "lockstep nodes has no verb gpu-1\n  lockstep nodes alone shows all; lockstep nodes --help",
        ),
        ("nodes drian gpu-1", "lockstep nodes has no verb drian; did you mean drain or undrain?\n"),
        ("checkpoint verfy /data", "lockstep checkpoint has no verb verfy; did you mean verify?\n"),
        ("checkpoint hello again", "lockstep checkpoint save does not take again\n"),
    ],
)
def test_it_is_one_sentence_and_its_remedy(typed: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(typed, capsys)
    assert said.startswith(f"error: {words}")
    assert len(said.splitlines()) <= 2


def test_a_flag_that_lacks_its_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused("submit run.yaml --time", capsys)
    assert said == f"error: option '--time' requires an argument\n{HELP.format('submit')}"
    assert refused("checkpoint hello --timeout", capsys).endswith(HELP.format("checkpoint save"))


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("logs hello --rank a", "--rank a is no set of ranks"),
        ("logs hello --rank 5-1", "--rank 5-1 is no set of ranks"),
        ("cancel", "name runs, or choose them with -l"),
        ("cancel -l a=b hello", "name runs, or choose them with -l"),
        ("hold --queue", "name runs, or choose them with -l"),
        ("retry hello --step 3 --fresh", "--fresh begins at step 0"),
        ("retry hello --env A", "--env A has no value"),
        ("retry hello -t soon", "--time soon"),
        ("submit --image x --env A -- true", "--env A has no value"),
        ("submit --image x -t soon -- true", "--time soon"),
        ("ui --url lockstep.example", "--url lockstep.example is no address of a page"),
    ],
)
def test_it_is_told_before_any_cluster_is_sought(
    typed: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert refused(typed, capsys).startswith(f"error: {words}")


@pytest.mark.parametrize("typed", ["", "checkpoint"])
def test_where_nothing_is_typed_help_is_shown(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(typed, capsys).startswith("Usage: lockstep ")
