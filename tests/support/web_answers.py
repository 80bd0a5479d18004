"""Viewers of the page, runs to look at, and the answers as they arrive."""

import json
from typing import Any

import orjson

from lockstep.controller.web import queue, run
from lockstep.controller.web.access import Sight
from support import sample_runs
from support.web_views import holding, waiting

ALL = Sight(True, frozenset(), nodes=True, queues=True)
TENANT = Sight(False, frozenset({"research"}), nodes=False, queues=False)
NOBODY_AT_ALL = Sight(False, frozenset(), nodes=False, queues=False)
NOW = sample_runs.NOW
OWN = holding("research", "mine", ["n0", "n1"])
THEIRS = holding("products", "launch-x", ["n2", "n3"])
MINE = waiting("research", "mine", position=2, reason="Priority", message="behind products/next")
NEXT = waiting("products", "next", position=1, message="needs 4 nodes: secrets", priority=7)


def listed(runs: Any, sight: Sight, *queues: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(orjson.dumps(queue.queues(queue.QueueFacts(runs, queues), sight)))
    return answer


def rows(answer: dict[str, Any], name: str = "default") -> list[str]:
    found = next(each for each in answer["queues"] if each["name"] == name)
    return [row.get("foreign") or f"{row['namespace']}/{row['name']}" for row in found["waiting"]]


def paged(view: Any, reports: Any = None, losses: Any = (), said: Any = ()) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(orjson.dumps(run.run(run.RunFacts(view, reports or {}, losses, said, NOW))))
    return answer
