"""`lockstep report`: who used how much, how well, and what went wrong, by user, queue or namespace."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lockstep.api.base.durations import parse_duration
from lockstep.api.base.times import to_rfc3339, to_unix
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import UsageError, if_forbidden
from lockstep.cli.submission.slurm_syntax import moment
from lockstep.cli.views.run_use import NOT_ENDED, Past, Use, use_of
from lockstep.core.accounting.goodput import Bucket, has_steps, runtime_goodput
from lockstep.core.model import sanitise
from lockstep.core.model.reasons import Outcome
from lockstep.core.model.test_only import is_test_only
from lockstep.present.amounts import duration, local_time, plural

By = Literal["user", "queue", "namespace"]
Form = Literal["table", "csv", "json"]
COLUMNS = ("RUNS", "SUCCEEDED", "FAILED", "CANCELLED", "NOT-ENDED", "GPU-HOURS", "GOODPUT", "WAIT-P50", "WAIT-P95",
           "FAILURES", "BY-CAUSE")  # fmt: skip
FIELDS = ("runs", "succeeded", "failed", "cancelled", "notEnded", "gpuHours", "goodput", "waitP50Seconds",
          "waitP95Seconds", "failures", "failuresByCause")  # fmt: skip
UNKNOWN_CAUSE = "unknown"
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would compute


@dataclass(slots=True)
class Sum:
    """What several used."""

    outcomes: Counter[str] = field(default_factory=Counter)
    gpu_hours: float = 0.0
    node_seconds: Counter[Bucket] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list)
    failures: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, use: Use) -> None:
        """One more run."""
        self.outcomes[use.outcome] += 1
        self.gpu_hours += use.gpu_hours
        if use.outcome == Outcome.FAILED or has_steps(use.seconds):
            self.node_seconds.update({bucket: seconds * use.nodes for bucket, seconds in use.seconds.items()})
        self.waits.append(use.seconds.get(Bucket.QUEUE, 0))
        self.failures += max(use.failures, use.causes.total())
        self.causes += use.causes
        self.causes[UNKNOWN_CAUSE] += max(0, use.failures - use.causes.total())

    def figures(self) -> dict[str, Any]:
        """By FIELDS. The goodput is of node time: a run on 64 nodes weighs as much as 64 on one.

        A run that reported no step counts in it where it failed, and else not: nobody knows what it achieved.
        """
        parts = {bucket: self.node_seconds[bucket] for bucket in Bucket}
        held = sum(parts.values()) - parts[Bucket.QUEUE] - parts[Bucket.SUSPENDED]
        waits = sorted(self.waits)
        figures: list[Any] = [self.outcomes.total()]
        figures += [self.outcomes[each] for each in (*Outcome, NOT_ENDED)]
        figures += [round(self.gpu_hours, 2), round(runtime_goodput(parts), 3) if held else None]
        figures += [_quantile(waits, 0.5), _quantile(waits, 0.95), self.failures]
        figures += [{cause: count for cause, count in self.causes.most_common() if count}]
        return dict(zip(FIELDS, figures, strict=True))


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The sums, who used most first. ``notes`` say where the figures come from and what they leave out."""

    by: By
    since: float
    until: float
    rows: Sequence[tuple[str, Sum]]
    total: Sum
    notes: Sequence[str]


def begin_of(text: str, now: float) -> float:
    """What ``--since`` means: so long ago, or a moment that has passed. Raises UsageError."""
    remedy = "write 30d, 2026-11-01, 2026-11-01T08:00 (local time) or 18:00, which is the last such"
    try:
        return now - parse_duration(text)
    except ValueError:
        begin = to_unix(moment("--since", text, now, is_past=True, remedy=remedy))
    if begin > now:
        raise UsageError(f"--since {text} is in the future", remedy)
    return begin


def show(
    cluster: Cluster | None, paths: Sequence[str], namespace: str | None, by: By, since: float, now: float, form: Form
) -> None:
    """Print the report on ``namespace`` (None: all). ``cluster`` None: only the history files at ``paths`` are read."""
    past = Past.read(paths)
    ended = [use for use in past.ended() if namespace in (None, use.namespace)]
    known, live, there = {use.uid for use in ended}, [], set[str]()
    if cluster is not None:
        with if_forbidden(
            "ask for the role view in the whole cluster, which a report on all namespaces needs, or name one with -n"
        ):
            found = cluster.list(runs_path(namespace))["items"]
        views = [runs.view(raw) for raw in found]
        there = {run.uid for run in views}
        live = [past.told_of(use_of(run, now)) for run in views if run.uid not in known and not is_test_only(run)]
    report = summed([*ended, *live], by, since, now, _sources(paths, cluster is not None))
    if past.passed_over:
        words = f"{plural(past.passed_over, 'line')} of the history cannot be read as a record, and nothing is counted."
        report = replace(report, notes=[*report.notes, words])
    endless = past.without_end(namespace, since, there)
    if endless:
        fate = "deleted while no operator led"
        fate += "" if cluster is not None else ", or go on still"
        words = f"Of {plural(endless, 'run')} the history has attempts and no end, and nothing is counted: {fate}."
        report = replace(report, notes=[*report.notes, words])
    if form == "json":
        output.echo(json.dumps(as_json(report), indent=4))
        return
    if form == "csv":
        output.echo(as_csv(report).rstrip("\n"))
    else:
        output.print_lines(listing(report))
    for words in report.notes:
        output.note(words)


def summed(uses: Iterable[Use], by: By, since: float, now: float, sources: Sequence[str]) -> UsageReport:
    """Of all that ended after ``since``, or has not: what of it lies between that and ``now``."""
    sums: dict[str, Sum] = {}
    total, older, evenly = Sum(), 0, 0
    for use in uses:
        if use.ended is not None and use.ended < since:
            continue
        if use.created < since:
            older, evenly = older + 1, evenly + (not use.is_remembered)
            use = within(use, since, now)
        sums.setdefault(getattr(use, by), Sum()).add(use)
        total.add(use)
    rows = sorted(sums.items(), key=lambda row: (-row[1].gpu_hours, row[0]))
    notes = [f"Runs since {local_time(since)} that ended, or have not yet; {'; '.join(sources)}."]
    if older:
        was, them = ("was", "it") if older == 1 else ("were", "them")
        notes.append(f"{plural(older, 'run')} of these {was} made before: of {them} counts what lies in this time.")
    if evenly:
        notes.append(f"Not all attempts of {plural(evenly, 'run')} are known: taken for evenly spread over its time.")
    return UsageReport(by, since, now, rows, total, notes)


def within(use: Use, since: float, now: float) -> Use:
    """What a run used that was made before ``since``, from then on. It has waited for as long as it has."""
    if use.is_remembered:
        parts = [_parts(each.began or 0.0, each.ended, each.nodes, since, now) for each in use.trained]
    else:
        parts = [_parts(use.created, use.ended, 1, since, now)]
    inside, whole = (sum(part) for part in zip(*parts, strict=True))
    share = inside / whole if whole else 0.0
    seconds = {bucket: each if bucket is Bucket.QUEUE else round(each * share) for bucket, each in use.seconds.items()}
    late = {number: each for number, each in use.attempts.items() if each.ended is None or each.ended >= since}
    # Those that nobody remembers came before all that somebody does.
    forgotten = 0 if len(late) < len(use.attempts) else max(0, use.failures - use.causes.total())
    failures = forgotten + sum(each.cause is not None for each in late.values())
    hours = use.gpu_hours * share
    return replace(use, gpu_hours=hours, seconds=seconds, failures=failures, attempts=late)


def _parts(began: float, ended: float | None, nodes: int, since: float, now: float) -> tuple[float, float]:
    """Node-seconds (from ``since`` on, all)."""
    until = now if ended is None else ended
    return nodes * max(0.0, until - max(began, since)), nodes * max(0.0, until - began)


def listing(report: UsageReport) -> list[str]:
    """The table, header first; the last line has all together."""
    rows = [(name, one) for name, one in report.rows]
    rows += [("all", report.total)] if len(rows) > 1 else []
    cells = [[name, *_shown(one.figures())] for name, one in rows]
    return output.table((report.by.upper(), *COLUMNS), cells)


def as_csv(report: UsageReport) -> str:
    """A line for each; what a spreadsheet would take for a formula is made text."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((report.by, *FIELDS))
    for name, one in report.rows:
        figures = one.figures()
        figures["failuresByCause"] = " ".join(f"{cause}={n}" for cause, n in figures["failuresByCause"].items())
        shown = sanitise.line(name)
        lines.writerow([f"'{shown}" if shown.startswith(_FORMULA) else shown, *figures.values()])
    return text.getvalue()


def as_json(report: UsageReport) -> Json:
    """For programs."""
    return {
        "by": report.by,
        "since": to_rfc3339(report.since),
        "until": to_rfc3339(report.until),
        "notes": list(report.notes),
        "rows": [{report.by: name} | one.figures() for name, one in report.rows],
        "total": report.total.figures(),
    }


def _shown(figures: Mapping[str, Any]) -> list[str]:
    causes = ", ".join(f"{cause} {count}" for cause, count in figures["failuresByCause"].items())
    waits = ["" if figures[name] is None else duration(figures[name]) for name in ("waitP50Seconds", "waitP95Seconds")]
    goodput = "" if figures["goodput"] is None else f"{figures['goodput']:.3f}"
    counts = [str(figures[name]) for name in FIELDS[:5]]
    return [*counts, f"{figures['gpuHours']:.1f}", goodput, *waits, str(figures["failures"]), causes]


def _sources(paths: Sequence[str], live: bool) -> list[str]:
    if not paths:
        return ["by the runs that are still there: deleted ones are in the operator's history, --from FILE"]
    return [f"by the history in {' '.join(paths)}", *(["and by the runs that it does not have ended"] if live else [])]


def _quantile(ordered: Sequence[int], share: float) -> int | None:
    """Nearest rank; none of nothing."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
