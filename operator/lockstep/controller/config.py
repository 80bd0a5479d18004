"""The operator's configuration: a YAML file, and a few environment variables for what differs per pod."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from lockstep.core.gang_settings import GangSettings
from lockstep.core.tunables import Breaker, Deadlines, Mode, Tunables


class ConfigError(Exception):
    """The configuration is unusable; the message names the field and the remedy."""


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True)


class DeadlineConfig(_Section):
    """Seconds; see ``lockstep.core.tunables.Deadlines``."""

    scheduled: float = Field(60.0, gt=0)
    started: float = Field(900.0, gt=0)
    registered: float = Field(120.0, gt=0)
    ready: float = Field(300.0, gt=0)
    start_acknowledged: float = Field(60.0, gt=0)
    vacant: float = Field(600.0, gt=0)
    probe: float = Field(60.0, gt=0)
    stop: float = Field(300.0, gt=0)


class BreakerConfig(_Section):
    """See ``lockstep.core.tunables.Breaker``."""

    window: float = Field(120.0, gt=0)
    node_share: float = Field(0.10, gt=0, le=1)
    min_nodes: int = Field(3, ge=1)
    runs: int = Field(5, ge=1)


class OperatorConfig(_Section):
    """Everything an installation may set. Times in seconds."""

    mode: Literal["Active", "NoNewAdmissions", "ReportOnly"] = "Active"
    namespace: str = "lockstep-system"
    identity: str = ""  # of this replica; the host name when empty
    lease_name: str = "lockstep-operator"
    worker_url: str = "https://lockstep-operator.lockstep-system.svc:8443"
    worker_hosts: tuple[str, ...] = ()  # further names and addresses for the serving certificate
    worker_listen: str = "0.0.0.0"
    worker_port: int = Field(8443, ge=0, le=65535)
    metrics_listen: str = "0.0.0.0"
    metrics_port: int = Field(8080, ge=0, le=65535)
    local_storage: dict[str, str] = {}
    topology_levels: dict[str, str] | None = None
    gpu_types: dict[str, dict[str, str]] | None = None
    priority_class: str | None = None
    check_gpus: bool = True  # a worker that sees no GPU device refuses its node; false where GPUs are simulated
    deadlines: DeadlineConfig = DeadlineConfig()  # type: ignore[call-arg]
    breaker: BreakerConfig = BreakerConfig()  # type: ignore[call-arg]
    heartbeat_min: float = Field(2.0, gt=0)
    heartbeat_max: float = Field(10.0, gt=0)
    progress_write_interval: float = Field(30.0, gt=0)
    steps_stopped_after: float = Field(30.0, gt=0)
    stop_grace: int = Field(30, ge=0)
    reconcile_workers: int = Field(16, ge=1, le=256)

    def tunables(self, gang: GangSettings) -> Tunables:
        """What decisions see of this."""
        tunables = Tunables(
            mode=Mode(self.mode),
            deadlines=Deadlines(**self.deadlines.model_dump()),
            breaker=Breaker(**self.breaker.model_dump()),
            gang=gang,
            heartbeat_min=self.heartbeat_min,
            heartbeat_max=self.heartbeat_max,
            progress_write_interval=self.progress_write_interval,
            steps_stopped_after=self.steps_stopped_after,
            stop_grace=self.stop_grace,
        )
        if self.topology_levels is not None:
            tunables = replace(tunables, topology_levels=self.topology_levels)
        if self.gpu_types is not None:
            tunables = replace(tunables, gpu_types=self.gpu_types)
        return tunables


def load(path: str | None, environment: Mapping[str, str] = os.environ) -> OperatorConfig:
    """Read the file (none: all defaults), then LOCKSTEP_NAMESPACE, _IDENTITY and _MODE. Raises ConfigError."""
    raw: Any = {}
    if path is not None:
        try:
            raw = yaml.safe_load(Path(path).read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"{path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping such as 'mode: Active'")
    for name in ("namespace", "identity", "mode"):
        value = environment.get(f"LOCKSTEP_{name.upper()}")
        if value:
            raw[name] = value
    try:
        return OperatorConfig.model_validate(raw)
    except ValidationError as error:
        words = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"{path or 'environment'}: {words}") from error
