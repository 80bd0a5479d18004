"""The signal by which programs are asked to save."""

from lockstep.api.base.durations import parse_duration
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.tunables import Tunables

_USUAL_GRACE = 300.0


def save_signal(spec: TrainingRunSpec) -> str | None:
    """That of the checkpoint block, else what a batch script's submission said; None: there is none."""
    checkpoint, batch = spec.checkpoint, spec.launcher.batch
    if checkpoint is not None and checkpoint.signal is not None:
        return checkpoint.signal
    return batch.signal if batch is not None else None


def save_grace(spec: TrainingRunSpec) -> float:
    """Seconds that a save may take. 0 without a tier to save to; a batch script that is told by a signal has as long as
    before its time limit."""
    if spec.checkpoint is not None:
        return float(parse_duration(spec.checkpoint.grace_period))
    return float(parse_duration(spec.on_time_limit.lead_time)) if save_signal(spec) is not None else 0.0


def longest_wait_for_save(spec: TrainingRunSpec, tunables: Tunables) -> float:
    """Seconds that a save holds up a stop or a drain, for which others may wait: as long as a pod's end may take, and
    what is usual at least."""
    return min(save_grace(spec), max(float(tunables.longest_grace), _USUAL_GRACE))
