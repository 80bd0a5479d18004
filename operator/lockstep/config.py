"""The operator's configuration: a YAML file, and a few environment variables for what differs per pod."""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from lockstep.api.base import names
from lockstep.api.base.durations import format_duration, parse_duration
from lockstep.api.base.schema import Duration, Timestamp
from lockstep.api.run_spec import RESOURCE_PATTERN
from lockstep.core.failures.silence import LONGEST_POLL
from lockstep.core.model.accelerators import ACCELERATORS, Accelerators
from lockstep.core.model.admission_settings import AdmissionSettings, Backfill, MaintenanceWindow
from lockstep.core.model.gang_settings import SHARED_CLOCK_SKEW, GangSettings
from lockstep.core.model.pod_group_settings import PodGroupConfig, PodGroupSettings
from lockstep.core.model.settings import (
    ArchiveConfig,
    ArchiveSettings,
    Breaker,
    Deadlines,
    GpuRates,
    PodPolicy,
    ScaleUpConfig,
    ScaleUpSettings,
    SettingsSection,
    Weights,
    matches,
)
from lockstep.core.model.tiers import ARCHIVE, BANDWIDTH, LOCAL, SHARED
from lockstep.core.model.tunables import Mode, Tunables, heartbeat_problems

_DEFAULT = Tunables()
"""What decisions have by default is what an installation has that says nothing."""
EVERYWHERE = "::"
"""Every address, of IPv4 too; of IPv4 alone where the kernel has no IPv6."""
_ENVIRONMENT = {
    "LOCKSTEP_NAMESPACE": "namespace",
    "LOCKSTEP_IDENTITY": "identity",
    "LOCKSTEP_MODE": "mode",
    "LOCKSTEP_WORKER_ADDRESS": "workerAddress",
}
"""What differs from pod to pod, and wins over the file: variable to field."""


class ConfigError(Exception):
    """The configuration is unusable; the message names the field and the remedy."""


def _is_not_kubernetes_own(name: str) -> str:
    if name.startswith("system-"):
        raise ValueError(f"{name} is Kubernetes' own, and preempts; name a class with preemptionPolicy: Never")
    return name


_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_PLACE = rf"([^\s/@]+@)?(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:{_PORT})?(/\S*)?"
_WORKER_URL = rf"^https://{_PLACE}$"
_ENDPOINT = rf"^(https?://{_PLACE})?$"
_CLASS = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
WorkerUrl = Annotated[
    str,
    matches(_WORKER_URL, "write it as https://HOST:8443, with a port of 1 to 65535 or none"),
    Field(json_schema_extra={"pattern": _WORKER_URL}),
]
Endpoint = Annotated[
    str,
    matches(_ENDPOINT, "write the URL of a collector as http://HOST:4318, with a port of 1 to 65535 or none"),
    Field(json_schema_extra={"pattern": _ENDPOINT}),
]
_SIGN = r"^[A-Za-z0-9][-A-Za-z0-9_./]*(=[-A-Za-z0-9_.]+)?$"
Resource = Annotated[
    str,
    matches(RESOURCE_PATTERN, "write a resource as device plugins name it, e.g. amd.com/gpu"),
    Field(json_schema_extra={"pattern": RESOURCE_PATTERN}),
]
Sign = Annotated[
    str,
    matches(_SIGN, "write a label as KEY or KEY=VALUE, e.g. nvidia.com/gpu.present"),
    Field(json_schema_extra={"pattern": _SIGN}),
]
GangClass = Annotated[
    str,
    matches(_CLASS, "write the name of a PriorityClass, e.g. lockstep-gang"),
    AfterValidator(_is_not_kubernetes_own),
    Field(json_schema_extra={"pattern": _CLASS}),
]


class BandwidthConfig(SettingsSection):
    """Bytes per second; see ``lockstep.core.model.tunables.Tunables.bandwidth``."""

    local: float = Field(default=BANDWIDTH[LOCAL], gt=0)
    shared: float = Field(default=BANDWIDTH[SHARED], gt=0)
    archive: float = Field(default=BANDWIDTH[ARCHIVE], gt=0)


class CheckpointsConfig(SettingsSection):
    """What is known of the checkpoint tiers that no worker can measure."""

    shared_clock_skew: float = Field(SHARED_CLOCK_SKEW, ge=0, le=300)
    bandwidth: BandwidthConfig = BandwidthConfig()


class AcceleratorConfig(SettingsSection):
    """A resource that counts as GPUs. ``labels``: by which a node says that it has some; the known ones if left out."""

    resource: Resource
    labels: tuple[Sign, ...] | None = None


class KueueConfig(SettingsSection):
    """See docs/kueue.md. The rights come with it: the chart has both where Kueue's API is served."""

    enabled: bool = False


class LookUpConfig(SettingsSection):
    """What runs name is looked up before they are accepted: claims, ConfigMaps, accounts always, Secrets where said.

    The right to get Secrets comes with it, and would let whoever has the operator's token read them.
    """

    secrets: bool = False


class WindowConfig(SettingsSection):
    """A maintenance window; ``nodes`` and those that ``nodeSelector`` selects, all nodes without either."""

    name: str = Field(min_length=1, max_length=63)
    start: Timestamp
    duration: Duration
    every: Duration | None = None
    nodes: tuple[str, ...] = ()
    node_selector: dict[str, str] = Field(default={})

    def window(self) -> MaintenanceWindow:
        """What admission sees of it."""
        every = parse_duration(self.every) if self.every is not None else 0
        seconds = parse_duration(self.duration)
        return MaintenanceWindow(
            self.name, self.start, float(seconds), float(every), frozenset(self.nodes), self.node_selector
        )

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if parse_duration(self.duration) == 0:
            raise ValueError("duration: write how long it lasts, e.g. 4h")
        if self.every is not None and parse_duration(self.every) <= parse_duration(self.duration):
            raise ValueError("every: has to be longer than duration, or nothing could ever run; write e.g. 7d")
        return self


class AdmissionConfig(SettingsSection):
    """See docs/admission.md. Durations as in the API: 30m, 12h, 7d."""

    weights: Weights = _DEFAULT.admission.weights
    max_age: Duration = format_duration(_DEFAULT.admission.max_age)  # after which the age of a run counts in full
    half_life: Duration = format_duration(_DEFAULT.admission.half_life)  # after which use counts half for fair share
    prefer_small: bool = _DEFAULT.admission.prefer_small  # the size factor favours small runs
    backfill: Literal["Easy", "Conservative", "Disabled"] = "Easy"
    depth: int = Field(_DEFAULT.admission.depth, ge=1, le=10_000)  # runs whose start is looked for in one pass
    windows: tuple[WindowConfig, ...] = ()

    def settings(self) -> AdmissionSettings:
        """What decisions see of it."""
        return AdmissionSettings(
            weights=self.weights,
            max_age=float(max(1, parse_duration(self.max_age))),
            half_life=float(max(1, parse_duration(self.half_life))),
            prefer_small=self.prefer_small,
            backfill=Backfill(self.backfill),
            depth=self.depth,
            windows=tuple(window.window() for window in self.windows),
        )


class HistoryConfig(SettingsSection):
    """Records of attempts and runs that ended, beside the log."""

    path: str = ""  # a file on a volume of the operator's pod; empty: the log alone
    max_bytes: int = Field(100_000_000, ge=100_000)  # of one file; five older ones are kept


class TracingConfig(SettingsSection):
    """Traces by OpenTelemetry; see docs/tracing.md."""

    endpoint: Endpoint = ""  # of a collector, for OTLP over HTTP; empty: no traces
    share: float = Field(1.0, ge=0, le=1)  # of all traces


class WebConfig(SettingsSection):
    """The web page; see docs/web.md."""

    enabled: bool = False
    listen: str = "127.0.0.1"  # the pod's own: reached by kubectl port-forward alone
    port: int = Field(8090, ge=0, le=65535)
    hosts: tuple[str, ...] = ()  # names and addresses for the serving certificate

    @property
    def is_local(self) -> bool:
        """Nobody but this machine, or this pod, can connect; everybody else does it over TLS."""
        return self.listen in ("127.0.0.1", "::1", "localhost")


class OperatorConfig(SettingsSection):
    """Everything an installation may set. Times in seconds."""

    mode: Literal["Active", "NoNewAdmissions", "ReportOnly"] = "Active"
    namespace: str = "lockstep-system"
    namespaces: tuple[str, ...] = ()  # whose runs are looked after; all when empty
    identity: str = ""  # of this replica; the host name when empty
    lease_name: str = "lockstep-operator"
    lease_duration: int = Field(10, ge=3, le=60)  # it is renewed every 0.3 of that, and acted on for 0.8 of it
    worker_url: WorkerUrl = "https://lockstep-operator.lockstep-system.svc:8443"
    worker_hosts: tuple[str, ...] = ()  # further names and addresses for the serving certificate
    worker_service: str = "lockstep-operator"  # without a selector; the leader says in its EndpointSlice where it is
    worker_address: str = ""  # IP address of this replica there; empty: it says nothing
    ca_overlap: float = Field(86_400.0, ge=1)  # between two steps from one CA of the worker API to the next
    worker_listen: str = EVERYWHERE
    worker_port: int = Field(8443, ge=0, le=65535)
    metrics_listen: str = EVERYWHERE
    metrics_port: int = Field(8080, ge=0, le=65535)
    local_storage: dict[str, Annotated[str, Field(pattern=r"^(/[^/]+)+/?$")]] = Field(default={})
    topology_levels: dict[str, str] | None = None
    gpu_types: dict[str, dict[str, str]] | None = None
    gpu_rates: dict[str, GpuRates] = Field(default={})
    accelerators: Annotated[tuple[AcceleratorConfig, ...], Field(min_length=1)] | None = None
    priority_class: GangClass | None = None
    check_gpus: bool = True  # a worker that sees no GPU device refuses its node; false where GPUs are simulated
    deadlines: Deadlines = _DEFAULT.deadlines
    breaker: Breaker = _DEFAULT.breaker
    archive: ArchiveConfig = ArchiveConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()  # type: ignore[call-arg]
    pod_groups: PodGroupConfig = PodGroupConfig()
    kueue: KueueConfig = KueueConfig()
    scale_up: ScaleUpConfig = ScaleUpConfig()
    look_up: LookUpConfig = LookUpConfig()
    admission: AdmissionConfig = AdmissionConfig()  # type: ignore[call-arg]
    pod_policy: PodPolicy = _DEFAULT.pod_policy
    history: HistoryConfig = HistoryConfig()  # type: ignore[call-arg]
    tracing: TracingConfig = TracingConfig()  # type: ignore[call-arg]
    web: WebConfig = WebConfig()  # type: ignore[call-arg]
    heartbeat_min: float = Field(_DEFAULT.heartbeat_min, ge=0.1)
    heartbeat_max: float = Field(_DEFAULT.heartbeat_max, gt=0, le=LONGEST_POLL)  # by then workers ask again anyway
    progress_write_interval: float = Field(_DEFAULT.progress_write_interval, gt=0)
    steps_stopped_after: float = Field(_DEFAULT.steps_stopped_after, gt=0)
    stop_grace: int = Field(_DEFAULT.stop_grace, ge=0)
    max_debug_hold: int = Field(_DEFAULT.max_debug_hold, ge=0)  # 0: nothing is kept for debugging
    longest_grace: int = Field(_DEFAULT.longest_grace, ge=1)
    fence_seconds: float = Field(_DEFAULT.fence_seconds, ge=10)
    max_clock_skew: float = Field(_DEFAULT.max_clock_skew, gt=0)
    drain_taints: tuple[str, ...] = _DEFAULT.drain_taints  # keys of node taints that mean: leave, after a save
    taint_suspects: bool = _DEFAULT.taint_suspects  # taint nodes where ranks failed first repeatedly
    reconcile_workers: int = Field(16, ge=1, le=256)

    @field_validator("worker_address")
    @classmethod
    def _is_address(cls, text: str) -> str:
        try:
            return str(ipaddress.ip_address(text)) if text else ""
        except ValueError:
            raise ValueError("write the IP address of this replica, e.g. 10.0.0.7, or leave it out") from None

    def _accelerators(self) -> Accelerators:
        if self.accelerators is None:
            return ACCELERATORS
        return {
            each.resource: ACCELERATORS.get(each.resource, ()) if each.labels is None else each.labels
            for each in self.accelerators
        }

    @field_validator("accelerators")
    @classmethod
    def _names_each_once(
        cls, accelerators: tuple[AcceleratorConfig, ...] | None
    ) -> tuple[AcceleratorConfig, ...] | None:
        named = [each.resource for each in accelerators or ()]
        if twice := next((name for name in named if named.count(name) > 1), ""):
            raise ValueError(f"{twice} is named twice; keep one entry, with all of its labels")
        return accelerators

    @model_validator(mode="after")
    def _goes_with_the_heartbeat(self) -> Self:
        if problems := heartbeat_problems(self.tunables(self.gang(b""))):
            raise ValueError("; ".join(problems))
        return self

    @property
    def serving_hosts(self) -> tuple[str, ...]:
        """Names and addresses for the serving certificate, each once; the Service's always."""
        host = urlsplit(self.worker_url).hostname
        service = f"{self.worker_service}.{self.namespace}.svc"
        web = self.web.hosts if self.web.enabled else ()
        return tuple(dict.fromkeys(filter(None, (host, *self.worker_hosts, service, *web))))

    def gang(self, worker_archive: bytes) -> GangSettings:
        """What all gang pods have of this, before there is a CA."""
        return GangSettings(
            operator_url=self.worker_url,
            worker_archive=worker_archive,
            local_storages=self.local_storage,
            check_gpus=self.check_gpus,
            priority_class=self.priority_class or names.GANG_PRIORITY_CLASS,
            shared_clock_skew=self.checkpoints.shared_clock_skew,
        )

    def tunables(self, gang: GangSettings) -> Tunables:
        """What decisions see of this."""
        same = {name: value for name, value in self if value is not None and name in Tunables.__dataclass_fields__}
        return Tunables(
            **same
            | {
                "mode": Mode(self.mode),
                "accelerators": self._accelerators(),
                "gang": gang,
                "archive": ArchiveSettings(**dict(self.archive), shared_clock_skew=self.checkpoints.shared_clock_skew),
                "bandwidth": dict(self.checkpoints.bandwidth),
                "pod_groups": PodGroupSettings(**dict(self.pod_groups)),
                "scale_up": ScaleUpSettings(**dict(self.scale_up)),
                "admission": self.admission.settings(),
            }
        )


def load(path: str | None, environment: Mapping[str, str] = os.environ) -> OperatorConfig:
    """Read the file (none: all defaults), then the environment: `_ENVIRONMENT`. Raises ConfigError."""
    raw: Any = {}
    if path is not None:
        try:
            raw = yaml.safe_load(Path(path).read_text()) or {}
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # ValueError: a date that is none
            raise ConfigError(f"{path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping such as 'mode: Active'")
    for variable, field in _ENVIRONMENT.items():
        value = environment.get(variable)
        if value:
            raw[field] = value
    try:
        return OperatorConfig.model_validate(raw)
    except ValidationError as error:
        # What does not go together is of no one field: its words name those that it is about.
        words = "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors())
        raise ConfigError(f"{path or 'environment'}: {words}") from error
