"""Fair share: decayed usage by who is charged, and what it leaves of everybody's share.

Usage is counted in node-seconds and decays with a half-life h: what was used t ago counts 2^(-t/h). A steady use of n
nodes from a to b, both before now, counts n * h / ln 2 * (2^(-(now-b)/h) - 2^(-(now-a)/h)), the integral of the decay.

The factor is that of Slurm's multifactor plugin (classic fair share, docs of priority/multifactor): for an entity with
normalised share S and effective usage E, F = 2^(-E/S), where E = U + (E_parent - U) * s / sum of the siblings' s, U is
its normalised usage and s its share among them. Entities are queues (shares by weight), namespaces in a queue and users
in a namespace (equal shares).
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from lockstep.api.base.names import DEFAULT_QUEUE
from lockstep.core.admission.queueing.holds import takes_namespace
from lockstep.core.admission.queueing.order import share_key
from lockstep.core.model.assignment import is_held
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import QueueView, RunView

Key = tuple[str, str, str]
"""Queue, namespace and user."""

MAX_ROWS = 4096
MAX_OF_NAMESPACE = 512
"""Rows of one namespace: whoever calls itself thousands of users is no reason to forget those of others. Both are what
is left once there are twice as many: were the least folded each time, nobody new would ever have a row."""
MAX_BYTES = 900_000
"""Of the book as it is written: a ConfigMap holds no more than 1 MiB."""
OTHERS = "(others)"
"""The user of what is left of a namespace with more."""
REST: Key = ("", "", "")
"""What is left of those with the least usage when there are too many to keep."""
_HOUR = 3600.0
_HOURS_KEPT = 25  # the one under way, and the 24 before it
_NEGLIGIBLE = 1.0  # node-seconds
_ENVELOPE = 1000  # bytes of what is written beside rows and hours, and of one row more


@dataclass(frozen=True)
class ChargedUsage:
    """What runs hold, by who is charged: nodes, and by queue GPUs."""

    nodes: Mapping[Key, int] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_runs(cls, runs: Iterable[RunView]) -> Self:
        """Everything that is held, spares and what is kept for debugging included."""
        nodes: dict[Key, int] = {}
        gpus: dict[str, int] = {}
        for run in runs:
            if run.spec is None or not is_held(run.status.assignment):
                continue
            count = sum(1 for node in run.status.assignment.nodes if node)
            if is_true(run.status, ConditionType.FINISHED):
                count = nodes_kept(run.status)
            if not count:
                continue
            key = share_key(run)
            nodes[key] = nodes.get(key, 0) + count
            gpus[key[0]] = gpus.get(key[0], 0) + count * run.status.resolved.gpus_per_node
        return cls(nodes, gpus)


@dataclass(frozen=True)
class UsageBook:
    """Usage as of ``at`` (0: nothing was counted yet). ``rows``: decayed node-seconds. ``hours``: GPU-seconds of each
    queue by the hour (of the epoch) in which they were used."""

    at: float = 0.0
    rows: Mapping[Key, float] = field(default_factory=dict)
    hours: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    def advanced(self, now: float, held: ChargedUsage, half_life: float) -> "UsageBook":
        """The book at ``now``, ``held`` having been held since ``at``. Going on in two steps comes to the same."""
        if not self.at or now <= self.at:
            return UsageBook(max(now, self.at), self.rows, self.hours)
        left = 2.0 ** (-(now - self.at) / half_life)
        steady = half_life / math.log(2) * (1.0 - left)
        rows = {key: used * left for key, used in self.rows.items()}
        for key, nodes in held.nodes.items():
            rows[key] = rows.get(key, 0.0) + nodes * steady
        hours = {queue: dict(by_hour) for queue, by_hour in self.hours.items()}
        oldest = int(now // _HOUR) - _HOURS_KEPT + 1
        for queue, gpus in held.gpus.items():
            by_hour = hours.setdefault(queue, {})
            for hour in range(max(oldest, int(self.at // _HOUR)), int(now // _HOUR) + 1):
                seconds = min(now, (hour + 1) * _HOUR) - max(self.at, hour * _HOUR)
                by_hour[hour] = by_hour.get(hour, 0.0) + gpus * seconds
        kept = {
            queue: recent
            for queue, by_hour in hours.items()
            if (recent := {hour: used for hour, used in by_hour.items() if hour >= oldest and used})
        }
        return UsageBook(now, _bounded(rows, held.nodes), kept)

    def not_beyond(self, now: float) -> "UsageBook":
        """The book at ``now`` at the latest: one whose clock was ahead may have kept it, and would count nothing until
        then."""
        if self.at <= now:
            return self
        this_hour = int(now // _HOUR)
        hours = {
            queue: {hour: used for hour, used in by_hour.items() if hour <= this_hour}
            for queue, by_hour in self.hours.items()
        }
        return UsageBook(now, self.rows, hours)

    def gpu_hours(self, queue: str) -> float:
        """GPU-hours of the last 24 hours; the hour in which they began counts by the part of it that lies within."""
        first = (self.at - 24 * _HOUR) / _HOUR
        total = 0.0
        for hour, seconds in self.hours.get(queue, {}).items():
            total += seconds * min(1.0, max(0.0, hour + 1 - first))
        return total / _HOUR

    def dump(self) -> dict[str, Any]:
        """As JSON, in no more than ``MAX_BYTES``: of the least users only what they used together, and nothing of the
        hours of the least queues where those of all leave no room for users."""
        hours, room = dict[str, dict[str, float]](), MAX_BYTES * 3 // 4
        for queue, by_hour in sorted(self.hours.items(), key=lambda each: (-sum(each[1].values()), each[0])):
            told = {str(hour): round(seconds, 1) for hour, seconds in by_hour.items()}
            room -= len(json.dumps({queue: told}))
            if room < 0:
                break
            hours[queue] = told
        hours = dict(sorted(hours.items()))
        room = MAX_BYTES - _ENVELOPE - len(json.dumps(hours))
        rows, rest = list[list[Any]](), 0.0
        for key, used in sorted(self.rows.items(), key=lambda row: (row[0] != REST, -row[1], row[0])):
            row = [*key, round(used, 1)]
            room -= len(json.dumps(row)) + 1
            if key == REST or room < 0:
                rest += used
            elif used >= _NEGLIGIBLE:
                rows.append(row)
        rows += [[*REST, round(rest, 1)]] if rest >= _NEGLIGIBLE else []
        return {"format": 1, "at": round(self.at, 3), "rows": sorted(rows), "hours": hours}

    @classmethod
    def load(cls, raw: Any) -> Self:
        """Read what ``dump`` wrote. Raises ValueError on anything else."""
        try:
            if raw["format"] != 1:
                raise ValueError(f"format {raw['format']!r} is not known")
            rows = {(str(q), str(n), str(u)): float(used) for q, n, u, used in raw["rows"]}
            hours = {
                str(queue): {int(hour): float(seconds) for hour, seconds in by_hour.items()}
                for queue, by_hour in raw["hours"].items()
            }
            return cls(float(raw["at"]), _bounded(rows), hours)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a book of usage: {error!r}") from error


def competes(run: RunView) -> bool:
    """The run wants or holds nodes, as far as itself goes."""
    is_over = is_true(run.status, ConditionType.FINISHED) and not nodes_kept(run.status)
    return run.spec is not None and not is_over


def admissible(
    keys: Iterable[Key], queues: Mapping[str, QueueView], namespace_labels: Mapping[str, Mapping[str, str]]
) -> set[Key]:
    """Those of ``keys`` whose queue there is and is for runs of their namespace. The others' runs cannot start: were
    they counted, whoever names many queues would leave nobody a share."""
    found: dict[tuple[str, str], bool] = {}
    admitted = set[Key]()
    for key in keys:
        name, namespace, _ = key
        place = name, namespace
        if place not in found:
            queue = queues.get(name)
            labels = namespace_labels.get(namespace, {})
            found[place] = name == DEFAULT_QUEUE if queue is None else takes_namespace(queue.spec, labels)
        if found[place]:
            admitted.add(key)
    return admitted


def shares(book: UsageBook, weights: Mapping[str, int], present: Iterable[Key]) -> Mapping[Key, float]:
    """The factor of everybody who has runs (``present``), in (0, 1]. ``weights`` of queues; 1 for one not named."""
    keys = {*present, *(key for key in book.rows if key != REST)}
    total = sum(book.rows.values())
    users: dict[tuple[str, str], int] = {}
    members: dict[str, set[str]] = {}
    for queue, namespace, _ in keys:
        users[queue, namespace] = users.get((queue, namespace), 0) + 1
        members.setdefault(queue, set()).add(namespace)
    queues = _level(members, weights)
    used: dict[tuple[str, ...], float] = {}
    for key, amount in book.rows.items():
        for depth in (1, 2, 3):
            used[key[:depth]] = used.get(key[:depth], 0.0) + amount
    found: dict[Key, float] = {}
    for key in keys:
        queue, namespace, _ = key
        parts = (queues[queue], 1.0 / len(members[queue]), 1.0 / users[queue, namespace])
        share, effective = 1.0, 1.0 if total else 0.0
        for depth, part in enumerate(parts, start=1):
            usage = used.get(key[:depth], 0.0) / total if total else 0.0
            effective = usage + (effective - usage) * part
            share *= part
        found[key] = 2.0 ** (-effective / share)
    return found


def _level(members: Collection[str], weights: Mapping[str, int]) -> dict[str, float]:
    """Each one's part of the whole."""
    total = sum(weights.get(member, 1) for member in members)
    return {member: weights.get(member, 1) / total for member in members}


def _bounded(rows: Mapping[Key, float], in_use: Collection[Key] = ()) -> Mapping[Key, float]:
    """``in_use``: of whoever holds nodes, of which there are no more than runs. It keeps its row, however little it has
    used yet."""
    kept = {key: used for key, used in rows.items() if used >= _NEGLIGIBLE or key == REST}
    if len(kept) > 2 * MAX_OF_NAMESPACE:
        _fold_crowds(kept, in_use)
    idle = [key for key in kept if key != REST and key not in in_use] if len(kept) > 2 * MAX_ROWS else []
    if len(idle) > 2 * MAX_ROWS:
        for key in sorted(idle, key=lambda key: -kept[key])[MAX_ROWS - 1 :]:
            kept[REST] = kept.get(REST, 0.0) + kept.pop(key)
    return kept


def _fold_crowds(rows: dict[Key, float], in_use: Collection[Key]) -> None:
    """Have the least users of each namespace with too many in one row of their queue, where they go on to count for
    both."""
    idle = [key for key in rows if key not in in_use and key[2] != OTHERS]
    counts = Counter(namespace for _, namespace, _ in idle)
    for namespace in (each for each, count in counts.items() if count > 2 * MAX_OF_NAMESPACE):
        own = [key for key in idle if key[1] == namespace]
        for key in sorted(own, key=lambda key: -rows[key])[MAX_OF_NAMESPACE:]:
            place = key[0], namespace, OTHERS
            rows[place] = rows.get(place, 0.0) + rows.pop(key)
