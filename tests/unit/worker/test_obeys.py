"""What counts as the operator's word: the newest, and that of a leader of today."""

from pathlib import Path

import pytest

from lockstep.worker.agent import Worker
from lockstep.worker.settings import Settings

pytestmark = pytest.mark.process


def test_a_reply_that_a_newer_one_has_overtaken_changes_nothing(tmp_path: Path) -> None:
    identity = {"operator_url": "https://x", "namespace": "a", "run": "r", "run_uid": "u", "pod_uid": "p"}
    worker = Worker(Settings(**identity, slot=0, incarnation=1, command=["true"], scratch=str(tmp_path)))

    def hears(phase: str, revision: int, at: float, epoch: int = 1) -> tuple[str, int]:
        reply = {"epoch": [epoch, 0], "revision": revision, "heartbeatSeconds": 2, "phase": phase, "serverTime": at}
        worker._take_desired(reply, [])
        return worker.operator.desired["phase"], worker.link.seen

    assert hears("Prepare", 7, 1000.0) == ("Prepare", 7)
    assert hears("Run", 6, 999.9) == ("Prepare", 7)
    assert hears("Run", 8, 1000.0) == ("Run", 8)
    assert hears("Stop", 2, 1001.0) == ("Stop", 2)  # the operator forgot the run, and counts anew
    assert hears("Run", 3, 500.0) == ("Run", 3)  # its clock was set back
    assert hears("Prepare", 1, 499.0, epoch=2) == ("Prepare", 1)  # another leader has a clock of its own
    assert hears("Stop", 9, 2000.0, epoch=1) == ("Prepare", 1)
    worker._take_desired({"epoch": [3, 0], "revision": 1, "phase": "Complete"}, [])  # not understood
    assert (worker.operator.desired["phase"], worker.link.epoch) == ("Prepare", [2, 0])


def test_an_operator_whose_lease_was_set_back_is_obeyed_once_nobody_else_has_answered_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"operator_url": "https://x", "namespace": "a", "run": "r", "run_uid": "u", "pod_uid": "p"}
    worker = Worker(Settings(**identity, slot=0, incarnation=1, command=["true"], scratch=str(tmp_path)))
    moment = 1000.0
    monkeypatch.setattr("lockstep.worker.agent.time.monotonic", lambda: moment)

    def hears(phase: str, epoch: int, at: float) -> str:
        nonlocal moment
        moment = at
        reply = {"epoch": [100, epoch], "revision": 1, "heartbeatSeconds": 2, "phase": phase, "serverTime": at}
        worker._take_desired(reply, [])
        return str(worker.operator.desired["phase"])

    assert hears("Prepare", 7, 1000.0) == "Prepare"
    assert hears("Stop", 5, 1001.0) == "Prepare"
    assert hears("Stop", 5, 1030.0) == "Prepare"
    assert hears("Prepare", 7, 1030.5) == "Prepare"  # the leader is there: the other one was replaced
    assert hears("Stop", 5, 1031.0) == "Prepare"
    assert hears("Stop", 5, 1060.0) == "Prepare"
    assert hears("Stop", 5, 1061.0) == "Stop"
    assert worker.link.epoch == [100, 5]
    assert hears("Run", 6, 1062.0) == "Run"
