"""What others wrote, made fit to be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.model import sanitise

CLEAR_SCREEN = "\x1b[2J\x1b[H"
TITLE = "\x1b]0;owned\x07"
BACKWARDS = "\u202egnp.exe"


SHOWN = {
    "as it is": ("ValueError: größer als 5 → 日本", "ValueError: größer als 5 → 日本"),
    "a colour": ("\x1b[31mRuntimeError\x1b[0m: x", "RuntimeError: x"),
    "a screen that is cleared": (f"{CLEAR_SCREEN}all is well", "all is well"),
    "a window's title": (f"{TITLE}x", "x"),
    "a link": ("\x1b]8;;https://x\x1b\\click\x1b]8;;\x1b\\", "click"),
    "half a sequence": ("\x1b[", f"{sanitise.UNSHOWN}["),
    "a sequence of one byte": ("\x9b2J", f"{sanitise.UNSHOWN}2J"),
    "text that reads backwards": (BACKWARDS, f"{sanitise.UNSHOWN}gnp.exe"),
    "what was overwritten": ("bad news\rgood", "bad news good"),
    "a line that looks like another field": ("x\nState: Succeeded", "x State: Succeeded"),
    "nothing that can be seen": ("\u200b\ufeff\x00\x7f", sanitise.UNSHOWN * 4),
    "words that no reader sees": ("ok\U000e0068\U000e0069\u00ad", f"ok{sanitise.UNSHOWN * 3}"),
    "half a character": ("\ud83d", sanitise.UNSHOWN),
}


@pytest.mark.parametrize(("said", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_line_shows_what_it_says_and_does_nothing_else(said: str, shown: str) -> None:
    assert sanitise.line(said) == shown


def test_several_lines_stay_several_and_a_progress_bar_becomes_some() -> None:
    assert sanitise.lines("a\n\tb\r\nc\r 50%\r100%") == "a\n\tb\nc\n 50%\n100%"


@given(st.text(st.characters(codec=None)))
def test_whatever_is_said_a_line_is_one_line_and_cleaned_once_is_clean(text: str) -> None:
    once = sanitise.line(text)
    assert sanitise.line(once) == once
    assert all(letter.isprintable() or letter.isspace() or ord(letter) > 0x9F for letter in once)
    assert not {"\n", "\x1b"} & set(once)
    once.encode()  # status is UTF-8
