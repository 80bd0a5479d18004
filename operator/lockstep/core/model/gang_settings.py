"""What the operator's installation says about every gang pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from lockstep.api.base import names

SHARED_CLOCK_SKEW = 2.0
"""Seconds: what nodes with synchronised clocks, or a file server that dates files itself, never exceed."""


@dataclass(frozen=True)
class GangSettings:
    """The same for every run; loaded by the controller."""

    operator_url: str = "https://lockstep-operator.lockstep-system.svc:8443"
    """Where workers find the operator."""
    worker_archive: bytes = b""
    """The worker program, a zip application."""
    ca_certificate: str = ""
    """PEM of the authorities that workers trust: the operator's, and while that changes the next or the last one."""
    local_storages: Mapping[str, str] = field(default_factory=dict)
    """Storages for local checkpoints by name: a directory of every node."""
    gpu_taints: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu")
    """Taints of GPU nodes that gang pods tolerate."""
    check_gpus: bool = True
    """Whether a worker that sees no GPU device at all says that its node cannot train; off for simulated GPUs."""
    priority_class: str = names.GANG_PRIORITY_CLASS
    shared_clock_skew: float = SHARED_CLOCK_SKEW
    """Seconds by which a file of the shared tier may be younger than the commit that it belongs to."""
    termination_grace: int = 60
    """Seconds between SIGTERM to a pod and SIGKILL, unless the pod template says otherwise."""

    @cached_property
    def worker_config_map(self) -> str:
        """Name of the immutable ConfigMap with the worker: by content, so that an upgrade touches no pod."""
        return f"lockstep-worker-{sha256(self.worker_archive).hexdigest()[:12]}"


def time_variables(skew: float, *, trusted: bool) -> dict[str, str]:
    """What tells the programs that judge checkpoints how far apart clocks are (seconds), and whether times of files are
    to be trusted; nothing where it is what they take for granted."""
    known = {"LOCKSTEP_SHARED_CLOCK_SKEW": f"{skew:g}"} if skew != SHARED_CLOCK_SKEW else {}
    return known if trusted else {**known, "LOCKSTEP_TRUST_TIMES": "no"}
