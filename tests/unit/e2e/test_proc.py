"""Tests look at processes that may end at any moment."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import proc

pytestmark = pytest.mark.process


@pytest.fixture
def ends_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as process:

        def read_text(path: Path) -> str:
            with path.open() as stream:  # a process that has ended is another error from here on
                process.kill()
                process.wait()
                return stream.read()

        monkeypatch.setattr(Path, "read_text", read_text)
        yield process.pid


def test_a_process_that_ends_while_it_is_read_is_not_alive(ends_while_it_is_read: int) -> None:
    assert not proc.is_alive(ends_while_it_is_read)


def test_a_process_that_ends_while_it_is_read_has_no_children(ends_while_it_is_read: int) -> None:
    assert proc.children(ends_while_it_is_read) == []


def test_a_process_that_ends_while_it_is_read_has_no_name(ends_while_it_is_read: int) -> None:
    assert proc.names([ends_while_it_is_read]) == {}


def test_a_process_that_has_ended_holds_nothing_open() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert (proc.is_alive(process.pid), proc.open_files(process.pid)) == (False, 0)
