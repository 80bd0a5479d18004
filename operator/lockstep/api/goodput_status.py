"""What status says of where the time went."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lockstep.api.base.schema import StatusModel, Timestamp


class BucketsStatus(StatusModel):
    """Wall time since the run was made, in seconds. Every moment is in one bucket; together they are the whole."""

    queue: int = 0
    """Waiting for nodes."""
    provision: int = 0
    """Pods, images, barrier."""
    init: int = 0
    """From START to the first step of an attempt that starts afresh."""
    loading: int = 0
    """From START to the first step of an attempt that resumes: setting up, and loading the checkpoint."""
    productive: int = 0
    """Steps that are part of what the training is now."""
    save_block: int = 0
    """Training stopped for a save."""
    lost_work: int = 0
    """Steps that were repeated, or broken off."""
    detect: int = 0
    """From a failure to its being seen."""
    restart: int = 0
    """Stopping and finding nodes again after a failure."""
    suspended: int = 0
    """Suspended by its user."""
    other: int = 0
    """Nothing better is known."""


class GoodputStatus(StatusModel):
    """Where the time went."""

    buckets: BucketsStatus = BucketsStatus()
    """Seconds up to `time`."""
    state: str = ""
    """What the account needs to go on after a restart of the operator; opaque."""
    time: Timestamp | None = None
    """Up to when."""
    ettr: str = ""
    """Effective training time: productive time by wall time without suspension, e.g. 0.953; empty while no step was
    reported."""
    goodput: str = ""
    """Productive time by time with nodes; empty while no step was reported."""
    gpu_hours: str = ""
    """GPU-hours held so far."""
    tokens_per_second: str = ""
    """Over the last interval, where tokensPerStep is given."""
    step_efficiency: str = ""
    """What the productive time would have been, had every step taken as long as one usually does at best, by what
    it was."""
    mfu: str = ""
    """Model FLOPs utilisation over the last interval, where flopsPerToken and the GPU's peak are known."""
    energy_kwh: str = ""
    """From the configured power of the GPU type."""
    cost: str = ""
    """From the configured price of a GPU-hour."""
    mttr_p50: int = 0
    """Half of the recoveries took no longer, in seconds."""
    mttr_p95: int = 0
    """Nineteen of twenty took no longer."""
    failures: int = 0
    """Unplanned ends of attempts."""
    steps_lost: int = 0
    """Steps that had to be repeated, all failures together."""
    recoveries: Annotated[tuple[int, ...], Field(max_length=32)] = ()
    """Seconds that the last recoveries took, from the failure to the first new step."""
