"""Where the wall time of a run went: one bucket for every moment, as a fold over dated facts.

The account is exact by construction: time is whole milliseconds, a fact closes the moments since the last one
into a bucket, and nothing else moves the clock. It is also of bounded size, so that it lives in the status:
what repeated steps cost is known from ``marks`` (productive time at a step), of which the newest are kept.
Between two marks steps count as equally long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

MOST_MARKS = 32
MOST_RECOVERIES = 32


class Bucket(StrEnum):
    """What a moment was spent on. The values are the fields of ``status.goodput.buckets``."""

    QUEUE = "queue"
    PROVISION = "provision"
    INIT = "init"
    LOADING = "loading"
    PRODUCTIVE = "productive"
    SAVE_BLOCK = "save_block"
    LOST_WORK = "lost_work"
    DETECT = "detect"
    RESTART = "restart"
    SUSPENDED = "suspended"
    OTHER = "other"


class GoodputStage(StrEnum):
    """What the run is doing now: where the moments to come belong."""

    QUEUE = "queue"
    PROVISION = "provision"
    INIT = "init"  # from START to the first step of an attempt that starts afresh
    LOADING = "loading"  # from START to the first step of one that resumes
    STEPS = "steps"
    RESTART = "restart"
    SUSPENDED = "suspended"
    OTHER = "other"
    ENDED = "ended"


_OPEN_BUCKET = {
    stage: Bucket(stage.value) for stage in GoodputStage if stage not in (GoodputStage.STEPS, GoodputStage.ENDED)
} | {GoodputStage.STEPS: Bucket.PRODUCTIVE}


@dataclass(frozen=True, slots=True)
class Entered:
    """At ``at`` the run began to wait, or to launch: QUEUE, PROVISION, RESTART, SUSPENDED or OTHER.

    A step that was under way is broken off.
    """

    at: float
    stage: GoodputStage


@dataclass(frozen=True, slots=True)
class Started:
    """START: every process begins. ``resumed`` from the checkpoint of ``step``, or afresh at ``step``."""

    at: float
    step: int
    resumed: bool


@dataclass(frozen=True, slots=True)
class Stepped:
    """``step`` was complete at ``at``. The first of an attempt ends its start-up."""

    at: float
    step: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A save right after ``step``, over at ``at``, kept training waiting for ``blocked`` seconds."""

    at: float
    step: int
    blocked: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt broke at ``at``, which was seen at ``seen``. For a hang ``at`` is the last step."""

    at: float
    seen: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over. Steps beyond ``step``, the last that is kept, were in vain; None: all are kept."""

    at: float
    step: int | None


Fact = Entered | Started | Stepped | Saved | Failed | Ended


@dataclass(frozen=True, slots=True)
class Mark:
    """At the end of ``step``, ``productive`` milliseconds had gone into steps that count."""

    step: int
    productive: int


@dataclass(frozen=True, slots=True)
class GoodputAccount:
    """Everything needed to go on counting. Milliseconds since the epoch, and milliseconds."""

    submitted: int
    since: int  # all moments before are in a bucket
    stage: GoodputStage = GoodputStage.QUEUE
    closed: tuple[int, ...] = (0,) * len(Bucket)  # by bucket, in their order
    marks: tuple[Mark, ...] = (Mark(0, 0),)  # rising; the last is where training stands
    first_step: int | None = None  # the run itself began after this step
    broken_at: int | None = None  # of a failure that no step has followed yet
    unrepaired: bool = False  # that failure's lost steps are not counted yet
    failures: int = 0
    steps_lost: int = 0
    recoveries: tuple[int, ...] = ()  # seconds, the newest last

    @property
    def steps(self) -> int:
        """Steps that count, each once."""
        return self.marks[-1].step - (self.first_step or 0)


def opened(submitted: float) -> GoodputAccount:
    """The account of a run that was just made."""
    return GoodputAccount(_ms(submitted), _ms(submitted))


def after(account: GoodputAccount, fact: Fact) -> GoodputAccount:
    """The account with one more fact. Facts come in the order they became known; a late ``at`` counts as now."""
    if account.stage is GoodputStage.ENDED:
        return account
    match fact:
        case Entered():
            account = replace(_broken_off(account, fact.at), stage=fact.stage)
            return replace(account, broken_at=None) if fact.stage is GoodputStage.SUSPENDED else account
        case Started():
            account = _gone_back(_broken_off(account, fact.at), fact.step)
            return replace(account, stage=GoodputStage.LOADING if fact.resumed else GoodputStage.INIT)
        case Stepped():
            return _stepped(account, fact)
        case Saved():
            return _saved(account, fact)
        case Failed():
            return _failed(account, fact)
        case Ended():
            account = _broken_off(account, fact.at)
            kept = account.marks[-1].step if fact.step is None else min(fact.step, account.marks[-1].step)
            return replace(_gone_back(account, kept), stage=GoodputStage.ENDED)


def buckets(account: GoodputAccount, now: float) -> dict[Bucket, int]:
    """Milliseconds per bucket from submission to ``now``; they add up to exactly that, or to the end of the run.

    What is under way counts as what it will be if all goes well.
    """
    if account.stage is not GoodputStage.ENDED:
        account = _closed(account, _ms(now), _OPEN_BUCKET[account.stage])
    return dict(zip(Bucket, account.closed, strict=True))


def whole_seconds(parts: dict[Bucket, int]) -> dict[Bucket, int]:
    """Milliseconds as seconds whose sum is the sum's: each is less than a second off."""
    total, so_far, seconds = 0, 0, {}
    for bucket, amount in parts.items():
        total += amount
        seconds[bucket] = total // 1000 - so_far
        so_far += seconds[bucket]
    return seconds


def has_steps(parts: Mapping[Bucket, int]) -> bool:
    """Some step took time that is known, kept or lost. Of a program that reports none nobody knows what it achieved."""
    return parts[Bucket.PRODUCTIVE] + parts[Bucket.LOST_WORK] > 0


def ettr(parts: dict[Bucket, int]) -> float:
    """Effective training time ratio: productive time by wall time, suspensions left out. In [0, 1]."""
    return _ratio(parts, Bucket.SUSPENDED)


def runtime_goodput(parts: dict[Bucket, int]) -> float:
    """Productive time by time with nodes. In [0, 1]."""
    return _ratio(parts, Bucket.SUSPENDED, Bucket.QUEUE)


def _ratio(parts: dict[Bucket, int], *left_out: Bucket) -> float:
    base = sum(parts.values()) - sum(parts[bucket] for bucket in left_out)
    return parts[Bucket.PRODUCTIVE] / base if base > 0 else 0.0


def _stepped(account: GoodputAccount, fact: Stepped) -> GoodputAccount:
    if account.stage in (GoodputStage.INIT, GoodputStage.LOADING):
        account = replace(_closed(account, _ms(fact.at), _OPEN_BUCKET[account.stage]), stage=GoodputStage.STEPS)
        if account.broken_at is not None:
            took = (account.since - account.broken_at) // 1000
            recoveries = (*account.recoveries, took)[-MOST_RECOVERIES:]
            account = replace(account, recoveries=recoveries, broken_at=None)
        # Steps that went by unseen during start-up, the first one as a rule, took none of the productive time.
        return _marked(account, fact.step) if fact.step > account.marks[-1].step else account
    if account.stage is not GoodputStage.STEPS or fact.step <= account.marks[-1].step:
        return account
    return _marked(_closed(account, _ms(fact.at), Bucket.PRODUCTIVE), fact.step)


def _saved(account: GoodputAccount, fact: Saved) -> GoodputAccount:
    blocked = max(0, round(fact.blocked * 1000))
    here = account.marks[-1]
    if fact.step >= here.step:
        if account.stage is not GoodputStage.STEPS:
            return account
        # Where in the open interval the save lies makes no difference: all the rest of it is one bucket's.
        return _closed(account, min(account.since + blocked, _ms(fact.at)), Bucket.SAVE_BLOCK)
    if fact.step < account.marks[0].step:
        return account
    # Heard of late: that time was taken for steps.
    before = _productive_at(account, fact.step)
    later = next(mark for mark in account.marks if mark.step > fact.step)
    blocked = min(blocked, later.productive - before)
    marks = tuple(
        replace(mark, productive=mark.productive - blocked) if mark.step > fact.step else mark for mark in account.marks
    )
    return _moved(replace(account, marks=marks), blocked, Bucket.PRODUCTIVE, Bucket.SAVE_BLOCK)


def _failed(account: GoodputAccount, fact: Failed) -> GoodputAccount:
    if account.stage not in (GoodputStage.INIT, GoodputStage.LOADING, GoodputStage.STEPS):
        return account  # nothing ran: the launch goes on as the launch it was
    account = _broken_off(account, fact.at)
    # A failure before the first step of a recovery prolongs that recovery.
    broken_at = account.broken_at if account.broken_at is not None else account.since
    account = replace(account, broken_at=broken_at, unrepaired=True, failures=account.failures + 1)
    return replace(_closed(account, _ms(fact.seen), Bucket.DETECT), stage=GoodputStage.RESTART)


def _broken_off(account: GoodputAccount, at: float) -> GoodputAccount:
    lost = account.stage is GoodputStage.STEPS
    return _closed(account, _ms(at), Bucket.LOST_WORK if lost else _OPEN_BUCKET[account.stage])


def _closed(account: GoodputAccount, until: int, bucket: Bucket) -> GoodputAccount:
    until = max(account.since, until)
    closed = list(account.closed)
    closed[list(Bucket).index(bucket)] += until - account.since
    return replace(account, since=until, closed=tuple(closed))


def _moved(account: GoodputAccount, amount: int, source: Bucket, target: Bucket) -> GoodputAccount:
    closed = list(account.closed)
    order = list(Bucket)
    closed[order.index(source)] -= amount
    closed[order.index(target)] += amount
    return replace(account, closed=tuple(closed))


def _marked(account: GoodputAccount, step: int) -> GoodputAccount:
    productive = account.closed[list(Bucket).index(Bucket.PRODUCTIVE)]
    marks = (*account.marks, Mark(step, productive))
    if len(marks) > MOST_MARKS:
        marks = (marks[0], *marks[2:])  # the oldest stays, as the far end to measure from
    return replace(account, marks=marks)


def _gone_back(account: GoodputAccount, step: int) -> GoodputAccount:
    """Training stands at ``step``: what was done beyond it is lost."""
    here = account.marks[-1]
    first = account.first_step
    if first is None:
        return replace(account, first_step=step, marks=(Mark(step, here.productive),))
    if step >= here.step:
        account = account if step == here.step else _marked(account, step)  # saved, but never reported
        return replace(account, unrepaired=False)
    productive = _productive_at(account, step)
    kept = tuple(mark for mark in account.marks if mark.step < step)
    account = replace(account, marks=(*kept, Mark(step, productive)), first_step=min(first, step))
    if account.unrepaired:
        account = replace(account, steps_lost=account.steps_lost + here.step - step, unrepaired=False)
    return _moved(account, here.productive - productive, Bucket.PRODUCTIVE, Bucket.LOST_WORK)


def _productive_at(account: GoodputAccount, step: int) -> int:
    """Productive milliseconds when ``step`` was complete; between two marks, as if all steps were equally long."""
    if step <= account.marks[0].step:
        return account.marks[0].productive
    index = next(i for i, mark in enumerate(account.marks) if mark.step >= step)
    low, high = account.marks[index - 1], account.marks[index]
    return low.productive + (high.productive - low.productive) * (step - low.step) // (high.step - low.step)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
