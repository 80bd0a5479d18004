"""Priority order: points for class, age, fair share and size, less what a run gives up.

The sum of weight times factor is Slurm's multifactor priority; every factor lies between 0 and 1.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from lockstep.api.base import names
from lockstep.core.model.admission_settings import AdmissionSettings
from lockstep.core.model.conditions import is_true
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.run_queue import queue_of
from lockstep.core.model.settings import Weights
from lockstep.core.model.snapshot import RunView

_ROUNDING = 0.01  # seconds by which a point is looked for early rather than late
_FACTORS = "class", "age", "fairShare", "size", "nice"
_PART_REPORTED = 20  # a factor is reported again when it has moved by more than this part of its weight


LONGEST_USER = 63
"""An annotation may be as long as a book; what is counted by it has to stay small."""
_TOLD_APART_BY, _READ = 12, 1024
"""Characters of a longer name's digest, in the place of its end; and how much of it is read for that."""


@dataclass(frozen=True, slots=True)
class Points:
    """What the place of one run in the order is made of."""

    priority_class: int
    age: int
    fair_share: int
    size: int
    nice: int

    @property
    def total(self) -> int:
        """The highest comes first."""
        return self.priority_class + self.age + self.fair_share + self.size - self.nice

    def shown(self) -> dict[str, int]:
        """By name, as in status; what is 0 is left out."""
        return {name: points for name, points in zip(_FACTORS, self._by_factor, strict=True) if points}

    def have_moved(self, reported: Mapping[str, int], weights: Weights) -> bool:
        """Whether the ``reported`` points mislead by now: by any that is given up, or a twentieth of a weight."""
        most = weights.priority_class, weights.age, weights.fair_share, weights.size, 0
        return any(
            abs(points - reported.get(name, 0)) * _PART_REPORTED > weight
            for name, points, weight in zip(_FACTORS, self._by_factor, most, strict=True)
        )

    @property
    def _by_factor(self) -> tuple[int, int, int, int, int]:
        return self.priority_class, self.age, self.fair_share, self.size, -self.nice


class Order:
    """Gives points to runs at one moment."""

    def __init__(self, settings: AdmissionSettings, classes: Mapping[str, int], cluster_nodes: int, now: float) -> None:
        """``classes``: values of all PriorityClasses; negative ones count as 0, those of the cluster's own pods not."""
        self._settings = settings
        self._classes = classes
        self._greatest = max((value for name, value in classes.items() if not name.startswith("system-")), default=0)
        self._nodes = max(1, cluster_nodes)
        self._now = now

    def points(self, run: RunView, fair_share: float) -> Points:
        """The points of a pending run; ``fair_share`` is its factor.

        One that lost its nodes through no wish of its user goes to the head of its class: every other factor counts
        in full, and it gives nothing up.
        """
        assert run.spec is not None
        weights = self._settings.weights
        ahead = bool(run.status.admission.requeued_for)
        size = min(1.0, run.spec.nodes / self._nodes)
        if self._settings.prefer_small:
            size = 1.0 - size
        waited = max(0.0, self._now - waits_since(run, self._now))
        return Points(
            priority_class=int(weights.priority_class * self._class_factor(run.spec.priority_class_name)),
            age=weights.age if ahead else int(weights.age * min(1.0, waited / self._settings.max_age)),
            fair_share=int(weights.fair_share * (1.0 if ahead else fair_share)),
            size=int(weights.size * (1.0 if ahead else size)),
            nice=0 if ahead else run.spec.nice,
        )

    def lasts_until(self, run: RunView) -> float:
        """The points of ``run`` are the same until then, if nothing but time changes."""
        weight, longest = self._settings.weights.age, self._settings.max_age
        if run.status.admission.requeued_for or weight <= 0:
            return inf
        begun = waits_since(run, self._now)
        waited = max(0.0, self._now - begun)
        if waited >= longest:
            return inf
        return begun + (int(weight * waited / longest) + 1) * longest / weight - _ROUNDING

    def _class_factor(self, name: str | None) -> float:
        value = self._classes.get(name, 0) if name is not None else 0
        return max(0, value) / self._greatest if self._greatest > 0 else 0.0


def waits_since(run: RunView, now: float) -> float:
    """Since when a run waits for nothing but its turn, in seconds: since it was made, gave its nodes back, or was let
    go. Who never did before begins now."""
    known, status = run.status.admission.since, run.status
    if known is not None:
        return known
    was_held = bool(status.attempt or status.queue.reason) or is_true(status, ConditionType.SUSPENDED)
    return float(int(now if was_held else run.created_at))


def share_key(run: RunView) -> tuple[str, str, str]:
    """Queue, namespace and user: what a run's fair share is counted by."""
    return queue_of(run) or names.DEFAULT_QUEUE, run.namespace, _short(run.annotations.get(names.ANNOTATION_USER, ""))


def _short(user: str) -> str:
    """The name itself, or so much of a long one that two who differ only in their ends are still two."""
    if len(user) <= LONGEST_USER:
        return user
    digest = hashlib.sha256(user[:_READ].encode(errors="surrogatepass")).hexdigest()[:_TOLD_APART_BY]
    return f"{user[: LONGEST_USER - _TOLD_APART_BY - 1]}~{digest}"


def order_key(run: RunView, points: Points) -> tuple[int, bool, float, str]:
    """Ascending: the most points first, then who lost its nodes, then who came first."""
    return -points.total, not run.status.admission.requeued_for, run.created_at, run.key
