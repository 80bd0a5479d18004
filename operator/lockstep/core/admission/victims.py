"""Preemption victims: what preempting each run would cost, and which runs leave anyway."""

import sys
from collections.abc import Iterable, Mapping

from lockstep.api.base.durations import parse_duration
from lockstep.api.queue import TrainingQueueSpec
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.engine.jobs import RunningJob
from lockstep.core.admission.engine.preemption import Victim
from lockstep.core.admission.engine_adapter import ENDING, is_ending_in_time
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.save_signal import longest_wait_for_save
from lockstep.core.model.snapshot import PodView, RunView
from lockstep.core.model.tunables import Tunables

RESTART = 300.0
"""Seconds that a start is taken to cost until the run's own was measured."""


def victim_of(
    run: RunView, held: RunningJob, queue: TrainingQueueSpec, classes: Mapping[str, int], now: float
) -> Victim | None:
    """The run that holds ``held``, as a victim that could be preempted; None: it would not go."""
    if run.spec is None or not _would_go(run):
        return None
    status = run.status
    since = status.last_admitted if status.last_admitted is not None else run.created_at
    restart = status.progress.longest_init or RESTART
    return Victim(
        uid=run.uid,
        queue=queue_of(run),
        gpu_type=held.gpu_type,
        nodes=held.nodes,
        count=held.count,
        class_value=victims_value(run.spec, classes),
        lost=held.count * (unsaved_seconds(status, now) + restart),
        protected_until=since + parse_duration(queue.preemption.min_runtime),
    )


def class_value(spec: TrainingRunSpec, classes: Mapping[str, int]) -> int | None:
    """The value of its PriorityClass, a negative one being 0 as in the order; None: there is no such class."""
    if spec.priority_class_name is None:
        return 0
    value = classes.get(spec.priority_class_name)
    return None if value is None else max(0, value)


def victims_value(spec: TrainingRunSpec, classes: Mapping[str, int]) -> int:
    """The same of one that is to make room: of a class that nobody knows it is not lower than any."""
    value = class_value(spec, classes)
    return sys.maxsize if value is None else value


def notice_seconds(spec: TrainingRunSpec, tunables: Tunables) -> float:
    """How long after the notice its nodes may still be held: for the save, and for the end of its ranks."""
    return longest_wait_for_save(spec, tunables) + tunables.deadlines.stop


def newest_step(status: TrainingRunStatus) -> int | None:
    """Step of the newest valid checkpoint."""
    return max((saved.step for saved in status.checkpoint.latest), default=None)


def unsaved_seconds(status: TrainingRunStatus, now: float) -> float:
    """Seconds of work since the newest valid checkpoint, or since the attempt began; 0 where none has begun."""
    begun = next((a.started_at for a in status.attempts if a.number == status.attempt), None)
    if begun is None:
        return 0.0
    saved = [saved.time for saved in status.checkpoint.latest if saved.time is not None]
    return max(0.0, now - max([begun, *saved]))


def is_leaving(run: RunView) -> bool:
    """It is to give its nodes back, whether or not it does so in time."""
    asked = run.spec is not None and (run.spec.cancel or run.spec.suspend)
    return asked or run.deleting or run.status.stop is not None


def goes_anyway(run: RunView, pods: Iterable[PodView], now: float) -> bool:
    """It gives its nodes back soon, whoever waits for them. One that is long overdue is not counted on."""
    if run.deleting:
        return all(pod.is_terminal or is_ending_in_time(pod, now) for pod in pods)
    if run.status.stop is not None:
        return now < run.status.stop.deadline + ENDING
    return is_leaving(run) and not run.unread


def _would_go(run: RunView) -> bool:
    """A notice would make it stop: it does not stop already, and can be told."""
    notified = run.status.preemption is not None
    kueues = run.status.kueue is not None  # Kueue says who is preempted
    return not (kueues or is_leaving(run) or notified or run.unread)
