"""Command lines, against what sbatch and srun say of them."""

import pytest

from lockstep.slurm import scancel, srun_options
from lockstep.slurm.getopt import Found, OptionError, read, read_anywhere
from lockstep.slurm.submission import options as sbatch_options


@pytest.mark.parametrize(
    ("arguments", "found", "rest"),
    [
        (["--nodes=4"], [("nodes", "4")], []),
        (["--nodes", "4"], [("nodes", "4")], []),
        (["-N4"], [("nodes", "4")], []),
        (["-N", "4"], [("nodes", "4")], []),
        (["--err", "x"], [("error", "x")], []),  # the only one that begins so
        (["--tasks-per-node=8"], [("ntasks-per-node", "8")], []),
        (["-HN4"], [("hold", None), ("nodes", "4")], []),
        (["--exclusive"], [("exclusive", None)], []),
        (["--exclusive=user"], [("exclusive", "user")], []),
        (["--exclusive", "user"], [("exclusive", None)], ["user"]),  # what may be left out has to be glued
        (["-k", "off"], [("no-kill", None)], ["off"]),
        (["job.sh", "-N", "4"], [], ["job.sh", "-N", "4"]),  # what follows belongs to the script
        (["-N", "4", "--", "-x"], [("nodes", "4")], ["-x"]),
        (["-N", "1", "-N", "2"], [("nodes", "1"), ("nodes", "2")], []),
        (["--comment="], [("comment", "")], []),
    ],
)
def test_options_are_read(arguments: list[str], found: list[Found], rest: list[str]) -> None:
    assert read("sbatch", sbatch_options.OPTIONS, arguments) == (found, rest)


@pytest.mark.parametrize(
    ("arguments", "found", "rest"),
    [
        (["a", "-s", "USR1", "b"], [("signal", "USR1")], ["a", "b"]),
        (["a", "-sUSR1", "--full"], [("signal", "USR1"), ("full", None)], ["a"]),
        (["a", "-f", "--", "-s", "b"], [("full", None)], ["a", "-s", "b"]),
        (["-s", "-f", "-", "a"], [("signal", "-f")], ["-", "a"]),
    ],
)
def test_options_of_commands_that_start_nothing_stand_anywhere(
    arguments: list[str], found: list[Found], rest: list[str]
) -> None:
    assert read_anywhere("scancel", scancel.OPTIONS, arguments) == (found, rest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bogus"], "sbatch: unrecognized option '--bogus'"),
        (["--bogus=1"], "sbatch: unrecognized option '--bogus=1'"),
        (["-K"], "sbatch: invalid option -- 'K'"),
        (["--nodes"], "sbatch: option '--nodes' requires an argument"),
        (["-N"], "sbatch: option requires an argument -- 'N'"),
        (["--hold=1"], "sbatch: option '--hold' doesn't allow an argument"),
        (["--exc=1"], "sbatch: option '--exc=1' is ambiguous; possibilities: '--exclude' '--exclusive'"),
    ],
)
def test_bad_ones_are_refused_in_the_words_of_getopt(arguments: list[str], message: str) -> None:
    with pytest.raises(OptionError) as error:
        read("sbatch", sbatch_options.OPTIONS, arguments)
    assert str(error.value).splitlines() == [message, 'Try "sbatch --help" for more information']


@pytest.mark.parametrize("module", [sbatch_options, srun_options])
def test_every_option_has_something_that_becomes_of_it(module: object) -> None:
    options, handling = module.OPTIONS, module.HANDLING  # type: ignore[attr-defined]
    names = {option.name for option in options if not option.same_as}
    assert names == set(handling)
    assert {option.same_as for option in options} - {""} <= names
    shorts = [option.short for option in options if option.short]
    assert len(shorts) == len(set(shorts))
    assert set(module.ENVIRONMENT.values()) - {""} <= names  # type: ignore[attr-defined]
