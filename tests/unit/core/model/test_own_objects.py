"""From the JSON of our own kinds to views, as far as it can be understood."""

from typing import Any

import pytest

from lockstep.api.base.nesting import TOO_DEEP, UNREADABLE
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.own_objects import parse_queue, parse_run, parse_run_set


def raw_run(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "team",
            "name": "llama",
            "uid": "u1",
            "resourceVersion": "12",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"lockstep.dev/paused": "true", "kubectl.kubernetes.io/x": "long"},
        },
        "spec": {"nodes": 2, "image": "i", "command": ["train"]},
        **changes,
    }


def test_a_run_keeps_only_our_annotations() -> None:
    run = parse_run(raw_run())
    assert run.spec is not None
    assert run.spec.nodes == 2
    assert run.annotations == {"lockstep.dev/paused": "true"}
    assert (run.key, run.generation, run.created_at) == ("team/llama", 3, 1767225600.0)
    assert run.status == TrainingRunStatus()


def test_a_spec_that_does_not_parse_is_told_field_by_field() -> None:
    run = parse_run(raw_run(spec={"nodes": 0, "image": "i", "command": ["x"], "gpuPerNode": 8}))
    assert run.spec is None
    assert "spec.nodes:" in run.spec_error
    assert "spec.gpuPerNode:" in run.spec_error


def test_a_broken_status_reads_as_a_lost_one() -> None:
    assert parse_run(raw_run(status={"attempt": "seven"})).status == TrainingRunStatus()


def test_of_a_status_that_a_newer_operator_wrote_everything_counts_that_is_understood() -> None:
    over = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    known = {"attempt": 3, "conditions": [over], "assignment": {"nodes": ["n0"]}}
    understood = parse_run(raw_run(status=known)).status
    assert (understood.attempt, understood.assignment.nodes) == (3, ("n0",))
    assert parse_run(raw_run(status={**known, "kueue": {"chosenBy": "Somebody else"}})).status == understood
    assert parse_run(raw_run(status={**known, "attempts": [{"number": "three"}]})).status == understood


START = {"attempt": 2, "assignmentHash": "x", "masterAddress": "a", "masterPort": 1}


@pytest.mark.parametrize(
    ("edited", "lost"),
    [
        ({"start": START | {"members": [{"slots": "x", "incarnation": 1}]}}, "start"),
        ({"start": START | {"members": [{"slots": "0-99999999999", "incarnation": 1}]}}, "start"),
        ({"start": START | {"members": [{"slots": "0-1", "incarnation": 1}] * 2}}, "start"),
        ({"start": START | {"order": "3-1"}}, "start"),
        ({"exits": {"attempt": 2, "succeeded": "all"}}, "exits"),
        ({"exits": {"attempt": 2, "succeeded": "0-99999999999"}}, "exits"),
        ({"resolved": {"nodes": 1, "cpu": "much", "memory": "1Gi"}}, "resolved"),
        ({"resolved": {"nodes": 1, "cpu": "1", "memory": "1Gi", "resources": {"a": "two"}}}, "resolved"),
        ({"totals": {"restarts": 2**63 - 1}}, "totals"),
        ({"scaleUp": {"by": "Placeholders", "nodes": 2**30}}, "scale_up"),
        ({"scaleUp": {"by": "Placeholders", "nodes": -1}}, "scale_up"),
        ({"recovery": {"slotLosses": [{"slot": 0, "node": "n0", "count": -(2**63)}]}}, "recovery"),
    ],
)
def test_what_no_operator_can_have_written_into_a_status_reads_as_lost(edited: dict[str, Any], lost: str) -> None:
    known = parse_run(raw_run(status={"attempt": 2, "assignment": {"nodes": ["n0"], "incarnations": [1]}})).status
    status = parse_run(raw_run(status=known.dump() | edited)).status
    assert getattr(status, lost) == getattr(TrainingRunStatus(), lost)
    assert (status.attempt, status.assignment) == (known.attempt, known.assignment)


def test_what_an_operator_writes_into_a_status_is_read_whole() -> None:
    written = {"attempt": 2, "start": START | {"members": [{"slots": "0-1,3", "incarnation": 1}], "order": "3,0-1"}}
    written |= {"exits": {"attempt": 2, "succeeded": "0-1"}, "progress": {"step": 2**53}}
    assert parse_run(raw_run(status=written)).status == TrainingRunStatus.load(written)


def test_a_queue_that_does_not_parse_names_the_field_and_is_closed_unless_its_rules_are_known() -> None:
    raw: dict[str, Any] = {
        "metadata": raw_run()["metadata"] | {"name": "research"},
        "spec": {"visibility": "OwnNamespace"},
    }
    known = parse_queue(raw)
    assert (known.spec.visibility, known.spec_error, known.is_closed) == ("OwnNamespace", "", False)
    raw["spec"] = {"stopPolicy": "Drain"}
    assert parse_queue(raw).spec_error.startswith("spec.stopPolicy: ")
    assert parse_queue(raw).is_closed
    assert (parse_queue(raw, known).spec, parse_queue(raw, known).is_closed) == (known.spec, False)


@pytest.mark.parametrize(
    ("owner", "set_name"),
    [
        ({"kind": "TrainingRunSet", "apiVersion": "lockstep.dev/v1alpha1", "name": "sweep", "uid": "s1"}, "sweep"),
        ({"kind": "TrainingRunSet", "apiVersion": "lockstep.dev/v2", "name": "sweep", "uid": "s1"}, "sweep"),
        ({"kind": "TrainingRunSet", "apiVersion": "other.dev/v1", "name": "sweep", "uid": "s1"}, ""),
        ({"kind": "Job", "apiVersion": "batch/v1", "name": "sweep", "uid": "s1"}, ""),
    ],
)
def test_a_run_is_of_the_set_that_owns_it(owner: dict[str, str], set_name: str) -> None:
    raw = raw_run()
    raw["metadata"]["ownerReferences"] = [owner]
    assert (parse_run(raw).set_name, parse_run(raw).set_uid) == (set_name, "s1" if set_name else "")


@pytest.mark.parametrize(
    ("uid", "generation", "again"), [("u1", 3, False), ("u1", 4, True), ("u2", 3, True)], ids=["same", "edited", "new"]
)
def test_a_spec_is_read_again_when_it_may_have_changed(uid: str, generation: int, again: bool) -> None:
    known = parse_run(raw_run())
    raw = raw_run()
    raw["metadata"] |= {"uid": uid, "generation": generation}
    assert (parse_run(raw, known).spec is not known.spec) is again


def test_of_a_set_neither_spec_nor_status_need_parse() -> None:
    raw = raw_run(spec={"indices": "3-1", "template": {}}, status={"counts": "many"})
    found = parse_run_set(raw)
    assert found.spec is None
    assert "spec.indices:" in found.spec_error
    assert "status.counts:" in found.status_error
    assert found.annotations == {"lockstep.dev/paused": "true"}


DEEP: dict[str, object] = {"spec": TOO_DEEP}


@pytest.mark.parametrize(
    ("fields", "legible"),
    [
        ({"podTemplate": DEEP, "queue": "research", "suspend": True}, True),
        ({"podTemplate": DEEP, "notAField": 1, "queue": "research", "suspend": True}, True),
        ({"nodes": "many", "queue": "research"}, False),
    ],
)
def test_of_a_spec_that_does_not_parse_what_others_rely_on_is_known_all_the_same(
    fields: dict[str, object], legible: bool
) -> None:
    raw = raw_run()
    raw["spec"] = {"nodes": 2, "image": "i", "command": ["train"], **fields}
    run = parse_run(raw)
    assert run.spec_error
    assert run.is_left_alone
    assert (run.spec is not None) is legible
    if run.spec is not None:
        assert (run.spec.queue, run.spec.suspend, run.spec.pod_template) == ("research", True, None)


def test_of_a_spec_that_is_no_text_nothing_is_known() -> None:
    raw = raw_run()
    raw["spec"] = UNREADABLE
    assert (parse_run(raw).spec, bool(parse_run(raw).spec_error)) == (None, True)


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({"nodes": "many", "ttlAfterFinished": "1h"}, "1h"),
        ({"notAField": 1, "ttlAfterFinished": "1h"}, "1h"),
        ({"nodes": "many"}, None),
        ({"nodes": "many", "ttlAfterFinished": "1 fortnight"}, ""),
        ({"nodes": "many", "ttlAfterFinished": 7}, ""),
        ({"ttlAfterFinished": "1h"}, None),  # it is in ``spec``
        (None, ""),
    ],
    ids=repr,
)
def test_for_how_long_a_run_is_kept_is_read_by_itself(fields: dict[str, object] | None, written: str | None) -> None:
    raw = raw_run()
    raw["spec"] = UNREADABLE if fields is None else {"nodes": 2, "image": "i", "command": ["train"], **fields}
    run = parse_run(raw)
    assert run.ttl_written == written
    assert parse_run(raw, run).ttl_written == written
