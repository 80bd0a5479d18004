"""What an installation says of archive jobs, pods and GPU types; loaded by the controller."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.core.model.gang_settings import SHARED_CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """What the operator's installation says about archive jobs."""

    image: str = ""
    """The operator's own image with the `archive` extra; empty: no job can be made."""
    image_pull_secrets: tuple[str, ...] = ()
    """Secrets that every namespace with runs has to have, to pull that image."""
    cpu: str = "2"
    memory: str = "2Gi"
    """Eight parts of 64 MiB on their way, four being read, and what the program itself needs."""
    parallel: int = 8
    bandwidth: int = 0
    """Bytes per second of one job at most; 0: no limit."""
    deadline: int = 86_400
    """Seconds after which a job is ended; the next one goes on from there."""
    pod_retries: int = 6
    keep_finished: int = 86_400
    """Seconds that a finished job and its log stay."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    shared_clock_skew: float = SHARED_CLOCK_SKEW
    """As ``GangSettings`` has it."""


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """What an installation gives to every namespace beyond Baseline, and which accounts gangs may run as."""

    capabilities: frozenset[str] = frozenset()
    host_paths: frozenset[str] = frozenset()
    """Exact ones. What is below them is reached by a mount's subPath, which the kubelet keeps inside."""
    sysctls: frozenset[str] = frozenset()
    service_accounts: frozenset[str] | None = None
    """None: every account of the run's namespace, as for whoever may make pods there."""


@dataclass(frozen=True, slots=True)
class GpuRates:
    """What the operator's configuration says of a GPU type. 0: not known.

    ``price`` per GPU-hour in whatever currency; ``watts`` drawn by one GPU with its share of the node;
    ``peak_flops`` a second at the precision trained in, without sparsity.
    """

    price: float = 0.0
    watts: float = 0.0
    peak_flops: float = 0.0
