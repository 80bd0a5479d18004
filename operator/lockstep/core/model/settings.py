"""What an installation says, as decisions see it. A ``SettingsSection`` stands so in the configuration file too."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from lockstep.api.base import names
from lockstep.api.base.quantities import QUANTITY_REMEDY
from lockstep.core.model.gang_settings import SHARED_CLOCK_SKEW


def matches(pattern: str, remedy: str) -> AfterValidator:
    """Says in words what the pattern says to the chart's schema."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(remedy)
        return text

    return AfterValidator(check)


_AMOUNT = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"
Amount = Annotated[str, matches(_AMOUNT, QUANTITY_REMEDY), Field(json_schema_extra={"pattern": _AMOUNT})]


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


class ArchiveConfig(SettingsSection):
    """What an installation says about archive jobs."""

    image: str = ""  # the operator's own with the `archive` extra; empty: no job can be made
    image_pull_secrets: tuple[str, ...] = ()  # which every namespace with runs has to have, to pull that image
    cpu: Amount = "2"
    memory: Amount = "2Gi"  # eight parts of 64 MiB on their way, four being read, and what the program itself needs
    parallel: int = Field(default=8, ge=1, le=256)
    bandwidth: int = Field(default=0, ge=0)  # bytes per second of one job at most; 0: no limit
    deadline: int = Field(default=86_400, ge=60)  # seconds after which a job is ended; the next one goes on from there
    pod_retries: int = Field(default=6, ge=0)
    keep_finished: int = Field(default=86_400, ge=0)  # seconds that a finished job and its log stay
    node_selector: dict[str, str] = Field(default={})


class ArchiveSettings(ArchiveConfig):
    """What decisions see of it."""

    shared_clock_skew: float = SHARED_CLOCK_SKEW  # as ``GangSettings`` has it


class ScaleUpConfig(SettingsSection):
    """How queues with scaleUp: Enabled ask for nodes; see docs/autoscaling.md. The rights come with
    ``provisioningRequests``."""

    provisioning_requests: bool = False  # where they are served; placeholder pods elsewhere, and without it
    max_nodes: int = Field(default=256, ge=1, le=10_000)  # that all runs together ask for at a time
    image: str = Field(default="registry.k8s.io/pause:3.10", min_length=1, max_length=512)  # of placeholders
    priority_class: str = Field(default=names.PLACEHOLDER_PRIORITY_CLASS, min_length=1, max_length=253)  # of them


class ScaleUpSettings(ScaleUpConfig):
    """What decisions see of it. ``served``: ProvisioningRequests are, by what discovery found."""

    served: bool = False

    @property
    def by(self) -> Literal["ProvisioningRequest", "Placeholders"]:
        """How runs ask that begin to."""
        return "ProvisioningRequest" if self.provisioning_requests and self.served else "Placeholders"


class PodPolicy(SettingsSection):
    """What every namespace is given beyond Pod Security's Baseline, and which accounts gangs may run as."""

    capabilities: tuple[Annotated[str, Field(pattern=r"^[A-Z][A-Z_]*$")], ...] = ()  # without CAP_
    # Exact ones. What is below them is reached by a mount's subPath, which the kubelet keeps inside.
    host_paths: tuple[Annotated[str, Field(pattern=r"^(/[^/]+)+$")], ...] = ()
    sysctls: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] | None = None  # beside the namespace's default one; all when left out

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        for path in self.host_paths:
            if ".." in path.split("/"):
                raise ValueError(f"hostPaths: {path} leads elsewhere; write the path itself, without ..")
        if prefixed := [name for name in self.capabilities if name.startswith("CAP_")]:
            raise ValueError(f"capabilities: write {prefixed[0].removeprefix('CAP_')}, as pods do")
        return self
