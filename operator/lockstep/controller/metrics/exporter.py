"""Prometheus metrics, read off store and books when they are scraped.

Labels are bounded: words of the core, codes, and for what is under way namespace and run. Nothing is
kept per run, so a run's series end with it; there is never one per rank or pod. What the cluster is like is
exported by the leader alone, or every sum would count it once per replica.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep import __version__
from lockstep.api.base import names
from lockstep.controller.metrics.catalogue import CATALOGUE, Definition
from lockstep.controller.metrics.run_metrics import RunSample, run_samples
from lockstep.controller.runtime.lag import Slowness
from lockstep.controller.runtime.left_out import LeftOut
from lockstep.controller.runtime.resources import RUNS
from lockstep.controller.runtime.tallies import EXCESSES, Histogram, Tallies
from lockstep.controller.workers.reports import RunSummary
from lockstep.core.failures.actions import Verb
from lockstep.core.failures.node_state import NODE_STATES, state_of
from lockstep.core.model.accelerators import ACCELERATORS, gpus_of
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.assignment import is_held
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.reasons import AttemptCause, ConditionType, PreemptionReason, ShownReason, WaitReason
from lockstep.core.model.snapshot import NodeView, QueueView, RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.model.tunables import Mode

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGE = 2000
"""Samples from which on the text is made off the event loop, and is good for a moment."""
GOOD_SECONDS = 2.0
PIECE = 500
"""Samples that are gathered in one turn of the event loop: a millisecond or two."""

_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
Sample = tuple[str, list[str], float]
_Key = tuple[str, str]

RECOVERIES = (Verb.RESTART_IN_PLACE.value, Verb.REPLACE_NODES.value, Verb.ROLL_BACK.value)
ENDS = tuple(product((kind.value for kind in AttemptCause), (*RECOVERIES, Verb.STOP.value)))
"""Causes of failures, and what may be done about them."""
PHASES = ("decide", "stop", "gather", "start", "total")
PREEMPTED_FOR = (PreemptionReason.WITHIN_QUEUE, PreemptionReason.RECLAIM)


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Where the figures are at the moment of a scrape. ``now``, ``leads_since``: Unix seconds."""

    now: Callable[[], float]
    runs: Callable[[], Iterable[RunView]]
    queues: Callable[[], Iterable[QueueView]]
    summary: Callable[[str], RunSummary]
    workers: Callable[[], int]
    leading: Callable[[], bool]
    leads_since: Callable[[], float]
    queue_depth: Callable[[], int]
    queue_failing: Callable[[], int]
    oldest_due_age: Callable[[], float]
    informer_ages: Callable[[], Mapping[str, float]]
    api_requests: Mapping[tuple[str, str, int], int]
    left_out: LeftOut
    worker_requests: Mapping[tuple[str, int], int]
    token_reviews: Mapping[str, int]
    run_sets: Callable[[], Iterable[RunSetView]] = tuple
    nodes: Callable[[], Iterable[NodeView]] = tuple
    accelerators: Collection[str] = tuple(ACCELERATORS)
    node_flaps: Callable[[], Mapping[str, int]] = dict
    node_losses: Callable[[], int] = int
    disruption: Callable[[], str] = str
    slowness: Callable[[], Slowness] = Slowness
    events_dropped: Callable[[], int] = int
    mode: Callable[[], Mode] = lambda: Mode.ACTIVE
    configuration_unreadable: Callable[[], bool] = bool


class Metrics(Collector):
    """All of Lockstep's metrics. Collected on the event loop's thread, where the sources live."""

    def __init__(self, sources: MetricSources, tallies: Tallies) -> None:
        self._sources = sources
        self._tallies = tallies
        self._process = ProcessCollector(registry=None)
        self._making: asyncio.Task[bytes] | None = None
        self._large: tuple[float, bytes] = 0.0, b""  # good until then

    async def render(self) -> bytes:
        """The text of a scrape. Whoever asks while it is made, or soon after a large one, is given the same."""
        good_until, text = self._large
        if self._sources.now() < good_until:
            return text
        if self._making is None:
            self._making = asyncio.create_task(self._render())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    def _made(self, task: "asyncio.Task[bytes]") -> None:
        self._making = None
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits for it any more

    async def _render(self) -> bytes:
        begun = self._sources.now()
        families = {definition.name: _family(definition) for definition in CATALOGUE}
        added = 0
        for added in self._fill(families):
            if added % PIECE == 0:
                await asyncio.sleep(0)
        collected = _Collected([*families.values(), *self._process.collect()])
        if added < LARGE:
            return generate_latest(collected)
        text = await asyncio.to_thread(generate_latest, collected)
        self._large = begun + GOOD_SECONDS, text
        return text

    def collect(self) -> Iterator[Metric]:
        """Every metric of the catalogue, in its order."""
        families = {definition.name: _family(definition) for definition in CATALOGUE}
        for _ in self._fill(families):
            pass
        yield from families.values()

    def _fill(self, families: Mapping[str, Any]) -> Iterator[int]:
        """Adds all there is to tell, and counts it. The sources may change between any two."""
        count = 0
        for count, (name, labels, value) in enumerate(self._samples(), 1):
            families[name].add_metric(labels, value)
            yield count
        for name, labels, histogram in self._histograms():
            families[name].add_metric(labels, _cumulative(histogram), histogram.total)
        yield count

    def _samples(self) -> Iterator[Sample]:
        sources, tallies = self._sources, self._tallies
        if sources.leading():
            yield from self._of_the_cluster()
        yield "lockstep_workers", [], sources.workers()
        yield "lockstep_admissions_total", [], tallies.admissions
        yield "lockstep_backfilled_total", [], tallies.backfilled
        yield "lockstep_nodes_replaced_total", [], tallies.nodes_replaced
        yield "lockstep_pods_replaced_total", [], tallies.pods_replaced
        yield "lockstep_history_dropped_total", [], tallies.history_dropped
        for excess in EXCESSES:
            yield "lockstep_paced_total", [excess], tallies.paced[excess]
        for name, counted in (
            ("lockstep_preemptions_total", tallies.preemptions),
            ("lockstep_preempted_node_seconds_total", tallies.preempted_node_seconds),
        ):
            for key in _with_all(counted, product(self._queue_names(), PREEMPTED_FOR)):
                yield name, [*key], counted[key]
        for key in _with_all(tallies.attempts_ended, ENDS):
            yield "lockstep_attempts_ended_total", [*key], tallies.attempts_ended[key]
        yield "lockstep_leader", [], float(sources.leading())
        yield "lockstep_configuration_unreadable", [], float(sources.configuration_unreadable())
        yield "lockstep_workqueue_depth", [], sources.queue_depth()
        yield "lockstep_workqueue_failing", [], sources.queue_failing()
        yield "lockstep_workqueue_oldest_due_seconds", [], sources.oldest_due_age()
        slow = sources.slowness()
        for part, seconds in ("loop", slow.loop), ("api-server", slow.write), ("scheduler", slow.placing):
            yield "lockstep_lag_seconds", [part], seconds
        yield "lockstep_lag_allowance_seconds", [], slow.allowance
        yield "lockstep_events_dropped_total", [], sources.events_dropped()
        for informer, age in sources.informer_ages().items():
            yield "lockstep_informer_last_heard_seconds", [informer], age
        for resource, count in tuple(sources.left_out.counts.items()):
            yield "lockstep_objects_left_out_total", [resource], count
        for (verb, resource, code), count in tuple(sources.api_requests.items()):
            yield "lockstep_api_requests_total", [verb, resource, str(code)], count
        for (endpoint, code), count in tuple(sources.worker_requests.items()):
            yield "lockstep_worker_api_requests_total", [endpoint, str(code)], count
        for outcome, count in tuple(sources.token_reviews.items()):
            yield "lockstep_token_reviews_total", [outcome], count
        yield "lockstep_build_info", [__version__], 1

    def _of_the_cluster(self) -> Iterator[Sample]:
        sources = self._sources
        yield from self._of_runs()
        yield from self._of_queues()
        yield from self._of_run_sets()
        yield from self._of_nodes()
        sets = [view for view in sources.run_sets() if find(view.status, ConditionType.UNDECIDABLE) is not None]
        yield "lockstep_undecidable", ["run"], sum(map(_is_undecidable, sources.runs()))
        yield "lockstep_undecidable", ["set"], len(sets)
        yield "lockstep_breaker_open", [], float(bool(sources.disruption()))
        for mode in Mode:
            yield "lockstep_mode", [mode.value], float(mode is sources.mode())

    def _histograms(self) -> Iterator[tuple[str, list[str], Histogram]]:
        tallies = self._tallies
        yield "lockstep_admission_wait_seconds", [], tallies.waits
        yield "lockstep_estimate_error_seconds", [], tallies.estimate_errors
        yield "lockstep_preemption_seconds", [], tallies.notices
        yield "lockstep_admission_pass_seconds", [], tallies.passes
        for key in _with_all(tallies.recovery_seconds, product(RECOVERIES, PHASES)):
            yield "lockstep_recovery_seconds", [*key], tallies.recovery_seconds[key]
        for kind, histogram in tallies.looks.items():
            yield "lockstep_reconcile_seconds", [kind], histogram

    def _queue_names(self) -> set[str]:
        return {names.DEFAULT_QUEUE, *(view.name for view in self._sources.queues())}

    def _of_queues(self) -> Iterator[Sample]:
        for view in tuple(self._sources.queues()):
            for quota in view.spec.quotas:
                yield "lockstep_queue_quota_nodes", [view.name, quota.gpu_type], quota.nominal_nodes
            for row in view.status.usage:
                yield "lockstep_queue_nodes", [view.name, row.gpu_type], row.nodes
                yield "lockstep_queue_borrowed_nodes", [view.name, row.gpu_type], row.borrowed

    def _of_run_sets(self) -> Iterator[Sample]:
        for view in tuple(self._sources.run_sets()):
            if not is_true(view.status, ConditionType.FINISHED):
                counts = view.status.counts.model_dump(exclude={"total"})
                for state, count in counts.items():
                    yield "lockstep_set_indices", [view.namespace, view.name, state], count

    def _of_nodes(self) -> Iterator[Sample]:
        sources, now = self._sources, self._sources.now()
        held = {
            node for run in sources.runs() if is_held(run.status.assignment) for node in run.status.assignment.nodes
        }
        counts: Counter[tuple[str, bool]] = Counter()
        gpus: Counter[tuple[str, bool]] = Counter()
        for node in tuple(sources.nodes()):
            key = state_of(node, now), node.name in held
            counts[key] += 1
            gpus[key] += gpus_of(node.allocatable, sources.accelerators)[1]
        for state in NODE_STATES:
            for is_of_a_run in (False, True):
                labels = [state, str(is_of_a_run).lower()]
                yield "lockstep_nodes", labels, counts[state, is_of_a_run]
                yield "lockstep_node_gpus", labels, gpus[state, is_of_a_run]
        yield "lockstep_node_losses_total", [], sources.node_losses()
        for name, times in sources.node_flaps().items():
            yield "lockstep_node_flaps", [name], times

    def _of_runs(self) -> Iterator[Sample]:
        phases, now = dict.fromkeys(Phase, 0), self._sources.now()
        waiting = _Waiting(self._queue_names())
        for run in tuple(self._sources.runs()):
            samples: list[RunSample] = []
            with self._sources.left_out.if_it_fails(RUNS.plural, f"figures of {run.key}", run.uid):
                phase = phase_of(run.status, run.spec is not None and run.spec.suspend)
                phases[phase] += 1
                if phase is Phase.PENDING and not is_test_only(run):
                    waiting.add(run, now)
                # Thousands may wait or be over: only what holds nodes has figures of its own.
                if phase not in (Phase.PENDING, Phase.SUSPENDED, Phase.FINISHED):
                    summary = self._sources.summary(run.uid)
                    samples = [*run_samples(run, phase, summary, now, self._sources.leads_since())]
            for name, labels, value in samples:
                yield name, [run.namespace, run.name, *labels], value
        for phase, count in phases.items():
            yield "lockstep_runs", [phase.value], count
        yield from waiting.samples()


def _with_all(counted: Iterable[_Key], possible: Iterable[_Key]) -> Iterable[_Key]:
    """What was counted, and what may be yet: where a series begins with its first count Prometheus sees no increase."""
    return dict.fromkeys((*possible, *counted))


class _Waiting:
    """The pending runs, by queue. ``known``: names of queues; a run that names another is counted under none."""

    def __init__(self, known: set[str]) -> None:
        self._known = known
        self._runs: Counter[tuple[str, str]] = Counter()
        self._nodes = dict.fromkeys(known, 0)
        self._longest = dict.fromkeys(known, 0.0)
        self._drift = dict.fromkeys(known, 0.0)

    def add(self, run: RunView, now: float) -> None:
        named = run.spec.queue if run.spec is not None else ""
        queue = named if named in self._known else ""
        pending, admission = run.status.queue, run.status.admission
        self._runs[queue, pending.reason or ShownReason.NEW.value] += 1
        self._nodes[queue] = self._nodes.get(queue, 0) + (run.spec.nodes if run.spec is not None else 0)
        if admission.since is not None:
            self._longest[queue] = max(self._longest.get(queue, 0.0), now - admission.since)
        if pending.estimated_start is not None and admission.first_estimate is not None:
            drift = pending.estimated_start - admission.first_estimate
            self._drift[queue] = max(self._drift.get(queue, 0.0), drift)

    def samples(self) -> Iterator[Sample]:
        for (queue, reason), count in self._runs.items():
            yield "lockstep_pending_runs", [queue, reason], count
        for name, by_queue in (
            ("lockstep_queue_pending_nodes", self._nodes),
            ("lockstep_queue_longest_wait_seconds", self._longest),
            ("lockstep_queue_estimate_drift_seconds", self._drift),
        ):
            for queue, value in by_queue.items():
                yield name, [queue], value


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _is_undecidable(run: RunView) -> bool:
    """Decisions about it fail, or admission cycles with it."""
    return run.status.queue.reason == WaitReason.UNDECIDABLE or find(run.status, ConditionType.UNDECIDABLE) is not None


def _family(definition: Definition) -> Any:
    return _FAMILIES[definition.kind](definition.name, definition.help, labels=definition.labels)


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Each bucket with all below it, as Prometheus counts."""
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
