"""What people who wait are told: a pending reason in words, with what lacks, who has it and what to do."""

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.pending_reasons import (
    ASSUMPTION,
    LONGEST_MESSAGE,
    UNKNOWN_ASSUMPTION,
    listed,
    names_of,
    overrun_words,
    preempts_later,
    queue_status,
    quota_words,
    reason_of,
    visible_names,
    whole,
)
from lockstep.core.admission.engine.cycle_result import Foreseen, Reservation, Wait
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job, NodeClaim, Option
from lockstep.core.admission.engine.quota import QuotaRefusal
from lockstep.core.admission.queueing.order import Points
from lockstep.core.model.reasons import WaitReason
from support.admission import NOW, run
from support.small_queues import CHOICES, EVERY

OPTION = Option("A", 4, EVERY, CHOICES["anywhere", 4])
JOB = Job("uid-a", "q", (OPTION,), 3600.0)
FIRMWARE = NodeClaim(NOW, NOW + 600, EVERY, "window:firmware", notice=60.0)
TOO_MANY = "the run needs 9, and can never have more than 8: ask for fewer nodes, or have quotas raised"
KEYS = {"uid-b": "team/b", "uid-c": "team/c", "uid-d": "team/d", "uid-e": "team/e", "uid-x": "other/x"}


def refusal(bound: Any, **more: Any) -> QuotaRefusal:
    fields = {
        "queue": "q", "gpu_type": "H100", "cohort": "lab", "nominal": 4, "used": 3, "limit": 4, "pool_size": 8,
        "pooled": 6, "room": 1, "most": 8, "holders": (),
    }  # fmt: skip
    return QuotaRefusal(bound=bound, **(fields | more))


def waits(reservation: Reservation | None = None, **fields: Any) -> Wait:
    return Wait(fields.pop("kind", WaitReason.RESOURCES), reservation, **fields)


@pytest.mark.parametrize(
    ("wait", "shortage", "message"),
    [
        (waits(), "needs 4 nodes, 3 fit", "needs 4 nodes, 3 fit"),
        (waits(), "", "needs 4 nodes"),
        (waits(kind=WaitReason.PRIORITY, blockers=("uid-b", "uid-c")), "", "behind team/b, team/c"),
        (waits(kind=WaitReason.PRIORITY), "", "behind others of its queue"),
        (
            waits(kind=WaitReason.DEADLINE_UNREACHABLE),
            "",
            "no start that the cluster has for it would let it end before spec.deadline",
        ),
        (
            waits(kind=WaitReason.QUOTA, quota=refusal("Queue")),
            "",
            "queue q uses 3 of its 4 H100 nodes; the run needs 4",
        ),
        (
            waits(kind=WaitReason.WINDOW, window="window:firmware"),
            "",
            overrun_words(3600.0, FIRMWARE),
        ),
    ],
)
def test_each_wait_has_its_words(wait: Wait, shortage: str, message: str) -> None:
    entry = Entry(run("a", 4), run("a").status)
    reason = reason_of(entry, JOB, wait, shortage, KEYS, (FIRMWARE,))
    assert (reason.word, reason.message, reason.blockers) == (wait.kind, message, wait.blockers)


@pytest.mark.parametrize(
    ("known", "start", "assumption"), [(True, 5.0, ASSUMPTION), (False, None, UNKNOWN_ASSUMPTION), (None, None, "")]
)
def test_a_reservation_says_what_its_start_rests_on(known: bool | None, start: float | None, assumption: str) -> None:
    reservation = None if known is None else Reservation(5.0, 9.0, OPTION, EVERY, known)
    reason = reason_of(Entry(run("a"), run("a").status), JOB, waits(reservation), "", {}, ())
    assert (reason.start, reason.assumption) == (start, assumption)


@pytest.mark.parametrize(
    ("refused", "count", "words"),
    [
        (refusal("Queue"), 2, "queue q uses 3 of its 4 H100 nodes; the run needs 2"),
        (refusal("Queue", limit=6), 2, "queue q uses 3 of its 4 H100 nodes and 2 that it may borrow; the run needs 2"),
        (refusal("Queue", gpu_type="Any"), 2, "queue q uses 3 of its 4 nodes; the run needs 2"),
        (refusal("Queue"), 8, "queue q uses 3 of its 4 H100 nodes; the run needs 8"),
        (
            refusal("Queue"),
            9,
            f"queue q uses 3 of its 4 H100 nodes; {TOO_MANY}",
        ),
        (
            refusal("Cohort"),
            4,
            "cohort lab has 2 of 8 shared H100 nodes left, queue q uses 3 with 4 of its own; the run needs 4",
        ),
        (
            refusal("Cohort", pooled=9),
            4,
            "cohort lab has 0 of 8 shared H100 nodes left, queue q uses 3 with 4 of its own; the run needs 4",
        ),
        (refusal("Runs"), 4, "queue q lets at most 4 runs hold nodes"),
        (
            refusal("NoQuota"),
            4,
            "queue q has no quota for GPU type H100; name one of its types in placement.gpuTypes",
        ),
        (
            refusal("NoQuota", gpu_type=""),
            4,
            "queue q has no quota for nodes of no named GPU type; name one of its types in placement.gpuTypes",
        ),
    ],
)
def test_a_quota_is_told_with_its_amounts(refused: QuotaRefusal, count: int, words: str) -> None:
    assert quota_words(refused, count) == words


@pytest.mark.parametrize(
    ("uids", "words"),
    [
        ((), ""),
        (("uid-b",), "team/b"),
        (("uid-b", "uid-c", "uid-d"), "team/b, team/c, team/d"),
        (("uid-b", "uid-c", "uid-d", "uid-e"), "team/b, team/c, team/d and 1 more"),
        (("uid-b", "unknown"), "team/b and 1 more"),
        (("unknown",), "1 run of other namespaces"),
        (("unknown", "too"), "2 runs of other namespaces"),
    ],
)
def test_a_few_runs_are_named_and_the_others_counted(uids: tuple[str, ...], words: str) -> None:
    assert listed(uids, KEYS) == words


def test_status_names_no_more_than_eight_runs_and_none_that_may_not_be_named() -> None:
    many = {str(number): f"team/{number}" for number in range(9)}
    assert names_of(["unknown", *many], many) == tuple(many.values())[:8]


@pytest.mark.parametrize(
    ("queue", "discreet", "named"),
    [
        ("open", (), {"uid-b": "team/b", "uid-x": "other/x", "uid-y": "other/y"}),
        ("open", ("quiet",), {"uid-b": "team/b", "uid-y": "other/y"}),
        ("quiet", ("quiet",), {"uid-b": "team/b"}),
    ],
)
def test_runs_of_a_discreet_queue_are_named_in_their_own_namespace_alone_and_hear_of_no_other(
    queue: str, discreet: tuple[str, ...], named: Mapping[str, str]
) -> None:
    """Of team/b and other/x the queue is quiet, of other/y it is open."""
    keys = {"uid-b": "team/b", "uid-x": "other/x", "uid-y": "other/y"}
    queues = {"uid-b": "quiet", "uid-x": "quiet", "uid-y": "open"}
    names = visible_names("team", queue, keys, queues.__getitem__, discreet)
    assert {uid: name for uid in (*keys, "gone") if (name := names.get(uid, ""))} == named


@pytest.mark.parametrize(
    ("length", "notice", "words"),
    [
        (3600.0, 0.0, "with a time limit of 1h"),
        (3600.0, 60.0, "with a time limit of 1h and a stop that may take 1m"),
        (NO_LIMIT, 60.0, "without a time limit and a stop that may take 1m"),
    ],
)
def test_a_window_is_told_with_the_time_that_the_run_would_need(length: float, notice: float, words: str) -> None:
    found = overrun_words(length, NodeClaim(NOW - notice, NOW + 9, EVERY, "window:w", notice))
    assert found.startswith(f"{words} it would overrun the maintenance window w, which begins at 1970-01-01T00:16:40Z;")


def test_a_run_that_will_preempt_is_told_whom_and_when() -> None:
    foreseen = Foreseen(NOW, NOW + 60, OPTION, EVERY, ("uid-b",))
    reason = preempts_later(PendingReason(WaitReason.RESOURCES, "needs 4 nodes", ("uid-c",)), foreseen, KEYS)
    assert (reason.message, reason.blockers, reason.start) == ("needs 4 nodes", ("uid-b",), NOW + 60)
    assert reason.assumption.startswith("it preempts team/b at 1970-01-01T00:16:40Z")


def test_status_says_where_a_run_stands_and_why_in_bounded_words() -> None:
    entry = Entry(run("a"), run("a").status)
    entry.reason = PendingReason(WaitReason.RESOURCES, "x" * 2000, start=NOW + 0.9, assumption=ASSUMPTION)
    entry.position, entry.points = 3, Points(1000, 5, 0, 0, 7)
    status = queue_status(entry, ("team/b",), NOW + 0.5)
    assert (status.position, status.reason, status.blocked_by) == (3, "Resources", ("team/b",))
    assert (status.estimated_start, status.updated) == (NOW, NOW)
    assert (status.priority, status.factors) == (998, {"class": 1000, "age": 5, "nice": -7})
    assert len(status.message) == LONGEST_MESSAGE
    entry.reason = None
    assert queue_status(entry, (), NOW).reason == ""


@pytest.mark.parametrize(
    ("time", "kept"), [(None, None), (5.9, 5.0), (1e300, 253_402_300_799.0)], ids=["none", "whole", "last"]
)
def test_times_are_kept_in_whole_seconds_that_a_date_can_have(time: float | None, kept: float | None) -> None:
    assert whole(time) == kept
