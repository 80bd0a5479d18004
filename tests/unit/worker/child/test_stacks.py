"""How stacks become a line that is the same on all ranks that stand at the same place."""

import pytest

from lockstep.worker.child import stacks
from lockstep.worker.child.processes import Process
from lockstep.worker.child.stacks import _frames_of_faulthandler, _frames_of_py_spy, take_stacks

FAULTHANDLER = """
Thread 0x00007f817eadf6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f817f846b80 (most recent call first):
  File "/app/dist.py", line 88 in all_reduce
  File "/app/train.py", line 7 in <module>
"""
PY_SPY = """Process 25313: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 25386 (idle): "Thread-1 (other)"
    Thread.run (threading.py:982)
Thread 25313 (idle): "MainThread"
    all_reduce (torch/distributed/dist.py:88)
    <module> (train.py:7)
"""


def test_the_main_thread_is_told_innermost_frame_first_and_without_addresses() -> None:
    expected = "all_reduce (dist.py:88) < <module> (train.py:7)"
    assert _frames_of_faulthandler(FAULTHANDLER) == expected
    assert _frames_of_py_spy(PY_SPY) == expected
    assert _frames_of_faulthandler("") == _frames_of_py_spy("") == ""


def test_processes_that_stand_alike_are_one_line_and_stopped_ones_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [Process(pid, 1, state, "python") for pid, state in ((10, "S"), (11, "S"), (12, "T"))]
    monkeypatch.setattr(stacks, "other_processes", lambda: [*processes, Process(13, 1, "S", "helper")])
    monkeypatch.setattr(stacks, "_offered", lambda prefix, found: {10: FAULTHANDLER, 11: FAULTHANDLER})
    monkeypatch.setattr(stacks, "_by_proc", lambda process, text: ("thread 12", "in do_signal_stop"))
    taken = take_stacks("/nowhere", leave_out=[13])
    assert taken.text.splitlines() == [
        "python [stopped by a signal]: in do_signal_stop",
        "2 x python: all_reduce (dist.py:88) < <module> (train.py:7)",
    ]
    assert taken.dump.startswith("process 10 python (state S)\n")
    assert "thread 12" in taken.dump


def test_the_report_is_bounded_however_many_processes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [Process(pid, 1, "S", f"python-{pid}") for pid in range(10, 500)]
    monkeypatch.setattr(stacks, "other_processes", lambda: many)
    monkeypatch.setattr(stacks, "_offered", lambda prefix, found: {p.pid: FAULTHANDLER * 500 for p in found})
    taken = take_stacks("/nowhere")
    assert len(taken.text) <= stacks.DIGEST
    assert len(taken.dump) <= stacks.MAX_DUMP
