"""Which jobs and steps scancel means."""

from typing import Any

import pytest

from lockstep.slurm.environment import SlurmJob
from lockstep.slurm.getopt import NONE, CommandOption, OptionError
from lockstep.slurm.scancel import OPTIONS, Which, ends, fits, parse, which

JOB = SlurmJob(
    123, ["10.9.0.1", "10.9.0.2"], [72, 72], 8, "train", "ann", 1000, "gpu", "lockstep", "/home/ann", "login", 1, 0,
    account="lab", qos="normal",
)  # fmt: skip
WORDS = [["10.9.0.1", "n1"], ["10.9.0.2", "n2"]]
OWN = {
    "account": "lab", "clusters": "other,lockstep", "jobname": "train", "name": "train", "nodelist": "n[1-2]",
    "partition": "gpu", "qos": "normal", "state": "running", "user": "ann", "me": None, "cluster": "lockstep",
}  # fmt: skip
"""Filters that the job fits."""
NO_FILTERS = {
    "admin-comment", "batch", "ctld", "cron", "full", "help", "hurry", "interactive", "quiet", "signal", "usage",
    "verbose", "version",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("123", Which(123)),
        ("123_4", Which(123, (4,))),
        ("123_[1-3,7]", Which(123, (1, 2, 3, 7))),
        ("123.0", Which(123, step="0")),
        ("123.batch", Which(123, step="batch")),
        ("123_4.0", Which(123, (4,), "0")),
    ],
)
def test_ids_are_read(text: str, found: Which) -> None:
    assert which(text) == found


@pytest.mark.parametrize("text", ["train", "0", "", "123_", "123_[2-1]", "123_[1-99999999]", "123.x", "-1", "1" * 20])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="scancel: error: Invalid job id"):
        which(text)


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["1", "2"], {"ids": [Which(1), Which(2)], "signal": None}),
        (["1,2_[1,2]"], {"ids": [Which(1), Which(2, (1, 2))]}),
        (["-s", "USR1", "1"], {"signal": 10}),
        (["1", "-s", "USR1", "2", "-Q"], {"ids": [Which(1), Which(2)], "signal": 10, "quiet": True}),
        (["--signal=SIGUSR2", "1"], {"signal": 12}),
        (["-b", "-s", "15", "1"], {"batch_only": True, "signal": 15}),
        (["-f", "-s", "TERM", "1"], {"everything": True}),
        (["-n", "train"], {"name": "train"}),
        (["--jobname=train"], {"name": "train"}),
        (["--me"], {"user": "ann"}),
        (["-u", "bob", "-t", "pending"], {"user": "bob", "state": "PENDING"}),
        (["-p", "gpu", "-w", "n[1-2]", "-Q"], {"partition": "gpu", "nodes": ["n1", "n2"], "quiet": True}),
        (["-A", "lab", "-q", "high", "-R", "r"], {"account": "lab", "qos": "high", "reservation": "r"}),
        (["--wckey=w"], {"fits_none": True}),
        (["-V"], {"show_version": True}),
    ],
)
def test_options_are_read(arguments: list[str], fields: dict[str, Any]) -> None:
    made = parse(arguments, own_user="ann")
    assert {name: getattr(made, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "No job identification provided"),
        (["-Q"], "No job identification provided"),
        (["-s", "NOPE", "1"], "no signal"),
        (["-w", "n[2-1]"], "no range"),
        (["--bogus"], "unrecognized option"),
    ],
)
def test_others_are_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse(arguments)


@pytest.mark.parametrize(
    ("arguments", "ended"),
    [(["1"], True), (["-s", "KILL", "1"], True), (["-s", "USR1", "1"], False), (["-b", "1"], False)],
)
def test_a_signal_ends_no_job(arguments: list[str], ended: bool) -> None:
    assert ends(parse(arguments)) is ended


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_filter_has_to_fit_also_where_an_id_is_given(option: CommandOption) -> None:
    name = option.name
    if name in NO_FILTERS:
        assert option.value == NONE or fits(parse([f"--{name}=1", "123"], "ann"), JOB, WORDS)
        return
    if name in OWN:
        word = f"--{name}" if option.value == NONE else f"--{name}={OWN[name]}"
        assert fits(parse([word, "123"], "ann"), JOB, WORDS)
        assert fits(parse([word, "--me"], "ann"), JOB, WORDS)
    word = f"--{name}" if option.value == NONE else f"--{name}=else"
    assert not fits(parse([word, "123"], "bob"), JOB, WORDS)
    assert not fits(parse(["--partition=gpu", word], "bob"), JOB, WORDS)
