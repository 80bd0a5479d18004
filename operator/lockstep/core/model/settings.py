"""What an installation says, as decisions see it. A ``SettingsSection`` stands so in the configuration file too."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from lockstep.core.model.gang_settings import SHARED_CLOCK_SKEW


class SettingsSection(BaseModel):
    """A part of the configuration: camelCase in the file, and nothing in it that nobody knows."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True)


class Deadlines(SettingsSection):
    """Seconds a launch phase may take before the missing ranks are named and replaced."""

    scheduled: float = Field(default=60.0, gt=0)
    started: float = Field(default=900.0, gt=0)  # a large image on a cold node
    registered: float = Field(default=120.0, gt=0)
    ready: float = Field(default=300.0, gt=0)  # older processes dead, inventory taken
    start_acknowledged: float = Field(default=60.0, gt=0)
    shrink: float = Field(default=60.0, gt=0)  # waiting for a replacement node before an elastic gang goes on without
    vacant: float = Field(default=600.0, gt=0)  # waiting for a replacement node before the gang gives its nodes back
    unheard_node: float = Field(default=300.0, gt=0)  # NotReady, until a gang without workers takes the node for lost
    probe: float = Field(default=60.0, gt=0)  # one bounded wait for checkpoints whose state is unknown
    stop: float = Field(default=300.0, gt=0)  # from the request to stop until pods are deleted regardless
    warm_up: float = Field(default=60.0, gt=0)  # the exchange between the nodes before the first start


class Breaker(SettingsSection):
    """Losses that look like the cluster's trouble rather than the nodes'."""

    window: float = Field(default=120.0, gt=0)
    node_share: float = Field(default=0.10, gt=0, le=1)
    min_nodes: int = Field(default=3, ge=1)
    runs: int = Field(default=5, ge=1)
    longest: float = Field(default=3600.0, gt=0)  # after which nodes that are still NotReady are lost one by one


class Weights(SettingsSection):
    """Points for a factor of 1. Factors lie between 0 and 1; a weight of 0 leaves one out."""

    priority_class: int = Field(default=100_000, ge=0, le=10**9)
    age: int = Field(default=1_000, ge=0, le=10**9)
    fair_share: int = Field(default=10_000, ge=0, le=10**9)
    size: int = Field(default=0, ge=0, le=10**9)


class GpuRates(SettingsSection):
    """What is known of a GPU type. 0: not known.

    ``price`` per GPU-hour in whatever currency; ``watts`` drawn by one GPU with its share of the node;
    ``peak_flops`` a second at the precision trained in, without sparsity.
    """

    price: float = Field(default=0.0, ge=0)
    watts: float = Field(default=0.0, ge=0)
    peak_flops: float = Field(default=0.0, ge=0)


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
