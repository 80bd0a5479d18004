"""Every metric as it is exported and documented: `python -m lockstep.controller.metrics.catalogue [--check]`.

Writes docs/metrics.md; `--check` writes nothing and fails when the page differs.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lockstep.controller.store.node_flaps import MOST_FLAPPING
from lockstep.core.model.reasons import PreemptionReason

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"

_RUN = ("namespace", "run")
_QUOTA = ("queue", "gpu_type")
_PREEMPTED = ("queue", "reason")
_SHORT = {"run": "R", "set": "S", "queue": "Q", "gpu_type": "G", "word": "W"}


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric. It has at most ``times`` series for each of what ``per`` names (keys of ``POPULATIONS``).

    A histogram has that many times its buckets, and two more.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    per: tuple[str, ...] = ()
    times: int = 1


def _of_run(name: str, unit: str, words: str, *labels: str, times: int = 1) -> Definition:
    return Definition(f"lockstep_run_{name}", "gauge", unit, words, (*_RUN, *labels), ("run",), times)


POPULATIONS: Mapping[str, str] = {
    "run": "runs that hold nodes; those that wait or are over have none",
    "set": "TrainingRunSets that go on",
    "queue": "TrainingQueues, the built-in `default`, and an empty name for queues that do not exist",
    "gpu_type": "GPU types in the quotas of a queue",
    "word": "words that the operator has for it, some dozens; new ones come with a new version only",
}

LABELS: Mapping[str, str] = {
    "namespace": "of the run, or of the set",
    "run": "its name",
    "set": "name of the TrainingRunSet",
    "queue": "name of the TrainingQueue; empty: there is none of the name that the run gives",
    "gpu_type": "as in the queue's quotas",
    "phase": "of the run: Pending, Launching, Running, Recovering, Stopping, Suspended, Finished. Of a recovery: "
    "decide, stop, gather, start, total",
    "tier": "of checkpoints: local, shared, archive",
    "bucket": "what time went to, as in [formulae.md](formulae.md)",
    "type": "of the condition",
    "reason": "one word, explained in [troubleshooting.md](troubleshooting.md)",
    "state": "of a node: Ready, NotReady, Draining, Cordoned, Unhealthy, Suspect. Of an index of an array: pending, "
    "running, succeeded, failed, cancelled",
    "held": "true: a run holds the node",
    "node": "its name",
    "cause": "what ended the attempt, as in [recovery.md](recovery.md)",
    "action": "what was done about it, as in [recovery.md](recovery.md)",
    "excess": "what it was too much of: Writes, Pods (made), Refused (pods), Events, Processor",
    "kind": "of a key: run, set, cluster",
    "part": "loop, api-server, scheduler",
    "mode": "Active, NoNewAdmissions, ReportOnly",
    "informer": "what is watched",
    "verb": "of the request",
    "resource": "what the request is about, in the plural",
    "code": "HTTP status",
    "endpoint": "path of the worker API",
    "outcome": "of a review",
    "version": "of the operator",
}

CATALOGUE = (
    _of_run("phase", "", "1 for the phase that the run is in.", "phase"),
    _of_run("attempt", "attempts", "Current attempt."),
    _of_run("nodes", "nodes", "Nodes of the gang."),
    _of_run("nodes_ready", "nodes", "Nodes at the barrier or past it."),
    _of_run(
        "barrier_wait_seconds", "seconds", "How long the gang has been waiting to be complete; 0 once it has started."
    ),
    _of_run("init_seconds", "seconds", "Time since START while no step of the attempt was reported; 0 afterwards."),
    _of_run("step", "steps", "Highest step any rank reported."),
    _of_run("lowest_step", "steps", "Lowest of the steps that ranks reported last."),
    _of_run("total_steps", "steps", "Steps of the whole training, where known."),
    _of_run(
        "step_age_seconds",
        "seconds",
        "Time since a step was reported. Only while it trains, and once the attempt has one.",
    ),
    _of_run(
        "step_interval_seconds",
        "seconds",
        "Longest of the last hundred intervals between two steps, where it is known.",
    ),
    _of_run("loss", "", "Loss of the newest step in status, where it is a number; NaN is one here."),
    _of_run(
        "tokens_per_second", "tokens per second", "Over the last interval, where spec.progress tells tokensPerStep."
    ),
    _of_run("checkpoint_step", "steps", "Step of the newest valid checkpoint.", "tier", times=4),
    _of_run(
        "unsaved_seconds",
        "seconds",
        "Training since the newest valid checkpoint. Only while it trains, and where it has checkpoints.",
    ),
    _of_run("checkpoint_interval_seconds", "seconds", "How often a save is due. None: the program alone decides."),
    _of_run("mttf_seconds", "seconds", "Expected time between two failures of the gang."),
    _of_run(
        "report_age_seconds",
        "seconds",
        "Age of the oldest report among running ranks; of one that this leader has not heard yet, since it leads.",
    ),
    _of_run(
        "condition",
        "",
        "1 for each condition that only appears when something is the matter: Diverging, Straggling, "
        "ClusterDisruption, StateRegression, Undecidable.",
        "type",
        "reason",
        times=10,
    ),
    _of_run("roll_backs", "roll-backs", "Roll-backs in a row without a valid checkpoint beyond them."),
    _of_run("ettr", "ratio", "Productive time by wall time, suspensions left out. None: no step was reported."),
    _of_run("goodput", "ratio", "Productive time by time with nodes. None: no step was reported."),
    _of_run("seconds", "seconds", "Wall time by what it went to; adds up to the whole.", "bucket", times=11),
    _of_run("gpu_hours", "GPU-hours", "GPU-hours held."),
    _of_run("mfu", "ratio", "Model FLOPs utilisation of the newest steps, where it is known."),
    _of_run("failures", "attempts", "Unplanned ends of attempts."),
    _of_run("steps_lost", "steps", "Steps that had to be repeated after failures."),
    Definition("lockstep_runs", "gauge", "runs", "Runs by phase.", ("phase",), (), 7),
    Definition("lockstep_workers", "gauge", "workers", "Workers heard of."),
    Definition(
        "lockstep_pending_runs",
        "gauge",
        "runs",
        "Runs that wait, by what for. No queue: none has that name, or the spec is illegible; New: nobody looked yet.",
        ("queue", "reason"),
        ("queue", "word"),
    ),
    Definition(
        "lockstep_queue_pending_nodes", "gauge", "nodes", "Nodes that waiting runs ask for.", ("queue",), ("queue",)
    ),
    Definition(
        "lockstep_queue_longest_wait_seconds",
        "gauge",
        "seconds",
        "How long the run has waited for its turn that has waited longest.",
        ("queue",),
        ("queue",),
    ),
    Definition(
        "lockstep_queue_estimate_drift_seconds",
        "gauge",
        "seconds",
        "How much later than first told a waiting run is now to start: the worst of the queue; 0: none is later.",
        ("queue",),
        ("queue",),
    ),
    Definition(
        "lockstep_queue_nodes", "gauge", "nodes", "Nodes that the queue's runs hold.", _QUOTA, ("queue", "gpu_type")
    ),
    Definition(
        "lockstep_queue_borrowed_nodes",
        "gauge",
        "nodes",
        "Of these, beyond the queue's own.",
        _QUOTA,
        ("queue", "gpu_type"),
    ),
    Definition(
        "lockstep_queue_quota_nodes",
        "gauge",
        "nodes",
        "Nodes that are the queue's own.",
        _QUOTA,
        ("queue", "gpu_type"),
    ),
    Definition(
        "lockstep_set_indices",
        "gauge",
        "indices",
        "Indices of an array that goes on, by what became of them.",
        ("namespace", "set", "state"),
        ("set",),
        5,
    ),
    Definition("lockstep_nodes", "gauge", "nodes", "Nodes of the cluster by their state.", ("state", "held"), (), 12),
    Definition(
        "lockstep_node_gpus", "gauge", "GPUs", "GPUs of the cluster by their node's state.", ("state", "held"), (), 12
    ),
    Definition(
        "lockstep_node_flaps",
        "gauge",
        "times",
        "How often a node turned NotReady within the last hour. Only of those that did so twice or more.",
        ("node",),
        (),
        MOST_FLAPPING,
    ),
    Definition("lockstep_node_losses_total", "counter", "times", "Nodes that turned NotReady, or were deleted."),
    Definition(
        "lockstep_undecidable",
        "gauge",
        "objects",
        "Runs and TrainingRunSets that the operator cannot decide about; it is a defect of the operator.",
        ("kind",),
        (),
        2,
    ),
    Definition("lockstep_breaker_open", "gauge", "", "1 while so many nodes are lost together that none is replaced."),
    Definition("lockstep_admissions_total", "counter", "gangs", "Gangs that got their nodes."),
    Definition(
        "lockstep_backfilled_total", "counter", "gangs", "Of these, those that started before others that came first."
    ),
    Definition(
        "lockstep_admission_wait_seconds",
        "histogram",
        "seconds",
        "From when a run waits for nothing but its turn until it gets nodes; without those that lost theirs before.",
    ),
    Definition(
        "lockstep_estimate_error_seconds",
        "histogram",
        "seconds",
        "The start less the first estimate that was told; less than 0: it came earlier.",
    ),
    Definition(
        "lockstep_preemptions_total",
        "counter",
        "runs",
        f"Runs stopped for another one, by their queue: for a higher class in it ({PreemptionReason.WITHIN_QUEUE}), "
        f"or for what it had borrowed ({PreemptionReason.RECLAIM}).",
        _PREEMPTED,
        ("queue",),
        2,
    ),
    Definition(
        "lockstep_preempted_node_seconds_total",
        "counter",
        "node-seconds",
        "Node-seconds of theirs from the newest valid checkpoint, or the start of the attempt, to the end of the stop.",
        _PREEMPTED,
        ("queue",),
        2,
    ),
    Definition(
        "lockstep_preemption_seconds", "histogram", "seconds", "From the notice to a run until its nodes are free."
    ),
    Definition(
        "lockstep_admission_pass_seconds",
        "histogram",
        "seconds",
        "Time that the decisions of an admission pass take.",
    ),
    Definition(
        "lockstep_attempts_ended_total",
        "counter",
        "attempts",
        "Attempts that ended, by first cause and what was done about it.",
        ("cause", "action"),
        ("word", "word"),
    ),
    Definition("lockstep_nodes_replaced_total", "counter", "slots", "Slots that got another node."),
    Definition("lockstep_pods_replaced_total", "counter", "pods", "Pods made anew on the same node."),
    Definition(
        "lockstep_history_dropped_total", "counter", "records", "Records of history that could not be written in time."
    ),
    Definition(
        "lockstep_paced_total",
        "counter",
        "times",
        "A run or an array was made to wait, as it was too much for the others (event Paced).",
        ("excess",),
        (),
        5,
    ),
    Definition(
        "lockstep_recovery_seconds",
        "histogram",
        "seconds",
        "From a failure that was reported, or a loss established, until all ranks run again (phase total): the "
        "decision in status (decide), the old processes gone (stop), START written (gather), taken by all (start).",
        ("action", "phase"),
        ("word",),
        5,
    ),
    Definition("lockstep_leader", "gauge", "", "1 while this process leads."),
    Definition(
        "lockstep_configuration_unreadable",
        "gauge",
        "",
        "1 while the file of the configuration cannot be read: this process goes on with what it had.",
    ),
    Definition("lockstep_mode", "gauge", "", "1 for the mode that the operator is in.", ("mode",), (), 3),
    Definition(
        "lockstep_reconcile_seconds",
        "histogram",
        "seconds",
        "Time that a look at a key takes, its requests to the API server included.",
        ("kind",),
        (),
        3,
    ),
    Definition("lockstep_workqueue_depth", "gauge", "keys", "Keys that are due."),
    Definition("lockstep_workqueue_failing", "gauge", "keys", "Keys whose last pass failed."),
    Definition("lockstep_workqueue_oldest_due_seconds", "gauge", "seconds", "How long the oldest due key has waited."),
    Definition(
        "lockstep_lag_seconds",
        "gauge",
        "seconds",
        "Of the last minute: by how much the operator's loop was late at most (loop), what half of its writes took the "
        "API server in half of the namespaces (api-server), and half of the gangs' pods there until kube-scheduler, "
        "which had nothing against them, had placed them (scheduler).",
        ("part",),
        (),
        3,
    ),
    Definition(
        "lockstep_lag_allowance_seconds",
        "gauge",
        "seconds",
        "By how much deadlines are later for the lag of loop and API server. Above 0 what can wait is written less "
        "often: events, progress, the words of runs that wait, figures of queues.",
    ),
    Definition(
        "lockstep_events_dropped_total",
        "counter",
        "events",
        "Events that were not posted: too many waited, or they were old and no Warning while there was lag.",
    ),
    Definition(
        "lockstep_informer_last_heard_seconds",
        "gauge",
        "seconds",
        "Time since the last event, bookmark or relist of an informer.",
        ("informer",),
        (),
        16,
    ),
    Definition(
        "lockstep_objects_left_out_total",
        "counter",
        "objects",
        "Looks at objects that could not be read, or only in part; the log names each once.",
        ("resource",),
        ("word",),
    ),
    Definition(
        "lockstep_api_requests_total",
        "counter",
        "requests",
        "Requests to the API server; `try` is a dry run of a pod; code 0 where no answer came.",
        ("verb", "resource", "code"),
        ("word", "word"),
    ),
    Definition(
        "lockstep_worker_api_requests_total",
        "counter",
        "requests",
        "Requests of workers.",
        ("endpoint", "code"),
        ("word",),
    ),
    Definition(
        "lockstep_token_reviews_total", "counter", "reviews", "Reviews of workers' tokens.", ("outcome",), ("word",)
    ),
    Definition("lockstep_build_info", "gauge", "", "Always 1.", ("version",)),
)

_TOP = """\
# Metrics

Served as plain HTTP at `/metrics`; the usual `process_*` metrics are there too. Only runs that hold nodes have series
of their own, and those end with the run; there is no series per rank, pod or healthy node. Counters count since the
process started, and tell 0 of what has not happened yet. A standby tells of its own process only: of runs, queues and
nodes the leader alone speaks. Alerts are in [runbooks.md](runbooks.md), dashboards and the metrics of GPUs in
[dashboards.md](dashboards.md).

*Made from `operator/lockstep/controller/metrics/catalogue.py` by `make generate`.*
"""


def reference() -> str:
    """docs/metrics.md."""
    metrics = (
        (
            f"`{metric.name}`",
            metric.kind,
            metric.unit,
            ", ".join(f"`{label}`" for label in metric.labels),
            series(metric),
            metric.help,
        )
        for metric in CATALOGUE
    )
    return "\n".join(
        [
            _TOP,
            *_table(("Metric", "Type", "Unit", "Labels", "Series at most", "Meaning"), metrics),
            "",
            "Series are counted with these numbers. A histogram has that many times its buckets, and two more.",
            "",
            *_table(("", "Number of"), ((f"*{_SHORT[name]}*", words) for name, words in POPULATIONS.items())),
            "",
            "## Labels",
            "",
            *_table(("Label", "Values"), ((f"`{name}`", words) for name, words in LABELS.items())),
            "",
        ]
    )


def series(metric: Definition) -> str:
    """How many series it has at most, in the letters of the page."""
    factors = [f"*{_SHORT[name]}*" for name in metric.per]
    return " × ".join([*factors, str(metric.times)] if metric.times > 1 or not factors else factors)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |".replace("  ", " ") for row in (head, ["---"] * len(head), *rows)]


def main() -> int:
    """Write the page, or check it; 1 when it differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the page differs")
    check = parser.parse_args().check
    page = reference()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    if check:
        print("docs/metrics.md is stale: run `make generate`")
        return 1
    PAGE.write_text(page, encoding="utf-8")
    print("wrote docs/metrics.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
