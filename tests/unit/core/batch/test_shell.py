"""Which variables of the submitter's shell go along, and that the others are named."""

from collections.abc import Sequence

import pytest

from localcluster.processnodes.environment import expand
from lockstep.core.batch.shell import Carried, carried
from lockstep.slurm.handling import IGNORED, REFUSED

SHELL = {"PATH": "/usr/bin", "HF_TOKEN": "t", "WANDB_KEY": "k", "WANDB_DIR": "/d", "SLURM_JOB_ID": "7", "A": "1"}


def read(path: str) -> str:
    if path == "lines":
        return "A=2\n# no\nB=x=y\n"
    if path == "zeros":
        return "A=2\0B=two\nlines\0"
    raise OSError(2, "No such file or directory")


def export(text: str, names: Sequence[str] = (), file: str = "") -> Carried:
    return carried(text, file, SHELL, names, read)


@pytest.mark.parametrize(
    ("text", "names", "found"),
    [
        ("", (), set()),
        ("", ("HF_TOKEN", "WANDB_*"), {"HF_TOKEN", "WANDB_KEY", "WANDB_DIR"}),
        ("", ("*",), {"PATH", "HF_TOKEN", "WANDB_KEY", "WANDB_DIR", "A"}),
        ("ALL", ("HF_TOKEN",), {"HF_TOKEN"}),
        ("ALL,A", ("HF_TOKEN",), {"HF_TOKEN", "A"}),
        ("A,PATH", ("HF_TOKEN",), {"A", "PATH"}),
        ("NONE", ("HF_TOKEN",), set()),
        ("NIL", ("HF_TOKEN",), set()),
    ],
)
def test_what_the_queue_names_goes_along_and_what_is_named_by_hand(
    text: str, names: tuple[str, ...], found: set[str]
) -> None:
    made = export(text, names)
    assert set(made.variables) == found
    assert all(made.variables[name] == SHELL[name] for name in found)


def test_values_may_be_given_and_come_before_those_of_the_shell() -> None:
    assert export("ALL,A=9,B='x,y'").variables == {"A": "9", "B": "x,y"}


def test_asking_for_all_says_how_many_stay_here() -> None:
    [row] = export("ALL", ("A",)).rows
    assert (row.handling, row.value) == (IGNORED, "ALL")
    assert "5 variables of this shell stay here" in row.words
    assert "--export=ALL,NAME" in row.words  # NAME alone would leave all else out, in each step too
    assert not export("").rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MISSING", "is not set here"),
        ("LOCKSTEP_RUN=x", "set anew"),
        ("MASTER_ADDR=x", "set anew"),
        ("A-B=x", "no name"),
    ],
)
def test_a_variable_that_cannot_go_along_is_named(text: str, words: str) -> None:
    made = export(text)
    assert not made.variables
    assert [row.handling for row in made.rows] == [IGNORED]
    assert words in made.rows[0].words


@pytest.mark.parametrize("value", ["$(HOSTNAME) $B", "pa$$word", "$$(HOSTNAME)", "$$$", "$", "$(", "a$"])
def test_the_kubelet_fills_nothing_in_and_takes_no_dollar(value: str) -> None:
    variables = carried("A", "", {"A": value}, [], read).variables
    assert expand(variables["A"], {"HOSTNAME": "no"}) == value


@pytest.mark.parametrize(
    ("file", "found"), [("lines", {"A": "2", "B": "x=y"}), ("zeros", {"A": "2", "B": "two\nlines"})]
)
def test_a_file_of_variables_is_read(file: str, found: dict[str, str]) -> None:
    assert export("NIL", file=file).variables == found


def test_a_file_that_cannot_be_read_and_too_many_variables_are_refused() -> None:
    [row] = export("", file="missing").rows
    assert (row.handling, row.option) == (REFUSED, "--export-file")
    many = carried("ALL", "", {f"V{number}": "" for number in range(300)}, ["*"], read)
    assert many.rows[-1].handling == REFUSED
    assert "300 variables" in many.rows[-1].words


def test_a_value_without_end_is_left_out_by_name() -> None:
    [row] = export("A=" + "x" * 40_000).rows
    assert "more than 32768" in row.words
    [row] = export("A=" + "$" * 20_000).rows  # each of which is two in the run
    assert "more than 32768" in row.words
