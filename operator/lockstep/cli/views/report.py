"""`lockstep report`: who used how much, how well, and what went wrong, by user, queue or namespace."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lockstep.api.base import names
from lockstep.api.base.durations import parse_duration
from lockstep.api.base.nesting import loads
from lockstep.api.base.times import to_rfc3339, to_unix
from lockstep.api.goodput_status import GoodputStatus
from lockstep.cli import output, runs
from lockstep.cli.client import Cluster, Json, runs_path
from lockstep.cli.errors import CliError, UsageError, if_forbidden
from lockstep.cli.submission.slurm_syntax import moment
from lockstep.core.accounting.goodput import Bucket, has_steps, runtime_goodput
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model import sanitise
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.reasons import ConditionType, Outcome
from lockstep.core.model.snapshot import RunView
from lockstep.core.model.test_only import is_test_only
from lockstep.core.run.history_records import DELETED
from lockstep.present.amounts import duration, local_time, plural

By = Literal["user", "queue", "namespace"]
Form = Literal["table", "csv", "json"]
NOT_ENDED = "not ended"
COLUMNS = ("RUNS", "SUCCEEDED", "FAILED", "CANCELLED", "NOT-ENDED", "GPU-HOURS", "GOODPUT", "WAIT-P50", "WAIT-P95",
           "FAILURES", "BY-CAUSE")  # fmt: skip
FIELDS = ("runs", "succeeded", "failed", "cancelled", "notEnded", "gpuHours", "goodput", "waitP50Seconds",
          "waitP95Seconds", "failures", "failuresByCause")  # fmt: skip
UNKNOWN_CAUSE = "unknown"
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would compute


@dataclass(frozen=True, slots=True)
class Attempt:
    """When one trained, on how many nodes, and what ended it, where a rank did. ``ended`` is None while it goes on."""

    began: float | None
    ended: float | None
    nodes: int
    cause: str | None


@dataclass(frozen=True, slots=True)
class Use:
    """What one run used. Times are Unix seconds; ``ended`` is None while it has not. ``starts``: attempts that
    began, 0 if nobody counted. ``attempts``, by number, are those that somebody remembers."""

    namespace: str
    uid: str
    user: str
    queue: str
    outcome: str
    created: float
    ended: float | None
    nodes: int
    gpu_hours: float
    seconds: Mapping[Bucket, int]
    failures: int
    starts: int
    attempts: Mapping[int, Attempt]

    @property
    def causes(self) -> Counter[str]:
        """Of its ``failures``, as far as they are remembered."""
        return Counter(each.cause for each in self.attempts.values() if each.cause is not None)

    @property
    def is_remembered(self) -> bool:
        """Every attempt is that began, with its times. Numbers alone do not tell: a launch that fails takes one."""
        began = len(self.trained)
        return began > 0 and (began == self.starts or set(self.attempts) == {*range(1, max(self.attempts) + 1)})

    @property
    def trained(self) -> Sequence[Attempt]:
        """Those that began."""
        return [each for each in self.attempts.values() if each.began is not None]


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


def use_of(run: RunView, now: float) -> Use:
    """What a run has used that is still there, as its status says; which is not written while it only waits."""
    status = run.status
    succeeded, outcome, ended = find(status, ConditionType.SUCCEEDED), NOT_ENDED, None
    finished = find(status, ConditionType.FINISHED)
    if is_true(status, ConditionType.FINISHED) and finished is not None and succeeded is not None:
        outcome, ended = _outcome(succeeded.status == "True", succeeded.reason), finished.last_transition_time
    queue, namespace, user = share_key(run)
    attempts = {
        entry.number: Attempt(
            entry.started_at,
            entry.ended_at,
            entry.nodes or status.resolved.nodes,
            entry.cause if entry.ended_at is not None and entry.rank is not None else None,
        )
        for entry in status.attempts
    }
    nodes = status.resolved.nodes or (run.spec.nodes if run.spec is not None else 0)
    starts = status.totals.attempts
    use = _use(namespace, run.uid, user, queue, outcome, run.created_at, ended, nodes, status.goodput, starts, attempts)
    if ended is not None or any(is_true(status, each) for each in (ConditionType.ADMITTED, ConditionType.SUSPENDED)):
        return use
    since = status.goodput.time or run.created_at
    waited = use.seconds[Bucket.QUEUE] + max(0, int(now - since))
    return replace(use, seconds={**use.seconds, Bucket.QUEUE: waited})


class Past:
    """The operator's history: the last record of each attempt and of each run that ended."""

    def __init__(self) -> None:
        self._ends: dict[str, Json] = {}
        self._attempts: dict[str, dict[int, tuple[str, Attempt]]] = {}  # by uid and number, and when recorded
        self._namespaces: dict[str, str] = {}  # of those
        self.passed_over = 0
        """Lines of files that are no record."""

    @classmethod
    def read(cls, paths: Iterable[str]) -> Past:
        """From files, in any order. Raises CliError, also on one of which no line is a record."""
        past, remedy = cls(), "name files that history.path of the operator names, with a line of JSON for each attempt"
        for path in paths:
            try:
                with open(path, encoding="utf-8", errors="replace") as lines:
                    are_records = [past.take(line) for line in lines if line.strip()]
            except OSError as error:
                raise CliError(f"{path}: {error.strerror}", remedy) from error
            if are_records and not any(are_records):
                raise CliError(f"{path} has no record of a run in any of its lines", remedy)
            past.passed_over += are_records.count(False)
        return past

    def take(self, line: str) -> bool:
        """One line; whether it is a record. A newer one of the same thing counts, wherever it stands."""
        try:
            record = loads(line)
            uid, recorded = str(record["uid"]), str(record["recordedAt"])
            if record["kind"] == "run":
                if recorded >= self._ends.get(uid, {}).get("recordedAt", ""):
                    _use_of_record(record, {})  # or it is none
                    self._ends[uid] = record
            else:
                self._namespaces[uid] = str(record["namespace"])
                known, number, found = self._attempts.setdefault(uid, {}), int(record["attempt"]), _attempt_of(record)
                if number not in known or recorded >= known[number][0]:
                    known[number] = recorded, found
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        return True

    def ended(self) -> list[Use]:
        """Every run that has ended."""
        return [_use_of_record(record, self._attempts_of(uid)) for uid, record in self._ends.items()]

    def without_end(self, namespace: str | None, since: float, there: Set[str]) -> int:
        """How many runs of the namespace (None: of all) trained after ``since``, have no end, and are not ``there``."""
        return sum(
            uid not in self._ends
            and uid not in there
            and namespace in (None, self._namespaces[uid])
            and any(each.ended is not None and each.ended >= since for each in self._attempts_of(uid).values())
            for uid in self._attempts
        )

    def told_of(self, use: Use) -> Use:
        """With the attempts that status has forgotten."""
        return replace(use, attempts={**self._attempts_of(use.uid), **use.attempts})

    def _attempts_of(self, uid: str) -> dict[int, Attempt]:
        return {number: attempt for number, (_, attempt) in self._attempts.get(uid, {}).items()}


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


def _attempt_of(record: Json) -> Attempt:
    """Raises what a record raises that is none."""
    began, ended = record.get("startedAt"), record.get("endedAt") or record["recordedAt"]
    cause = str(record.get("cause", "")) if record.get("rank") is not None else None
    return Attempt(to_unix(began) if began else None, to_unix(ended), int(record.get("nodes") or 0), cause)


def _use_of_record(record: Json, attempts: Mapping[int, Attempt]) -> Use:
    """Raises what a record raises that is none."""
    return _use(
        str(record["namespace"]),
        str(record["uid"]),
        str(record.get("user", "")),
        str(record.get("queue") or names.DEFAULT_QUEUE),
        _outcome(record["outcome"] == Outcome.SUCCEEDED, str(record["reason"])),
        to_unix(record["createdAt"]),
        to_unix(record["recordedAt"]),
        int(record.get("nodes") or 0),
        GoodputStatus.load(record["goodput"]),
        int((record.get("totals") or {}).get("attempts") or 0),
        attempts,
    )


def _use(
    namespace: str,
    uid: str,
    user: str,
    queue: str,
    outcome: str,
    created: float,
    ended: float | None,
    nodes: int,
    goodput: GoodputStatus,
    starts: int,
    attempts: Mapping[int, Attempt],
) -> Use:
    seconds = {bucket: int(getattr(goodput.buckets, bucket.value)) for bucket in Bucket}
    hours = _number(goodput.gpu_hours)
    failures = goodput.failures
    return Use(namespace, uid, user, queue, outcome, created, ended, nodes, hours, seconds, failures, starts, attempts)


def _number(text: str) -> float:
    """Nothing, or what is none, counts as 0: anybody who may edit a status could have written it."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def _outcome(succeeded: bool, reason: str) -> str:
    if succeeded:
        return Outcome.SUCCEEDED.value
    return Outcome.CANCELLED.value if reason in (Outcome.CANCELLED.value, DELETED) else Outcome.FAILED.value


def _sources(paths: Sequence[str], live: bool) -> list[str]:
    if not paths:
        return ["by the runs that are still there: deleted ones are in the operator's history, --from FILE"]
    return [f"by the history in {' '.join(paths)}", *(["and by the runs that it does not have ended"] if live else [])]


def _quantile(ordered: Sequence[int], share: float) -> int | None:
    """Nearest rank; none of nothing."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
