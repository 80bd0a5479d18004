"""Every alert fires when it should and not before, judged by Prometheus' own code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.alert_cases import CASES, RUN, Case
from support.helm import CHART, ROOT
from support.promtool import Promtool, PromtoolError

RULES = CHART / "files" / "alerts.yaml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
RUNBOOKS = ROOT / "docs" / "runbooks.md"
OF_ONE_OPERATOR = {"LockstepPassesLate", "LockstepOverloaded", "LockstepWatchSilent", "LockstepHistoryLost"}
"""What they tell is of one process, and over with it. All others are of what the leader tells, whoever leads."""
TOLD_BY_THE_LEADER = {
    "LockstepNotActive": ('lockstep_mode{mode="ReportOnly"}', 1),
    "LockstepPassesFail": ("lockstep_workqueue_failing", 2),
    "LockstepUndecidable": ('lockstep_undecidable{kind="run"}', 2),
    "LockstepBreakerOpen": ("lockstep_breaker_open", 1),
    "LockstepNodeFlaps": ('lockstep_node_flaps{node="gpu-7"}', 4),
    "LockstepRunSilent": (f"lockstep_run_report_age_seconds{RUN}", 600),
    "LockstepBarrierWaits": (f"lockstep_run_barrier_wait_seconds{RUN}", 1200),
    "LockstepRunStalled": (f"lockstep_run_step_age_seconds{RUN}", 4000),
    "LockstepNoFirstStep": (f"lockstep_run_init_seconds{RUN}", 4000),
    "LockstepNothingSaved": (f"lockstep_run_unsaved_seconds{RUN}", 11000),
    "LockstepRunDiverges": (f"lockstep_run_roll_backs{RUN}", 2),
    "LockstepQueueMissing": ('lockstep_pending_runs{queue="",reason="QueueNotFound"}', 2),
    "LockstepEstimateDrifts": ('lockstep_queue_estimate_drift_seconds{queue="research"}', 36000),
}
"""A gauge of the leader's alone, and a value that fires the alert."""


def judged(promtool: Promtool, series: dict[str, str], alert: str, minute: int, *fired: Case) -> None:
    """Raises PromtoolError where the alert is not as it was to be."""
    rule = ALERTS[alert]
    alerts = [
        {
            "exp_labels": case.labels | rule["labels"],
            "exp_annotations": rule["annotations"] | {"summary": case.summary},
        }
        for case in fired
    ]
    told = [{"series": name, "values": values} for name, values in series.items()]
    expected = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": alerts}
    promtool.test_rules(RULES, [{"interval": "1m", "input_series": told, "alert_rule_test": [expected]}])


def scraped(name: str, pod: str) -> str:
    """The series with labels of the pod that it was scraped from."""
    if "instance=" in name:
        return name
    metric, _, labels = name.partition("{")
    return f'{metric}{{pod="{pod}",instance="{pod}:8080",{labels or "}"}'


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.when}")
def test_it_fires_when_it_should_and_only_then(promtool: Promtool, case: Case) -> None:
    judged(promtool, case.series, case.alert, case.minute, *([case] if case.summary else []))


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.summary and case.alert not in OF_ONE_OPERATOR],
    ids=lambda case: f"{case.alert}: {case.when}",
)
def test_it_does_not_name_the_operator_that_told_of_it(promtool: Promtool, case: Case) -> None:
    series = {scraped(name, "a"): values for name, values in case.series.items()}
    judged(promtool, series, case.alert, case.minute, case)


@pytest.mark.parametrize("alert", TOLD_BY_THE_LEADER)
def test_it_goes_on_firing_when_another_operator_leads_which_is_scraped_a_minute_later(
    promtool: Promtool, alert: str
) -> None:
    name, value = TOLD_BY_THE_LEADER[alert]
    before = 24 * 60 + 40 if alert == "LockstepNotActive" else 40
    series = {scraped(name, "a"): f"{value}x{before} stale", scraped(name, "b"): f"_x{before} _ {value}x60"}
    fires = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    one = [{"labels": "{}", "value": 1}]
    firing = [{"expr": fires, "eval_time": f"{before + m}m", "exp_samples": one} for m in range(10)]
    told = [{"series": each, "values": values} for each, values in series.items()]
    promtool.test_rules(RULES, [{"interval": "1m", "input_series": told, "promql_expr_test": firing}])


def test_a_mode_that_was_left_is_noticed_though_the_operator_moves_every_ten_hours(promtool: Promtool) -> None:
    series = {
        scraped('lockstep_mode{mode="ReportOnly"}', "a"): "1x600 stale",
        scraped('lockstep_mode{mode="ReportOnly"}', "b"): "_x601 1x600 stale",
        scraped('lockstep_mode{mode="ReportOnly"}', "c"): "_x1203 1x600",
    }
    summary, labels = "The operator has been in mode ReportOnly for a day.", {"mode": "ReportOnly"}
    judged(promtool, series, "LockstepNotActive", 1460, Case("LockstepNotActive", "", {}, 1460, summary, labels))


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_seen_to_fire_and_to_be_quiet(alert: str) -> None:
    assert {bool(case.summary) for case in CASES if case.alert == alert} == {True, False}


@pytest.mark.parametrize("who", ["right", "Pod Security", "quota", "webhook", "policy"])
def test_all_that_answer_403_are_named_where_a_missing_right_is_looked_for(who: str) -> None:
    (section,) = re.findall(r"^## LockstepMayNot\n(.*?)^## ", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL)
    for text in (ALERTS["LockstepMayNot"]["annotations"]["description"], section):
        assert who in text
        assert "PodRefused" in text


def test_promtool_finds_nothing_to_complain_of(promtool: Promtool) -> None:
    assert f"{len(ALERTS)} rules found" in promtool.check_rules(RULES)


def test_a_rule_that_is_wrong_is_found(promtool: Promtool, tmp_path: Path) -> None:
    broken = tmp_path / "alerts.yaml"
    broken.write_text(RULES.read_text().replace("(lockstep_breaker_open) == 1", "(lockstep_breaker_open) =="))
    with pytest.raises(PromtoolError, match="LockstepBreakerOpen"):
        promtool.check_rules(broken)
