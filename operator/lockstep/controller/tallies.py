"""What has happened since the process started, counted from the statuses as they are written."""

from collections import Counter

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.assignment import is_held


class Tallies:
    """Counts over all runs."""

    def __init__(self) -> None:
        self.admissions = 0
        self.nodes_replaced = 0
        self.pods_replaced = 0
        self.attempts_ended: Counter[tuple[str, str]] = Counter()
        """By cause and action."""

    def status_written(self, before: TrainingRunStatus, after: TrainingRunStatus) -> None:
        """Count what a status write that succeeded has changed."""
        if is_held(after.assignment) and not is_held(before.assignment):
            self.admissions += 1
        # max: a status rebuilt from pods after a loss has its totals from zero.
        self.nodes_replaced += max(0, after.totals.nodes_replaced - before.totals.nodes_replaced)
        self.pods_replaced += max(0, after.totals.pods_replaced - before.totals.pods_replaced)
        over = {attempt.number for attempt in before.attempts if attempt.ended_at is not None}
        for attempt in after.attempts:
            if attempt.ended_at is not None and attempt.number not in over:
                self.attempts_ended[attempt.cause, attempt.action] += 1
