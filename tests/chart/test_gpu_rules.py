"""The metrics of NVIDIA's DCGM exporter told by run, on samples as it exports them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from lockstep.api.base.names import pod_name
from support.helm import CHART
from support.promtool import Promtool

RULES = CHART / "files" / "gpus.yaml"
ATTEMPT = {'lockstep_run_attempt{namespace="team",run="llama-3"}': "1x30"}
POD = pod_name("llama-3", "1f0a9c77-5b1e-4f6e-9d2a-1c2d3e4f5a6b", 1, 2)


def exported(metric: str, gpu: int, values: str, by: str) -> dict[str, str]:
    """A series of a GPU of gpu-7. ``by``: how it tells whose the GPU is."""
    own = 'container="exporter",namespace="gpu-operator",pod="nvidia-dcgm-exporter-x9k2f"'
    whose = {
        "pod": f'container="trainer",namespace="team",pod="{POD}"',
        "exported_pod": f'{own},exported_container="trainer",exported_namespace="team",exported_pod="{POD}"',
        "node": own,
    }[by]
    labels = (
        f'gpu="{gpu}",UUID="GPU-0{gpu}",pci_bus_id="00000000:0{gpu}:00.0",device="nvidia{gpu}",'
        f'modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-7",DCGM_FI_DRIVER_VERSION="570.86.15",{whose}'
    )
    return {f"{metric}{{{labels}}}": values}


def of_two(metric: str, values: tuple[str, str], by: str) -> dict[str, str]:
    return exported(metric, 0, values[0], by) | exported(metric, 1, values[1], by)


def judge(promtool: Promtool, series: dict[str, str], **expected: Any) -> None:
    given = [{"series": name, "values": values} for name, values in series.items()]
    promtool.test_rules(RULES, [{"interval": "1m", "input_series": given, **expected}])


def tells(expr: str, *samples: tuple[str, float], minute: int = 5) -> dict[str, Any]:
    found = [{"labels": labels, "value": value} for labels, value in samples]
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": found}


WHO_IS_THERE = {
    f'kube_pod_info{{namespace="team",pod="{POD}",node="gpu-7"}}': "1x30",
    f'kube_pod_status_phase{{namespace="team",pod="{POD}",phase="Running"}}': "1x30",
}


@pytest.mark.parametrize("by", ["pod", "exported_pod", "node"])
def test_what_gpus_do_is_told_by_run_however_the_exporter_is_scraped(promtool: Promtool, by: str) -> None:
    series = ATTEMPT | of_two("DCGM_FI_DEV_GPU_UTIL", ("98x30", "50x30"), by)
    series |= of_two("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", ("0.5x30", "0.3x30"), by)
    series |= of_two("DCGM_FI_DEV_FB_USED", ("70000x30", "60000x30"), by)
    series |= of_two("DCGM_FI_DEV_POWER_USAGE", ("600x30", "650x30"), by)
    series |= of_two("DCGM_FI_DEV_GPU_TEMP", ("61x30", "72x30"), by)
    series |= WHO_IS_THERE if by == "node" else {}
    labels = '{namespace="team",run="llama-3"}'
    expected = {
        "lockstep:run_gpu_utilization:avg": 0.74,
        "lockstep:run_gpu_utilization:min": 0.5,
        "lockstep:run_gpu_tensor_active:avg": 0.4,
        "lockstep:run_gpu_memory_used_bytes:max": 70000 * 2**20,
        "lockstep:run_gpu_power_watts:sum": 1250,
        "lockstep:run_gpu_temperature_celsius:max": 72,
    }
    tests = [tells(name, (f"{name}{labels}", value)) for name, value in expected.items()]
    info = (
        f'lockstep:gpu_info{{UUID="GPU-0{n}",gpu="{n}",namespace="team",node="gpu-7",run="llama-3"}}' for n in (0, 1)
    )
    judge(promtool, series, promql_expr_test=[*tests, tells("lockstep:gpu_info", *((each, 1) for each in info))])


@pytest.mark.parametrize("by", ["pod", "exported_pod", "node"])
def test_gpus_of_others_are_of_no_run(promtool: Promtool, by: str) -> None:
    """No run of that name holds nodes: it is over, or the pod is somebody else's that happens to be called so."""
    series = exported("DCGM_FI_DEV_GPU_UTIL", 0, "98x30", by) | WHO_IS_THERE
    judge(promtool, series, promql_expr_test=[tells("lockstep:gpu_info"), tells("lockstep:run_gpu_utilization:avg")])


def test_a_pod_that_ended_on_a_node_does_not_have_its_gpus(promtool: Promtool) -> None:
    over = pod_name("alpaca", "2f0a9c77", 0, 1)
    series = {
        'lockstep_run_attempt{namespace="team",run="alpaca"}': "1x30",
        f'kube_pod_info{{namespace="team",pod="{over}",node="gpu-7"}}': "1x30",
        f'kube_pod_status_phase{{namespace="team",pod="{over}",phase="Running"}}': "0x30",
    }
    series |= ATTEMPT | WHO_IS_THERE | exported("DCGM_FI_DEV_GPU_UTIL", 0, "98x30", "node")
    told = ('lockstep:node_run{namespace="team",node="gpu-7",run="llama-3"}', 1.0)
    judge(promtool, series, promql_expr_test=[tells("lockstep:node_run", told)])


@pytest.mark.parametrize(
    ("phase", "fires"), [("Running", True), ("Launching", False)], ids=["trains", "waits for its gang"]
)
def test_idle_gpus_are_alerted_on_only_of_a_run_that_trains(promtool: Promtool, phase: str, fires: bool) -> None:
    series = ATTEMPT | of_two("DCGM_FI_DEV_GPU_UTIL", ("4x30", "0x30"), "pod")
    series |= {f'lockstep_run_phase{{namespace="team",run="llama-3",phase="{phase}"}}': "1x30"}
    alert = {
        "exp_labels": {"severity": "warning", "namespace": "team", "run": "llama-3"},
        "exp_annotations": {
            "summary": "The GPUs of team/llama-3 do 2% of what they could.",
            "description": "The run trains as far as Lockstep knows. It hangs, or waits for data.",
        },
    }
    expected = {"eval_time": "25m", "alertname": "LockstepGpusIdle", "exp_alerts": [alert] if fires else []}
    judge(promtool, series, alert_rule_test=[expected])


def xid(code: int, values: str) -> dict[str, str]:
    """As exporters since 3.3.6 have it: each code is a series of its own."""
    (name,) = exported("DCGM_FI_DEV_XID_ERRORS", 0, "", "pod")
    return {name.replace("{", f'{{err_code="{code}",err_msg="words",', 1): values}


@pytest.mark.parametrize(
    ("seen", "fires"),
    [
        (exported("DCGM_FI_DEV_XID_ERRORS", 0, "0x20 79x10", "pod"), True),
        (xid(0, "0x20 stale") | xid(79, "_x20 79x10"), True),
        (xid(79, "_x20 79x10"), True),
        (xid(31, "31x20 stale") | xid(79, "_x20 79x10"), True),
        (xid(79, "79x30"), False),
        (xid(79, "79x20 stale") | xid(0, "_x20 0x10"), False),
        (exported("DCGM_FI_DEV_XID_ERRORS", 0, "79x30", "pod"), False),
    ],
    ids=[
        "just now",
        "just now, as another series",
        "just now, the first of this GPU",
        "after another one",
        "long ago",
        "and is forgotten",
        "before the run had the GPU",
    ],
)
def test_an_xid_is_alerted_on_when_it_comes(promtool: Promtool, seen: dict[str, str], fires: bool) -> None:
    series = ATTEMPT | exported("DCGM_FI_DEV_GPU_UTIL", 0, "98x30", "pod") | seen
    alert = {
        "exp_labels": {"severity": "warning", "namespace": "team", "run": "llama-3", "node": "gpu-7", "gpu": "0"},
        "exp_annotations": {
            "summary": "GPU 0 of gpu-7 had XID 79 under team/llama-3.",
            "description": "NVIDIA's list of XID errors says whether the program or the machine is at fault.",
        },
    }
    expected = {"eval_time": "25m", "alertname": "LockstepGpuError", "exp_alerts": [alert] if fires else []}
    judge(promtool, series, alert_rule_test=[expected])


def test_an_xid_of_a_gpu_that_has_only_just_been_heard_of_is_nobodys_news(promtool: Promtool) -> None:
    """The exporter or Prometheus began a moment ago: the error may be of last week."""
    seen = exported("DCGM_FI_DEV_GPU_UTIL", 0, "98x30", "pod") | xid(79, "79x30")
    quiet = {"eval_time": "8m", "alertname": "LockstepGpuError", "exp_alerts": []}
    judge(promtool, ATTEMPT | seen, alert_rule_test=[quiet])


def test_the_pattern_of_pods_is_that_of_the_names_they_are_given() -> None:
    patterns = set(re.findall(r'"(\(?\.\+\)?-[^"]+)"', RULES.read_text()))
    assert len(patterns) == 2
    for pattern in patterns:
        found = re.fullmatch(pattern, POD)
        assert found is not None
        assert found.groups() in ((), ("llama-3",))
        assert re.fullmatch(pattern, "nvidia-dcgm-exporter-x9k2f") is None


def test_promtool_finds_nothing_to_complain_of(promtool: Promtool) -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    assert f"{len(group['rules'])} rules found" in promtool.check_rules(RULES)
