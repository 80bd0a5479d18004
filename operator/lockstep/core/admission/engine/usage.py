"""Quota usage of each pool at a moment to come: of running jobs until they end, and of those that start.

Preemption asks for many moments and each time for one pool or two, so nothing is counted before it is asked for.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Protocol

from lockstep.core.admission.engine.jobs import RunningJob
from lockstep.core.admission.engine.quota import PoolKey, QuotaAccount, QuotaRules


class Uses(Protocol):
    """Whoever uses quota."""

    @property
    def uid(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def gpu_type(self) -> str: ...
    @property
    def count(self) -> int: ...


@dataclass(slots=True)
class _Share:
    """What one queue uses of a pool until when."""

    guaranteed: int
    held: list[tuple[float, int]] = field(default_factory=list)
    _ends: list[float] = field(default_factory=list)
    _given: list[int] = field(default_factory=list)
    """How much has come free after so many have ended."""

    def add(self, ends: float, count: int) -> None:
        self.held.append((ends, count))
        self._ends.clear()

    def after(self, at: float) -> int:
        if not self._ends:
            self.held.sort()
            self._ends = [ends for ends, _ in self.held]
            self._given = [0, *accumulate(count for _, count in self.held)]
        return self._given[-1] - self._given[bisect_right(self._ends, at)]


class UsageOverTime:
    """Of runs that each use as much until they end."""

    def __init__(self, rules: QuotaRules, running: Iterable[RunningJob]) -> None:
        self.rules = rules
        self.ends: dict[str, float] = {}
        """By UID."""
        self._pools: dict[PoolKey, dict[str, _Share]] = {}
        self._runs: dict[str, RunningJob] = {}
        for run in running:
            self.add(run)

    def add(self, run: RunningJob) -> None:
        """One more."""
        self.ends[run.uid] = run.ends
        self._runs[run.uid] = run
        for account, count in self.rules.needs(run.queue, run.gpu_type, run.count):
            shares = self._pools.setdefault(account.pool, {})
            if account.queue not in shares:
                shares[account.queue] = _Share(account.guaranteed)
            shares[account.queue].add(run.ends, count)

    def at(self, moment: float = -inf, gone: frozenset[str] = frozenset(), come: Sequence[Uses] = ()) -> "PoolUsage":
        """When whoever ends by ``moment`` has ended, those of the UIDs ``gone`` are gone as well, and ``come`` are
        there."""
        return PoolUsage(self, moment, gone, come)

    def used_after(self, pool: PoolKey, moment: float, gone: Iterable[str], come: Iterable[Uses]) -> dict[str, "_Used"]:
        """By queue."""
        found = {
            queue: _Used(share.after(moment), share.guaranteed) for queue, share in self._pools.get(pool, {}).items()
        }
        for uid in gone:
            if self.ends.get(uid, moment) > moment:
                self._count(found, pool, self._runs[uid], -1)
        for user in come:
            self._count(found, pool, user, 1)
        return found

    def _count(self, found: dict[str, "_Used"], pool: PoolKey, user: Uses, step: int) -> None:
        for account, count in self.rules.needs(user.queue, user.gpu_type, user.count):
            if account.pool == pool:
                if account.queue not in found:
                    found[account.queue] = _Used(0, account.guaranteed)
                found[account.queue].count += step * count


@dataclass(slots=True)
class _Used:
    count: int
    guaranteed: int


class PoolUsage:
    """At one moment."""

    def __init__(self, over_time: UsageOverTime, moment: float, gone: frozenset[str], come: Sequence[Uses]) -> None:
        self.rules = over_time.rules
        self._over_time, self._moment, self._gone, self._come = over_time, moment, gone, come
        self._used: dict[PoolKey, dict[str, _Used]] = {}

    def used(self, account: QuotaAccount) -> int:
        """How much the queue of the account uses of its pool."""
        used = self._in(account.pool).get(account.queue)
        return used.count if used is not None else 0

    def has_room(self, needs: Iterable[tuple[QuotaAccount, int]], gone: Sequence[Uses]) -> bool:
        """There is room for ``needs`` when these are gone."""
        return all(self._room(account, self._freed(account, gone)) >= need for account, need in needs)

    def _in(self, pool: PoolKey) -> dict[str, _Used]:
        used = self._used.get(pool)
        if used is None:
            used = self._used[pool] = self._over_time.used_after(pool, self._moment, self._gone, self._come)
        return used

    def _freed(self, account: QuotaAccount, gone: Sequence[Uses]) -> dict[str, int]:
        """By queue, how much of the pool comes free."""
        freed: dict[str, int] = {}
        ends, moment = self._over_time.ends, self._moment
        for user in gone:
            if user.uid in self._gone or ends.get(user.uid, moment) <= moment:
                continue  # it uses nothing any more
            for theirs, count in self.rules.needs(user.queue, user.gpu_type, user.count):
                if theirs.pool == account.pool:
                    freed[user.queue] = freed.get(user.queue, 0) + count
        return freed

    def _room(self, account: QuotaAccount, freed: dict[str, int]) -> int:
        """Room for more when the queues have freed so much of the pool."""
        pooled, own = 0, self.used(account) - freed.get(account.queue, 0)
        for queue, used in self._in(account.pool).items():
            pooled += max(0, used.count - freed.get(queue, 0) - used.guaranteed)
        return account.room(own, pooled)
