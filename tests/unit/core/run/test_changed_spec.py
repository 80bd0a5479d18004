"""A gang whose spec was changed behind its back stops, and nothing is made of a spec that nobody has judged."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.core.decide import decide
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import Plan
from lockstep.core.model.reasons import ConditionType, StopReason
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.spec_hash import hash_record
from lockstep.core.run.changed_spec import stop_before_pods_of_another_spec
from support.values import not_none
from support.world import World, phase, spec, training, world, world_with_gang

PRIVILEGED: dict[str, Any] = {
    "podTemplate": {"spec": {"containers": [{"name": "trainer", "securityContext": {"privileged": True}}]}}
}
HOST_PATH = {"volumes": [{"name": "root", "mountPath": "/node", "hostPath": {"path": "/"}}]}
CHECKPOINT = {"shared": {"claimName": "lustre"}}
BATCH = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun one\n"}}, "command": []}
OTHER_SCRIPT: dict[str, Any] = {
    "launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun two\n"}},
    "command": [],
}
FIXED = {
    "a privileged container": PRIVILEGED,
    "a path of the node": HOST_PATH,
    "an account": {"serviceAccountName": "admin"},
    "an image": {"image": "another"},
    "a command": {"command": ["python", "other.py"]},
    "the queue": {"queue": "theirs"},
    "fewer GPUs": {"gpusPerNode": 0},
    "what is first loaded": {"checkpoint": {**CHECKPOINT, "start": {"mode": "Fresh"}}},
}
"""What changes only while the run is suspended."""
FREE = {
    "nothing": {},
    "its size": {"nodes": 3},
    "elastic": {"elastic": {"min": 1}},
    "its time limit": {"timeLimit": "3h"},
    "nodes to leave out": {"placement": {"excludeNodes": ["n7"]}},
    "when it saves": {"checkpoint": {**CHECKPOINT, "cadence": {"interval": "5m"}}},
    "an archive": {"checkpoint": {**CHECKPOINT, "archive": {"uri": "s3://a/b"}}},
    "a budget": {"budget": {"gpuHours": 100}},
}
"""What changes at any time."""


def change(w: World, **fields: Any) -> World:
    """Suspend the run with the change, and take that back, before the operator has looked."""
    wanted = spec(**fields)
    w.apply("one", changed(wanted, suspend=True))
    w.apply("one", wanted)
    return w


def decided(w: World) -> Plan:
    return decide(w.snapshot("one"), w.tunables, w.now)


def without_record(w: World) -> World:
    """An operator admitted it that kept nothing to compare."""
    resolved = changed(w.status("one").resolved, spec_hash="", queue="")
    w.amend("one", resolved=resolved)
    return w


@pytest.mark.parametrize("fields", FIXED.values(), ids=FIXED)
@pytest.mark.parametrize("lost", [False, True])
def test_a_gang_whose_spec_was_changed_saves_and_queues_again_and_no_pod_or_start_is_made(
    fields: dict[str, Any], lost: bool
) -> None:
    w = change(training(2, spare=1), **fields)
    if lost:
        w.lose_ranks("one", 1)
    before = w.status("one")
    plan = decided(w)
    status = not_none(plan.status)
    assert not_none(status.stop).reason == StopReason.REQUEUED
    assert not_none(status.stop).save
    assert not plan.creates
    assert status.start == before.start
    assert not is_true(status, ConditionType.ACCEPTED)


def test_a_gang_that_launches_queues_again_and_is_not_started() -> None:
    w = world(2)
    w.apply("one", spec(2))
    w.reconcile("one")
    w.reconcile("one")
    w.admit()
    assert phase(w) is Phase.LAUNCHING
    plan = decided(change(w, **PRIVILEGED))
    status = not_none(plan.status)
    assert not_none(status.stop).reason == StopReason.REQUEUED
    assert (plan.creates, status.start) == ((), None)


@pytest.mark.parametrize("fields", FREE.values(), ids=FREE)
def test_a_suspension_that_is_taken_back_in_time_changes_nothing_where_nothing_else_was_changed(
    fields: dict[str, Any],
) -> None:
    w = change(training(2, spare=1), **fields)
    status = not_none(decided(w).status)
    assert status.stop is None
    assert is_true(status, ConditionType.ACCEPTED)
    w.settle()
    assert phase(w) is Phase.RUNNING


def test_a_batch_job_has_its_new_script_in_its_next_attempt_after_it_has_queued() -> None:
    w = world(2)
    w.roll_out("one", spec(2, **BATCH))
    assert phase(w) is Phase.RUNNING
    change(w, **OTHER_SCRIPT)
    plan = w.reconcile("one")
    assert plan.directive is None or plan.directive.batch is None
    w.settle()
    assert w.status("one").attempt == 1
    w.pass_time(600.0, step=60.0)
    assert (phase(w), w.status("one").attempt) == (Phase.RUNNING, 2)
    assert not_none(not_none(w.directives["uid-one"]).batch).script == "#!/bin/sh\nsrun two\n"


def test_a_spec_that_may_not_run_gets_no_nodes_once_the_gang_has_stopped_whoever_looks_first() -> None:
    w = change(world_with_gang(2), **PRIVILEGED)
    refused = find(not_none(decided(w).status), ConditionType.ACCEPTED)
    assert not_none(refused).reason == "InvalidSpec"
    w.settle()
    assert phase(w) is Phase.PENDING
    w.pass_time(600.0, step=60.0)
    assert not w.pods
    assert "privileged" in not_none(find(w.status("one"), ConditionType.ACCEPTED)).message


@pytest.mark.parametrize("fields", [PRIVILEGED, {"image": "another"}])
def test_what_was_changed_while_it_stopped_is_judged_before_it_gets_nodes_again(fields: dict[str, Any]) -> None:
    w = world_with_gang(2)
    w.apply("one", spec(2, suspend=True))
    w.reconcile("one")
    assert phase(w) is Phase.STOPPING
    w.apply("one", spec(2, **fields))
    while phase(w) is Phase.STOPPING:
        w.work()
        w.reconcile("one")
        w.kubelets()
    assert phase(w) is Phase.PENDING
    w.admit()  # before the run itself was looked at
    assert phase(w) is Phase.PENDING
    w.settle()
    assert phase(w) is (Phase.PENDING if fields is PRIVILEGED else Phase.RUNNING)


def test_a_queue_that_was_changed_counts_once_the_gang_has_its_nodes_from_it() -> None:
    w = world_with_gang(2)
    w.queue("theirs", stopPolicy="HoldAndDrain")
    change(w, queue="theirs")
    assert queue_of(w.runs["one"]) == "default"
    assert not_none(not_none(decided(w).status).stop).reason == StopReason.REQUEUED
    w.settle()
    assert (phase(w), queue_of(w.runs["one"])) == (Phase.PENDING, "theirs")


def test_what_may_change_while_it_runs_is_judged_then_and_stops_nothing() -> None:
    w = world_with_gang(2, placement={"nodes": ["n0", "n1"]})
    change(w, placement={"nodes": ["n0", "n1"], "excludeNodes": ["n1"]})
    w.settle()
    refused = not_none(find(w.status("one"), ConditionType.ACCEPTED))
    assert (phase(w), refused.status, refused.reason) == (Phase.RUNNING, "False", "InvalidSpec")
    assert "spec.placement.nodes" in refused.message


def test_a_paused_gang_with_another_spec_goes_on_and_is_not_said_to_be_accepted() -> None:
    w = world_with_gang(2)
    w.annotate("one", paused="true")
    w.settle()
    status = not_none(decided(change(w, image="another")).status)
    assert status.stop is None
    assert not_none(find(status, ConditionType.ACCEPTED)).reason == "SpecChanged"


@pytest.mark.parametrize("fields", [*FIXED.values(), *FREE.values()])
def test_no_gang_is_stopped_as_an_older_operator_kept_nothing_to_compare(fields: dict[str, Any]) -> None:
    w = change(without_record(training(2, spare=1)), **fields)
    plan = decided(w)
    status = not_none(plan.status)
    assert status.stop is None
    may_run = fields not in (PRIVILEGED, HOST_PATH)
    assert status.resolved.spec_hash == (
        hash_record(w.runs["one"].generation, not_none(w.runs["one"].spec)) if may_run else ""
    )


def test_a_gang_of_an_older_operator_is_held_to_the_spec_that_it_is_first_seen_with() -> None:
    w = without_record(training(2, spare=1))
    w.settle()
    resolved = w.status("one").resolved
    assert (resolved.spec_hash, resolved.queue) == (hash_record(w.runs["one"].generation, spec(2)), "default")
    assert not_none(not_none(decided(change(w, image="another")).status).stop).reason == StopReason.REQUEUED


def test_what_an_older_operator_left_there_when_it_gave_the_gang_other_nodes_is_written_anew() -> None:
    w = training(2, spare=1)
    w.amend("one", resolved=changed(w.status("one").resolved, spec_hash="before", queue="former"))
    w.settle()
    assert queue_of(w.runs["one"]) == "default"
    w.roll_out("one", spec(2, timeLimit="3h"))
    assert (phase(w), w.status("one").attempt) == (Phase.RUNNING, 1)


@pytest.mark.parametrize("worker", ["Enabled", "Disabled"])
def test_of_a_spec_that_may_not_run_no_pod_is_made_for_a_gang_of_an_older_operator(worker: str) -> None:
    checkpoint: dict[str, Any] = {"checkpoint": None} if worker == "Disabled" else {}
    w = world(3)
    w.roll_out("one", spec(2, worker=worker, **checkpoint))
    change(without_record(w), worker=worker, **checkpoint, **PRIVILEGED)
    assert w.reconcile("one").status is None or w.status("one").stop is None
    assert not w.status("one").resolved.spec_hash
    pods = set(w.pods)
    w.lose_ranks("one", 1)
    w.pass_time(120.0, step=10.0)
    assert set(w.pods) <= pods
    assert phase(w) is not Phase.RUNNING


def test_pods_are_made_of_the_spec_that_the_gang_was_given_its_nodes_for() -> None:
    w = world_with_gang(2)
    assert not stop_before_pods_of_another_spec(w.plan("one"))
    w.runs["one"] = replace(w.runs["one"], generation=w.runs["one"].generation + 1)
    assert not stop_before_pods_of_another_spec(w.plan("one"))
    plan = change(w, image="another").plan("one")
    assert stop_before_pods_of_another_spec(plan)
    assert not_none(plan.status.stop).reason == StopReason.REQUEUED


def test_a_gang_that_trains_saves_before_it_stops_for_want_of_a_pod_that_may_not_be_made() -> None:
    plan = change(training(2), image="another").plan("one")
    assert stop_before_pods_of_another_spec(plan)
    assert not_none(plan.status.stop).save
