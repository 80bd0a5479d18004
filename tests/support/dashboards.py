"""The chart's dashboards, as a person would query them: with every variable at "All"."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from support.helm import CHART

BOARDS: list[dict[str, Any]] = [
    json.loads(path.read_text()) for path in sorted((CHART / "files" / "dashboards").glob("*.json"))
]


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: dict[str, Any]) -> Iterator[str]:
    """What Prometheus is asked."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield with_all(target["expr"])


def with_all(expr: str) -> str:
    """``expr`` as Grafana sends it."""
    for variable in ("namespace", "run", "queue"):
        expr = expr.replace(f"${variable}", ".*")
    return expr
