"""What the operator has to tell, to be changed between scrapes, and runs for it."""

from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.metrics.exporter import Metrics, MetricSources
from lockstep.controller.runtime.lag import Slowness
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.runtime.tallies import Tallies
from lockstep.controller.workers.reports import RunSummary
from lockstep.core.model.snapshot import NodeView, QueueView, RunView
from lockstep.core.model.tunables import Mode

HELD = {"assignment": {"nodes": ["gpu-1", "gpu-2"], "incarnations": [1, 1]}}
RUNNING: dict[str, Any] = {
    **HELD,
    "attempt": 2,
    "start": {"attempt": 2, "assignmentHash": "h", "masterAddress": "10.0.0.1", "masterPort": 1},
    "resolved": {"nodes": 2},
    "nodesReady": "1/2",
    "progress": {"step": 90, "totalSteps": 1000},
    "checkpoint": {"latest": [{"tier": "shared", "step": 80}]},
}
GOOD = {"nodes": 2, "image": "i", "command": ["train"]}
FULL = RUNNING | {
    "attempts": [{"number": 2, "startedAt": 500}],
    "progress": RUNNING["progress"] | {"time": 900, "loss": "1.5", "longestInterval": 3},
    "checkpoint": {
        "latest": [{"tier": tier, "step": 80, "time": 800} for tier in ("local", "shared")],
        "cadence": {"interval": 264, "mttf": 25962},
    },
    "goodput": {"time": 100, "mfu": "0.4", "tokensPerSecond": "120", "gpuHours": "1", "buckets": {"queue": 10}}
    | {"ettr": "0.9", "goodput": "0.8"},
    "conditions": [{"type": "Diverging", "status": "True", "reason": "LossSpike", "lastTransitionTime": 1}],
}
FINISHED = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": 0}]}


def status(**fields: Any) -> TrainingRunStatus:
    return TrainingRunStatus.model_validate(fields)


def run(name: str, fields: dict[str, Any], queue: str | None = None, **spec: Any) -> RunView:
    return RunView(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        generation=1,
        resource_version="1",
        created_at=0.0,
        spec=TrainingRunSpec.model_validate(GOOD | {"queue": queue} | spec) if queue is not None else None,
        status=status(**fields),
    )


class World:
    """Sources to be changed between scrapes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.leads = True
        self.leads_since = 0.0
        self.runs: list[RunView] = []
        self.nodes: list[NodeView] = []
        self.flaps: dict[str, int] = {}
        self.disruption = ""
        self.queues: list[QueueView] = []
        self.summary = RunSummary(workers=2, highest_step=None, lowest_step=None, oldest_report_age=0.0)
        self.tallies = Tallies()
        self.left_out = LeftOut()
        self.left_out.counts["pods"] = 3
        self.sources = MetricSources(
            now=lambda: self.now,
            runs=lambda: self.runs,
            queues=lambda: self.queues,
            summary=lambda uid: self.summary,
            workers=lambda: 2,
            leading=lambda: self.leads,
            leads_since=lambda: self.leads_since,
            queue_depth=lambda: 3,
            queue_failing=lambda: 1,
            oldest_due_age=lambda: 0.5,
            informer_ages=lambda: {"pods": 12.0},
            left_out=self.left_out,
            api_requests={("create", "pods", 201): 512},
            worker_requests={("/v1/report", 200): 9},
            token_reviews={"Authenticated": 4},
            nodes=lambda: self.nodes,
            node_flaps=lambda: self.flaps,
            node_losses=lambda: 7,
            disruption=lambda: self.disruption,
            slowness=lambda: Slowness(loop=0.1, write=2.5, placing=7.0, allowance=25.0),
            events_dropped=lambda: 6,
            mode=lambda: Mode.NO_NEW_ADMISSIONS,
        )
        self.metrics = Metrics(self.sources, self.tallies)

    async def scrape(self) -> Callable[..., float | None]:
        text = (await self.metrics.render()).decode()
        samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return lambda name, **labels: samples.get((name, frozenset(labels.items())))
