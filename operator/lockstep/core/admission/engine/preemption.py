"""Victim selection: which running jobs to preempt for a pending one, at the least lost work.

A set of victims is chosen only if the nodes and the quota that it frees are proven to hold the job. It is minimal: no
victim could be spared. Among a few candidates it is the cheapest set that there is. Among many, where that would be
hard to find, it is the cheapest of several greedy ones and of all single victims.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Literal

from lockstep.core.admission.engine.jobs import Job, Option
from lockstep.core.admission.engine.quota import PoolKey, QuotaAccount
from lockstep.core.admission.engine.usage import PoolUsage
from lockstep.core.model.node_set import NodeSet

FEW = 6
"""Candidates among which every set is tried."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that could be stopped. ``lost``: node-seconds of work that nobody would give back."""

    uid: str
    queue: str
    gpu_type: str
    nodes: NodeSet
    count: int
    class_value: int
    lost: float
    protected_until: float = 0.0


@dataclass(frozen=True, slots=True)
class PreemptionPolicy:
    """Whom a queue may preempt. In the cohort only queues that borrow, and only for its own nominal nodes."""

    within_queue: Literal["Never", "LowerPriority"] = "Never"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"

    def allows(self, queue: str, class_value: int, whose: str, victims_value: int) -> bool:
        """Whether a job of that queue and class may preempt one of queue ``whose``, as far as classes go."""
        rule = self.within_queue if whose == queue else self.reclaim_within_cohort
        return rule == "Any" or (rule == "LowerPriority" and victims_value < class_value)


@dataclass(frozen=True, slots=True)
class Preemption:
    """When ``victims`` (UIDs) are gone, the job can have ``nodes``."""

    option: Option
    nodes: NodeSet
    victims: tuple[str, ...]
    lost: float


def preempt(
    now: float,
    job: Job,
    class_value: int,
    available: NodeSet,
    victims: Sequence[Victim],
    usage: PoolUsage,
    policy: PreemptionPolicy,
    later: Sequence[PoolUsage] = (),
) -> Preemption | None:
    """The best set that is found; None when the job would not start even then, or can start without any.

    ``available`` are the free nodes that the job may have. Nodes that it may not have although they become free
    (claimed by others, in a maintenance window) are to be left out of what its options are eligible for.
    ``usage`` is that of quotas, by the victims among others; ``later`` the same for each moment to come at which
    somebody gets what it was promised, for which there has to be room beside the job.
    """
    best: Preemption | None = None
    for search in _searches(job, available, usage, later):
        own, others = search.candidates(now, class_value, victims, policy)
        for chosen in search.sets(own, others):
            found = search.preemption(chosen)
            if best is None or (found.lost, len(found.victims)) < (best.lost, len(best.victims)):
                best = found
    return best


def can_preempt(
    now: float,
    job: Job,
    class_value: int,
    available: NodeSet,
    victims: Sequence[Victim],
    usage: PoolUsage,
    policy: PreemptionPolicy,
    later: Sequence[PoolUsage] = (),
) -> bool:
    """Whether ``preempt`` would find a set, for much less than to find one."""
    searches = _searches(job, available, usage, later)
    return any(search.has_set(*search.candidates(now, class_value, victims, policy)) for search in searches)


def _searches(job: Job, available: NodeSet, usage: PoolUsage, later: Sequence[PoolUsage]) -> "Sequence[_Search]":
    """One for each full size of the job; none if it can start without victims."""
    full = [option for option in job.options if not option.fallback]
    searches = [_Search(job, option, available, usage, later) for option in full]
    return () if any(search.suffices(()) for search in searches) else searches


class _Search:
    """Sets of victims for one way to place the job."""

    def __init__(
        self, job: Job, option: Option, available: NodeSet, usage: PoolUsage, at_promises: Sequence[PoolUsage] = ()
    ) -> None:
        self._queue = job.queue
        self._option = option
        self._available = available
        self._usage = usage
        self._at_promises = at_promises
        self._needs = list(usage.rules.needs(job.queue, option.gpu_type, option.count))
        self._pools = {account.pool for account, _ in self._needs}
        self._account = usage.rules.account(job.queue, option.gpu_type)

    def candidates(
        self, now: float, class_value: int, victims: Sequence[Victim], policy: PreemptionPolicy
    ) -> tuple[list[Victim], list[Victim]]:
        """(of its own queue, of queues of its cohort that borrow): those that may be preempted and free anything."""
        own: list[Victim] = []
        others: list[Victim] = []
        borrows: dict[tuple[str, str], bool] = {}
        for victim in victims:
            if victim.protected_until > now or not policy.allows(
                self._queue, class_value, victim.queue, victim.class_value
            ):
                continue
            if victim.queue == self._queue:
                if self._is_of_use(victim):
                    own.append(victim)
            else:
                share = victim.queue, victim.gpu_type
                if share not in borrows:
                    borrows[share] = self._is_related(victim.queue) and self._borrowed(victim) > 0
                if borrows[share] and self._is_of_use(victim):
                    others.append(victim)
        return own, others

    def _is_related(self, queue: str) -> bool:
        cohorts = self._usage.rules.cohorts
        return self._queue in cohorts and cohorts.get(queue) == cohorts[self._queue]

    def has_set(self, own: Sequence[Victim], others: Sequence[Victim]) -> bool:
        """Some set suffices: all of them, if any."""
        if self.suffices(own):
            return True
        if not others or self._account is None or not self._reclaims([*own, *others]):
            return False
        if any(map(self._reclaims, self._mixtures(own, others))) or any(self._reclaims([victim]) for victim in others):
            return True
        return len(own) + len(others) <= FEW and self._cheapest(own, others) is not None

    def _mixtures(self, own: Sequence[Victim], others: Sequence[Victim]) -> Iterator[list[Victim]]:
        """As many of both as may go, in each greedy order."""
        for order in _ORDERS:

            def key(victim: Victim, order: _Order = order) -> tuple[float, float, str]:
                return *order(victim, self._of_use(victim)), victim.uid

            yield self._while_borrowing(sorted([*own, *others], key=key))

    def sets(self, own: Sequence[Victim], others: Sequence[Victim]) -> Iterator[list[Victim]]:
        """Minimal sets that suffice: the cheapest, or each from another greedy order."""
        if len(own) + len(others) <= FEW:
            cheapest = self._cheapest(own, others)
            if cheapest is not None:
                yield cheapest
            return
        alone = next((victim for victim in sorted(own, key=_by_loss) if self.suffices([victim])), None)
        if alone is not None:
            yield [alone]
        for order in _ORDERS:

            def key(victim: Victim, order: _Order = order) -> tuple[float, float, str]:
                return *order(victim, self._of_use(victim)), victim.uid

            within = self._enough(sorted(own, key=key), self.suffices)
            if within is not None:
                yield self._pruned(within, self.suffices)
        if not others or self._account is None:
            return
        alone = next((victim for victim in sorted(others, key=_by_loss) if self._reclaims([victim])), None)
        if alone is not None:
            yield [alone]
        for in_order in self._mixtures(own, others):
            mixed = self._enough(in_order, self._reclaims)
            if mixed is not None:
                mixed = self._pruned(mixed, self._reclaims)
                of_queue = [victim for victim in mixed if victim.queue == self._queue]
                yield self._pruned(of_queue, self.suffices) if self.suffices(of_queue) else mixed

    def _cheapest(self, own: Sequence[Victim], others: Sequence[Victim]) -> list[Victim] | None:
        """Of all sets the one that loses least, of those the smallest: nobody in it could be spared."""
        candidates = sorted([*own, *(others if self._account is not None else ())], key=_by_loss)
        sets = chain.from_iterable(combinations(candidates, size) for size in range(1, len(candidates) + 1))
        for chosen in sorted(sets, key=lambda chosen: (sum(victim.lost for victim in chosen), len(chosen))):
            reclaims = any(victim.queue != self._queue for victim in chosen)
            if reclaims and len(self._while_borrowing(chosen)) < len(chosen):
                continue
            if self._reclaims(chosen) if reclaims else self.suffices(chosen):
                return list(chosen)
        return None

    def suffices(self, chosen: Sequence[Victim]) -> bool:
        """With these gone, the quotas and the placement rules let the job start. More of them never spoil it."""
        usable = self._usable(chosen)
        if usable.bit_count() < self._option.count:
            return False
        if not all(usage.has_room(self._needs, chosen) for usage in (self._usage, *self._at_promises)):
            return False
        return self._option.choose(usable) is not None

    def preemption(self, chosen: Sequence[Victim]) -> Preemption:
        """In order of what they lose."""
        nodes = self._option.choose(self._usable(chosen))
        assert nodes is not None
        in_order = sorted(chosen, key=lambda victim: (victim.lost, victim.uid))
        lost = sum(victim.lost for victim in chosen)
        return Preemption(self._option, nodes, tuple(victim.uid for victim in in_order), lost)

    def _reclaims(self, chosen: Sequence[Victim]) -> bool:
        """They suffice, and the job stays within the nominal nodes of its queue."""
        assert self._account is not None
        used = self._usage.used(self._account) + self._option.count
        for victim in chosen:
            if victim.queue == self._queue and self._account_of(victim) == self._account:
                used -= victim.count
        return used <= self._account.nominal and self.suffices(chosen)

    def _enough(
        self, in_order: Sequence[Victim], suffices: Callable[[Sequence[Victim]], bool]
    ) -> Sequence[Victim] | None:
        """The fewest of them from the beginning that suffice."""
        if not suffices(in_order):
            return None
        least, most = 0, len(in_order)
        while least < most:
            middle = (least + most) // 2
            if suffices(in_order[:middle]):
                most = middle
            else:
                least = middle + 1
        return in_order[:most]

    def _pruned(self, chosen: Sequence[Victim], suffices: Callable[[Sequence[Victim]], bool]) -> list[Victim]:
        """Without those that can be spared, the dearest first."""
        nodes = self._option.choose(self._usable(chosen))
        assert nodes is not None
        hit = [victim for victim in chosen if victim.nodes & nodes]
        left = hit if suffices(hit) else list(chosen)
        for victim in sorted(left, key=lambda victim: (-victim.lost, victim.uid)):
            fewer = [other for other in left if other is not victim]
            if suffices(fewer):
                left = fewer
        return left

    def _while_borrowing(self, in_order: Sequence[Victim]) -> list[Victim]:
        """As many as can go while each queue still borrows before its last one goes."""
        gone: dict[tuple[PoolKey, str], tuple[int, int]] = {}
        found = []
        for victim in in_order:
            account = self._account_of(victim)
            if victim.queue != self._queue and account is not None:
                total, largest = gone.get((account.pool, account.queue), (0, 0))
                total, largest = total + victim.count, max(largest, victim.count)
                if total - largest >= self._borrowed(victim):
                    continue
                gone[account.pool, account.queue] = total, largest
            found.append(victim)
        return found

    def _usable(self, chosen: Iterable[Victim]) -> NodeSet:
        usable = self._available
        for victim in chosen:
            usable |= victim.nodes
        return usable & self._option.eligible

    def _is_of_use(self, victim: Victim) -> bool:
        if victim.nodes & self._option.eligible:
            return True
        needs = self._usage.rules.needs(victim.queue, victim.gpu_type, victim.count)
        return any(theirs.pool in self._pools for theirs, _ in needs)

    def _of_use(self, victim: Victim) -> int:
        return max(1, (victim.nodes & self._option.eligible).bit_count())

    def _account_of(self, victim: Victim) -> QuotaAccount | None:
        return self._usage.rules.account(victim.queue, victim.gpu_type)

    def _borrowed(self, victim: Victim) -> int:
        account = self._account_of(victim)
        return 0 if account is None else self._usage.used(account) - account.nominal


def _by_loss(victim: Victim) -> tuple[float, str]:
    return victim.lost, victim.uid


_Order = Callable[[Victim, int], tuple[float, float]]
_ORDERS: tuple[_Order, ...] = (
    lambda victim, useful: (victim.lost / useful, victim.lost),
    lambda victim, useful: (victim.lost, -useful),
    lambda victim, useful: (-useful, victim.lost),
)
