"""Prometheus metrics, read off store and books when they are scraped.

Labels are bounded: words of the core, codes, and for what is under way namespace and run. Nothing is
kept per run, so a run's series end with it; there is never one per rank or pod.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep import __version__
from lockstep.api import names
from lockstep.api.run_status import TrainingRunStatus
from lockstep.controller.reports import RunSummary
from lockstep.controller.tallies import Histogram, Tallies
from lockstep.core.arrays.views import RunSetView
from lockstep.core.conditions import is_true
from lockstep.core.lifecycle import Phase, phase_of
from lockstep.core.snapshot import QueueView, RunView
from lockstep.core.trial import is_trial

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGE = 2000
"""Samples from which on the text is made off the event loop."""

_RUN = ("namespace", "run")
_QUOTA = ("queue", "gpu_type")
_PREEMPTED = ("queue", "reason")
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as documented and as exported."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
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
    Definition("lockstep_run_ettr", "gauge", "Productive time by wall time, suspensions left out.", _RUN),
    Definition("lockstep_run_goodput", "gauge", "Productive time by time with nodes.", _RUN),
    Definition(
        "lockstep_run_seconds", "gauge", "Wall time by what it went to; adds up to the whole.", (*_RUN, "bucket")
    ),
    Definition("lockstep_run_gpu_hours", "gauge", "GPU-hours held.", _RUN),
    Definition("lockstep_run_mfu", "gauge", "Model FLOPs utilisation of the newest steps, where it is known.", _RUN),
    Definition("lockstep_run_failures", "gauge", "Unplanned ends of attempts.", _RUN),
    Definition("lockstep_run_steps_lost", "gauge", "Steps that had to be repeated after failures.", _RUN),
    Definition("lockstep_run_checkpoint_interval_seconds", "gauge", "How often a save is due.", _RUN),
    Definition("lockstep_run_mttf_seconds", "gauge", "Expected time between two failures of the gang.", _RUN),
    Definition("lockstep_runs", "gauge", "Runs by phase.", ("phase",)),
    Definition("lockstep_workers", "gauge", "Workers heard of."),
    Definition(
        "lockstep_pending_runs",
        "gauge",
        "Runs that wait, by what for. No queue: there is none of that name; New: nobody has looked yet.",
        ("queue", "reason"),
    ),
    Definition("lockstep_queue_nodes", "gauge", "Nodes that the queue's runs hold.", _QUOTA),
    Definition("lockstep_queue_borrowed_nodes", "gauge", "Of these, beyond the queue's own.", _QUOTA),
    Definition("lockstep_queue_quota_nodes", "gauge", "Nodes that are the queue's own.", _QUOTA),
    Definition(
        "lockstep_set_indices",
        "gauge",
        "Indices of an array that goes on, by what became of them: pending, running, succeeded, failed, cancelled.",
        ("namespace", "set", "state"),
    ),
    Definition("lockstep_admissions_total", "counter", "Gangs that got their nodes."),
    Definition("lockstep_backfilled_total", "counter", "Of these, those that started before others that came first."),
    Definition(
        "lockstep_admission_wait_seconds",
        "histogram",
        "From when a run waits for nothing but its turn until it gets nodes; without those that lost theirs before.",
    ),
    Definition(
        "lockstep_estimate_error_seconds",
        "histogram",
        "The start less the first estimate that was told; less than 0: it came earlier.",
    ),
    Definition(
        "lockstep_preemptions_total",
        "counter",
        "Runs stopped for another one, by their queue: for a higher class in it (WithinQueue), or for what it had "
        "borrowed (Reclaim).",
        _PREEMPTED,
    ),
    Definition(
        "lockstep_preempted_node_seconds_total",
        "counter",
        "Node-seconds of theirs from the newest valid checkpoint, or the start of the attempt, to the end of the stop.",
        _PREEMPTED,
    ),
    Definition("lockstep_preemption_seconds", "histogram", "From the notice to a run until its nodes are free."),
    Definition("lockstep_admission_pass_seconds", "histogram", "Time that the decisions of an admission pass take."),
    Definition(
        "lockstep_attempts_ended_total",
        "counter",
        "Attempts that ended, by first cause and what was done about it.",
        ("cause", "action"),
    ),
    Definition("lockstep_nodes_replaced_total", "counter", "Slots that got another node."),
    Definition("lockstep_pods_replaced_total", "counter", "Pods made anew on the same node."),
    Definition("lockstep_history_dropped_total", "counter", "Records of history that could not be written in time."),
    Definition(
        "lockstep_recovery_seconds",
        "histogram",
        "From a failure that was reported, or a loss established, until all ranks run again (phase total): the "
        "decision in status (decide), the old processes gone (stop), START written (gather), taken by all (start).",
        ("action", "phase"),
    ),
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
    queues: Callable[[], Iterable[QueueView]]
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
    run_sets: Callable[[], Iterable[RunSetView]] = tuple


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
        for name, labels, histogram in self._histograms():
            families[name].add_metric(labels, _cumulative(histogram), histogram.total)
        yield from families.values()

    def _samples(self) -> Iterator[tuple[str, list[str], float]]:
        yield from self._of_runs()
        yield from self._of_queues()
        yield from self._of_run_sets()
        sources, tallies = self._sources, self._tallies
        yield "lockstep_workers", [], sources.workers()
        yield "lockstep_admissions_total", [], tallies.admissions
        yield "lockstep_backfilled_total", [], tallies.backfilled
        yield "lockstep_nodes_replaced_total", [], tallies.nodes_replaced
        yield "lockstep_pods_replaced_total", [], tallies.pods_replaced
        yield "lockstep_history_dropped_total", [], tallies.history_dropped
        for key, count in tallies.preemptions.items():
            yield "lockstep_preemptions_total", [*key], count
        for key, count in tallies.preempted_node_seconds.items():
            yield "lockstep_preempted_node_seconds_total", [*key], count
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

    def _histograms(self) -> Iterator[tuple[str, list[str], Histogram]]:
        tallies = self._tallies
        yield "lockstep_admission_wait_seconds", [], tallies.waits
        yield "lockstep_estimate_error_seconds", [], tallies.estimate_errors
        yield "lockstep_preemption_seconds", [], tallies.notices
        yield "lockstep_admission_pass_seconds", [], tallies.passes
        for (action, phase), histogram in tallies.recovery_seconds.items():
            yield "lockstep_recovery_seconds", [action, phase], histogram

    def _of_queues(self) -> Iterator[tuple[str, list[str], float]]:
        for view in self._sources.queues():
            for quota in view.spec.quotas:
                yield "lockstep_queue_quota_nodes", [view.name, quota.gpu_type], quota.nominal_nodes
            for row in view.status.usage:
                yield "lockstep_queue_nodes", [view.name, row.gpu_type], row.nodes
                yield "lockstep_queue_borrowed_nodes", [view.name, row.gpu_type], row.borrowed

    def _of_run_sets(self) -> Iterator[tuple[str, list[str], float]]:
        for view in self._sources.run_sets():
            if not is_true(view.status, "Finished"):
                counts = view.status.counts.model_dump(exclude={"total"})
                for state, count in counts.items():
                    yield "lockstep_set_indices", [view.namespace, view.name, state], count

    def _of_runs(self) -> Iterator[tuple[str, list[str], float]]:
        phases = dict.fromkeys(Phase, 0)
        known = {names.DEFAULT_QUEUE, *(view.name for view in self._sources.queues())}
        pending: Counter[tuple[str, str]] = Counter()
        for run in self._sources.runs():
            phase = phase_of(run.status, run.spec is not None and run.spec.suspend)
            phases[phase] += 1
            if phase is Phase.PENDING and not is_trial(run):
                queue = run.spec.queue if run.spec is not None else ""
                pending[queue if queue in known else "", run.status.queue.reason or "New"] += 1
            # Thousands may wait or be over: only what holds nodes has figures of its own.
            if phase not in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
                for name, labels, value in self._of_run(run):
                    yield name, [run.namespace, run.name, *labels], value
        for phase, count in phases.items():
            yield "lockstep_runs", [phase.value], count
        for (queue, reason), count in pending.items():
            yield "lockstep_pending_runs", [queue, reason], count

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
        yield from _account_of(status)


def _account_of(status: TrainingRunStatus) -> Iterator[tuple[str, list[str], float]]:
    goodput, cadence = status.goodput, status.checkpoint.cadence
    if goodput.time is not None:
        yield "lockstep_run_ettr", [], float(goodput.ettr or 0)
        yield "lockstep_run_goodput", [], float(goodput.goodput or 0)
        yield "lockstep_run_gpu_hours", [], float(goodput.gpu_hours or 0)
        for bucket, seconds in goodput.buckets:
            yield "lockstep_run_seconds", [bucket], seconds
        yield "lockstep_run_failures", [], goodput.failures
        yield "lockstep_run_steps_lost", [], goodput.steps_lost
    if goodput.mfu:
        yield "lockstep_run_mfu", [], float(goodput.mfu)
    if cadence.interval:
        yield "lockstep_run_checkpoint_interval_seconds", [], cadence.interval
        yield "lockstep_run_mttf_seconds", [], cadence.mttf


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _family(definition: Definition) -> Any:
    return _FAMILIES[definition.kind](definition.name, definition.help, labels=definition.labels)


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Each bucket with all below it, as Prometheus counts."""
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


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
