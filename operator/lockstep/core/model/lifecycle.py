"""The life of a run as a table. The phase is read off the status; nothing is stored twice.

The table is not consulted to allow a move, it is what the moves are: the tests hold every status
change of ``decide`` and ``admit`` against it, and docs/architecture.md draws it.
"""

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.reasons import Outcome as Outcome
from lockstep.core.model.reasons import Phase as Phase

TRANSITIONS: tuple[tuple[Phase, str, Phase], ...] = (
    (Phase.PENDING, "nodes for the whole gang are found", Phase.LAUNCHING),
    (Phase.PENDING, "suspend: true", Phase.SUSPENDED),
    (Phase.PENDING, "cancel: true", Phase.FINISHED),
    (Phase.SUSPENDED, "suspend: false", Phase.PENDING),
    (Phase.SUSPENDED, "cancel: true", Phase.FINISHED),
    (Phase.LAUNCHING, "every rank is at the barrier and START is written", Phase.RUNNING),
    (Phase.LAUNCHING, "stop asked for, or the launch is given up", Phase.STOPPING),
    (Phase.RUNNING, "a process, pod or node is lost", Phase.RECOVERING),
    (Phase.RUNNING, "every rank ended with code 0", Phase.FINISHED),
    (Phase.RUNNING, "stop asked for, or going on is pointless", Phase.STOPPING),
    (Phase.RECOVERING, "every rank is at the barrier and START is written", Phase.RUNNING),
    (Phase.RECOVERING, "stop asked for, or recovery is given up", Phase.STOPPING),
    (Phase.STOPPING, "the ranks have ended: suspended", Phase.SUSPENDED),
    (Phase.STOPPING, "the ranks have ended: requeued", Phase.PENDING),
    (Phase.STOPPING, "the ranks have ended: cancelled, failed, or done after all", Phase.FINISHED),
)


def phase_of(status: TrainingRunStatus, suspended: bool) -> Phase:
    """The phase that ``status`` describes; ``suspended`` is ``spec.suspend``."""
    if is_true(status, ConditionType.FINISHED):
        return Phase.FINISHED
    if status.stop is not None:
        return Phase.STOPPING
    if not slots.is_held(status.assignment):
        return Phase.SUSPENDED if suspended else Phase.PENDING
    if status.start is None or status.start.attempt < status.attempt:
        return Phase.LAUNCHING if status.start is None else Phase.RECOVERING
    return Phase.RUNNING
