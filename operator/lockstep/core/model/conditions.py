"""Conditions, and the words made of them. Polarity: True is what the type's name says."""

from collections.abc import Sequence
from typing import TypeVar

from annotated_types import MaxLen

from lockstep.api.base.changes import changed
from lockstep.api.queue import TrainingQueueStatus
from lockstep.api.run_set import TrainingRunSetStatus
from lockstep.api.run_status import Condition, TrainingRunStatus
from lockstep.core.model.reasons import NAMED_IN_VAIN, AnyReason, ConditionType, Recorded

S = TypeVar("S", TrainingRunStatus, TrainingQueueStatus, TrainingRunSetStatus)
AnyStatus = TrainingRunStatus | TrainingQueueStatus | TrainingRunSetStatus
TYPES = (
    ConditionType.ACCEPTED,
    ConditionType.ADMITTED,
    ConditionType.GANG_READY,
    ConditionType.PROGRESSING,
    ConditionType.SUSPENDED,
    ConditionType.FINISHED,
    ConditionType.SUCCEEDED,
)
"""The conditions that every run has; the others appear while they matter."""
_LONGEST_KIND = 64
_OWN = frozenset(map(str, ConditionType))


def _most_of(kind: type[AnyStatus]) -> int:
    """Conditions that the API takes."""
    metadata = kind.model_fields["conditions"].metadata
    return next(each.max_length for each in metadata if isinstance(each, MaxLen))


_MOST = {kind: _most_of(kind) for kind in (TrainingRunStatus, TrainingQueueStatus, TrainingRunSetStatus)}


def find(status: AnyStatus, kind: ConditionType) -> Condition | None:
    """The condition of type ``kind``, if it was ever set."""
    for condition in status.conditions:  # asked of every run in every cycle: a generator would cost twice as much
        if condition.type == kind:
            return condition
    return None


def is_true(status: AnyStatus, kind: ConditionType) -> bool:
    """The condition exists and is True."""
    found = find(status, kind)
    return found is not None and found.status == "True"


def is_accepted_or_waits(status: AnyStatus) -> bool:
    """Accepted, or so as soon as what it names is there: it has its name, its number and its place all the same."""
    found = find(status, ConditionType.ACCEPTED)
    return found is not None and (found.status == "True" or (found.status == "False" and found.reason in NAMED_IN_VAIN))


def with_condition(
    status: S,
    kind: ConditionType,
    value: bool | None,
    reason: AnyReason | Recorded,
    message: str,
    *,
    now: float,
    generation: int,
) -> S:
    """``status`` with one condition set; ``value`` None is Unknown. The time moves only when the value flips."""
    word = "Unknown" if value is None else str(value)
    before = find(status, kind)
    message = message[:1024]
    said = (word, str(reason), message, generation)
    if before is not None and (before.status, before.reason, before.message, before.observed_generation) == said:
        return status  # so it is with most, in most passes
    changed_at = before.last_transition_time if before is not None and before.status == word else float(int(now))
    condition = Condition.model_construct(
        type=str(kind),  # status is made of plain strings
        status=word,
        reason=str(reason),
        message=message,
        last_transition_time=changed_at,
        observed_generation=generation,
    )
    if before is None:
        conditions = _fitted(sorted((*status.conditions, condition), key=_place), _MOST[type(status)])
    else:
        conditions = tuple(condition if c.type == kind else c for c in status.conditions)
    return changed(status, conditions=conditions)


def _fitted(conditions: Sequence[Condition], most: int) -> tuple[Condition, ...]:
    """As many as the API takes: of types that are none of ours, which anybody may have added, only what has room."""
    room = most - sum(condition.type in _OWN for condition in conditions)
    found = []
    for condition in conditions:
        if condition.type not in _OWN:
            room -= 1
            if room < 0:
                continue
        found.append(condition)
    return tuple(found)


def without_condition(status: S, kind: ConditionType) -> S:
    """``status`` without a condition that only appears when it matters."""
    if find(status, kind) is None:
        return status
    return changed(status, conditions=tuple(c for c in status.conditions if c.type != kind))


def cannot_decide(error: str) -> str:
    """Of whatever nothing can be decided for; ``error``: the kind of what is raised."""
    kind = error[:_LONGEST_KIND]
    return f"the operator cannot decide about it ({kind}), which is a defect of the operator: its log has the details"


def _place(condition: Condition) -> tuple[int, str]:
    """In the order of a run's life; those that only appear when they matter come last."""
    known = condition.type in TYPES
    return (TYPES.index(condition.type) if known else len(TYPES)), condition.type
