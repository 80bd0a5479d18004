"""What is accepted, what is refused with which words, and what holds up nothing."""

from dataclasses import replace

import pytest

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.decide import decide
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.kueue import api_names
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.named_objects import LookedUp, MissingObject, NamedObject, ObjectKind
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import EDIT_GRACE, TOLD_AFTER, DryRunResult
from support.values import not_none
from support.world import World, node, phase, spec, world

HOOK = 'create pods: 500 InternalError: failed calling webhook "x.example": connection refused'


def unjudged(w: World, since: float) -> None:
    w.dry_runs["uid-one"] = DryRunResult(w.runs["one"].generation, None, HOOK, w.now - since)


@pytest.mark.parametrize(("since", "told"), [(0.0, False), (TOLD_AFTER, True), (1e5, True)])
def test_a_pod_that_the_api_server_does_not_judge_is_told_in_its_words_and_asked_for_again(
    since: float, told: bool
) -> None:
    w = World({"n0": node("n0"), "n1": node("n1")})
    w.apply("one", spec(2))
    unjudged(w, since)
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.dry_run is not None
    assert plan.status is not None
    accepted = find(plan.status, ConditionType.ACCEPTED)
    if not told:
        assert accepted is None
        assert plan.wake_at is not None
        assert plan.wake_at <= w.now + TOLD_AFTER
        return
    assert accepted is not None
    assert (accepted.status, accepted.reason) == ("Unknown", "PodNotJudged")
    assert HOOK in accepted.message
    assert plan.status.reason == "PodNotJudged"


def test_what_was_accepted_stays_so_while_nobody_judges_it_anew() -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(2))  # it waits for a second node
    w.settle()
    assert is_true(w.status("one"), ConditionType.ACCEPTED)
    unjudged(w, 1e5)
    w.reconcile("one")
    assert is_true(w.status("one"), ConditionType.ACCEPTED)


@pytest.mark.parametrize(
    ("since", "accepted"), [(TOLD_AFTER, "True"), (EDIT_GRACE - 1, "True"), (EDIT_GRACE, "Unknown")]
)
def test_an_edit_that_nobody_judges_takes_no_acceptance_for_as_long_as_the_run_keeps_its_place(
    since: float, accepted: str
) -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(2))
    w.settle()
    w.apply("one", spec(2, nice=5))
    unjudged(w, since)
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    told = not_none(find(plan.status or w.status("one"), ConditionType.ACCEPTED))
    assert told.status == accepted
    if accepted == "True":
        assert told.observed_generation < w.runs["one"].generation
        assert not_none(plan.wake_at) <= w.now - since + EDIT_GRACE


def test_a_run_goes_on_by_itself_once_it_is_judged() -> None:
    w = World({"n0": node("n0"), "n1": node("n1")})
    w.apply("one", spec(2))
    unjudged(w, 60.0)
    w.reconcile("one")
    w.settle()
    assert phase(w) is Phase.RUNNING


BATCH = {"launcher": {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}, "command": []}


def test_a_batch_job_has_its_number_in_status_before_it_is_accepted() -> None:
    w = world(2)
    w.apply("one", spec(2, **BATCH))
    for _ in range(5):
        if not w.job_ids:
            w.reconcile("one")
            w.admit()
    assert w.job_ids
    assert not w.pods
    assert not is_true(w.status("one"), ConditionType.ACCEPTED)
    snapshot = replace(w.snapshot("one"), job_id=0)
    asking = decide(snapshot, w.tunables, w.now)
    assert asking.take_job_id
    given = decide(replace(snapshot, job_id=7), w.tunables, w.now)
    assert not given.take_job_id
    assert given.status is not None
    assert given.status.job_id == 7
    assert is_true(given.status, ConditionType.ACCEPTED)
    w.settle()
    assert (w.status("one").job_id, len(w.pods)) == (1, 2)


def test_the_number_of_a_batch_job_never_changes_and_others_take_none() -> None:
    w = world(2)
    w.apply("one", spec(2, **BATCH))
    w.reconcile("one")
    snapshot = w.snapshot("one")
    known = replace(snapshot, run=replace(snapshot.run, status=TrainingRunStatus(job_id=5)), job_id=9)
    plan = decide(known, w.tunables, w.now)
    assert not plan.take_job_id
    assert plan.status is None or plan.status.job_id == 5
    w.apply("two", spec(2))
    w.reconcile("two")
    plain = decide(replace(w.snapshot("two"), job_id=9), w.tunables, w.now)
    assert not plain.take_job_id
    assert plain.status is None or plain.status.job_id is None


GONE = MissingObject(NamedObject(ObjectKind.CLAIM, "dta", "spec.volumes[0].persistentVolumeClaim.claimName"), ("data",))
FULL = 'pods "one-0" is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=8, limited: pods=8'


@pytest.mark.parametrize(
    ("message", "missing", "is_numbered"),
    [
        (FULL, False, True),
        (FULL, True, False),
        (FULL.replace("pods=1,", "cpu=1500m,pods=1,").replace("limited: ", "limited: cpu=2,"), False, True),
        (FULL.replace("pods=1,", "cpu=2500m,pods=1,").replace("limited: ", "limited: cpu=2,"), False, False),
        ("failed quota: gpus: must specify cpu", False, False),
    ],
)
def test_a_batch_job_that_a_full_quota_refuses_has_its_number_before_it_is_told_and_starts_once_there_is_room(
    message: str, missing: bool, is_numbered: bool
) -> None:
    w = world(2)
    w.apply("one", spec(2, **BATCH))
    answer = DryRunResult(w.runs["one"].generation, False, message, w.now, LookedUp((GONE,) if missing else ()))
    w.dry_runs["uid-one"] = answer
    first = decide(w.snapshot("one"), w.tunables, w.now)
    assert first.take_job_id is is_numbered
    told = find(first.status or w.status("one"), ConditionType.ACCEPTED)
    assert (told is None) is is_numbered, "who submits it takes a refusal without a number for good"
    for _ in range(3):
        w.reconcile("one")
    status = w.status("one")
    assert status.job_id == (1 if is_numbered else None)
    found = not_none(find(status, ConditionType.ACCEPTED))
    assert (found.status, message in found.message) == ("False", True)
    if is_numbered:
        assert (found.reason, status.reason) == ("PodRefused", "PodRefused")
    again = decide(w.snapshot("one"), w.tunables, w.now + 60)
    assert again.dry_run is not None
    w.dry_runs["uid-one"] = DryRunResult(w.runs["one"].generation, True, "", w.now)
    w.settle()
    assert (w.status("one").job_id, len(w.pods)) == (1, 2)


def test_a_batch_job_that_only_asks_when_it_would_start_takes_no_number() -> None:
    w = world(2)
    w.apply("one", spec(2, **BATCH))
    w.reconcile("one")
    snapshot = w.snapshot("one")
    asks = replace(snapshot, run=replace(snapshot.run, annotations={"lockstep.dev/test-only": "true"}))
    assert not decide(asks, w.tunables, w.now).take_job_id


NO_ACCOUNT = 'pods "x" is forbidden: error looking up service account team/bot: serviceaccount "bot" not found'


@pytest.mark.parametrize(
    ("accepted", "message", "missing", "reason", "told"),
    [
        (True, "", [GONE], "ClaimNotFound", ["claimName: there is no PersistentVolumeClaim dta", "mean data?"]),
        (False, "exceeded quota", [GONE], "ClaimNotFound", ["Claim dta", "the API server refuses the pod: exceeded"]),
        (False, NO_ACCOUNT, [], "ServiceAccountNotFound", ["spec.serviceAccountName: there is no ServiceAccount bot"]),
        (False, NO_ACCOUNT, [GONE], "ServiceAccountNotFound", ["ServiceAccount bot", "PersistentVolumeClaim dta"]),
        (False, "exceeded quota", [], "PodRefused", ["the API server refuses the pod: exceeded quota"]),
    ],
)
def test_a_run_that_names_what_is_not_there_gets_no_nodes_and_is_told_all_of_it(
    accepted: bool, message: str, missing: list[MissingObject], reason: str, told: list[str]
) -> None:
    w = World({"n0": node("n0"), "n1": node("n1")})
    w.apply("one", changed(spec(2), service_account_name="bot"))
    answer = DryRunResult(w.runs["one"].generation, accepted, message, w.now, LookedUp(tuple(missing)))
    w.dry_runs["uid-one"] = answer
    w.reconcile("one")
    w.admit()
    found = find(w.status("one"), ConditionType.ACCEPTED)
    assert found is not None
    assert (found.status, found.reason, w.status("one").reason) == ("False", reason, reason)
    assert all(words in found.message for words in told)
    assert "error looking up" not in found.message
    assert w.pods == {}
    assert not w.status("one").assignment.nodes


@pytest.mark.parametrize(("waited", "pause"), [(0.0, 5.0), (120.0, 30.0), (1e5, 60.0)])
@pytest.mark.parametrize("accepted", [True, False])
def test_what_was_missing_is_looked_up_again_and_the_pod_only_where_it_was_refused(
    accepted: bool, waited: float, pause: float
) -> None:
    w = World({"n0": node("n0"), "n1": node("n1")})
    w.apply("one", spec(2))
    answer = DryRunResult(w.runs["one"].generation, accepted, "", w.now, LookedUp((GONE,)))
    w.dry_runs["uid-one"] = answer
    w.reconcile("one")
    w.now += waited
    w.dry_runs["uid-one"] = replace(answer, at=w.now)
    plan = decide(w.snapshot("one"), w.tunables, w.now)
    assert plan.dry_run is None
    assert plan.wake_at is not None
    assert w.now < plan.wake_at <= w.now + pause
    again = decide(w.snapshot("one"), w.tunables, w.now + pause).dry_run
    assert again is not None
    assert (again.body is None) is accepted


def test_a_run_that_is_called_like_an_array_gets_no_nodes_and_one_that_was_accepted_before_does() -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(1))
    plan = decide(replace(w.snapshot("one"), namesake=True), w.tunables, w.now)
    assert plan.status is not None
    found = find(plan.status, ConditionType.ACCEPTED)
    assert found is not None
    assert (found.status, found.reason) == ("False", "NameTaken")
    assert found.message == "an array is called one as well; create this run under another name"
    w.reconcile("one")
    w.reconcile("one")
    after = decide(replace(w.snapshot("one"), namesake=True), w.tunables, w.now)
    assert is_true(after.status or w.status("one"), ConditionType.ACCEPTED)


def test_once_it_is_there_the_run_gets_its_nodes_and_what_nobody_could_see_holds_up_nothing() -> None:
    w = World({"n0": node("n0"), "n1": node("n1")})
    w.apply("one", spec(2))
    answer = DryRunResult(w.runs["one"].generation, True, "", w.now, LookedUp((GONE,)))
    w.dry_runs["uid-one"] = answer
    w.reconcile("one")
    w.admit()
    assert not w.status("one").assignment.nodes
    w.dry_runs["uid-one"] = replace(answer, looked_up=LookedUp(unknown=(GONE.named,)))
    w.reconcile("one")
    found = find(w.status("one"), ConditionType.ACCEPTED)
    assert found is not None
    assert found.message.startswith(
        "the spec is valid; not looked up, as the operator cannot: PersistentVolumeClaim dta"
    )
    w.admit()
    assert len(w.status("one").assignment.nodes) == 2


@pytest.mark.parametrize(
    ("asks", "reason", "told"),
    [
        ({"queue": "reserch"}, "QueueNotFound", "there is no TrainingQueue reserch; did you mean research?"),
        ({"priorityClassName": "hgih"}, "PriorityClassNotFound", "there is no PriorityClass hgih; did you mean high?"),
    ],
)
def test_a_queue_or_class_that_is_not_there_is_a_refusal_until_it_is_made(
    asks: dict[str, str], reason: str, told: str
) -> None:
    w = World({"n0": node("n0")}, classes={"high": 10})
    w.queue("research")
    w.apply("one", spec(1, **asks))
    w.settle()
    found = not_none(find(w.status("one"), ConditionType.ACCEPTED))
    assert (found.status, found.reason, w.status("one").reason) == ("False", reason, reason)
    assert found.message.startswith(told)
    assert not w.status("one").assignment.nodes
    since, w.now = found.last_transition_time, w.now + 600
    w.settle()
    assert not_none(find(w.status("one"), ConditionType.ACCEPTED)).last_transition_time == since, "said once"
    array = decide(replace(w.snapshot("one"), namesake=True), w.tunables, w.now)
    assert array.status is None or array.status.reason == reason, "it has its name"
    w.queue("reserch")
    w.classes = {**w.classes, "hgih": 1}
    w.settle()
    assert is_true(w.status("one"), ConditionType.ACCEPTED)
    assert len(w.status("one").assignment.nodes) == 1


def test_a_run_that_only_asks_hears_of_a_queue_that_is_not_there_by_the_answer() -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(1, queue="reserch"))
    w.runs["one"] = replace(w.runs["one"], annotations={names.ANNOTATION_TEST_ONLY: "true"})
    w.settle()
    assert is_true(w.status("one"), ConditionType.ACCEPTED)
    assert "there is no TrainingQueue reserch" in not_none(w.status("one").test_only).message


def test_what_kueue_admits_is_refused_for_no_name_that_kueue_may_not_need() -> None:
    w = World({"n0": node("n0")})
    w.apply("one", spec(1, queue="reserch", gpusPerNode=8))
    w.runs["one"] = replace(w.runs["one"], labels={api_names.LABEL_QUEUE: "team"})
    w.settle()
    assert is_true(w.status("one"), ConditionType.ACCEPTED)
