"""What keeps a run from being considered at all: the first reason that applies, and until when it lasts."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.queue import LabelSelector, TrainingQueueSpec
from lockstep.api.recovery_status import NodeRefusalsStatus, RecoveryStatus
from lockstep.api.run_status import Condition
from lockstep.core.admission.queueing.holds import Hold, hold_of, hours_used_up, selects
from lockstep.core.model.reasons import WaitReason
from lockstep.core.model.snapshot import CLOSED_QUEUE, RefusedAdmission, RunView
from lockstep.core.model.tunables import Mode, Tunables
from support.admission import NOW, run, world

UNDECIDABLE = Condition(
    type="Undecidable", status="True", reason="DecisionFails", message="words", last_transition_time=NOW
)


def held(
    view: RunView | None = None, queue: dict[str, Any] | None = None, mode: Mode = Mode.ACTIVE, **more: Any
) -> tuple[str, float | None] | None:
    """Why a run of queue q is held back, and until when; None: it is not."""
    snapshot = world([], queues={"q": queue or {}}, classes={"high": 1}, **more)
    found = hold_of(view or run("a", queue="q"), snapshot, Tunables(mode=mode), NOW, has_live_pods=False)
    return None if found is None else (found.reason, found.until)


def asks(nodes: int = 1, **spec: Any) -> RunView:
    return run("a", nodes, queue="q", **spec)


@pytest.mark.parametrize(
    ("view", "queue", "reason"),
    [
        (asks(), {}, None),
        (asks(), {"stopPolicy": "Hold"}, "QueueHeld"),
        (asks(), {"stopPolicy": "HoldAndDrain"}, "QueueHeld"),
        (asks(), {"heldRuns": ["team/a"]}, "HeldByAdministrator"),
        (asks(), {"heldRuns": ["other/a"]}, None),
        (replace(asks(), annotations={"lockstep.dev/paused": "true"}), {}, "Paused"),
        (replace(asks(), annotations={"lockstep.dev/paused": "false"}), {}, None),
        (asks(priorityClassName="high"), {}, None),
        (asks(priorityClassName="low"), {}, "PriorityClassNotFound"),
        (asks(priorityClassName="high"), {"allowedPriorityClasses": ["low"]}, "PriorityClassNotAllowed"),
        (asks(), {"allowedPriorityClasses": ["low"]}, None),
        (asks(4), {"limits": {"maxNodesPerRun": 4}}, None),
        (asks(5), {"limits": {"maxNodesPerRun": 4}}, "NodesPerRunLimit"),
        (asks(4, spareNodes=1), {"limits": {"maxNodesPerRun": 4}}, "NodesPerRunLimit"),
        (asks(timeLimit="1h"), {"limits": {"maxTimeLimit": "1h"}}, None),
        (asks(timeLimit="61m"), {"limits": {"maxTimeLimit": "1h"}}, "TimeLimitTooLong"),
        (asks(), {"limits": {"maxTimeLimit": "1h"}}, "TimeLimitTooLong"),
        (asks(), {"limits": {"maxTimeLimit": "1h", "defaultTimeLimit": "1h"}}, None),
        (asks(), {"limits": {"maxTimeLimit": "1h", "defaultTimeLimit": "2h"}}, "TimeLimitTooLong"),
        (asks(timeLimit="2h", minTimeLimit="1h"), {"limits": {"maxTimeLimit": "1h"}}, None),
        (asks(timeLimit="2h", minTimeLimit="61m"), {"limits": {"maxTimeLimit": "1h"}}, "TimeLimitTooLong"),
        (asks(deadline="2030-01-01T00:00:00Z"), {}, "DeadlineUnreachable"),
        (asks(deadline="2030-01-01T00:00:00Z", timeLimit="1h"), {}, None),
        (asks(deadline="2030-01-01T00:00:00Z"), {"limits": {"defaultTimeLimit": "1h"}}, None),
        (asks(status={"conditions": (UNDECIDABLE,)}), {}, "Undecidable"),
        (run("a", queue="nowhere"), {}, "QueueNotFound"),
        (run("a"), {"stopPolicy": "Hold"}, None),
    ],
)
def test_a_run_is_held_back_by_the_rules_of_its_queue_and_by_people(
    view: RunView, queue: dict[str, Any], reason: str | None
) -> None:
    assert held(view, queue) == (None if reason is None else (reason, None))


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(Mode.ACTIVE, None), (Mode.NO_NEW_ADMISSIONS, "NoNewAdmissions"), (Mode.REPORT_ONLY, "ReportOnly")],
)
def test_an_operator_that_is_not_active_holds_everybody_back(mode: Mode, reason: str | None) -> None:
    assert held(mode=mode) == (None if reason is None else (reason, None))


@pytest.mark.parametrize(("begin", "waits"), [(NOW - 1, False), (NOW, False), (NOW + 1, True)])
def test_a_time_to_begin_holds_until_it_has_come(begin: float, waits: bool) -> None:
    backing_off = asks()
    backing_off = replace(backing_off, status=changed(backing_off.status, recovery=RecoveryStatus(not_before=begin)))
    refused = replace(world([], queues={"q": {}}), refused={"uid-a": RefusedAdmission("quota", begin)})
    found = hold_of(asks(), refused, Tunables(), NOW, has_live_pods=False)
    assert held(asks(notBefore=to_rfc3339(begin))) == (("BeginTime", begin) if waits else None)
    assert held(backing_off) == (("BeginTime", begin) if waits else None)
    assert (found is not None and (found.reason, found.until)) == (waits and ("AdmissionRefused", begin))


@pytest.mark.parametrize(("waits", "reason"), [(True, "NodesRefusePods"), (False, "BeginTime")])
def test_a_run_that_kubelet_after_kubelet_refused_says_so_while_it_waits(waits: bool, reason: str) -> None:
    refusals = NodeRefusalsStatus(nodes=("n0", "n1", "n2"), message="OutOfcpu: no room", waits=waits)
    view = asks()
    recovery = RecoveryStatus(not_before=NOW + 5, refusals=refusals)
    view = replace(view, status=changed(view.status, recovery=recovery))
    found = hold_of(view, world([], queues={"q": {}}), Tunables(), NOW, has_live_pods=False)
    assert found is not None
    assert (found.reason, found.until) == (reason, NOW + 5)
    for words in ("3 nodes", "n0, n1, n2", "OutOfcpu: no room") if waits else ():
        assert words in found.message
    assert held(replace(view, status=changed(view.status, recovery=changed(recovery, not_before=NOW)))) is None


def test_pods_of_an_earlier_attempt_are_the_last_thing_to_wait_for() -> None:
    snapshot = world([], queues={"q": {}})
    begins = asks(notBefore=to_rfc3339(NOW + 1))
    found = [hold_of(view, snapshot, Tunables(), NOW, has_live_pods=True) for view in (asks(), begins)]
    assert [hold and hold.reason for hold in found] == ["EarlierPods", "BeginTime"]


@pytest.mark.parametrize(("used", "reason"), [(None, "GpuHoursUnknown"), (99, None), (100, "GpuHoursLimit")])
def test_gpu_hours_hold_a_queue_back_that_says_so(used: int | None, reason: str | None) -> None:
    limits = {"gpuHoursPerDay": 100}
    hours = {} if used is None else {"q": used}
    assert held(queue={"limits": limits}, gpu_hours=hours) == (None if reason is None else (reason, None))
    assert held(queue={"limits": limits | {"onGpuHours": "Warn"}}, gpu_hours=hours) is None
    spec = TrainingQueueSpec.model_validate({"limits": limits})
    assert hours_used_up(spec, used or 0) is (reason == "GpuHoursLimit")
    assert not hours_used_up(TrainingQueueSpec(), 10**9)


@pytest.mark.parametrize(("labels", "reason"), [({"team": "vision"}, None), ({}, "NamespaceNotAllowed")])
def test_a_queue_takes_the_namespaces_that_it_selects_and_names_no_other_queue_to_the_rest(
    labels: dict[str, str], reason: str | None
) -> None:
    chosen = {"namespaceSelector": {"matchLabels": {"team": "vision"}}}
    assert held(queue=chosen, namespace_labels={"team": labels}) == (None if reason is None else (reason, None))
    snapshot = world([], queues={"q": chosen}, namespace_labels={"team": labels})
    lost = hold_of(run("a", queue="nowhere"), snapshot, Tunables(), NOW, has_live_pods=False)
    assert lost is not None
    assert lost.message.endswith("are: default" if reason else "are: default, q")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"queue": "reserch"},
            "Queue reserch; did you mean research? Else open to this namespace are: default",
        ),
        ({"queue": "vision"}, "no TrainingQueue vision; open to this namespace are: default, research"),
        ({"queue": "secert"}, "no TrainingQueue secert; open to this namespace are: default, research"),
        (
            {"queue": "research", "priorityClassName": "hgih"},
            "no PriorityClass hgih; did you mean high? Else create it, or name another",
        ),
        (
            {"queue": "research", "priorityClassName": "urgent"},
            "no PriorityClass urgent; create it, or name another",
        ),
    ],
)
def test_what_was_probably_meant_is_told_and_no_queue_of_others(spec: dict[str, Any], words: str) -> None:
    queues = {"research": {}, "secret": {"namespaceSelector": {"matchLabels": {"team": "others"}}}}
    found = hold_of(
        run("a", **spec), world([], queues=queues, classes={"high": 1}), Tunables(), NOW, has_live_pods=False
    )
    assert found is not None
    assert words in found.message


@pytest.mark.parametrize(
    ("expression", "labels", "selected"),
    [
        ({"key": "tier", "operator": "In", "values": ["a", "b"]}, {"tier": "b"}, True),
        ({"key": "tier", "operator": "In", "values": ["a", "b"]}, {}, False),
        ({"key": "tier", "operator": "NotIn", "values": ["a"]}, {"tier": "a"}, False),
        ({"key": "tier", "operator": "NotIn", "values": ["a"]}, {}, True),
        ({"key": "tier", "operator": "Exists"}, {"tier": ""}, True),
        ({"key": "tier", "operator": "DoesNotExist"}, {"tier": ""}, False),
    ],
)
def test_a_selector_reads_expressions_as_kubernetes_does(
    expression: dict[str, Any], labels: dict[str, str], selected: bool
) -> None:
    selector = LabelSelector.model_validate({"matchExpressions": [expression]})
    both = LabelSelector.model_validate({"matchExpressions": [expression], "matchLabels": {"team": "vision"}})
    assert selects(selector, labels) is selected
    assert not selects(both, labels)
    assert selects(both, labels | {"team": "vision"}) is selected


def test_a_run_in_a_queue_that_nobody_can_read_is_told_so() -> None:
    snapshot = world([], queues={"q": {}})
    closed = replace(snapshot.queues["q"], spec=CLOSED_QUEUE, spec_error="spec: words")
    found = hold_of(asks(), replace(snapshot, queues={"q": closed}), Tunables(), NOW, has_live_pods=False)
    assert found == Hold(WaitReason.QUEUE_HELD, "queue q admits nothing: its spec cannot be read")
