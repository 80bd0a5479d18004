"""What workers may not send: out of bounds, malformed, or more than any worker has to tell."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.controller.workers.protocol import (
    MAX_ASKED,
    MalformedError,
    UnspokenProtocolError,
    decode_registration,
    decode_report,
)
from support.worker_messages import ANSWER, ROW, START, registration, report, state


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


@pytest.mark.parametrize("field", ["step", "longest", "longestInit", "saveBlock", "persist"])
def test_nothing_that_is_measured_took_longer_than_a_year(field: str) -> None:
    assert decode_report(report(timing={field: 366 * 86_400})).timing
    with pytest.raises(MalformedError, match=field):
        decode_report(report(timing={field: 2**40}))


def test_a_body_that_is_nested_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(MalformedError, match="nested deeper than 32 levels"):
        decode_report(report()[:-1] + b',"later":' + b"[" * 40 + b"]" * 40 + b"}")


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
