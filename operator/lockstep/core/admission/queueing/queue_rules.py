"""Rules of each queue, indexed. A new object stands for anything of it that is new."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.engine.quota import QueueQuota, QuotaRules, TypeQuota
from lockstep.core.admission.queueing.holds import hours_used_up, queue_spec
from lockstep.core.model.snapshot import ClusterSnapshot
from lockstep.core.model.tunables import Tunables


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class QueueRules:
    """The rules of one queue and all that counts for every queue, as of one moment. ``hours``: GPU-hours that hold its
    runs back; None: nobody knows them yet, and they might."""

    spec: TrainingQueueSpec
    hours: int | None
    discreet: bool = False
    """What its runs hear of others depends on their namespace."""
    node_choice: Hashable = field(init=False)
    """What the nodes rest on that its runs may have, beside what they ask for."""

    def __post_init__(self) -> None:
        node_choice = tuple(self.spec.node_selector.items()), tuple(quota.gpu_type for quota in self.spec.quotas)
        object.__setattr__(self, "node_choice", node_choice)


class Rulebook:
    """The rules of all queues. ``version`` grows with every change of any, ``quotas`` are those of the last.

    ``discreet``: queues whose runs are named in their own namespace alone.
    """

    def __init__(self) -> None:
        self.discreet: frozenset[str] = frozenset()
        self.version = 0
        self.quotas = QuotaRules.from_quotas({})
        self._of_all: object = None
        self._specs: Mapping[str, TrainingQueueSpec] = {}
        self._by_queue: dict[str, QueueRules] = {}
        self._snapshot: ClusterSnapshot | None = None

    def update(self, snapshot: ClusterSnapshot, tunables: Tunables, *, anew: bool) -> None:
        """These are the rules now. ``anew``: nothing of what was judged before counts.

        What ``hold_of``, ``Order`` and ``requirement_of`` look at beside the run and its queue has to be in ``of_all``.
        """
        self._snapshot = snapshot
        self.discreet = frozenset(name for name, view in snapshot.queues.items() if view.spec.visibility != "Full")
        of_all = (
            tunables,
            self.discreet,
            dict(snapshot.namespace_labels),
            dict(snapshot.priority_classes),
            len(snapshot.nodes),
            [(name, view.is_closed) for name, view in snapshot.queues.items()],
        )
        specs = {name: view.spec for name, view in snapshot.queues.items()}
        if anew or of_all != self._of_all:
            self._of_all = of_all
            self._by_queue = {}
            self.version += 1
        for name, known in [*self._by_queue.items()]:
            if known.hours != self._hours(name) or known.spec != queue_spec(snapshot, name):
                del self._by_queue[name]
                self.version += 1
        if specs != self._specs:
            self.version += 1
            self._specs = specs
            self.quotas = QuotaRules.from_quotas({name: quota_of(spec) for name, spec in specs.items()})

    def for_queue(self, queue: str) -> QueueRules:
        """The rules of ``queue``, which need not exist."""
        known = self._by_queue.get(queue)
        if known is None:
            assert self._snapshot is not None
            known = self._by_queue[queue] = QueueRules(
                queue_spec(self._snapshot, queue), self._hours(queue), bool(self.discreet)
            )
        return known

    def _hours(self, queue: str) -> int | None:
        assert self._snapshot is not None
        spec = queue_spec(self._snapshot, queue)
        if spec.limits.on_gpu_hours != "Block" or spec.limits.gpu_hours_per_day is None:
            return 0
        used = self._snapshot.gpu_hours.get(queue)
        return used if used is None or hours_used_up(spec, used) else 0


def quota_of(spec: TrainingQueueSpec) -> QueueQuota:
    """What one queue may use."""
    return QueueQuota(
        cohort=spec.cohort or "",
        quotas={
            quota.gpu_type: TypeQuota(quota.nominal_nodes, quota.borrowing_limit, quota.lending_limit)
            for quota in spec.quotas
        },
        max_running_runs=spec.limits.max_running_runs,
    )
