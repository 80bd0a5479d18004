"""What has happened since the process started, counted from the statuses as they are written."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.victims import unsaved_seconds
from lockstep.core.model.assignment import is_held
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.snapshot import RunView

BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Upper bounds in seconds: a restart in place takes a second or two, a node with a cold image cache many minutes."""

WAITS = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""A run starts within a second of its submission, or waits for weeks."""
ERRORS = (*(-seconds for seconds in reversed(WAITS[2:])), 0.0, *WAITS[2:])
"""A minute is what an estimate is reported again for; less than none: it started before."""
PASSES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From an idle cluster to the largest with everything to be worked out anew."""
LOOKS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""A look that changes nothing, or one that makes the pods of a large gang."""

EXCESSES = ("Writes", "Pods", "Refused", "Events", "Processor")
"""What one run can be too much of (``reconcile.pace``)."""


class Histogram:
    """Durations in seconds, by upper bounds."""

    def __init__(self, bounds: Sequence[float] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bucket alone; the last one has no upper bound."""
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds


class Tallies:
    """Counts over all runs."""

    def __init__(self) -> None:
        self.admissions = 0
        self.backfilled = 0
        self.waits = Histogram(WAITS)
        self.estimate_errors = Histogram(ERRORS)
        self.passes = Histogram(PASSES)
        self.nodes_replaced = 0
        self.pods_replaced = 0
        self.history_dropped = 0
        self.paced: Counter[str] = Counter()
        """Keys that had to wait, by what was too much."""
        self.attempts_ended: Counter[tuple[str, str]] = Counter()
        """By cause and action."""
        self.preemptions: Counter[tuple[str, str]] = Counter()
        self.preempted_node_seconds: Counter[tuple[str, str]] = Counter()
        """Preemptions by queue of the victim, and reason."""
        self.notices = Histogram()
        self.recovery_seconds: defaultdict[tuple[str, str], Histogram] = defaultdict(Histogram)
        """By action and phase."""
        self.looks: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(LOOKS))
        """By kind of key."""

    def status_written(self, before: TrainingRunStatus, after: TrainingRunStatus) -> None:
        """Count what a status write that succeeded has changed."""
        if is_held(after.assignment) and not is_held(before.assignment):
            self._admitted(before, after)
        # max: a status rebuilt from pods after a loss has its totals from zero.
        self.nodes_replaced += max(0, after.totals.nodes_replaced - before.totals.nodes_replaced)
        self.pods_replaced += max(0, after.totals.pods_replaced - before.totals.pods_replaced)
        over = {attempt.number for attempt in before.attempts if attempt.ended_at is not None}
        for attempt in after.attempts:
            if attempt.ended_at is not None and attempt.number not in over:
                self.attempts_ended[attempt.cause, attempt.action] += 1

    def made_room(self, run: RunView, after: TrainingRunStatus, now: float) -> None:
        """Count a status write that succeeded at ``now`` if by it ``run`` has given its nodes back to another one."""
        before, notice = run.status, run.status.preemption
        if notice is None or run.spec is None or after.admission.preemptions <= before.admission.preemptions:
            return
        key, nodes = (queue_of(run), notice.reason), sum(map(bool, before.assignment.nodes))
        self.preemptions[key] += 1
        self.preempted_node_seconds[key] += int(nodes * unsaved_seconds(after, now))
        self.notices.observe(max(0.0, now - notice.notice_time))

    def _admitted(self, before: TrainingRunStatus, after: TrainingRunStatus) -> None:
        self.admissions += 1
        admission, at = after.admission, after.last_admitted
        self.backfilled += admission.backfilled
        if at is None or before.admission.requeued_for:
            return  # such a run has kept its age from before it last ran
        if admission.since is not None:
            self.waits.observe(max(0.0, at - admission.since))
        if admission.first_estimate is not None:
            self.estimate_errors.observe(at - admission.first_estimate)

    def drop_history(self) -> None:
        """A record of history could not be written in time."""
        self.history_dropped += 1

    def recovered(self, action: str, seconds: Mapping[str, float]) -> None:
        """Count a recovery that came to its end; ``seconds`` by phase."""
        for phase, value in seconds.items():
            self.recovery_seconds[action, phase].observe(value)
