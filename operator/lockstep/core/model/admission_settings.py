"""How a platform team wants runs ordered and nodes given away. Times in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lockstep.core.model.settings import Weights

DAY = 86_400.0


class Backfill(StrEnum):
    """Which runs may start before an earlier pending one."""

    EASY = "Easy"  # whoever does not delay the first of any queue
    CONSERVATIVE = "Conservative"  # whoever delays nobody who came before
    DISABLED = "Disabled"  # nobody of the same queue


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """Nodes on which nothing may run from ``start`` for ``seconds``, and again each ``every`` seconds (0: once).

    ``nodes`` by name and those with all labels of ``node_selector``; neither: all nodes.
    """

    name: str
    start: float
    seconds: float
    every: float = 0.0
    nodes: frozenset[str] = frozenset()
    node_selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """See docs/admission.md."""

    weights: Weights = field(default_factory=Weights)
    max_age: float = 7 * DAY  # after which a run's age counts in full
    half_life: float = 7 * DAY  # after which what was used counts half
    prefer_small: bool = False  # the size factor favours small runs rather than large ones
    backfill: Backfill = Backfill.EASY
    depth: int = 500  # runs whose start is looked for in one cycle
    admissions: int = 256  # most runs that one cycle admits; the rest is looked at right after
    windows: tuple[MaintenanceWindow, ...] = ()
    node_return: float = 900.0  # a node that is NotReady for less is expected back, and waited for
    told_every: float = 60.0  # at most so often a waiting run is told of a new position or estimate …
    told_far_every: float = 300.0  # … and one that is far from the head of its queue
    told_points_every: float = 900.0  # and at most so often of points that have moved, and nothing else
    told_per_second: float = 10.0  # most waiting runs that are told something, new reasons near the head aside
    told_per_pass: int = 200  # most waiting runs that one cycle tells something
