"""Prometheus metrics, read off store and books when they are scraped.

Labels are bounded: words of the core, codes, and for what is under way namespace and run. Nothing is
kept per run, so a run's series end with it; there is never one per rank or pod.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep import __version__
from lockstep.controller.reports import RunSummary
from lockstep.controller.tallies import Tallies
from lockstep.core.lifecycle import Phase, phase_of
from lockstep.core.snapshot import RunView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGE = 2000
"""Samples from which on the text is made off the event loop."""

_RUN = ("namespace", "run")


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as documented and as exported."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE = (
    Definition("lockstep_run_attempt", "gauge", "Current attempt.", _RUN),
    Definition("lockstep_run_nodes", "gauge", "Nodes of the gang.", _RUN),
    Definition("lockstep_run_nodes_ready", "gauge", "Nodes at the barrier or past it.", _RUN),
    Definition("lockstep_run_step", "gauge", "Highest step any rank reported.", _RUN),
    Definition("lockstep_run_lowest_step", "gauge", "Lowest of the steps that ranks reported last.", _RUN),
    Definition("lockstep_run_total_steps", "gauge", "Steps of the whole training, where known.", _RUN),
    Definition("lockstep_run_checkpoint_step", "gauge", "Step of the newest valid checkpoint.", (*_RUN, "tier")),
    Definition("lockstep_run_report_age_seconds", "gauge", "Age of the oldest report among running ranks.", _RUN),
    Definition("lockstep_runs", "gauge", "Runs by phase.", ("phase",)),
    Definition("lockstep_workers", "gauge", "Workers heard of."),
    Definition("lockstep_admissions_total", "counter", "Gangs that got their nodes."),
    Definition(
        "lockstep_attempts_ended_total",
        "counter",
        "Attempts that ended, by first cause and what was done about it.",
        ("cause", "action"),
    ),
    Definition("lockstep_nodes_replaced_total", "counter", "Slots that got another node."),
    Definition("lockstep_pods_replaced_total", "counter", "Pods made anew on the same node."),
    Definition("lockstep_leader", "gauge", "1 while this process leads."),
    Definition("lockstep_workqueue_depth", "gauge", "Keys that are due."),
    Definition("lockstep_workqueue_failing", "gauge", "Keys whose last pass failed."),
    Definition("lockstep_workqueue_oldest_due_seconds", "gauge", "How long the oldest due key has waited."),
    Definition(
        "lockstep_informer_last_heard_seconds",
        "gauge",
        "Time since the last event, bookmark or relist of an informer.",
        ("informer",),
    ),
    Definition(
        "lockstep_api_requests_total",
        "counter",
        "Requests to the API server; code 0 where no answer came.",
        ("verb", "resource", "code"),
    ),
    Definition("lockstep_worker_api_requests_total", "counter", "Requests of workers.", ("endpoint", "code")),
    Definition("lockstep_token_reviews_total", "counter", "Reviews of workers' tokens.", ("outcome",)),
    Definition("lockstep_build_info", "gauge", "Always 1.", ("version",)),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures are at the moment of a scrape."""

    runs: Callable[[], Iterable[RunView]]
    summary: Callable[[str], RunSummary]
    workers: Callable[[], int]
    leading: Callable[[], bool]
    queue_depth: Callable[[], int]
    queue_failing: Callable[[], int]
    oldest_due_age: Callable[[], float]
    informer_ages: Callable[[], Mapping[str, float]]
    api_requests: Mapping[tuple[str, str, int], int]
    worker_requests: Mapping[tuple[str, int], int]
    token_reviews: Mapping[str, int]


class Metrics(Collector):
    """All of Lockstep's metrics. Collected on the event loop's thread, where the sources live."""

    def __init__(self, sources: Sources, tallies: Tallies) -> None:
        self._sources = sources
        self._tallies = tallies
        self._process = ProcessCollector(registry=None)

    async def render(self) -> bytes:
        """The text of a scrape."""
        families = [*self.collect(), *self._process.collect()]
        if sum(len(family.samples) for family in families) < LARGE:
            return generate_latest(_Collected(families))
        return await asyncio.to_thread(generate_latest, _Collected(families))

    def collect(self) -> Iterator[Metric]:
        """Every metric of the catalogue, in its order."""
        families = {definition.name: _family(definition) for definition in CATALOGUE}
        for name, labels, value in self._samples():
            families[name].add_metric(labels, value)
        yield from families.values()

    def _samples(self) -> Iterator[tuple[str, list[str], float]]:
        yield from self._of_runs()
        sources, tallies = self._sources, self._tallies
        yield "lockstep_workers", [], sources.workers()
        yield "lockstep_admissions_total", [], tallies.admissions
        yield "lockstep_nodes_replaced_total", [], tallies.nodes_replaced
        yield "lockstep_pods_replaced_total", [], tallies.pods_replaced
        for (cause, action), count in tallies.attempts_ended.items():
            yield "lockstep_attempts_ended_total", [cause, action], count
        yield "lockstep_leader", [], float(sources.leading())
        yield "lockstep_workqueue_depth", [], sources.queue_depth()
        yield "lockstep_workqueue_failing", [], sources.queue_failing()
        yield "lockstep_workqueue_oldest_due_seconds", [], sources.oldest_due_age()
        for informer, age in sources.informer_ages().items():
            yield "lockstep_informer_last_heard_seconds", [informer], age
        for (verb, resource, code), count in sources.api_requests.items():
            yield "lockstep_api_requests_total", [verb, resource, str(code)], count
        for (endpoint, code), count in sources.worker_requests.items():
            yield "lockstep_worker_api_requests_total", [endpoint, str(code)], count
        for outcome, count in sources.token_reviews.items():
            yield "lockstep_token_reviews_total", [outcome], count
        yield "lockstep_build_info", [__version__], 1

    def _of_runs(self) -> Iterator[tuple[str, list[str], float]]:
        phases = dict.fromkeys(Phase, 0)
        for run in self._sources.runs():
            phase = phase_of(run.status, run.spec is not None and run.spec.suspend)
            phases[phase] += 1
            # Thousands may wait or be over: only what holds nodes has figures of its own.
            if phase not in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
                for name, labels, value in self._of_run(run):
                    yield name, [run.namespace, run.name, *labels], value
        for phase, count in phases.items():
            yield "lockstep_runs", [phase.value], count

    def _of_run(self, run: RunView) -> Iterator[tuple[str, list[str], float]]:
        status, workers = run.status, self._sources.summary(run.uid)
        yield "lockstep_run_attempt", [], status.attempt
        yield "lockstep_run_nodes", [], status.resolved.nodes
        ready = status.nodes_ready.partition("/")[0]
        yield "lockstep_run_nodes_ready", [], int(ready) if ready.isdigit() else 0
        # Status has progress only every 30 s; after a restart of the operator it is all there is.
        step = status.progress.step if workers.highest_step is None else workers.highest_step
        yield "lockstep_run_step", [], step
        if workers.lowest_step is not None:
            yield "lockstep_run_lowest_step", [], workers.lowest_step
        if status.progress.total_steps is not None:
            yield "lockstep_run_total_steps", [], status.progress.total_steps
        for candidate in status.checkpoint.latest:
            yield "lockstep_run_checkpoint_step", [candidate.tier], candidate.step
        yield "lockstep_run_report_age_seconds", [], workers.oldest_report_age


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(definition: Definition) -> GaugeMetricFamily | CounterMetricFamily:
    family = GaugeMetricFamily if definition.kind == "gauge" else CounterMetricFamily
    return family(definition.name, definition.help, labels=definition.labels)


def reference() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Served as plain HTTP at `/metrics`. Only runs that hold nodes have series of their own, and those end",
        "with the run; there is no series per rank or pod. Counters count since the process started. The usual",
        "`process_*` metrics are there too. Made from the code by `python -m lockstep.controller.metrics`.",
        "",
        "| Metric | Type | Labels | Meaning |",
        "|---|---|---|---|",
    ]
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
