"""Where the output of a step goes, if that is no pipe and no file; and lines that do not end."""

import os
import pty
import select
import threading

from lockstep.worker.steps.streams import Labels, Writer, numbered

MUCH = 1 << 20


def written(writer: Writer, reads: int) -> int:
    """Bytes that arrive there of ``MUCH``, if writing them waits for nobody."""
    writing = threading.Thread(target=writer.write, args=(bytes(MUCH),), daemon=True)
    writing.start()
    writing.join(20)
    assert not writing.is_alive(), "it waits until somebody reads"
    assert 0 < writer.unwritten < MUCH
    poll = select.poll()
    poll.register(reads, select.POLLIN)
    taken = 0
    while taken < MUCH and poll.poll(20_000):
        taken += len(os.read(reads, MUCH))
        writer.flush()
    assert writer.unwritten == 0
    return taken


def test_a_terminal_that_was_stopped_holds_up_no_writer() -> None:
    screen, descriptor = pty.openpty()
    writer = Writer(descriptor)
    try:
        assert written(writer, screen) == MUCH
        assert os.get_blocking(descriptor), "others have this descriptor, too"
    finally:
        for each in {screen, descriptor, writer.descriptor}:
            os.close(each)


def test_a_line_that_does_not_end_is_shown_in_pieces_and_fills_no_memory() -> None:
    labels = Labels(numbered([0]))
    shown = b"".join(labels.whole_lines(0, 1, b"\r%5d" % number) for number in range(20_000))
    assert shown.count(b"0: \r") == 1
    assert shown.endswith(b"\n")
    rest = labels.rest(0, 1)
    assert len(shown) + len(rest) == 120_000 + 2 * len(b"0: \n")
    assert len(rest) < 64 << 10
