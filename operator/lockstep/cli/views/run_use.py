"""What one run has used, how well, and what went wrong: by its status, or by the operator's history."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from lockstep.api.base import names
from lockstep.api.base.nesting import loads
from lockstep.api.base.times import to_unix
from lockstep.api.goodput_status import GoodputStatus
from lockstep.cli.client import Json
from lockstep.cli.errors import CliError
from lockstep.core.accounting.goodput import Bucket
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.conditions import find, is_true
from lockstep.core.model.reasons import ConditionType, Outcome
from lockstep.core.model.snapshot import RunView
from lockstep.core.run.history_records import DELETED

NOT_ENDED = "not ended"


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
