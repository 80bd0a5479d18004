"""Decoding what workers send, and encoding what they are answered."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.times import to_rfc3339
from lockstep.controller.workers.orders import Orders, encode_reply
from lockstep.controller.workers.protocol import (
    MAX_ASKED,
    MalformedError,
    UnspokenProtocolError,
    decode_registration,
    decode_report,
)
from lockstep.core.model.plan import AskAnswer, BatchOrder, DesiredPhase, Directive, PassOver, VerifyRequest
from lockstep.core.model.ranges import format_order, format_ranges
from lockstep.core.model.start_record import CollectiveStart, Members, Resume
from lockstep.core.model.worker_report import TimingReport, WorkerPhase
from lockstep.slurm.environment import Array, SlurmJob

NOW = 1_800_000_000.0
RUN_UID = "7f1c2a34-0000-4000-8000-000000000001"


def sender(**changes: Any) -> dict[str, Any]:
    return {
        "protocol": 1,
        "runUid": RUN_UID,
        "slot": 0,
        "incarnation": 1,
        "podUid": "8a6b5c4d-0000-4000-8000-000000000002",
        **changes,
    }


def state(**changes: Any) -> dict[str, Any]:
    return {"phase": "Running", "attempt": 1, "wall": 1000.5, "mono": 10, **changes}


def report(**changes: Any) -> bytes:
    return json.dumps({**sender(), **state(), **changes}).encode()


def registration(**changes: Any) -> bytes:
    body = {
        **sender(),
        "namespace": "team",
        "run": "llama",
        "node": "gpu-1",
        "hostname": "gpu-1",
        "address": "10.0.0.1",
        "workerVersion": "0.7.2",
        "problem": "",
        "inventory": [],
        "report": state(),
        **changes,
    }
    return json.dumps(body).encode()


ANSWER = {"tier": "shared", "path": "/c", "verdict": "Valid"}
ROW = {"tier": "shared", "step": 300, "path": "/shared-checkpoints/x/a1/step-300", "verdict": "Valid"}
START = {
    "attempt": 2,
    "assignmentHash": "abc",
    "masterAddress": "10.0.0.1",
    "masterPort": 40123,
    "resume": {"tier": "shared", "step": 300, "path": "/c"},
    "members": [{"slots": "0-2", "incarnation": 1}, {"slots": "3", "incarnation": 2}],
}


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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slot": -1}, "$.slot"),
        ({"slot": 65_536}, "$.slot"),
        ({"slot": "0"}, "$.slot"),
        ({"slot": 1.5}, "$.slot"),
        ({"incarnation": -1}, "$.incarnation"),
        ({"runUid": ""}, "$.runUid"),
        ({"runUid": "../../etc"}, "$.runUid"),
        ({"podUid": "x" * 65}, "$.podUid"),
        ({"phase": "Dancing"}, "$.phase"),
        ({"port": 65_536}, "$.port"),
        ({"waitSeconds": 15.5}, "$.waitSeconds"),
        ({"waitSeconds": -1}, "$.waitSeconds"),
        ({"wall": "yesterday"}, "$.wall"),
        ({"epoch": [1]}, "$.epoch"),
        ({"seen": -1}, "$.seen"),
        ({"attempt": 2**31}, "$.attempt"),
        ({"exit": {"code": 2**40, "at": 0}}, "$.exit.code"),
        ({"progress": {"step": -5, "at": 0}}, "$.progress.step"),
        ({"newCheckpoints": [{**ROW, "tier": "moon"}]}, "$.newCheckpoints[0].tier"),
        ({"newCheckpoints": [{**ROW, "verdict": "Maybe"}]}, "$.newCheckpoints[0].verdict"),
        ({"newCheckpoints": [{**ROW, "path": "p" * 4097}]}, "$.newCheckpoints[0].path"),
        ({"verified": [ANSWER] * 65}, "$.verified"),
        ({"start": {**START, "masterPort": 0x10000}}, "$.start.masterPort"),
        ({"newCheckpoints": [{**ROW, "bytes": 2**63}]}, "$.newCheckpoints[0].bytes"),
        ({"newCheckpoints": [{**ROW, "owners": [65_536]}]}, "$.newCheckpoints[0].owners[0]"),
        ({"newCheckpoints": [{**ROW, "committedAt": -1}]}, "$.newCheckpoints[0].committedAt"),
        ({"verified": [{**ANSWER, "tier": "moon"}]}, "$.verified[0].tier"),
        ({"start": {**START, "resume": {"tier": "shared", "step": -1, "path": "/c"}}}, "$.start.resume.step"),
        ({"timing": {"section": "s" * 65}}, "$.timing.section"),
        ({"timing": {"longestSave": -0.5}}, "$.timing.longestSave"),
        ({"signs": [{"kind": "Xid:79", "at": 2**41}]}, "$.signs[0].at"),
        ({"signs": [{"kind": "Xid:79", "at": 1}] * 65}, "$.signs"),
        ({"stepsPort": 65_536}, "$.stepsPort"),
        ({"stepEnds": [{"at": 2**41}]}, "$.stepEnds[0].at"),
        ({"stepEnds": [{"at": 1, "code": 2**31}]}, "$.stepEnds[0].code"),
        ({"stepEnds": [{"at": 1, "signal": 256}]}, "$.stepEnds[0].signal"),
        ({"stepEnds": [{"at": 1, "task": -1}]}, "$.stepEnds[0].task"),
        ({"stepEnds": [{"at": 1, "nodeRank": -1}]}, "$.stepEnds[0].nodeRank"),
        ({"stepEnds": [{"at": 1, "asked": 1}]}, "$.stepEnds[0].asked"),
        ({"stepEnds": [{"at": 1}] * 65}, "$.stepEnds"),
        ({"partlyEnded": [{"left": -1}]}, "$.partlyEnded[0].left"),
        ({"partlyEnded": [{"at": 2**41}]}, "$.partlyEnded[0].at"),
        ({"partlyEnded": [{}] * 65}, "$.partlyEnded"),
        ({"stacks": {"id": "i" * 65}}, "$.stacks.id"),
        ({"pointed": {"path": "/c", "step": 2**53 + 1}}, "$.pointed.step"),
        ({"warmed": {"id": "w", "peer": -2}}, "$.warmed.peer"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedError) as refusal:
        decode_report(report(**changes))
    assert f"`{field}`" in str(refusal.value)


@pytest.mark.parametrize(
    "start",
    [
        {"members": [{"slots": "0-2000000000", "incarnation": 1}]},
        {"members": [{"slots": "0-60000", "incarnation": each} for each in range(9)]},
        {"members": [{"slots": "0" * 4000, "incarnation": each} for each in range(99)]},
        {"members": [{"slots": "a-b", "incarnation": 1}]},
        {"order": "3,1-999999999"},
        {"order": "0-60000,0-60000"},
    ],
)
def test_a_start_record_that_would_fill_the_memory_is_refused(start: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match="start: "):
        decode_registration(registration(report=state(start={**START, **start})))


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"order": "0,0,1-3"}, "0 is there twice"),
        ({"order": "0-2"}, "the order is not that of its members"),
        ({"order": "0-4"}, "the order is not that of its members"),
        ({"order": "0-2,4"}, "the order is not that of its members"),
        ({"members": [], "order": "1,0"}, "the order is not that of its members"),
        ({"members": [{"slots": "0-2", "incarnation": 1}, {"slots": "2-3", "incarnation": 2}]}, "2 is there twice"),
        ({"members": [{"slots": "0,0", "incarnation": 1}]}, "0 is there twice"),
        ({"members": [{"slots": "1-2", "incarnation": 1}]}, "the order is not that of its members"),
        ({"members": [{"slots": "65536", "incarnation": 1}], "order": "65536"}, "a gang has at most 65536 slots"),
    ],
)
def test_a_start_record_that_no_operator_wrote_is_refused(start: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedError, match=f"start: .*{words}"):
        decode_report(report(start={**START, **start}))


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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"protocol": 1',
        report()[:-1],
        report() + b"{}",
        b"\xff\xfe",
        report(problem="x").replace(b'"x"', b'"\\ud800"'),
        report().replace(b'"Running"', b'"\xff"'),
        b"[" * 60_000,
        b'{"unknown": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        report(wall=1).replace(b'"wall": 1', b'"wall": NaN'),
        report(wall=1).replace(b'"wall": 1', b'"wall": 1e999'),
    ],
)
def test_a_malformed_body_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_report(body)
    with pytest.raises(MalformedError):
        decode_registration(body)


def test_another_version_of_the_protocol_is_named_even_when_its_fields_differ() -> None:
    with pytest.raises(UnspokenProtocolError, match="protocol 2 is not spoken"):
        decode_report(report(protocol=2))
    with pytest.raises(UnspokenProtocolError, match="protocol 2 is not spoken"):
        decode_report(b'{"protocol": 2, "everything": "else"}')


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


RECORD = CollectiveStart(2, "abc", "10.0.0.1", 40123, Resume("shared", 300, "/c"), (Members("0-1", 1),))


def directive(**changes: Any) -> Directive:
    fields: dict[str, Any] = {
        "attempt": 2,
        "phase": DesiredPhase.RUN,
        "incarnations": (1, 1),
        "slot_ranks": (0, 1),
        "start": RECORD,
        "nodelist": ("10.0.0.1", "10.0.0.2"),
        "stop_grace": 45,
    }
    return Directive(**{**fields, **changes})


def reply(
    orders: Orders | None, *, slot: int = 1, incarnation: int = 1, attempt: int = 1, asks: Sequence[str] = ()
) -> dict[str, Any]:
    encoded = encode_reply(
        orders,
        slot=slot,
        incarnation=incarnation,
        attempt=attempt,
        epoch=(1700000000, 3),
        now=1000.5,
        heartbeat_seconds=2.0,
        fence_seconds=60.0,
        asks=asks,
    )
    decoded: dict[str, Any] = json.loads(encoded)
    return decoded


def test_a_release_carries_the_whole_start_record() -> None:
    assert reply(Orders(directive(), 7)) == {
        "protocol": 1,
        "epoch": [1700000000, 3],
        "revision": 7,
        "serverTime": 1000.5,
        "heartbeatSeconds": 2.0,
        "fenceSeconds": 60.0,
        "phase": "Run",
        "attempt": 2,
        "rank": 1,
        "worldSize": 2,
        "start": {
            "attempt": 2,
            "assignmentHash": "abc",
            "masterAddress": "10.0.0.1",
            "masterPort": 40123,
            "resume": {"tier": "shared", "step": 300, "path": "/c"},
            "members": [{"slots": "0-1", "incarnation": 1}],
            "order": "",
            "dashboard": "",
            "joins": 0,
        },
        "nodelist": ["10.0.0.1", "10.0.0.2"],
        "verify": None,
        "stopGraceSeconds": 45,
    }


def test_who_is_told_of_start_early_is_held_back_the_longer() -> None:
    orders = Orders(directive(), 7, start_at=1000.75)
    assert reply(orders)["startIn"] == 0.25
    assert "startIn" not in reply(orders, attempt=2)  # it runs already
    assert "startIn" not in reply(Orders(directive(), 7, start_at=1000.5))
    assert "startIn" not in reply(Orders(directive(phase=DesiredPhase.PREPARE, start=None), 7, start_at=1000.75))


def test_a_fresh_start_has_no_checkpoint_to_resume_from() -> None:
    fresh = CollectiveStart(1, "abc", "10.0.0.1", 40123)
    assert reply(Orders(directive(start=fresh, attempt=1), 1), attempt=0)["start"]["resume"] is None


def test_a_worker_that_already_runs_the_attempt_is_not_sent_the_addresses_again() -> None:
    running = reply(Orders(directive(), 7), attempt=2)
    assert running["nodelist"] == []
    assert running["start"]["attempt"] == 2


@pytest.mark.parametrize(
    ("orders", "slot", "incarnation"),
    [
        (None, 0, 1),
        (Orders(directive(), 1), 2, 1),
        (Orders(directive(incarnations=(1, 2)), 1), 1, 3),
    ],
    ids=["no directive yet", "no such slot", "incarnation not yet decided on"],
)
def test_whoever_the_directive_does_not_address_is_told_to_hold(
    orders: Orders | None, slot: int, incarnation: int
) -> None:
    answer = reply(orders, slot=slot, incarnation=incarnation)
    assert (answer["phase"], answer["attempt"], answer["rank"]) == ("Hold", 0, -1)
    assert answer["start"] is None
    assert answer["nodelist"] == []


def test_a_worker_whose_slot_has_a_successor_is_told_to_stop() -> None:
    answer = reply(Orders(directive(incarnations=(1, 2)), 1), slot=1, incarnation=1)
    assert (answer["phase"], answer["rank"]) == ("Stop", -1)
    assert answer["start"] is None


def test_a_spare_stays_at_the_barrier_while_the_others_run() -> None:
    answer = reply(Orders(directive(slot_ranks=(0, -1)), 1))
    assert (answer["phase"], answer["rank"], answer["worldSize"]) == ("Prepare", -1, 1)
    assert answer["start"] is None


def test_only_the_slots_named_are_to_look_again() -> None:
    orders = Orders(directive(phase=DesiredPhase.PREPARE, start=None, nodelist=(), look_again=frozenset({1})), 1)
    assert "lookAgain" not in reply(orders, slot=0)
    assert reply(orders, slot=1)["lookAgain"] is True


def test_what_may_not_be_chosen_is_told_at_the_barrier_alone_and_only_if_there_is_such() -> None:
    passed_over = PassOver(490, (("shared", 300, 1),), ((480, 2),))
    at_barrier = directive(phase=DesiredPhase.PREPARE, start=None, nodelist=(), pass_over=passed_over)
    told = {"beyond": 490, "saves": [["shared", 300, 1]], "diverged": [[480, 2]]}
    assert reply(Orders(at_barrier, 1))["passOver"] == told
    assert "passOver" not in reply(Orders(replace(at_barrier, pass_over=None), 1))
    assert "passOver" not in reply(Orders(directive(pass_over=passed_over), 1))


def test_the_files_to_verify_are_shared_out_by_rank() -> None:
    wanted = directive(
        phase=DesiredPhase.PREPARE,
        start=None,
        nodelist=(),
        slot_ranks=(1, 0),
        verify=VerifyRequest("shared", "/c", 300),
    )
    assert reply(Orders(wanted, 1), slot=0)["verify"] == {
        "tier": "shared",
        "path": "/c",
        "step": 300,
        "share": 1,
        "of": 2,
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.sampled_from(sorted(json.loads(report(exit=None, start=START)))), JSON).map(
        lambda change: report(**{change[0]: change[1]})
    )
)
def test_whatever_is_sent_is_understood_or_refused(body: bytes) -> None:
    with suppress(MalformedError, UnspokenProtocolError):
        decode_report(body)


words = st.text(alphabet="abc0123", min_size=1, max_size=10)


@st.composite
def gangs(draw: st.DrawFn) -> dict[str, Any]:
    """Members and order as an operator writes them."""
    seats = draw(st.lists(st.integers(0, 9000), max_size=9, unique=True))
    by_incarnation: dict[int, list[int]] = {}
    for slot in seats:
        by_incarnation.setdefault(draw(st.integers(0, 3)), []).append(slot)
    members = tuple(Members(format_ranges(each), number) for number, each in by_incarnation.items())
    return {"members": members, "order": "" if seats == [*range(len(seats))] else format_order(seats)}


@given(
    gangs(),
    st.builds(
        CollectiveStart,
        attempt=st.integers(0, 1000),
        assignment_hash=words,
        master_address=words,
        master_port=st.integers(0, 65_535),
        resume=st.none() | st.builds(Resume, st.sampled_from(["local", "shared"]), st.integers(0, 10**9), words),
    ),
)
def test_the_start_record_a_worker_sends_back_is_the_one_it_was_given(
    gang: dict[str, Any], record: CollectiveStart
) -> None:
    record = msgspec.structs.replace(record, **gang)
    sent = reply(Orders(directive(start=record), 1))["start"]
    assert decode_report(report(start=sent)).start == record


@pytest.mark.parametrize("field", ["step", "longest", "longestInit", "saveBlock", "persist"])
def test_nothing_that_is_measured_took_longer_than_a_year(field: str) -> None:
    assert decode_report(report(timing={field: 366 * 86_400})).timing
    with pytest.raises(MalformedError, match=field):
        decode_report(report(timing={field: 2**40}))


def test_a_body_that_is_nested_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(MalformedError, match="nested deeper than 32 levels"):
        decode_report(report()[:-1] + b',"later":' + b"[" * 40 + b"]" * 40 + b"}")


BATCH = BatchOrder(
    job=SlurmJob(
        id=7, nodes=("10.0.0.1", "10.0.0.2"), cpus=(8, 8), gpus=4, name="t", user="ada", uid=1000, partition="q",
        cluster="lockstep", submit_dir="/work", submit_host="login", start_time=5, end_time=0,
        array=Array(6, 0, 2, 0, 1),
    ),
    words=(("gpu-1",), ("gpu-2",)), script="#!/bin/sh\nsrun x\n", arguments=("a",), output="%j.log", directory="/work",
)  # fmt: skip


def test_a_batch_job_is_told_to_those_who_are_yet_to_start_and_its_script_to_rank_0_alone() -> None:
    orders = Orders(directive(batch=BATCH), 7)
    first, other = reply(orders, slot=0)["batch"], reply(orders, slot=1)["batch"]
    assert first == other | {"script": "#!/bin/sh\nsrun x\n", "arguments": ["a"]}
    told = other.pop("job")
    assert (
        SlurmJob(**{**told, "array": Array(**told["array"])})._replace(
            nodes=BATCH.job.nodes, cpus=BATCH.job.cpus, components=(), component_tasks=(), topology=()
        )
        == BATCH.job
    )
    assert other == {
        "words": [["gpu-1"], ["gpu-2"]],
        "output": "%j.log",
        "error": "",
        "input": "",
        "append": False,
        "directory": "/work",
        "command": "",
    }
    assert "batch" not in reply(orders, slot=0, attempt=2), "it has started"
    assert "batch" not in reply(orders, slot=0, incarnation=2)
    assert "batch" not in reply(Orders(directive(), 7), slot=0)
    swapped = Orders(directive(batch=BATCH, slot_ranks=(1, 0)), 7)
    assert "script" not in reply(swapped, slot=0)["batch"]
    assert "script" in reply(swapped, slot=1)["batch"]
    spare = Orders(directive(batch=BATCH, slot_ranks=(0, -1)), 7)
    assert "batch" not in reply(spare, slot=1)


def test_what_a_batch_job_asks_for_is_understood_and_bounded() -> None:
    ask = {"id": "a-1", "kind": "submit", "body": {"options": ["-N", "2"], "script": "#!/bin/sh\n"}}
    decoded = decode_report(report(asks=[ask, {"id": "b", "kind": "re\u001b[2Jqueue"}]))
    assert [(each.id, each.kind) for each in decoded.asks] == [("a-1", "submit"), ("b", "requeue")]
    assert json.loads(bytes(decoded.asks[0].body)) == ask["body"]
    assert len(decode_report(report(asks=[{"id": str(n), "kind": "hold"} for n in range(16)])).asks) == 4


@pytest.mark.parametrize(
    "asks",
    [
        [{"id": "", "kind": "requeue"}],
        [{"id": "a" * 37, "kind": "requeue"}],
        [{"id": "../a", "kind": "requeue"}],
        [{"id": "a", "kind": "x" * 65}],
        [{"kind": "requeue"}],
        [{"id": str(number), "kind": "hold"} for number in range(17)],
    ],
)
def test_a_request_that_is_none_is_refused(asks: list[dict[str, str]]) -> None:
    with pytest.raises(MalformedError):
        decode_report(report(asks=asks))


@pytest.mark.parametrize("sizes", [(MAX_ASKED + 1,), (MAX_ASKED // 2,) * 3])
def test_what_asks_for_more_than_any_worker_tells_is_refused_at_both_endpoints(sizes: tuple[int, ...]) -> None:
    asks = [{"id": f"a-{n}", "kind": "submit", "body": {"script": "x" * size}} for n, size in enumerate(sizes)]
    with pytest.raises(MalformedError, match=f"their bodies have more than {MAX_ASKED} bytes"):
        decode_report(report(asks=asks))
    with pytest.raises(MalformedError, match=f"their bodies have more than {MAX_ASKED} bytes"):
        decode_registration(registration(report=state(asks=asks)))


def test_a_worker_is_answered_what_it_asks_for_and_nobody_else_is() -> None:
    answers = (AskAnswer("a", True, "", 8), AskAnswer("b", False, "no"))
    orders = Orders(directive(asked=answers), 7)
    assert "asked" not in reply(orders)
    assert reply(orders, asks=["b", "x"])["asked"] == [{"id": "b", "ok": False, "words": "no"}]
    assert reply(orders, asks=["a"])["asked"] == [{"id": "a", "ok": True, "words": "", "jobId": 8}]
    assert "asked" not in reply(orders, asks=["x"])
    assert "asked" not in reply(None, asks=["a"])
    stopped = Orders(directive(asked=answers, phase=DesiredPhase.STOP), 7)
    assert reply(stopped, asks=["a"])["asked"]
