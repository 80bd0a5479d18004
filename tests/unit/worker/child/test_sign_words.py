"""Which lines of stderr are passed to the worker as they come."""

import pytest

from lockstep.worker.child.sign_words import MAX_LINE, MAX_LINES, SignLines
from lockstep.worker.child.signs import sign_of

XID = b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_lines_are_found_in_whatever_pieces_they_come(size: int) -> None:
    text = b"harmless\n" * 9 + XID + b"\r\nmore\n" + b"\rNCCL WARN Timeout at NCCL work\nlast: out of memory"
    lines, found = SignLines(), []
    for at in range(0, len(text), size):
        found += lines.feed(text[at : at + size])
    assert found + lines.rest() == [XID, b"NCCL WARN Timeout at NCCL work", b"last: out of memory"]


@pytest.mark.slow
def test_a_flood_is_bounded() -> None:
    lines = SignLines()
    assert len(lines.feed((XID + b"\n") * 1000)) == MAX_LINES
    assert lines.feed(XID + b"\n") == []
    long = SignLines()
    assert long.feed(b"x" * 10_000_000) == []
    (found,) = long.feed(b"out of memory" + b"y" * 10_000 + b"\n")
    assert len(found) <= MAX_LINE


def test_what_is_a_sign_is_passed_on() -> None:
    assert [sign_of(line, "") for line in SignLines().feed(b"a\n" + XID + b"\n")] == ["Xid:79"]
