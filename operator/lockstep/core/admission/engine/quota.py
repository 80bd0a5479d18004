"""Quota by queue and GPU type in whole nodes: nominal, borrowed in a cohort, and lent.

A queue is guaranteed what it does not lend; the rest of everybody's nominal nodes is the cohort's pool. Beyond its
guarantee a queue uses the pool, up to its nominal nodes and what it may borrow. What a queue uses within its guarantee
is never refused on account of others.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, compress
from typing import Literal, NamedTuple

from lockstep.core.admission.engine.jobs import OVERDUE, RunningJob

ANY = "Any"
"""The GPU type that stands for all that a queue's quotas do not name."""

HOLDERS_NAMED = 16

Bound = Literal["Queue", "Cohort", "NoQuota", "Runs"]
PoolKey = tuple[str, str, str]


class TypeQuota(NamedTuple):
    """Nodes of one GPU type. ``borrowing_limit`` None: all that the pool has; ``lending_limit`` None: all is lent."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class QueueQuota:
    """The rules of one queue. No ``quotas`` at all: any number of nodes."""

    cohort: str = ""
    quotas: Mapping[str, TypeQuota] = field(default_factory=dict)
    max_running_runs: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaAccount:
    """What one queue may use out of one pool. ``limit`` None: no bound but the pool's."""

    pool: PoolKey
    queue: str
    gpu_type: str
    nominal: int
    guaranteed: int
    limit: int | None
    pool_size: int

    def room(self, used: int, pooled: int) -> int:
        """How many more it may use, when it uses ``used`` and all queues ``pooled`` of the pool."""
        room = max(0, self.guaranteed - used) + max(0, self.pool_size - pooled)
        return room if self.limit is None else max(0, min(room, self.limit - used))

    @property
    def counts_runs(self) -> bool:
        """It is about runs, not nodes."""
        return self.pool[0] == "Runs"


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """The bound that is reached, and how things stand. ``holders``: runs that use what lacks, borrowers first."""

    bound: Bound
    queue: str
    gpu_type: str
    cohort: str
    nominal: int
    used: int
    limit: int | None
    pool_size: int
    pooled: int
    room: int
    most: int  # what the queue could have if nobody used any
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """The accounts of all queues."""

    types: Mapping[str, Mapping[str, QuotaAccount]]
    """By queue and GPU type; a queue without quotas is not in it."""
    runs: Mapping[str, QuotaAccount]
    cohorts: Mapping[str, str]

    @classmethod
    def from_quotas(cls, queues: Mapping[str, QueueQuota]) -> "QuotaRules":
        """The rules of ``queues``, by name."""
        sizes: dict[PoolKey, int] = {}
        for name, quota in queues.items():
            for gpu_type, nodes in _quotas(quota):
                key = _pool_key(name, quota.cohort, gpu_type)
                sizes[key] = sizes.get(key, 0) + nodes.nominal - _guaranteed(quota.cohort, nodes)
        types: dict[str, dict[str, QuotaAccount]] = {}
        for name, quota in queues.items():
            for gpu_type, nodes in _quotas(quota):
                key = _pool_key(name, quota.cohort, gpu_type)
                borrows = 0 if not quota.cohort else nodes.borrowing_limit
                limit = None if borrows is None else nodes.nominal + borrows
                guaranteed = _guaranteed(quota.cohort, nodes)
                account = QuotaAccount(key, name, gpu_type, nodes.nominal, guaranteed, limit, sizes[key])
                types.setdefault(name, {})[gpu_type] = account
        runs = {
            name: QuotaAccount(("Runs", name, ""), name, "", most, most, most, 0)
            for name, quota in queues.items()
            if (most := quota.max_running_runs) is not None
        }
        return cls(types, runs, {name: quota.cohort for name, quota in queues.items() if quota.cohort})

    def account(self, queue: str, gpu_type: str) -> QuotaAccount | None:
        """What nodes of ``gpu_type`` are booked on; None: the queue has no quotas."""
        accounts = self.types.get(queue)
        if accounts is None:
            return None
        account = accounts.get(gpu_type) or accounts.get(ANY)
        return account or QuotaAccount(("NoQuota", queue, gpu_type), queue, gpu_type, 0, 0, 0, 0)

    def could_ever_fit(self, queue: str, gpu_type: str, count: int) -> bool:
        """They would have room for a run of ``count`` nodes if nobody used any."""
        return all(account.room(0, 0) >= need for account, need in self.needs(queue, gpu_type, count))

    def needs(self, queue: str, gpu_type: str, count: int) -> Sequence[tuple[QuotaAccount, int]]:
        """What a run of ``count`` nodes uses of which account. Asked thousands of times in every cycle."""
        nodes, runs = self.account(queue, gpu_type), self.runs.get(queue)
        if runs is None:
            return () if nodes is None else ((nodes, count),)
        return ((runs, 1),) if nodes is None else ((runs, 1), (nodes, count))


def _quotas(quota: QueueQuota) -> Iterator[tuple[str, TypeQuota]]:
    return ((gpu_type, TypeQuota(*nodes)) for gpu_type, nodes in quota.quotas.items())


def _pool_key(queue: str, cohort: str, gpu_type: str) -> PoolKey:
    return ("Cohort", cohort, gpu_type) if cohort else ("Queue", queue, gpu_type)


def _guaranteed(cohort: str, nodes: TypeQuota) -> int:
    if not cohort:
        return nodes.nominal
    return 0 if nodes.lending_limit is None else max(0, nodes.nominal - nodes.lending_limit)


@dataclass(slots=True)
class _Holding:
    """Nobody changes one: hundreds are made in every cycle, which takes longer for a class that forbids it."""

    uid: str
    account: QuotaAccount
    count: int
    start: float
    end: float


class _Pool:
    """Usage of one pool over time: of every queue, and of the pool by all of them."""

    def __init__(self, now: float, holdings: Iterable[_Holding]) -> None:
        self.holdings = list(holdings)
        self.times = [now, *sorted({holding.end for holding in self.holdings})]
        index = {time: position for position, time in enumerate(self.times)}
        changes: dict[str, list[int]] = {}
        accounts: dict[str, QuotaAccount] = {}
        for holding in self.holdings:
            accounts[holding.account.queue] = holding.account
            change = changes.setdefault(holding.account.queue, [0] * len(self.times))
            change[0] += holding.count
            change[index[holding.end]] -= holding.count
        self.used = {queue: list(accumulate(change)) for queue, change in changes.items()}
        # What the pool lends changes where a queue's usage does, which is at few of all these times.
        lent = [0] * len(self.times)
        for queue, change in changes.items():
            guaranteed, count, beyond = accounts[queue].guaranteed, 0, 0
            for at in compress(range(len(change)), change):
                count += change[at]
                before, beyond = beyond, max(0, count - guaranteed)
                lent[at] += beyond - before
        self.pooled = list(accumulate(lent))

    def room(self, account: QuotaAccount, index: int) -> int:
        used = self.used.get(account.queue)
        return account.room(used[index] if used is not None else 0, self.pooled[index])

    def lacks(self, account: QuotaAccount, count: int, start: float, end: float) -> int | None:
        """The first stretch between the two without room for ``count``."""
        times, pooled, used = self.times, self.pooled, self.used.get(account.queue)
        guaranteed, limit, pool_size = account.guaranteed, account.limit, account.pool_size
        first = bisect_right(times, start) - 1
        for index in range(first, max(first + 1, bisect_left(times, end))):
            # As ``QuotaAccount.room``, which a search for a start would ask thousands of times.
            own, left = used[index] if used is not None else 0, pool_size - pooled[index]
            room = guaranteed - own if own < guaranteed else 0
            if left > 0:
                room += left
            if limit is not None and limit - own < room:
                room = max(0, limit - own)
            if room < count:
                return index
        return None

    def earliest(self, account: QuotaAccount, count: int, length: float, after: float) -> float | None:
        """The first time with room for ``count`` that lasts for ``length``."""
        start = after
        while (index := self.lacks(account, count, start, start + length)) is not None:
            if index + 1 == len(self.times):
                return None
            start = self.times[index + 1]
        return start

    def add(self, holding: _Holding, count: int) -> None:
        """Book ``count`` for as long as ``holding`` lasts; less than none gives back."""
        first, last = self._stretch_from(holding.start), self._stretch_from(holding.end)
        used = self.used.setdefault(holding.account.queue, [0] * len(self.times))
        guaranteed, pooled = holding.account.guaranteed, self.pooled
        for index in range(first, last):
            before = used[index]
            after = used[index] = before + count
            # Of both what is beyond the guaranteed, and not by max(): this is done thousands of times in a cycle.
            pooled[index] += (after if after > guaranteed else guaranteed) - (
                before if before > guaranteed else guaranteed
            )

    def _stretch_from(self, time: float) -> int:
        index = bisect_left(self.times, time)
        if index == len(self.times) or self.times[index] != time:
            self.times.insert(index, time)
            for counts in (self.pooled, *self.used.values()):
                counts.insert(index, counts[index - 1])
        return index


@dataclass(slots=True)
class _Room:
    """How many more ``account`` lets a run have now, which hundreds of groups ask."""

    account: QuotaAccount
    counts_runs: bool
    used: int
    left: int
    known: dict[Bound, QuotaRefusal] = field(default_factory=dict)

    def bound(self, need: int) -> Bound:
        """What is reached by a run that takes ``need``."""
        if self.counts_runs:
            return "Runs"
        if self.account.pool[0] == "NoQuota":
            return "NoQuota"
        limit = self.account.limit
        return "Queue" if limit is not None and limit - self.used < need else "Cohort"


class QuotaBook:
    """Who uses what of which quota, now and as far as it is known.

    What a run uses that another preempts is the other's from the next instant on. So whoever wants to start is
    held against both: what is used now, and what will be when the promise is kept.
    """

    def __init__(self, rules: QuotaRules, now: float, running: Iterable[RunningJob]) -> None:
        self.now = now
        self._rules = rules
        self._refusals: dict[tuple[PoolKey, str, Bound], QuotaRefusal] = {}
        self._rooms: dict[tuple[str, str], Sequence[_Room]] = {}
        self._holders_known: dict[tuple[PoolKey, str], tuple[str, ...]] = {}
        by_pool: dict[PoolKey, list[_Holding]] = {}
        alike: dict[tuple[str, str], Sequence[QuotaAccount]] = {}
        for run in running:
            ends = run.ends if run.ends > now and not run.yields_to else now + OVERDUE
            accounts = alike.get((run.queue, run.gpu_type))
            if accounts is None:
                accounts = [account for account, _ in rules.needs(run.queue, run.gpu_type, 0)]
                alike[run.queue, run.gpu_type] = accounts
            for account in accounts:
                count = 1 if account.counts_runs else run.count
                by_pool.setdefault(account.pool, []).append(_Holding(run.uid or run.left_by, account, count, now, ends))
        self._pools = {key: _Pool(now, holdings) for key, holdings in by_pool.items()}

    def fits(self, queue: str, gpu_type: str, count: int, start: float, end: float) -> bool:
        """One more run of ``count`` nodes is within the quotas from ``start`` to ``end``."""
        return all(
            self._pool(account).lacks(account, need, start, end) is None
            for account, need in self._rules.needs(queue, gpu_type, count)
        )

    def room(self, queue: str, gpu_type: str, count: int) -> int:
        """How many of ``count`` further nodes a run that counts already may have now."""
        account = self._rules.account(queue, gpu_type)
        return count if account is None else min(count, self._pool(account).room(account, 0))

    def could_ever_fit(self, queue: str, gpu_type: str, count: int) -> bool:
        """As the rules have it."""
        return self._rules.could_ever_fit(queue, gpu_type, count)

    def refusal(self, queue: str, gpu_type: str, count: int) -> QuotaRefusal | None:
        """Why a run of ``count`` nodes cannot start now, as far as the quotas are concerned."""
        rooms = self._rooms.get((queue, gpu_type))
        if rooms is None:
            rooms = self._rooms[queue, gpu_type] = self._rooms_now(queue, gpu_type)
        for room in rooms:
            need = 1 if room.counts_runs else count
            if room.left < need:
                bound = room.bound(need)
                return room.known.get(bound) or self._refused(queue, room, bound)
        return None

    def _rooms_now(self, queue: str, gpu_type: str) -> Sequence[_Room]:
        """What such a run is booked on, and how many more each lets it have now."""
        rooms = []
        for account, _ in self._rules.needs(queue, gpu_type, 0):
            pool = self._pool(account)
            used = pool.used[account.queue][0] if account.queue in pool.used else 0
            rooms.append(_Room(account, account.counts_runs, used, pool.room(account, 0)))
        return rooms

    def _refused(self, queue: str, room: _Room, bound: Bound) -> QuotaRefusal:
        """The same for all who hear it, until something changes in the pool."""
        account = room.account
        pool = self._pool(account)
        key = account.pool, queue, bound
        known = self._refusals.get(key)
        if known is None:
            known = self._refusals[key] = QuotaRefusal(
                bound=bound,
                queue=queue,
                gpu_type=account.gpu_type,
                cohort=self._rules.cohorts.get(queue, ""),
                nominal=account.nominal,
                used=room.used,
                limit=account.limit,
                pool_size=account.pool_size,
                pooled=pool.pooled[0],
                room=room.left,
                most=account.room(0, 0),
                holders=self._holders(pool, account, "" if bound == "Cohort" else queue),
            )
        room.known[bound] = known
        return known

    def earliest(self, queue: str, gpu_type: str, count: int, length: float, after: float) -> float | None:
        """The first time from ``after`` on when the quotas have room for ``length``; None: never."""
        needs = list(self._rules.needs(queue, gpu_type, count))
        start, agreed = after, 0
        while agreed < len(needs):  # each may move what the others agreed to
            agreed = 0
            for account, need in needs:
                found = self._pool(account).earliest(account, need, length, start)
                if found is None:
                    return None
                agreed = agreed + 1 if found == start else 0
                start = found
        return start

    def changes(self, queue: str, gpu_type: str, after: float, before: float) -> list[float]:
        """When the usage changes that such a run is judged by."""
        times: set[float] = set()
        for account, _ in self._rules.needs(queue, gpu_type, 0):
            known = self._pool(account).times
            times.update(known[bisect_right(known, after) : bisect_left(known, before)])
        return sorted(times)

    def charge(self, uid: str, queue: str, gpu_type: str, count: int, start: float, end: float) -> None:
        """The run ``uid`` uses ``count`` nodes from ``start`` to ``end``."""
        for account, need in self._rules.needs(queue, gpu_type, count):
            holding = _Holding(uid, account, need, max(self.now, start), end)
            pool = self._pool(account)
            pool.holdings.append(holding)
            pool.add(holding, need)
            if holding.start <= self.now:  # else nothing of it is used now, which is what refusals are about
                self._forget(account.pool)

    def release(self, uid: str) -> None:
        """The run ``uid`` uses nothing."""
        for key, pool in self._pools.items():
            given = [holding for holding in pool.holdings if holding.uid == uid]
            for holding in given:
                pool.add(holding, -holding.count)
                pool.holdings.remove(holding)
            if given:
                self._forget(key)

    def end(self, uid: str, at: float) -> None:
        """The run ``uid`` uses nothing from ``at`` on."""
        for key, pool in self._pools.items():
            for holding in [each for each in pool.holdings if each.uid == uid and each.end > at]:
                pool.add(replace(holding, start=max(at, holding.start)), -holding.count)
                pool.holdings.remove(holding)
                pool.holdings.append(replace(holding, end=at))
                self._forget(key)

    def borrowed(self, queue: str, gpu_type: str) -> int:
        """How many nodes beyond its nominal ones the queue uses now."""
        account = self._rules.account(queue, gpu_type)
        used = self._pool(account).used.get(queue) if account is not None else None
        return max(0, used[0] - account.nominal) if account is not None and used is not None else 0

    def _pool(self, account: QuotaAccount) -> _Pool:
        pool = self._pools.get(account.pool)
        if pool is None:
            pool = self._pools[account.pool] = _Pool(self.now, ())
        return pool

    def _forget(self, pool: PoolKey) -> None:
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if key[0] != pool}
        self._holders_known = {key: uids for key, uids in self._holders_known.items() if key[0] != pool}
        self._rooms.clear()

    def _holders(self, pool: _Pool, account: QuotaAccount, queue: str) -> tuple[str, ...]:
        """Who uses the pool, of ``queue`` or (empty) beyond what any queue is guaranteed."""
        key = account.pool, queue
        known = self._holders_known.get(key)
        if known is not None:
            return known
        held = [holding for holding in pool.holdings if holding.start <= self.now]
        if queue:
            held = [holding for holding in held if holding.account.queue == queue]
        else:
            held = [holding for holding in held if pool.used[holding.account.queue][0] > holding.account.guaranteed]

        def by_weight(holding: _Holding) -> tuple[bool, int, str]:
            borrows = pool.used[holding.account.queue][0] > holding.account.nominal
            return not borrows, -holding.count, holding.uid

        uids = dict.fromkeys(holding.uid for holding in sorted(held, key=by_weight))
        known = self._holders_known[key] = tuple(uids)[:HOLDERS_NAMED]
        return known
