"""The operator's configuration file."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lockstep.config import ConfigError, OperatorConfig, load
from lockstep.core.model.accelerators import ACCELERATORS, Accelerators
from lockstep.core.model.admission_settings import AdmissionSettings, MaintenanceWindow
from lockstep.core.model.pod_group_settings import PodGroupKind, PodGroupSettings
from lockstep.core.model.settings import ArchiveSettings, Breaker, Deadlines, GpuRates, PodPolicy, ScaleUpSettings
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.worker.link import operator_link


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
    rates = load(str(path), {}).tunables(Tunables().gang).gpu_rates
    assert rates["H100"] == GpuRates(price=2.5, watts=1300.0, peak_flops=989e12)


def test_what_is_known_of_checkpoints_reaches_decisions_pods_and_archive_jobs(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("checkpoints: {sharedClockSkew: 20, bandwidth: {local: 1.0e+9}}\nlocalStorage: {nvme: /mnt/nvme}\n")
    config = load(str(path), {})
    tunables = config.tunables(config.gang(b"worker"))
    assert tunables.bandwidth == {"local": 1e9, "shared": 50e9, "archive": 10e9}
    assert (tunables.gang.shared_clock_skew, tunables.archive.shared_clock_skew) == (20.0, 20.0)
    assert (tunables.gang.worker_archive, tunables.gang.local_storages) == (b"worker", {"nvme": "/mnt/nvme"})


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("mode: ReportOnly", "mode", Mode.REPORT_ONLY),
        ("deadlines: {stop: 9}", "deadlines", Deadlines(stop=9)),
        ("breaker: {runs: 9}", "breaker", Breaker(runs=9)),
        ("archive: {image: i, nodeSelector: {a: b}}", "archive", ArchiveSettings(image="i", node_selector={"a": "b"})),
        ("podGroups: {kind: Auto, queue: q}", "pod_groups", PodGroupSettings(kind=PodGroupKind.AUTO, queue="q")),
        ("scaleUp: {maxNodes: 9}", "scale_up", ScaleUpSettings(max_nodes=9)),
        ("podPolicy: {serviceAccounts: []}", "pod_policy", PodPolicy(service_accounts=())),
        ("topologyLevels: {}", "topology_levels", {}),
        ("gpuTypes: {}", "gpu_types", {}),
        ("heartbeatMin: 3", "heartbeat_min", 3.0),
        ("progressWriteInterval: 9", "progress_write_interval", 9.0),
        ("stepsStoppedAfter: 90", "steps_stopped_after", 90.0),
        ("stopGrace: 9", "stop_grace", 9),
        ("maxDebugHold: 9", "max_debug_hold", 9),
        ("fenceSeconds: 90", "fence_seconds", 90.0),
        ("longestGrace: 7200", "longest_grace", 7200),
        ("maxClockSkew: 9", "max_clock_skew", 9.0),
        ("drainTaints: [leave]", "drain_taints", ("leave",)),
        ("taintSuspects: true", "taint_suspects", True),
    ],
)
def test_what_is_said_reaches_decisions_and_the_rest_is_as_by_default(
    tmp_path: Path, text: str, field: str, value: object
) -> None:
    found = configured(tmp_path, text).tunables(Tunables().gang)
    assert found == replace(Tunables(), **{field: value})
    assert type(getattr(found, field)) is type(value)


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


def configured(tmp_path: Path, text: str) -> OperatorConfig:
    path = tmp_path / "operator.yaml"
    path.write_text(text)
    return load(str(path), {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{heartbeatMin: 8, heartbeatMax: 5}", r"heartbeatMin: 8 s is longer than heartbeatMax, 5 s; lower it"),
        ("{heartbeatMin: 12}", r"heartbeatMin: 12 s is longer than heartbeatMax, 10 s"),
        ("{heartbeatMax: 1}", r"heartbeatMin: 2 s is longer than heartbeatMax, 1 s"),
        ("{heartbeatMax: 15.1}", r"heartbeatMax: .*less than or equal to 15"),
        ("{heartbeatMax: 600}", r"heartbeatMax: .*less than or equal to 15"),
        ("{heartbeatMax: .inf}", "heartbeatMax: "),
        ("{heartbeatMax: .nan}", "heartbeatMax: "),
        ("{heartbeatMin: 0.05}", r"heartbeatMin: .*greater than or equal to 0\.1"),
        (
            "{stepsStoppedAfter: 19}",
            r"stepsStoppedAfter: 19 s is less than twice heartbeatMax, 10 s: .*; raise it to 20, or lower heartbeatMax",
        ),
        ("{heartbeatMax: 15, stepsStoppedAfter: 25}", r"stepsStoppedAfter: .*; raise it to 30, or lower heartbeatMax"),
        ("{fenceSeconds: 12}", r"fenceSeconds: 12 s is less than twice heartbeatMax, 10 s: .*; raise it to 20"),
        ("{heartbeatMin: 20, heartbeatMax: 15, fenceSeconds: 12}", "heartbeatMin: .*; fenceSeconds: "),
    ],
)
def test_times_that_do_not_go_with_the_heartbeat_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"operator\.yaml: .*{words}"):
        configured(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "{heartbeatMin: 10}",
        "{heartbeatMin: 15, heartbeatMax: 15}",
        "{heartbeatMin: 0.1}",
        "{heartbeatMax: 5, stepsStoppedAfter: 10, fenceSeconds: 10}",
    ],
)
def test_times_that_go_with_the_heartbeat_are_taken(tmp_path: Path, text: str) -> None:
    configured(tmp_path, text)


def test_the_longest_heartbeat_is_the_longest_poll_of_a_worker(tmp_path: Path) -> None:
    """A longer one would not be kept: workers ask again by then, and would count as silent all the later."""
    longest = configured(tmp_path, f"heartbeatMax: {operator_link.MAX_POLL_SECONDS}")
    assert longest.tunables(Tunables().gang).heartbeat_seconds(10**6) == operator_link.MAX_POLL_SECONDS
    with pytest.raises(ConfigError):
        configured(tmp_path, f"heartbeatMax: {operator_link.MAX_POLL_SECONDS + 0.1}")


def test_with_any_heartbeat_a_worker_counts_as_silent_before_anybody_is_alerted_that_it_is(tmp_path: Path) -> None:
    rules = yaml.safe_load((Path(__file__).parents[2] / "charts/lockstep/files/alerts.yaml").read_text())
    silent = next(
        rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == "LockstepRunSilent"
    )
    alerted_after = float(re.search(r"lockstep_run_report_age_seconds\) > (\d+)$", silent["expr"])[1])
    longest = configured(tmp_path, "{heartbeatMin: 15, heartbeatMax: 15}").tunables(Tunables().gang)
    assert longest.silent_after(10**6) < alerted_after


def accelerators_of(tmp_path: Path, text: str) -> Accelerators:
    path = tmp_path / "operator.yaml"
    path.write_text(text)
    return load(str(path), {}).tunables(Tunables().gang).accelerators


def test_what_counts_as_gpus_is_said_in_order_with_labels_or_with_the_known_ones(tmp_path: Path) -> None:
    assert accelerators_of(tmp_path, "{}") == ACCELERATORS
    npu = "{resource: example.com/npu, labels: [npu, pool=npu]}"
    listed = f"[{{resource: amd.com/gpu}}, {npu}, {{resource: nvidia.com/gpu}}]"
    found = accelerators_of(tmp_path, f"accelerators: {listed}")
    assert [*found.items()] == [
        ("amd.com/gpu", ACCELERATORS["amd.com/gpu"]),
        ("example.com/npu", ("npu", "pool=npu")),
        ("nvidia.com/gpu", ACCELERATORS["nvidia.com/gpu"]),
    ]
    assert accelerators_of(tmp_path, "accelerators: [{resource: example.com/npu}]") == {"example.com/npu": ()}
    assert accelerators_of(tmp_path, "accelerators: [{resource: amd.com/gpu, labels: []}]") == {"amd.com/gpu": ()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "at least 1"),
        ("[{resource: gpu}]", "write a resource as device plugins name it, e.g. amd.com/gpu"),
        ("[{resource: amd.com/gpu, labels: ['a b']}]", "write a label as KEY or KEY=VALUE"),
        ("[{resource: amd.com/gpu}, {resource: amd.com/gpu}]", "amd.com/gpu is named twice; keep one entry"),
    ],
)
def test_an_accelerator_that_cannot_be_is_refused_with_the_remedy(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        accelerators_of(tmp_path, f"accelerators: {text}")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("{}", ["lockstep-operator.lockstep-system.svc"]),
        ("workerUrl: https://10.96.0.50:8443", ["10.96.0.50", "lockstep-operator.lockstep-system.svc"]),
        (
            "{workerUrl: 'https://[fd00::7]', workerHosts: [a.example, fd00::7], namespace: ml, workerService: gangs}",
            ["fd00::7", "a.example", "gangs.ml.svc"],
        ),
        ("web: {enabled: true, hosts: [w.example]}", ["lockstep-operator.lockstep-system.svc", "w.example"]),
        ("web: {enabled: false, hosts: [w.example]}", ["lockstep-operator.lockstep-system.svc"]),
    ],
)
def test_the_certificate_is_for_the_service_whatever_else_workers_are_told(
    tmp_path: Path, text: str, hosts: list[str]
) -> None:
    assert list(configured(tmp_path, text).serving_hosts) == hosts
