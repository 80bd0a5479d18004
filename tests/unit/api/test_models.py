from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lockstep.api.base import durations, quantities, times
from lockstep.api.recovery_status import AttemptStatus
from lockstep.api.run_status import TrainingRunStatus
from lockstep.api.v1alpha1 import TrainingRun, TrainingRunSpec
from lockstep.core.model.accelerators import ACCELERATORS, gpu_request

SEVEN_LINES = {"nodes": 2, "image": "pytorch/pytorch", "command": ["torchrun", "train.py"]}


def test_seven_lines_are_a_whole_run() -> None:
    run = TrainingRun.model_validate({"metadata": {"name": "hello"}, "spec": SEVEN_LINES})
    assert run.spec.nodes == 2
    assert run.spec.launcher.type == "Plain"
    assert run.spec.queue == "default"
    assert run.status.attempt == 0


def test_a_spec_reads_back_as_it_was_dumped() -> None:
    spec = TrainingRunSpec.model_validate(
        SEVEN_LINES | {"resourcesPerNode": {"cpu": 180}, "checkpoint": {"shared": {"claimName": "lustre"}}}
    )
    assert TrainingRunSpec.model_validate(spec.dump()) == spec


def test_an_unknown_field_of_a_spec_is_refused() -> None:
    with pytest.raises(ValidationError, match="gpuPerNode"):
        TrainingRunSpec.model_validate(SEVEN_LINES | {"gpuPerNode": 8})


def test_an_unknown_field_of_a_status_is_ignored_so_that_an_older_operator_reads_a_newer_status() -> None:
    assert TrainingRunStatus.load({"attempt": 3, "fromTheFuture": {}}).attempt == 3


def test_an_untouched_status_dumps_as_nothing() -> None:
    assert TrainingRunStatus().dump() == {}
    assert TrainingRunStatus.load(None) == TrainingRunStatus()


def test_moments_in_a_status_are_seconds_in_python_and_words_in_json() -> None:
    status = TrainingRunStatus(attempts=(AttemptStatus(number=1, started_at=1_764_547_200.9),))
    dumped = status.dump()
    assert dumped == {"attempts": [{"number": 1, "startedAt": "2025-12-01T00:00:00Z"}]}
    assert TrainingRunStatus.load(dumped) == status


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ({}, None),
        ({"gpusPerNode": 0}, 0),
        ({"gpusPerNode": 8}, 8),
        ({"resourcesPerNode": {"nvidia.com/gpu": 4}}, 4),
        ({"resourcesPerNode": {"nvidia.com/gpu": "4"}}, 4),
        ({"resourcesPerNode": {"nvidia.com/gpu": "1e0"}}, 1),
        ({"resourcesPerNode": {"nvidia.com/gpu": "1k"}}, 1_000),
        ({"resourcesPerNode": {"nvidia.com/gpu": "1Ki"}}, 1_024),
        ({"resourcesPerNode": {"nvidia.com/gpu": "500m"}}, 1),
        ({"resourcesPerNode": {"nvidia.com/gpu": "1e999"}}, 2**63 - 1),
        ({"resourcesPerNode": {"cpu": "4"}}, None),
    ],
)
def test_gpus_may_be_asked_for_in_either_place(asked: dict[str, object], gpus: int | None) -> None:
    assert gpu_request(TrainingRunSpec.model_validate(SEVEN_LINES | asked), ACCELERATORS).count == gpus


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("48h", 172_800), ("2d", 172_800), ("1d12h", 129_600)]
)
def test_a_duration_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert durations.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["36501d", "3000000d", "9" * 23 + "d"])
def test_ages_last_as_long_as_can_be_counted_with(text: str) -> None:
    assert durations.parse_duration(text) == durations.LONGEST == durations.parse_duration("36500d")
    assert times.to_rfc3339(float(10**9 * durations.LONGEST)) == "9999-12-31T23:59:59Z"
    assert times.to_unix("9999-12-31T23:59:59-23:00") == times.to_unix("9999-12-31T23:59:59Z") == times.LAST_MOMENT


@pytest.mark.parametrize("text", ["", "5", "s", "1.5h", "12h1d", "2 d", "2D", "-1h", "1w"])
def test_what_is_no_duration_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="write a duration as 90s, 30m, 48h or 2d"):
        durations.parse_duration(text)


@given(st.integers(0, 10**9))
def test_every_duration_that_is_written_can_be_read(seconds: int) -> None:
    assert durations.parse_duration(durations.format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [(8, 8), ("1", 1), ("500m", 0.5), ("2Gi", 2**31), ("1.5k", 1500), ("1e3", 1000), ("250M", 250_000_000)],
)
def test_a_quantity_is_exact(text: str | int, value: float) -> None:
    assert quantities.parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "GB", "512GB", "1 Gi", "0x10", "1KI", "Gi"])
def test_what_is_no_quantity_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="write a quantity as 8, 500m, 200Gi or 2Ti"):
        quantities.parse_quantity(text)


@given(st.integers(0, 4_000_000_000))
def test_a_moment_reads_back_as_it_was_written(moment: int) -> None:
    assert times.to_unix(times.to_rfc3339(moment)) == moment


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "0999-12-31T23:59:59Z"])
def test_moments_of_the_first_thousand_years_are_written_as_they_are_read(text: str) -> None:
    written = times.to_rfc3339(times.to_unix(text))
    assert len(written) == len("2026-01-01T00:00:00Z")
    assert times.to_unix(written) == max(times.to_unix(text), times.to_unix("0001-01-01T00:00:00Z"))


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        times.to_unix("2026-12-01T00:00:00")
