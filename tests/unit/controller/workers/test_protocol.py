"""What workers send is understood, cut and made fit to be shown."""

import json

import pytest

from lockstep.api.base.times import to_rfc3339
from lockstep.controller.workers.protocol import decode_registration, decode_report
from lockstep.core.model.start_record import CollectiveStart, Members, Resume
from lockstep.core.model.worker_report import TimingReport, WorkerPhase
from support.worker_messages import ANSWER, ROW, START, registration, report

NOW = 1_800_000_000.0


def test_a_full_report_is_understood() -> None:
    decoded = decode_report(
        report(
            phase="Exited",
            start=START,
            exit={"code": None, "signal": 9, "at": 999.5, "reason": "Signal", "stderrTail": "boom"},
            progress={"step": 7, "at": 999.0, "loss": "2.31", "totalSteps": None},
            newCheckpoints=[ROW],
            verified=[{"tier": "shared", "path": "/c", "verdict": "Invalid", "reason": "crc"}],
            epoch=[1700000000, 3],
            seen=4,
            waitSeconds=15,
        )
    )
    assert decoded.phase is WorkerPhase.EXITED
    assert decoded.start is not None
    members = (Members("0-2", 1), Members("3", 2))
    assert decoded.start == CollectiveStart(2, "abc", "10.0.0.1", 40123, Resume("shared", 300, "/c"), members)
    assert decoded.exit is not None
    assert decoded.exit.report(0.5).at == 1000.0
    assert (decoded.exit.report(0).code, decoded.exit.report(0).signal) == (0, 9)
    assert decoded.progress is not None
    assert decoded.progress.report(0).loss == "2.31"
    assert decoded.epoch == (1700000000, 3)


def test_of_the_ends_of_steps_the_first_and_the_last_are_kept_and_their_words_cut_and_made_fit_to_show() -> None:
    row = {
        "step": "3\n" + "s" * 100, "task": 2, "program": "\x1b[31mpython" + "p" * 100, "code": None, "signal": 11,
        "at": 5.5, "stderrTail": "x" * 2000 + "\x07Segmentation\r\nfault", "asked": False,
        "reason": "OOM\x1b[31mKilled",
    }  # fmt: skip
    decoded = decode_report(report(stepsPort=5001, stepEnds=[row] + [{**row, "task": task} for task in range(3, 40)]))
    assert decoded.steps_port == 5001
    assert [end.task for end in decoded.step_ends] == [*range(2, 10), *range(32, 40)]
    end = decoded.step_ends[0]
    assert (end.code, end.signal, end.at, end.asked, end.reason) == (None, 11, 5.5, False, "OOMKilled")
    assert end.step.startswith("3 s")
    assert end.program.startswith("pythonp")
    assert max(len(end.step), len(end.program)) <= 64
    assert end.stderr_tail.endswith("Segmentation\nfault")
    assert len(end.stderr_tail) <= 1024
    assert not set("\x07\x1b\r") & set(end.step + end.program + end.stderr_tail)


def test_of_steps_that_ended_in_part_few_are_kept_and_their_names_are_cut() -> None:
    row = {"step": "\x1b[31m" + "s" * 100, "task": 2, "nodeRank": 1, "at": 5.5, "done": 1, "left": 7}
    (step, *more) = decode_report(report(partlyEnded=[row] * 9)).partly_ended
    assert len(more) == 3
    assert (step.task, step.node_rank, step.at, step.done, step.left) == (2, 1, 5.5, 1, 7)
    assert len(step.step) <= 64
    assert "\x1b" not in step.step


def test_a_loss_written_as_a_number_is_understood() -> None:
    decoded = decode_report(report(progress={"step": 7, "at": 1, "loss": 2.5}))
    assert decoded.progress is not None
    assert decoded.progress.report(0).loss == "2.5"


def test_what_an_older_worker_measures_and_nobody_reads_any_more_is_passed_over() -> None:
    timing = decode_report(report(timing={"section": "Step", "inSection": 2.5})).timing
    assert timing == TimingReport(section="Step")


def test_a_field_of_a_newer_release_is_passed_over() -> None:
    assert decode_report(report(gpuTemperature=[81, 82])).slot == 0


@pytest.mark.parametrize("order", ["", "0-3", "3,2,1,0", "2-3,0-1"])
def test_a_start_record_whose_order_is_one_of_its_members_is_understood(order: str) -> None:
    decoded = decode_report(report(start={**START, "order": order})).start
    assert decoded is not None
    assert decoded.order == order


@pytest.mark.parametrize(("at", "wall"), [(2**40, 0), (0, 2**40), (2**40, 2**40)])
def test_a_workers_time_can_be_written_into_status_whatever_its_clock_shows(at: float, wall: float) -> None:
    decoded = decode_report(report(wall=wall, progress={"step": 7, "at": at}))
    assert decoded.progress is not None
    assert to_rfc3339(decoded.progress.report(NOW - wall).at)


def test_prose_is_fit_to_be_shown_as_soon_as_it_is_decoded() -> None:
    evil = "\x1b[2J" + "a\n" * 2000
    decoded = decode_report(report(newCheckpoints=[{**ROW, "reason": evil}], verified=[ANSWER] * 64, problem=evil))
    assert decoded.new_checkpoints[0].reason.startswith("a a a")
    assert len(decoded.new_checkpoints[0].reason) < 256
    assert len(decoded.verified) == 16
    assert decoded.problem is not None
    assert "\n" not in decoded.problem
    assert decode_registration(registration(problem=evil)).problem == decoded.problem


def test_a_registration_is_understood() -> None:
    decoded = decode_registration(registration(inventory=[ROW] * 64, problem="no GPU"))
    assert (decoded.namespace, decoded.run, decoded.address) == ("team", "llama", "10.0.0.1")
    assert decoded.inventory[0].step == 300
    assert decoded.report.attempt == 1


def test_prose_is_cut_rather_than_refused() -> None:
    decoded = decode_report(report(exit={"code": 1, "at": 1, "stderrTail": "a" * 5000 + "the end"}))
    assert decoded.exit is not None
    tail = decoded.exit.report(0).stderr_tail
    assert len(tail) == 4096
    assert tail.endswith("the end")


def test_what_a_batch_job_asks_for_is_understood_and_bounded() -> None:
    ask = {"id": "a-1", "kind": "submit", "body": {"options": ["-N", "2"], "script": "#!/bin/sh\n"}}
    decoded = decode_report(report(asks=[ask, {"id": "b", "kind": "re\u001b[2Jqueue"}]))
    assert [(each.id, each.kind) for each in decoded.asks] == [("a-1", "submit"), ("b", "requeue")]
    assert json.loads(bytes(decoded.asks[0].body)) == ask["body"]
    assert len(decode_report(report(asks=[{"id": str(n), "kind": "hold"} for n in range(16)])).asks) == 4
