"""How many steps between two saves, per tier: the optimum for what was measured, within what is allowed.

Two levels (Benoit et al. 2017): local saves serve failures that leave the nodes' disks, shared saves the
rest. The archive is copied beside training, so its rhythm follows from bandwidth and the loss one accepts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lockstep.core.failures.failure_rate import SECONDS_PER_DAY, Remedy
from lockstep.core.model.plural import plural

OVERHEAD_CAP = 0.035
"""Most of the wall time that saves to one tier may block (CheckFreq's cap)."""
WORTH_A_CHANGE = 0.25
"""Relative change of an interval below which the published one stays."""
SETTLE_SECONDS = 600.0
"""Shortest time between two changes of the published cadence."""
_NEWEST_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Level:
    """A tier: seconds that a save to it blocks, and failures a second for which it is the cheapest that suffices."""

    cost: float
    rate: float

    @property
    def period(self) -> float:
        """The level's own optimum (Benoit et al. 2017): sqrt(2 C / rate); endless where nothing needs it."""
        return math.sqrt(2.0 * self.cost / self.rate) if self.rate > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class SaveCost:
    """What one save costs: seconds it blocks training, seconds from snapshot to durable. Means of those seen."""

    blocking: float
    durable: float
    saves: int = 0

    def measured(self, blocking: float, durable: float) -> "SaveCost":
        """With one more save measured: an exponentially weighted mean; the first measurement replaces the guess."""
        weight = _NEWEST_WEIGHT if self.saves else 1.0
        return SaveCost(
            self.blocking + weight * (blocking - self.blocking),
            self.durable + weight * (durable - self.durable),
            self.saves + 1,
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Shortest and longest time between two saves to one tier that the user allows. Equal: that interval."""

    shortest: float = 0.0
    longest: float = math.inf


@dataclass(frozen=True, slots=True)
class ArchiveGoal:
    """What limits archiving, in seconds: how long one copy takes, and how much work may be lost with the cluster."""

    copy: float
    recovery_point: float


@dataclass(frozen=True, slots=True)
class CadenceInputs:
    """Everything the cadence rests on. ``rate``: failures per node-day; ``shares`` add up to 1.

    ``step_seconds`` None: not known; steps of one second are planned with.
    """

    nodes: int
    rate: float
    shares: Mapping[Remedy, float]
    step_seconds: float | None
    local: SaveCost | None = None
    shared: SaveCost | None = None
    local_bounds: Bounds = Bounds()
    shared_bounds: Bounds = Bounds()
    overhead_cap: float = OVERHEAD_CAP
    archive: ArchiveGoal | None = None

    @property
    def step(self) -> float:
        """Seconds that saves are multiples of."""
        return self.step_seconds or 1.0

    @property
    def mttf(self) -> float:
        """Seconds to the job's next failure, on average."""
        return SECONDS_PER_DAY / (self.nodes * self.rate)


class Held(StrEnum):
    """What keeps an interval off its optimum."""

    NOTHING = ""
    DURABLE = "one save must be durable before the next begins"
    OVERHEAD = "the cap on time spent saving"
    SHORTEST = "the shortest interval allowed"
    LONGEST = "the longest interval allowed"
    ASKED = "the interval asked for"
    CHEAPER_TIER = "the local interval"


@dataclass(frozen=True, slots=True)
class TierCadence:
    """One tier: save every ``steps`` steps, about every ``seconds``; ``period`` is what was aimed for."""

    steps: int
    seconds: float
    period: float
    overhead: float  # share of wall time that its saves, and the steps repeated from them, take
    held: Held = Held.NOTHING


@dataclass(frozen=True, slots=True)
class Cadence:
    """A planned cadence, and why in a sentence. ``archive_every``: n-th shared save; 0: none."""

    local: TierCadence | None
    shared: TierCadence | None
    archive_every: int
    overhead: float
    """Share of wall time lost to saves and to steps repeated after failures; restarts not counted."""
    why: str

    @property
    def local_steps(self) -> int:
        """Steps between local saves; 0: none."""
        return self.local.steps if self.local else 0

    @property
    def shared_steps(self) -> int:
        """Steps between shared saves, a multiple of ``local_steps``; 0: none."""
        return self.shared.steps if self.shared else 0


def plan_cadence(inputs: CadenceInputs) -> Cadence:
    """The cadence for what was measured so far. ``rate`` and ``nodes`` must be positive.

    Local saves are left out where saving to the shared tier alone costs less. Without bounds and with saves
    durable at once that is the inequality; slow shared saves speak for local ones.
    """
    local = _tier(inputs.local, inputs.shares[Remedy.LOCAL], inputs.local_bounds, inputs, None)
    shared = _tier(
        inputs.shared, 1.0 - inputs.shares[Remedy.LOCAL] if local else 1.0, inputs.shared_bounds, inputs, local
    )
    chosen = [tier for tier in (local, shared) if tier is not None]
    dropped = False
    if local is not None and shared is not None:
        alone = _tier(inputs.shared, 1.0, inputs.shared_bounds, inputs, None)
        assert alone is not None
        if alone.overhead <= local.overhead + shared.overhead:
            local, shared, dropped = None, alone, True
            chosen = [alone]
    overhead = min(1.0, sum(tier.overhead for tier in chosen))
    archive_every = _archive_every(inputs.archive, shared)
    why = _why(inputs, local, shared, archive_every, dropped, overhead)
    return Cadence(local, shared, archive_every, overhead, why)


def worth_publishing(published: Sequence[int], changed_at: float, planned: Sequence[int], now: float) -> bool:
    """The planned intervals, per tier, differ enough from the published ones, and those stood for long enough.

    Both in the same unit; 0: that tier is not used.
    """
    if now - changed_at < SETTLE_SECONDS:
        return False
    return any(
        (old == 0) is not (new == 0) or (old > 0 and abs(new / old - 1.0) > WORTH_A_CHANGE)
        for old, new in zip(published, planned, strict=True)
    )


def _tier(
    cost: SaveCost | None, share: float, bounds: Bounds, inputs: CadenceInputs, shallower: TierCadence | None
) -> TierCadence | None:
    """``share``: of all failures, those that need this tier."""
    if cost is None:
        return None
    level = Level(cost.blocking, share / inputs.mttf)
    # What must hold (one save in flight, nesting) outranks what the user wants, and that the cap and the optimum.
    period, held = level.period, Held.NOTHING
    capped = cost.blocking / inputs.overhead_cap
    for floor, reason in ((capped, Held.OVERHEAD), (bounds.shortest, Held.SHORTEST)):
        if period < floor:
            period, held = floor, reason
    wanted = max(capped, bounds.shortest)
    if period > bounds.longest:
        period, held = bounds.longest, Held.LONGEST
    for floor, reason in (
        (cost.durable, Held.DURABLE),
        (shallower.period if shallower else 0.0, Held.CHEAPER_TIER),
    ):
        if period < floor:
            period, held = floor, reason
    if held in (Held.SHORTEST, Held.LONGEST) and bounds.shortest == bounds.longest:
        held = Held.ASKED
    unit = shallower.seconds if shallower else inputs.step
    nearest = round(period / unit) if shallower else math.ceil(period / unit)
    count = max(nearest, math.ceil(wanted / unit))
    if math.isfinite(bounds.longest):
        count = min(count, math.floor(bounds.longest / unit))
    count = max(1, math.ceil(cost.durable / unit), count)
    steps = count * (shallower.steps if shallower else 1)
    seconds = steps * inputs.step
    overhead = cost.blocking / seconds + level.rate * (seconds / 2.0 + cost.durable)
    return TierCadence(steps, seconds, period, overhead, held)


def _archive_every(goal: ArchiveGoal | None, shared: TierCadence | None) -> int:
    if goal is None or shared is None:
        return 0
    return max(1, math.ceil(max(goal.copy, goal.recovery_point) / shared.seconds))


def _why(
    inputs: CadenceInputs,
    local: TierCadence | None,
    shared: TierCadence | None,
    archive_every: int,
    dropped: bool,
    overhead: float,
) -> str:
    text = (
        f"one failure in {_span(inputs.mttf)} is expected of {plural(inputs.nodes, 'node')} "
        f"({1000 * inputs.rate:.2f} per 1000 node-days)"
    )
    for name, tier, cost in (("local", local, inputs.local), ("shared", shared, inputs.shared)):
        if tier is None or cost is None:
            continue
        often = f"{plural(tier.steps, 'step')} ({_span(tier.seconds)})" if inputs.step_seconds else _span(tier.seconds)
        text += f"; a {name} save blocks {cost.blocking:.3g} s: every {often}"
        if tier.held:
            text += f", held by {tier.held.value}"
    if dropped and inputs.local is not None:
        text += f"; local saves block {inputs.local.blocking:.3g} s and would not pay"
    if archive_every:
        text += f"; one shared save in {archive_every} is archived"
    return f"{text}; saves and repeated steps take {overhead:.1%}"


def _span(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.3g} s"
    if seconds < 7200.0:
        return f"{seconds / 60.0:.3g} min"
    return f"{seconds / 3600.0:.3g} h" if seconds < 172_800.0 else f"{seconds / SECONDS_PER_DAY:.3g} d"
