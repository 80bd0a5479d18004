"""What has become of a save that is asked for, and what workers say of their time."""

from dataclasses import replace

from lockstep.api.checkpoint_status import SaveStatus
from lockstep.core.model.worker_report import TimingReport
from support.values import not_none
from support.world import World


def save_of(w: World) -> SaveStatus:
    return not_none(w.status("one").checkpoint.save)


def result_of(w: World) -> str:
    return next(r.result for r in w.status("one").requests if r.name == "checkpoint-request")


def timed(w: World, seconds: float, age: float = 0.0) -> None:
    """All workers say how long a step takes; the slowest word is ``age`` old."""
    for slot, report in w.reports["uid-one"].items():
        w.reports["uid-one"][slot] = replace(
            report, timing=TimingReport(step=seconds), received_at=w.now - (age if slot else 0.0)
        )
