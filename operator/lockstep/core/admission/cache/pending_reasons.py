"""Pending reasons in words, as people read them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from lockstep.api.base.durations import format_duration
from lockstep.api.base.times import LAST_MOMENT, to_rfc3339
from lockstep.api.run_status import QueueStatus
from lockstep.core.admission.cache.entry import Entry, PendingReason
from lockstep.core.admission.cache.maintenance_windows import OWNER
from lockstep.core.admission.engine.cycle_result import Foreseen, Wait
from lockstep.core.admission.engine.jobs import NO_LIMIT, Job, NodeClaim
from lockstep.core.admission.engine.quota import QuotaRefusal
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import WaitReason

LONGEST_MESSAGE = 1024
_NAMED = 3
_MOST_BLOCKERS = 8
ASSUMPTION = "every run uses its whole time limit, and nobody more urgent comes"
UNKNOWN_ASSUMPTION = "not known: it rests on the end of a run that has no time limit"
NODES_TO_BE_MADE = "not known: it rests on nodes that an autoscaler may make for it"


def reason_of(
    entry: Entry, job: Job, wait: Wait, shortage: str, names: Mapping[str, str], windows: Sequence[NodeClaim]
) -> PendingReason:
    """In words why a job does not start now. ``names``: what this run may hear of others, by UID."""
    spec = entry.spec
    reason = PendingReason(wait.kind, "", wait.blockers, wait.start)
    match wait.kind:
        case WaitReason.QUOTA | WaitReason.RUNNING_RUNS_LIMIT if wait.quota is not None:
            reason.message = quota_words(wait.quota, min(option.count for option in job.options))
        case WaitReason.WINDOW:
            reason.message = _window_words(job, wait.window, windows)
        case WaitReason.PRIORITY:
            who = listed(wait.blockers, names)
            reason.message = f"behind {who}" if who else "behind others of its queue"
        case WaitReason.DEADLINE_UNREACHABLE:
            reason.message = "no start that the cluster has for it would let it end before spec.deadline"
        case _:
            reason.message = shortage or f"needs {plural(spec.nodes, 'node')}"
    if wait.reservation is not None:
        reason.assumption = ASSUMPTION if wait.reservation.known else UNKNOWN_ASSUMPTION
    return reason


def preempts_later(reason: PendingReason, foreseen: Foreseen, names: Mapping[str, str]) -> PendingReason:
    """The same of a run that will preempt others once they have had their nodes for long enough."""
    who, at = listed(foreseen.victims, names), to_rfc3339(foreseen.at)
    words = f"it preempts {who} at {at}, by when they had their nodes for minRuntime; nobody more urgent comes"
    return replace(reason, blockers=foreseen.victims, start=foreseen.start, assumption=words)


def listed(uids: Sequence[str], names: Mapping[str, str]) -> str:
    """A few of the runs by name, the others as a number."""
    known = [name for uid in uids if (name := names.get(uid, ""))]
    shown = known[:_NAMED]
    more = len(uids) - len(shown)
    if not shown:
        return f"{more} run{'' if more == 1 else 's'} of other namespaces" if more else ""
    return ", ".join(shown) + (f" and {more} more" if more else "")


def quota_words(refusal: QuotaRefusal, count: int) -> str:
    """What of which quota lacks."""
    kind = f" {refusal.gpu_type}" if refusal.gpu_type not in ("", "Any") else ""
    needs = f"the run needs {count}"
    if count > refusal.most:
        needs += f", and can never have more than {refusal.most}: ask for fewer nodes, or have quotas raised"
    match refusal.bound:
        case "Runs":
            return f"queue {refusal.queue} lets at most {plural(refusal.nominal, 'run')} hold nodes"
        case "NoQuota":
            wanted = f"GPU type {refusal.gpu_type}" if refusal.gpu_type else "nodes of no named GPU type"
            return f"queue {refusal.queue} has no quota for {wanted}; name one of its types in placement.gpuTypes"
        case "Queue":
            borrowed = (refusal.limit or 0) - refusal.nominal
            beyond = f" and {borrowed} that it may borrow" if borrowed else ""
            own = f"{plural(refusal.nominal, f'{kind} node'.strip())}{beyond}"
            return f"queue {refusal.queue} uses {refusal.used} of its {own}; {needs}"
        case "Cohort":
            left = max(0, refusal.pool_size - refusal.pooled)
            return (
                f"cohort {refusal.cohort} has {left} of {refusal.pool_size} shared{kind} nodes left, queue "
                f"{refusal.queue} uses {refusal.used} with {refusal.nominal} of its own; {needs}"
            )


def names_of(uids: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """The first few of the runs that may be named."""
    return tuple([name for uid in uids if (name := names.get(uid, ""))][:_MOST_BLOCKERS])


def queue_status(entry: Entry, blocked_by: tuple[str, ...], now: float) -> QueueStatus:
    """The queue status of a pending run. ``blocked_by``: who is in its way, by name."""
    reason = entry.reason
    if reason is None:
        return QueueStatus()
    return QueueStatus(
        position=entry.position,
        reason=reason.word,
        message=reason.message[:LONGEST_MESSAGE],
        blocked_by=blocked_by,
        estimated_start=whole(reason.start),
        assumption=reason.assumption,
        priority=entry.points.total,
        factors=entry.points.shown(),
        updated=float(int(now)),
    )


def whole(time: float | None) -> float | None:
    """As status keeps it."""
    return None if time is None else min(float(int(time)), LAST_MOMENT)


def _window_words(job: Job, owner: str, windows: Sequence[NodeClaim]) -> str:
    first = min((claim for claim in windows if claim.owner == owner), key=lambda claim: claim.start)
    return overrun_words(job.lengths(first.start)[0], first)


def overrun_words(length: float, window: NodeClaim) -> str:
    """Why a run of ``length`` seconds does not start before the ``window``."""
    limit = f"with a time limit of {format_duration(int(length))}" if length < NO_LIMIT else "without a time limit"
    stop = f" and a stop that may take {format_duration(int(window.notice))}" if window.notice else ""
    return (
        f"{limit}{stop} it would overrun the maintenance window {window.owner.removeprefix(OWNER)}, which begins at "
        f"{to_rfc3339(window.begins)}; a shorter timeLimit, or a minTimeLimit, may let it start now"
    )


def visible_names(
    namespace: str, queue: str, keys: Mapping[str, str], queue_of: Callable[[str], str], discreet: Collection[str]
) -> Mapping[str, str]:
    """What a run of ``namespace`` in ``queue`` may hear of others, by UID: their namespace and name, or nothing.

    Runs of ``discreet`` queues are named in their own namespace alone, and hear of no other.
    """
    if not discreet:
        return keys
    return _Audible(keys, f"{namespace}/", None if queue in discreet else (queue_of, discreet))


class _Audible(dict[str, str]):
    """Names of one namespace, and those of others that are not in a discreet queue; with None no others."""

    def __init__(
        self, keys: Mapping[str, str], own: str, others: tuple[Callable[[str], str], Collection[str]] | None
    ) -> None:
        super().__init__()
        self._keys = keys
        self._own = own
        self._others = others

    def __missing__(self, uid: str) -> str:
        key = self._keys.get(uid, "")
        if not key or key.startswith(self._own):
            return key
        if self._others is None:
            return ""
        queue_of, discreet = self._others
        return "" if queue_of(uid) in discreet else key

    def get(self, uid: str, default: str = "") -> str:  # type: ignore[override]
        """The name of a run that may be named; of any other nothing."""
        return self[uid] or default
