"""The account of a run once more, from its whole timeline at once: slow, unbounded, and with nothing to forget.

Intervals are labelled first; only then is every stretch of steps asked whether a later start went back behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.core.accounting.goodput import Bucket, Ended, Entered, Fact, Failed, GoodputStage, Saved, Started, Stepped


@dataclass
class Stretch:
    """Milliseconds [begin, end) of one label; ``steps`` where whole steps were done: (after, until]."""

    begin: int
    end: int
    bucket: Bucket
    steps: tuple[int, int] | None = None
    order: int = 0


def partition(submitted: float, facts: Sequence[Fact], end: float) -> dict[Bucket, int]:
    """Milliseconds per bucket of the timeline. Facts in order of their time, saves right after their step."""
    stretches: list[Stretch] = []
    starts: list[tuple[int, int]] = []  # (position in the timeline, step gone back to)
    clock, bucket, standing = round(submitted * 1000), Bucket.QUEUE, 0

    def label(until: float, as_bucket: Bucket, steps: tuple[int, int] | None = None) -> None:
        nonlocal clock
        now = max(clock, round(until * 1000))
        stretches.append(Stretch(clock, now, as_bucket, steps, position))
        clock = now

    for position, fact in enumerate(facts):
        running = bucket is Bucket.PRODUCTIVE
        broken = Bucket.LOST_WORK if running else bucket
        match fact:
            case Entered(at, stage):
                label(at, broken)
                bucket = Bucket.OTHER if stage is GoodputStage.ENDED else Bucket(stage.value)
            case Started(at, step, resumed):
                label(at, broken)
                bucket = Bucket.LOADING if resumed else Bucket.INIT
                starts.append((position, step))
                standing = step
            case Stepped(at, step) if bucket in (Bucket.INIT, Bucket.LOADING):
                label(at, bucket)
                bucket, standing = Bucket.PRODUCTIVE, max(standing, step)
            case Stepped(at, step) if running and step > standing:
                label(at, Bucket.PRODUCTIVE, (standing, step))
                standing = step
            case Saved(at, _, blocked) if running:
                label(min(at, clock / 1000 + blocked), Bucket.SAVE_BLOCK)
            case Failed(at, seen) if running or bucket in (Bucket.INIT, Bucket.LOADING):
                label(at, broken)
                label(seen, Bucket.DETECT)
                bucket = Bucket.RESTART
            case Ended(at, step):
                label(at, broken)
                starts += [(position, step)] if step is not None else []
                break
            case _:
                pass
    else:
        position = len(facts)
        label(end, bucket)

    totals = dict.fromkeys(Bucket, 0)
    for stretch in stretches:
        took = stretch.end - stretch.begin
        if stretch.steps is None:
            totals[stretch.bucket] += took
            continue
        low, high = stretch.steps
        kept = min([high, *(max(low, step) for position, step in starts if position > stretch.order)])
        productive = took * (kept - low) // (high - low)
        totals[Bucket.PRODUCTIVE] += productive
        totals[Bucket.LOST_WORK] += took - productive
    return totals
