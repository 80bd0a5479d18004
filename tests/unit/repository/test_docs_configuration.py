"""docs/configuration.md against the model of the configuration."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from lockstep.config import (
    AcceleratorConfig,
    AdmissionConfig,
    BandwidthConfig,
    CheckpointsConfig,
    HistoryConfig,
    KueueConfig,
    OperatorConfig,
    TracingConfig,
    WebConfig,
    WindowConfig,
    load,
)
from lockstep.core.model.pod_group_settings import PodGroupConfig
from lockstep.core.model.settings import ArchiveConfig, Breaker, Deadlines, GpuRates, PodPolicy, ScaleUpConfig, Weights
from lockstep.core.model.tunables import Tunables

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
IN_WORDS = {"identity", "path", "topologyLevels", "gpuTypes", "priorityClass", "name", "start", "duration", "every"} | {
    "serviceAccounts",
    "accelerators",
    "labels",
    "resource",
}
"""Fields whose default the page says in words."""


def section(title: str) -> str:
    start = PAGE.index(title)
    end = PAGE.find("\n## ", start + 1)
    return PAGE[start : end if end > 0 else None]


def documented(part: str) -> dict[str, str]:
    """Field and default of every row of the table in a section."""
    found: dict[str, str] = {}
    for fields, default in re.findall(r"^\| (`[^|]+) \|([^|]*)\|", part, re.MULTILINE):
        names, defaults = re.findall(r"`(\w+)`", fields), re.findall(r"`([^`]*)`", default)
        found |= dict(zip(names, defaults or [""] * len(names), strict=True))
    return found


@pytest.mark.parametrize(
    ("title", "model"),
    [
        ("# The operator's configuration", OperatorConfig),
        ("## deadlines", Deadlines),
        ("## breaker", Breaker),
        ("## archive", ArchiveConfig),
        ("## checkpoints", CheckpointsConfig),
        ("## bandwidth", BandwidthConfig),
        ("## podGroups", PodGroupConfig),
        ("## scaleUp", ScaleUpConfig),
        ("## kueue", KueueConfig),
        ("## podPolicy", PodPolicy),
        ("## admission", AdmissionConfig),
        ("## weights", Weights),
        ("## windows", WindowConfig),
        ("## gpuRates", GpuRates),
        ("## accelerators", AcceleratorConfig),
        ("## history", HistoryConfig),
        ("## web", WebConfig),
        ("## tracing", TracingConfig),
    ],
)
def test_every_field_is_documented_with_its_default(title: str, model: type[BaseModel]) -> None:
    rows = documented(section(title))
    defaults = {str(field.alias): field.default for field in model.model_fields.values()}
    nested = {name for name, default in defaults.items() if isinstance(default, BaseModel)}
    assert set(rows) == set(defaults) - nested
    for name in set(rows) - IN_WORDS:
        default = defaults[name]
        assert yaml.safe_load(rows[name]) == (list(default) if isinstance(default, tuple) else default), name


def test_the_bounds_of_heartbeats_are_those_of_the_code() -> None:
    bounds = OperatorConfig.model_json_schema(by_alias=True)["properties"]
    least, longest = bounds["heartbeatMin"]["minimum"], bounds["heartbeatMax"]["maximum"]
    assert f"From {least:g} to {longest:g}: workers ask again after {longest:g} s" in PAGE
    silent = Tunables(heartbeat_min=longest, heartbeat_max=longest).silent_after(1)
    assert f"three intervals and 2 s, so {silent:g} s at most" in PAGE


def test_the_example_is_a_configuration(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    file = tmp_path / "config.yaml"
    file.write_text(example[1])
    assert load(str(file), {}).local_storage == {"nvme": "/mnt/nvme/lockstep"}
