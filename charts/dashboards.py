"""Grafana's JSON from charts/dashboards/*.yaml: rows of panels, a panel being a mapping of legends to expressions.

``graph`` is lines over time, ``stat`` a number as it is now, ``table`` one column for each expression. Places on the
grid, ids, the data source and the links between dashboards are made here. In expressions ``<run>`` and ``<queue>``
select by the dashboard's variables, in legends ``<name>`` is the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

SOURCES = Path(__file__).with_name("dashboards")
GRID = 24
WIDTHS = {"graph": 8, "stat": 4, "table": GRID}
HEIGHTS = {"graph": 8, "stat": 4, "table": 8}
TYPES = {"graph": "timeseries", "stat": "stat", "table": "table"}
SHORTHANDS = {
    "<run>": '{namespace=~"$namespace",run=~"$run"}',
    "<queue>": '{queue=~"$queue"}',
    "<name>": "{{namespace}}/{{run}}",
}
DATA = {"type": "prometheus", "uid": "${datasource}"}


def made_dashboards() -> dict[str, str]:
    """File name and text of each dashboard."""
    return {
        f"{path.stem}.json": _text(path.stem, yaml.safe_load(path.read_text())) for path in sorted(SOURCES.glob("*"))
    }


def _text(name: str, source: Mapping[str, Any]) -> str:
    """One panel a line, so that a change can be read."""
    frame = {
        "uid": f"lockstep-{name}",
        "title": source["title"],
        "tags": ["lockstep"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["lockstep"], "title": "Lockstep", "asDropdown": True, "includeVars": True}
        ],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                *(_variable(*each) for each in source.get("variables", {}).items()),
            ]
        },
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in frame.items()]
    panels = ",\n".join(f"  {json.dumps(panel)}" for panel in _laid_out(source["rows"]))
    return "\n".join(["{", *lines, ' "panels": [', panels, " ]", "}", ""])


def _laid_out(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows from the top, panels from the left."""
    number = top = 0
    for row in rows:
        number += 1
        place = {"h": 1, "w": GRID, "x": 0, "y": top}
        yield {"id": number, "type": "row", "title": row["row"], "gridPos": place, "panels": []}
        top, left, height = top + 1, 0, 0
        for panel in row["panels"]:
            kind = next(kind for kind in TYPES if kind in panel)
            width = panel.get("width", WIDTHS[kind])
            if left + width > GRID:
                top, left, height = top + height, 0, 0
            number, height = number + 1, max(height, HEIGHTS[kind])
            place = {"h": HEIGHTS[kind], "w": width, "x": left, "y": top}
            yield {"id": number, "gridPos": place, **_panel(kind, panel)}
            left += width
        top += height


def _panel(kind: str, panel: Mapping[str, Any]) -> dict[str, Any]:
    instant = {} if kind == "graph" else {"instant": True}
    targets: list[dict[str, Any]] = [
        {"refId": chr(ord("A") + n), "expr": _long(expr), "legendFormat": _long(legend), "datasource": DATA, **instant}
        for n, (legend, expr) in enumerate(panel["queries"].items())
    ]
    stacked = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.get("stacked") else {}
    look: dict[str, Any] = {"options": {"tooltip": {"mode": "multi", "sort": "desc"}}}
    if kind == "stat":
        calcs = {"calcs": ["lastNotNull"]}
        look = {"options": {"textMode": "name" if panel.get("named") else "auto", "reduceOptions": calcs}}
    elif kind == "table":
        targets = [target | {"format": "table"} for target in targets]
        names = {f"Value #{target['refId']}": target["legendFormat"] for target in targets}
        organised = {"excludeByName": {"Time": True, "Value #A": True}, "renameByName": names}
        look = {"transformations": [{"id": "merge", "options": {}}, {"id": "organize", "options": organised}]}
    return {
        "type": TYPES[kind],
        "title": panel[kind],
        "description": panel["help"],
        "datasource": DATA,
        **look,
        "fieldConfig": {"defaults": {"unit": panel.get("unit", "none"), "custom": stacked}, "overrides": []},
        "targets": targets,
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    values = {"type": "query", "datasource": DATA, "query": query, "refresh": 2, "includeAll": True, "multi": True}
    chosen = {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return {"name": name, "label": name.capitalize(), **values, **chosen}


def _long(text: str) -> str:
    for short, meaning in SHORTHANDS.items():
        text = text.replace(short, meaning)
    return text
