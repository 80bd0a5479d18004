"""Validation of TrainingQueues against each other, the configuration and the cluster: no schema sees that."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import ANY_GPU_TYPE, QueueLimits, Quota
from lockstep.core.model.plural import plural
from lockstep.core.model.reasons import QueueReason
from lockstep.core.model.snapshot import QueueView


class QueueProblem(NamedTuple):
    """One mistake: a word for programs, and for people the field and what to write instead."""

    reason: QueueReason
    message: str


def problems_of(
    view: QueueView, queues: Mapping[str, QueueView], gpu_types: Collection[str], classes: Collection[str]
) -> Iterator[QueueProblem]:
    """Mistakes in the spec of ``view``, one of ``queues``; such a queue is obeyed all the same, as far as it parses."""
    if view.spec_error:
        meanwhile = "nothing is admitted" if view.is_closed else "the spec before it holds"
        yield QueueProblem(QueueReason.INVALID_SPEC, f"{view.spec_error}; until it is corrected, {meanwhile}")
        return
    for quota in view.spec.quotas:
        yield from _of_quota(quota, gpu_types)
    yield from _of_limits(view.spec.limits)
    if view.spec.cohort is not None:
        yield from _of_cohort(view, [other for other in queues.values() if other.spec.cohort == view.spec.cohort])
    for name in sorted(set(view.spec.allowed_priority_classes).difference(classes)):
        words = f"spec.allowedPriorityClasses: there is no PriorityClass {name}; create it, or correct the name"
        yield QueueProblem(QueueReason.PRIORITY_CLASS_NOT_FOUND, words)


def _of_limits(limits: QueueLimits) -> Iterator[QueueProblem]:
    default, most = limits.default_time_limit, limits.max_time_limit
    if default is not None and most is not None and parse_duration(default) > parse_duration(most):
        words = (
            f"spec.limits.defaultTimeLimit: {default} is longer than maxTimeLimit, which is {most}, so no run without"
        )
        yield QueueProblem(QueueReason.DEFAULT_TIME_LIMIT_TOO_LONG, f"{words} a timeLimit is admitted; shorten it")


def _of_quota(quota: Quota, gpu_types: Collection[str]) -> Iterator[QueueProblem]:
    kind = quota.gpu_type
    if kind != ANY_GPU_TYPE and kind not in gpu_types:
        known = ", ".join([*sorted(gpu_types), ANY_GPU_TYPE])
        words = f"spec.quotas[{kind}].gpuType: no node is of this type for the operator, which knows {known}; write one"
        yield QueueProblem(
            QueueReason.UNKNOWN_GPU_TYPE, f"{words} of these, or add the type to gpuTypes of its configuration"
        )
    if quota.lending_limit is not None and quota.lending_limit > quota.nominal_nodes:
        nodes = plural(quota.nominal_nodes, "node")
        words = f"spec.quotas[{kind}].lendingLimit: {quota.lending_limit} is more than the {nodes}"
        yield QueueProblem(
            QueueReason.LENDING_LIMIT_TOO_HIGH, f"{words} of nominalNodes; lower it, or leave it out to lend all"
        )


def _of_cohort(view: QueueView, members: Sequence[QueueView]) -> Iterator[QueueProblem]:
    cohort = view.spec.cohort
    others = [other for other in members if other.name != view.name]
    if not others:
        words = f"spec.cohort: no other queue is of cohort {cohort}, so nothing is lent or borrowed; correct the name,"
        yield QueueProblem(QueueReason.COHORT_OF_ONE, f"{words} or leave cohort out")
        return
    own = {quota.gpu_type for quota in view.spec.quotas}
    theirs = {quota.gpu_type for other in others for quota in other.spec.quotas}
    apart = sorted(theirs - own)
    if ANY_GPU_TYPE in own and apart:
        words = f"spec.quotas[{ANY_GPU_TYPE}]: other queues of cohort {cohort} name {', '.join(apart)}, and nodes are"
        yield QueueProblem(
            QueueReason.QUOTAS_APART, f"{words} lent between entries of the same gpuType only; name these here too"
        )
    for quota in view.spec.quotas:
        if quota.borrowing_limit and quota.gpu_type not in theirs:
            words = f"spec.quotas[{quota.gpu_type}].borrowingLimit: no other queue of cohort {cohort} has a quota of"
            yield QueueProblem(
                QueueReason.NOTHING_TO_BORROW, f"{words} this gpuType; give it to one, or leave borrowingLimit out"
            )
