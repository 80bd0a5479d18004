"""The signal by which programs are asked to save."""

from lockstep.api.run_spec import TrainingRunSpec


def save_signal(spec: TrainingRunSpec) -> str | None:
    """That of the checkpoint block, else what a batch script's submission said; None: there is none."""
    checkpoint, batch = spec.checkpoint, spec.launcher.batch
    if checkpoint is not None and checkpoint.signal is not None:
        return checkpoint.signal
    return batch.signal if batch is not None else None
