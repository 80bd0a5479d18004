"""What workers are answered."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.controller.workers.orders import Orders, encode_reply
from lockstep.controller.workers.protocol import decode_report
from lockstep.core.model.plan import AskAnswer, BatchOrder, DesiredPhase, Directive, PassOver, VerifyRequest
from lockstep.core.model.ranges import format_order, format_ranges
from lockstep.core.model.start_record import CollectiveStart, Members, Resume
from lockstep.slurm.environment import Array, SlurmJob
from support.worker_messages import report

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
