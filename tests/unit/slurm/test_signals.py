"""Signals by their names and numbers on Linux, whatever system it is asked on."""

import signal
import sys

import pytest

from lockstep.slurm.signals import NUMBERS, number, words


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count otherwise")
def test_the_numbers_are_those_of_linux() -> None:
    assert {name: int(signal.Signals[f"SIG{name}"]) for name in NUMBERS} == NUMBERS
    assert all(words(found) == signal.strsignal(found) for found in (1, 9, 10, 11, 15, 24, 25, 31))


@pytest.mark.parametrize(
    ("text", "found"), [("USR1", 10), ("usr1", 10), ("SIGUSR1", 10), ("sigterm", 15), ("9", 9), ("64", 64)]
)
def test_a_signal_is_a_name_or_a_number(text: str, found: int) -> None:
    assert number(text) == found


@pytest.mark.parametrize("text", ["", "0", "65", "999", "NOPE", "SIG", "²", "1.5"])
def test_others_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no signal"):
        number(text)


def test_real_time_signals_have_words_too() -> None:
    assert (words(34), words(36), words(32)) == ("Real-time signal 0", "Real-time signal 2", "Unknown signal 32")
