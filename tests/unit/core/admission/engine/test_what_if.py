"""When a run would start that was submitted now, and where: nobody else's plans change by it."""

import pytest

from lockstep.core.admission.engine.backfill import BackfillPolicy
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job, NodeClaim, Option, RunningJob
from lockstep.core.admission.engine.quota import QueueQuota, QuotaRules, TypeQuota
from lockstep.core.admission.engine.what_if import Standing, what_if
from lockstep.core.model.node_set import NodeSet
from support.small_queues import CHOICES, EVERY, any_nodes

FREE = QuotaRules.from_quotas({})


def job(uid: str, count: int, seconds: float = 10.0, not_before: float = 0.0) -> Job:
    options = (Option("A", count, EVERY, CHOICES.get(("anywhere", count)) or any_nodes(count)),)
    return Job(uid, "q", options, seconds, not_before=not_before)


def standing(ends: float = 30.0, limited: bool = True, quota: QuotaRules = FREE, *claims: NodeClaim) -> Standing:
    """At time 0, four of six nodes are free and two are somebody's."""
    run = RunningJob("r", "q", "A", NodeSet(0b000011), 2, ends, limited)
    return Standing(0.0, [run], EVERY & ~run.nodes, claims, quota, BackfillPolicy(), {})


TWO_NODES = QuotaRules.from_quotas({"q": QueueQuota("", {"A": TypeQuota(2)})})


@pytest.mark.parametrize(
    ("now", "before", "asked", "start", "known", "kind"),
    [
        (standing(), [], job("asked", 4), 0.0, True, None),
        (standing(), [], job("asked", 5), 30.0, True, "Resources"),
        (standing(limited=False), [], job("asked", 5), 30.0, False, "Resources"),
        (standing(), [], job("asked", 7), None, True, "Resources"),
        (standing(quota=TWO_NODES), [], job("asked", 2), 30.0, True, "Quota"),
        (standing(quota=TWO_NODES), [], job("asked", 3), None, True, "Quota"),
        (standing(), [job("first", 6)], job("asked", 4, 30.0), 0.0, True, None),
        (standing(), [job("first", 6)], job("asked", 4, 31.0), 40.0, True, "Priority"),
        (standing(), [job("first", 6), job("second", 6)], job("asked", 6), 50.0, True, "Priority"),
        (standing(), [job("first", 4, NO_LIMIT)], job("asked", 4), NO_LIMIT, False, "Resources"),
        (standing(), [], job("asked", 4, not_before=20.0), 20.0, True, "BeginTime"),
        (standing(), [], job("asked", 5, not_before=20.0), 30.0, True, "BeginTime"),
    ],
)
def test_it_starts_now_if_backfill_lets_it_and_else_once_those_before_it_have_their_start(
    now: Standing, before: list[Job], asked: Job, start: float | None, known: bool, kind: str | None
) -> None:
    found = what_if(now, before, asked, [])
    assert (found.start, found.known) == (start, known)
    assert (found.wait.kind if found.wait is not None else None) == kind
    assert found.nodes.bit_count() == (0 if start is None else asked.options[0].count)


def test_it_leaves_alone_what_is_kept_for_one_that_comes_after_it() -> None:
    """Two of the four free nodes are kept: the two that are somebody's until 30 have to do for it."""
    kept, asked = job("kept", 2), job("asked", 4)
    claim = NodeClaim(0.0, 1e9, NodeSet(0b001100), "kept")
    assert what_if(standing(), [], asked, [kept]).start == 0.0
    found = what_if(standing(30.0, True, FREE, claim), [], asked, [kept])
    assert (found.start, found.nodes) == (30.0, 0b110011)
