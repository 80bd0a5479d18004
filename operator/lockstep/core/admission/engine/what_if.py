"""What-if: when and where a run would start that came last of all. Nobody's plans change by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.core.admission.engine.backfill import BackfillPolicy, backfill, kept_or_foreseen
from lockstep.core.admission.engine.bookings import Bookings
from lockstep.core.admission.engine.cycle_result import Foreseen, Wait
from lockstep.core.admission.engine.jobs import Job, NodeClaim, RunningJob
from lockstep.core.admission.engine.quota import QuotaRules
from lockstep.core.model.node_set import EMPTY, NodeSet


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """``start`` None: never. ``known`` False: it counts on a run that has no time limit. ``wait`` None: at once."""

    start: float | None
    nodes: NodeSet
    known: bool
    wait: Wait | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How things are after a cycle: pending jobs in order, running ones with what they hold, and the rules of both."""

    now: float
    running: Sequence[RunningJob]
    free: NodeSet
    claims: Sequence[NodeClaim]
    quota: QuotaRules
    policy: BackfillPolicy
    foreseen: Mapping[str, Foreseen]


def what_if(standing: Standing, before: Sequence[Job], job: Job, after: Sequence[Job]) -> WhatIfResult:
    """Look at ``job`` between those ``before`` and ``after`` it in the order.

    It starts at once if backfill lets it. If not, it is expected to start where it can once everybody before it has
    got the earliest start that there is.
    """
    owners = {claim.owner for claim in standing.claims}
    jobs = [*before, job, *(other for other in after if other.uid in owners)]
    now, rest = standing.now, (standing.running, standing.free, standing.claims, standing.quota)
    result = backfill(now, jobs, *rest, standing.policy, standing.foreseen)
    for start in result.starts:
        if start.uid == job.uid:
            return WhatIfResult(now, start.nodes, known=True, wait=None)
    bookings = Bookings(now, jobs, *rest)
    for other in before[: standing.policy.depth]:
        bookings.release_held(other)
        if kept_or_foreseen(bookings, other, standing.foreseen) is None:
            bookings.reserve(other, max(now, other.not_before))
    found = bookings.reserve(job, max(now, job.not_before))
    wait = result.waits.get(job.uid)
    if found is None:
        return WhatIfResult(None, EMPTY, known=True, wait=wait)
    return WhatIfResult(found.start, found.nodes, found.known, wait)
