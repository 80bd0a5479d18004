"""What the worker passes on of its child's output, and in which pieces."""

from __future__ import annotations

import os
import re
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.worker import output
from lockstep.worker.child.process import Child


def passed_on(*pieces: bytes | float) -> list[bytes]:
    """What is passed on of pieces that are written one after the other, with pauses of so many seconds."""
    reading, writing = os.pipe()

    def write() -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                os.write(writing, piece)
            else:
                time.sleep(piece)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    found = list(output.whole_lines(reading))
    writer.join()
    os.close(reading)
    return found


def test_the_words_of_a_line_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LINE_SECONDS", 60.0)
    found = passed_on(b"step", 0.01, b" ", 0.01, b"12", 0.01, b"\n", b"the rest")
    assert found == [b"step 12\n", b"the rest"]


@pytest.mark.slow
def test_what_stays_without_an_end_is_passed_on_after_a_moment() -> None:
    assert passed_on(b"password: ", 1.0, b"x\n") == [b"password: ", b"x\n"]


@pytest.mark.process
def test_dots_that_follow_each_other_are_seen_as_they_come() -> None:
    dots: list[bytes | float] = [b".", 0.01]
    found = passed_on(*dots * 50)
    assert len(found) > 1, "the rest of the line was waited for anew with each of them"


def test_a_bar_that_writes_over_itself_is_seen_as_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LINE_SECONDS", 60.0)
    assert passed_on(b"10%\r20%\r", 0.01, b"30%") == [b"10%\r20%\r", b"30%"]


def test_a_line_that_never_ends_is_not_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LINE_SECONDS", 60.0)
    found = passed_on(*[b"x" * 4096] * 100)
    assert len(found) > 1
    assert max(map(len, found)) <= 2 * 65536


@given(st.lists(st.binary(min_size=1, max_size=20) | st.just(b"\n"), max_size=20))
def test_not_a_byte_is_lost_or_moved(pieces: list[bytes]) -> None:
    assert b"".join(passed_on(*pieces)) == b"".join(pieces)


@pytest.mark.process
def test_python_without_buffers_mixes_no_words_of_its_two_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def write(_: int, data: bytes) -> bool:
        seen.append(data)
        return True

    monkeypatch.setattr("lockstep.worker.child.process.write_all", write)
    program = "import sys\nfor n in range(300): print('out', n); print('err', n, file=sys.stderr)"
    child = Child(1, [sys.executable, "-u", "-c", program], dict(os.environ), lambda *_: None)
    os.waitpid(child.pid, 0)
    child.drain(0)
    lines = b"".join(seen).decode().splitlines()
    assert len(lines) == 600
    assert [line for line in lines if not re.fullmatch("(out|err) [0-9]+", line)] == []
