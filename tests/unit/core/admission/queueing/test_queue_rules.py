"""What the runs of each queue are judged by: the same object for as long as nothing of it is new."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.engine.quota import QueueQuota, TypeQuota
from lockstep.core.admission.queueing.queue_rules import Rulebook, quota_of
from lockstep.core.model.snapshot import CLOSED_QUEUE, ClusterSnapshot
from lockstep.core.model.tunables import Mode, Tunables
from support.admission import world


def snapshot(queues: Mapping[str, Mapping[str, Any]], **more: Any) -> ClusterSnapshot:
    return world([], queues=queues, **more)


BEFORE = {"q": {"cohort": "c"}, "r": {"cohort": "c"}}


@pytest.mark.parametrize(
    ("then", "kept"),
    [
        (snapshot(BEFORE), {"q", "r"}),
        (replace(snapshot(BEFORE), fair_shares={("q", "team", ""): 0.5}), {"q", "r"}),
        (snapshot(BEFORE, gpu_hours={"q": 99}), {"q", "r"}),
        (snapshot(BEFORE | {"q": {"cohort": "d"}}), {"r"}),
        (snapshot(BEFORE | {"q": {"stopPolicy": "Hold"}}), {"r"}),
        (snapshot(BEFORE | {"s": {}}), set()),
        (snapshot({"r": BEFORE["r"]}), set()),
        (snapshot(BEFORE, classes={"high": 1}), set()),
        (snapshot(BEFORE, namespace_labels={"team": {}}), set()),
        (snapshot(BEFORE, nodes=5), set()),
        (snapshot(BEFORE | {"r": {"cohort": "c", "visibility": "OwnNamespace"}}), set()),
    ],
)
def test_rules_hold_until_something_changes_by_which_a_run_is_judged(then: ClusterSnapshot, kept: set[str]) -> None:
    rules = Rulebook()
    rules.update(snapshot(BEFORE), Tunables(), anew=False)
    known, version = {name: rules.for_queue(name) for name in BEFORE}, rules.version
    rules.update(then, Tunables(), anew=False)
    assert {name for name in BEFORE if rules.for_queue(name) is known[name]} == kept
    assert (rules.version == version) is (kept == {"q", "r"})


def test_a_queue_that_can_be_read_again_has_new_rules_whatever_they_are() -> None:
    rules, held = Rulebook(), snapshot({"q": {"stopPolicy": "Hold", "visibility": "OwnNamespace"}})
    assert held.queues["q"].spec == CLOSED_QUEUE
    rules.update(replace(held, queues={"q": replace(held.queues["q"], spec_error="words")}), Tunables(), anew=False)
    unread = rules.for_queue("q")
    rules.update(held, Tunables(), anew=False)
    assert rules.for_queue("q") is not unread


@pytest.mark.parametrize(
    ("tunables", "anew", "kept"),
    [(Tunables(), False, True), (Tunables(), True, False), (Tunables(mode=Mode.REPORT_ONLY), False, False)],
)
def test_other_settings_or_a_clock_set_back_end_all_rules(tunables: Tunables, anew: bool, kept: bool) -> None:
    rules = Rulebook()
    rules.update(snapshot(BEFORE), Tunables(), anew=False)
    known = rules.for_queue("q")
    rules.update(snapshot(BEFORE), tunables, anew=anew)
    assert (rules.for_queue("q") is known) is kept


@pytest.mark.parametrize(
    ("limits", "used", "hours"),
    [
        ({}, 100, 0),
        ({"gpuHoursPerDay": 100}, None, None),
        ({"gpuHoursPerDay": 100}, 99, 0),
        ({"gpuHoursPerDay": 100}, 100, 100),
        ({"gpuHoursPerDay": 100}, 101, 101),
        ({"gpuHoursPerDay": 100, "onGpuHours": "Warn"}, 101, 0),
    ],
)
def test_gpu_hours_are_of_the_rules_once_they_hold_runs_back(
    limits: dict[str, Any], used: int | None, hours: int | None
) -> None:
    rules = Rulebook()
    rules.update(snapshot({"q": {"limits": limits}}, gpu_hours={"q": 0}), Tunables(), anew=False)
    unused = rules.for_queue("q")
    known = {} if used is None else {"q": used}
    rules.update(snapshot({"q": {"limits": limits}}, gpu_hours=known), Tunables(), anew=False)
    assert rules.for_queue("q").hours == hours
    assert (rules.for_queue("q") is unused) is (hours == 0)


@pytest.mark.parametrize(("visibility", "discreet"), [("Full", False), ("OwnNamespace", True)])
def test_one_discreet_queue_makes_what_every_run_hears_depend_on_its_namespace(visibility: str, discreet: bool) -> None:
    rules = Rulebook()
    rules.update(snapshot({"q": {"visibility": visibility}, "r": {}}), Tunables(), anew=False)
    assert rules.discreet == ({"q"} if discreet else set())
    assert rules.for_queue("r").discreet is discreet
    assert rules.for_queue("no such queue").spec == TrainingQueueSpec()


@pytest.mark.parametrize(
    ("spec", "quota"),
    [
        ({}, QueueQuota()),
        ({"cohort": "c", "limits": {"maxRunningRuns": 0}}, QueueQuota("c", {}, 0)),
        (
            {"quotas": [{"gpuType": "H100", "nominalNodes": 4, "borrowingLimit": 2, "lendingLimit": 0}]},
            QueueQuota("", {"H100": TypeQuota(4, 2, 0)}),
        ),
        ({"quotas": [{"gpuType": "Any", "nominalNodes": 1}]}, QueueQuota("", {"Any": TypeQuota(1, None, None)})),
    ],
)
def test_a_queue_may_use_what_its_quotas_and_limits_say(spec: dict[str, Any], quota: QueueQuota) -> None:
    assert quota_of(TrainingQueueSpec.model_validate(spec)) == quota
