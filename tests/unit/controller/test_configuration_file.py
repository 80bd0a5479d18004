"""The configuration's file while the operator runs: its mode counts at once, and one that cannot be read is told."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.config import OperatorConfig
from lockstep.controller.metrics.exporter import MetricSources
from lockstep.controller.operator import Operator
from lockstep.core.model.tunables import Mode


def started(file: Path) -> tuple[Operator, MetricSources]:
    operator = Operator(OperatorConfig(), None, str(file))
    nothing: Any = SimpleNamespace(answered={}, outcomes={})
    return operator, operator._sources(nothing, nothing)


async def test_a_file_that_cannot_be_read_is_told_once_per_mistake_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.yaml"
    operator, sources = started(file)
    caplog.set_level("INFO", "lockstep.operator")
    for text, unreadable in (("moed: Active", 1), ("mode: Off", 1), ("mode: Active", 0), ("moed: Active", 1)):
        file.write_text(text)
        for _ in range(3):
            await operator._read_mode()
            assert sources.configuration_unreadable() == unreadable
    told = [record.message for record in caplog.records]
    assert ["cannot be read," in each for each in told] == [True, True, False, True]
    assert "moed" in told[0]
    assert "mode" in told[1]
    assert "can be read again" in told[2]


@pytest.mark.parametrize(
    "content",
    [b"mode: \xff", b"[", b"- mode", b"mode: 2024-02-30", b"[" * 5000],
    ids=["no text", "no YAML", "no mapping", "no date", "nested too deep"],
)
async def test_whatever_is_in_the_file_the_operator_goes_on_with_what_it_had(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.yaml"
    operator, sources = started(file)
    file.write_bytes(content)
    await operator._read_mode()
    assert sources.configuration_unreadable()
    assert operator.tunables.mode is Mode.ACTIVE


async def test_the_mode_in_the_file_counts_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    operator, _ = started(file)
    file.write_text("mode: ReportOnly")
    await operator._read_mode()
    assert operator.tunables.mode is Mode.REPORT_ONLY
