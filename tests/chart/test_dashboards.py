"""What the dashboards show exists, can be evaluated, and has its place."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from lockstep.controller.metrics.catalogue import CATALOGUE
from support.dashboards import BOARDS, expressions, panels, with_all
from support.helm import CHART, ROOT, Helm
from support.promtool import Promtool

with_all_boards = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])
RULES = CHART / "files" / "alerts.yaml"
GPU_RULES = yaml.safe_load((CHART / "files" / "gpus.yaml").read_text())["groups"][0]["rules"]


def exported() -> dict[str, set[str]]:
    """Labels of each series that the operator or a rule makes."""
    found: dict[str, set[str]] = {}
    for metric in CATALOGUE:
        names = [metric.name]
        if metric.kind == "histogram":
            names = [f"{metric.name}_{part}" for part in ("bucket", "count", "sum")]
        found |= {name: {*metric.labels, "le"} for name in names}
    of_rules = {"namespace", "run", "node", "gpu", "UUID"}
    return found | {rule["record"]: of_rules for rule in GPU_RULES if "record" in rule}


def test_there_is_one_for_each_question() -> None:
    names = {board["uid"] for board in BOARDS}
    assert names == {"lockstep-fleet", "lockstep-queue", "lockstep-run", "lockstep-nodes", "lockstep-goodput"}


@with_all_boards
def test_every_metric_and_label_of_it_exists(board: dict[str, Any]) -> None:
    known = exported()
    for expr in expressions(board):
        named = re.findall(r"\b(lockstep[_:][\w:]+)(?:\{([^}]*)\})?", expr)
        assert named or "process_" in expr or "ALERTS" in expr, expr
        for metric, selector in named:
            assert metric in known, expr
            assert set(re.findall(r"(\w+)\s*[=!]", selector)) <= known[metric], expr


@with_all_boards
def test_what_a_legend_names_is_left_by_its_expression(board: dict[str, Any]) -> None:
    for panel in panels(board):
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            for grouped in re.findall(r"^(?:sum|max|count|avg) by \(([^)]*)\)", target["expr"]):
                assert named <= set(grouped.replace(",", " ").split()), target


@with_all_boards
def test_promtool_reads_every_expression(promtool: Promtool, board: dict[str, Any], tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(expressions(board))]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": board["uid"], "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool.check_rules(file)


@with_all_boards
def test_panels_lie_side_by_side_and_explain_themselves(board: dict[str, Any]) -> None:
    for one, other in itertools.combinations(board["panels"], 2):
        assert one["id"] != other["id"]
        assert not set(_cells(one)) & set(_cells(other)), (one["title"], other["title"])
    for panel in panels(board):
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["description"].endswith("."), panel["title"]


WORK = {
    'lockstep_run_seconds{namespace="team",run="llama",bucket="productive"}': "0+60x90 3600+60x60",
    'lockstep_run_seconds{namespace="team",run="llama",bucket="lostWork"}': "0x90 1860x60",
    'lockstep_run_nodes{namespace="team",run="llama"}': "8x150",
}
"""A failure after an hour and a half undoes half an hour, which is moved from one bucket to the other."""


@pytest.mark.parametrize(
    ("title", "lost"), [("Of the last hour", 0.5), ("Where the time goes", 0.5), ("Node-hours per hour", 4.2)]
)
def test_work_that_a_failure_undoes_is_not_taken_for_a_counter_that_began_anew(
    promtool: Promtool, title: str, lost: float
) -> None:
    expr = next(
        target["expr"] for board in BOARDS for panel in panels(board) for target in panel["targets"]
        if panel["title"].startswith(title)
    )  # fmt: skip
    wanted = [{"labels": '{bucket="lostWork"}', "value": lost}]
    if "productive|" not in expr:
        wanted.append({"labels": '{bucket="productive"}', "value": 0.5})
    asked = {"expr": f"round({with_all(expr)}, 0.1)", "eval_time": "130m", "exp_samples": wanted}
    series = [{"series": name, "values": values} for name, values in WORK.items()]
    promtool.test_rules(RULES, [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}])


def test_keys_that_a_standby_leaves_alone_are_not_counted_as_due(promtool: Promtool) -> None:
    (expr,) = (
        target["expr"]
        for board in BOARDS
        for panel in panels(board)
        for target in panel["targets"]
        if "workqueue_depth" in target["expr"]
    )
    replicas = {"a": (1, 3), "b": (0, 5000)}
    given = {f'lockstep_leader{{instance="{name}"}}': f"{leads}x9" for name, (leads, _) in replicas.items()}
    given |= {f'lockstep_workqueue_depth{{instance="{name}"}}': f"{due}x9" for name, (_, due) in replicas.items()}
    series = [{"series": name, "values": values} for name, values in given.items()]
    asked = {"expr": expr, "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 3}]}
    promtool.test_rules(RULES, [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}])


WEIGHTED = [
    (board["uid"], panel["title"], with_all(target["expr"]))
    for board in BOARDS for panel in panels(board) for target in panel["targets"]
    if re.match(r"sum\(lockstep_run_(goodput|mfu)\b", target["expr"])
]  # fmt: skip


@pytest.mark.parametrize(("title", "expr"), [panel[1:] for panel in WEIGHTED], ids=[panel[0] for panel in WEIGHTED])
def test_a_run_of_which_nothing_is_known_yet_weighs_nothing(promtool: Promtool, title: str, expr: str) -> None:
    metric = f"lockstep_run_{title.lower()}"
    given = {
        'lockstep_run_nodes{namespace="team",run="llama"}': "8x9",
        metric + '{namespace="team",run="llama"}': "0.9x9",
        'lockstep_run_nodes{namespace="team",run="small"}': "2x9",
        metric + '{namespace="team",run="small"}': "0.4x9",
        'lockstep_run_nodes{namespace="other",run="small"}': "90x9",  # it has just begun
    }
    series = [{"series": name, "values": values} for name, values in given.items()]
    asked = {"expr": f"round({expr}, 0.01)", "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 0.8}]}
    promtool.test_rules(RULES, [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}])


def test_goodput_and_mfu_are_weighted_where_they_stand_for_many_runs() -> None:
    assert [(board, title) for board, title, _ in WEIGHTED] == [
        ("lockstep-fleet", "Goodput"),
        ("lockstep-goodput", "Goodput"),
        ("lockstep-goodput", "MFU"),
    ]


def _cells(panel: dict[str, Any]) -> Iterator[tuple[int, int]]:
    place = panel["gridPos"]
    return itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))


@with_all_boards
def test_grafanas_own_types_know_every_field(board: dict[str, Any]) -> None:
    """What they do not know they drop, as Grafana would."""
    register_default_plugins()
    read = Dashboard.from_json(copy.deepcopy(board))
    assert list(_lost(board, json.loads(JSONEncoder().encode(read)))) == []


def _lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from _lost(value, after[key], f"{path}/{key}") if key in after else (f"{path}/{key}",)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from _lost(*pair, f"{path}/{number}")
    elif before != after:
        yield f"{path}: {before!r}"


def test_runbooks_that_panels_name_exist() -> None:
    runbooks = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE))
    named = {
        name for board in BOARDS for panel in panels(board) for name in re.findall(r"Lockstep\w+", panel["description"])
    }
    assert named <= runbooks


def test_the_chart_brings_them_for_the_sidecar(helm: Helm) -> None:
    objects = helm.objects("--set", "dashboards.enabled=true")
    found = [o for o in objects if o["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    assert sorted(json.loads(text)["uid"] for o in found for text in o["data"].values()) == sorted(
        board["uid"] for board in BOARDS
    )
