"""The operator's configuration file."""

from pathlib import Path

import pytest

from lockstep.controller.config import ConfigError, load
from lockstep.core.accounting.usage import GpuRates
from lockstep.core.admission.settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.tunables import Tunables


def test_without_a_file_workers_insist_on_their_gpus() -> None:
    assert load(None, {}).check_gpus is True


def test_the_check_of_gpus_is_off_where_they_are_simulated(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("checkGpus: false\n")
    assert load(str(path), {}).check_gpus is False


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("checkGpu: false\n")
    with pytest.raises(ConfigError, match="checkGpu"):
        load(str(path), {})


def test_rates_of_gpu_types_reach_decisions(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("gpuRates: {H100: {price: 2.5, watts: 1300, peakFlops: 989.0e+12}}")
    rates = load(str(path), {}).tunables(Tunables().gang).rates
    assert rates["H100"] == GpuRates(price=2.5, watts=1300.0, peak_flops=989e12)


def test_what_is_known_of_checkpoints_reaches_decisions_pods_and_archive_jobs(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("checkpoints: {sharedClockSkew: 20, bandwidth: {local: 1.0e+9}}\nlocalStorage: {nvme: /mnt/nvme}\n")
    config = load(str(path), {})
    tunables = config.tunables(config.gang(b"worker"))
    assert tunables.bandwidth == {"local": 1e9, "shared": 50e9, "archive": 10e9}
    assert (tunables.gang.shared_clock_skew, tunables.archive.shared_clock_skew) == (20.0, 20.0)
    assert (tunables.gang.worker_archive, tunables.gang.local_storages) == (b"worker", {"nvme": "/mnt/nvme"})


def admission_of(tmp_path: Path, text: str) -> AdmissionSettings:
    path = tmp_path / "operator.yaml"
    path.write_text(f"admission: {text}\n")
    return load(str(path), {}).tunables(Tunables().gang).admission


def test_what_is_left_out_of_admission_is_as_decisions_have_it_by_default(tmp_path: Path) -> None:
    assert admission_of(tmp_path, "{}") == AdmissionSettings()


def test_windows_and_weights_reach_decisions(tmp_path: Path) -> None:
    window = "{name: w, start: 1970-01-01T01:00:00Z, duration: 4h, every: 7d, nodeSelector: {rack: r7}}"
    settings = admission_of(tmp_path, f"{{weights: {{size: 5}}, backfill: Conservative, windows: [{window}]}}")
    assert settings.weights.size == 5
    assert settings.backfill == "Conservative"
    expected = MaintenanceWindow("w", 3600.0, 14_400.0, 604_800.0, frozenset(), {"rack": "r7"})
    assert settings.windows == (expected,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{backfill: On}", "admission.backfill"),
        ("{maxAge: soon}", "admission.maxAge: .*not a duration"),
        (
            "{windows: [{name: w, start: 2026-12-01T06:00:00Z, duration: 0s}]}",
            "admission.windows.0: .*how long it lasts",
        ),
        ("{windows: [{name: w, start: noon, duration: 1h}]}", "admission.windows.0.start"),
        ("{windows: [{name: w, start: 2026-12-01T06:00:00Z, duration: 2h, every: 1h}]}", "longer than duration"),
        ("{weights: {age: -1}}", "admission.weights.age"),
    ],
)
def test_a_mistake_in_admission_names_the_field(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        admission_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tracing: {endpoint: 'http://a:99999'}", "tracing.endpoint: .*http://HOST:4318"),
        ("tracing: {endpoint: 'http://a:0'}", "tracing.endpoint: .*port of 1 to 65535"),
        ("tracing: {endpoint: 'collector:4318'}", "tracing.endpoint"),
        ("workerUrl: http://lockstep:8443", "workerUrl: .*https://HOST:8443"),
        ("workerUrl: https://lockstep:84430", "workerUrl: .*port of 1 to 65535"),
        ("priorityClass: system-node-critical", "priorityClass: .*Kubernetes' own, and preempts"),
        ("priorityClass: Gangs", "priorityClass: .*the name of a PriorityClass"),
        ("archive: {memory: 2GB}", "archive.memory: .*write a quantity as 8, 500m"),
    ],
)
def test_what_cannot_be_is_named_with_the_remedy(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(str(path), {})


@pytest.mark.parametrize("endpoint", ["", "http://[fd00::7]:4318/otlp", "https://me:word@traces.example.com"])
def test_collectors_are_named_by_url(tmp_path: Path, endpoint: str) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text(f"tracing: {{endpoint: '{endpoint}'}}")
    assert load(str(path), {}).tracing.endpoint == endpoint
