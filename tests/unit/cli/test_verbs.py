"""Verbs that people bring along from kubectl and Slurm."""

from __future__ import annotations

import pytest

from lockstep.cli.main import main


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("delete", "lockstep cancel RUN"),
        ("scancel", "lockstep cancel RUN"),
        ("squeue", "lockstep queue"),
        ("describe", "lockstep info RUN"),
        ("log", "lockstep logs -f RUN"),
        ("srun", "lockstep submit FILE"),
        ("unhold", "lockstep release RUN"),
        ("scontrol", "nodes drain"),
    ],
)
def test_a_word_of_another_program_is_answered_with_ours(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([typed, "hello"])
    said = capsys.readouterr().err
    assert said.startswith(f"error: there is no verb {typed}; here: ")
    assert meant in said


def test_a_misspelt_verb_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["explian", "hello"])
    assert "explain" in capsys.readouterr().err
