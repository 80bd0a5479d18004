"""Node bookings: which nodes are taken, and by whom. Two runs never share a node.

A node is taken when a run's assignment names it, when a write whose result is not known books it, or
when any pod of any run is on it that has not ended: Terminating pods and those of deleted runs too. What only says
that it is a pod of a run takes what it requests where kube-scheduler has bound it, as any other pod does.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache

from lockstep.core.admission.cache.gang_pods import GangPodIndex
from lockstep.core.admission.cache.run_index import RunIndex, RunRow
from lockstep.core.model.assignment import is_held
from lockstep.core.model.conditions import is_true
from lockstep.core.model.node_set import NodeSet
from lockstep.core.model.ranges import distinct_ranges
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import ClusterSnapshot, PodView, Resources, RunView
from lockstep.core.placement.node_index import NodeIndex


@dataclass(frozen=True, slots=True)
class Ledger:
    """Bookings of one moment. ``by_node``: node to the UIDs of its holders; ``keys``: UID to namespace/name.

    ``ending``: nodes that nothing but pods being deleted still holds.
    """

    by_node: Mapping[str, frozenset[str]]
    keys: Mapping[str, str]
    ending: frozenset[str]

    @classmethod
    def from_snapshot(cls, snapshot: ClusterSnapshot) -> "Ledger":
        """Read off everything that can hold a node."""
        booked: dict[str, set[str]] = {}
        keys = {pod.run_uid: f"{pod.namespace}/{pod.run}" for pod in snapshot.gang_pods}
        for run in snapshot.runs:
            keys[run.uid] = run.key
            if is_true(run.status, ConditionType.FINISHED):
                continue  # it holds nodes by its pods only
            for node in run.status.assignment.nodes:
                booked.setdefault(node, set()).add(run.uid)
        for uid, nodes in snapshot.in_flight.items():
            for node in nodes:
                booked.setdefault(node, set()).add(uid)
        live = [pod for pod in snapshot.gang_pods if not pod.is_terminal]
        wanted = booked.keys() | {pod.node for pod in live if not pod.deleting}
        ending = frozenset(pod.node for pod in live) - wanted
        for pod in live:
            booked.setdefault(pod.node, set()).add(pod.run_uid)
        booked.pop("", None)  # vacant slots
        return cls({node: frozenset(uids) for node, uids in booked.items()}, keys, ending)

    @property
    def booked_nodes(self) -> Set[str]:
        """Nodes that nobody else may have."""
        return self.by_node.keys()

    def holders(self, node: str) -> tuple[str, ...]:
        """Who has ``node``, as namespace/name; nobody: empty."""
        return tuple(sorted(self.keys.get(uid, uid) for uid in self.by_node.get(node, ())))


def is_of_its_run(pod: PodView, run: RunView | None, *, gone: bool, new: bool = False) -> bool:
    """The pod takes the node that it is pinned to. ``run``: the one that it names as its owner; ``gone``: that one is
    known to be no more; ``new``: to have had no nodes ever.

    An owner, a name, a pin and ``spec.nodeName`` are anybody's to write who may create pods. A run vouches for those in
    its own namespace that its assignment has, on the nodes that it has for them, and for earlier ones where they are
    bound: these end (``end_superseded_pods``). Of one whose ConfigMap cannot be read what status has of its slots is
    what counts. One without any that is not new may have lost its status: what is bound counts until that is settled,
    which is not for long (``hold_when_status_is_behind``).
    """
    if pod.deleting and not pod.bound:
        return False  # it is never bound any more
    if run is None:
        return gone
    if (pod.namespace, pod.owner_uid) != (run.namespace, run.uid):
        return False
    assignment = run.status.assignment
    if not is_held(assignment) and (run.spec is None or run.is_paused):
        return bool(assignment.config_map)  # nothing is decided for it that would end what only says that it is its
    if not assignment.incarnations:
        return _may_be_assigned(pod, run) if assignment.config_map else pod.bound and not new
    if pod.slot >= len(assignment.incarnations) or pod.incarnation > assignment.incarnations[pod.slot]:
        return False
    is_newest = pod.incarnation == assignment.incarnations[pod.slot]
    if not is_held(assignment):
        return pod.bound or is_newest  # what is left of the gang that gave its nodes back
    if pod.slot < len(assignment.nodes):
        node = assignment.nodes[pod.slot]
        return (bool(node) and pod.node == node) or (pod.bound and not is_newest)
    return pod.bound


def _may_be_assigned(pod: PodView, run: RunView) -> bool:
    """Of a run whose ConfigMap nobody could read: status has it how many slots there are, which are vacant, and at
    which incarnation they started last. What is beyond that takes what it requests, as any other pod."""
    assignment = run.status.assignment
    if pod.slot in assignment.vacant:
        return False
    start = run.status.start
    for slots, incarnation in _started(tuple((m.slots, m.incarnation) for m in start.members)) if start else ():
        if pod.slot in slots:
            # It is being replaced, and not for the first time, maybe.
            return incarnation <= pod.incarnation <= max(incarnation + 1, assignment.revision)
    count = run.status.resolved.nodes or (run.spec.nodes if run.spec is not None else 0)
    count += run.spec.spare_nodes if run.spec is not None else 0
    return pod.slot < count and 0 < pod.incarnation <= assignment.revision  # no slot changes oftener than all


@lru_cache(maxsize=64)
def _started(members: tuple[tuple[str, int], ...]) -> tuple[tuple[range, int], ...]:
    """Asked for each pod of the few runs that nobody could read."""
    return tuple((run, incarnation) for slots, incarnation in members for run in distinct_ranges([slots]))


def is_in_doubt(pod: PodView, run: RunView | None) -> bool:
    """A run does not vouch for a pod of its own: it gives it no node, but does not start beside it either."""
    return run is not None and (pod.namespace, pod.owner_uid) == (run.namespace, run.uid)


def with_strangers(foreign: Mapping[str, Resources], strangers: Iterable[PodView]) -> Mapping[str, Resources]:
    """``foreign``, the requests on each node, with those of pods that are of no run."""
    sums: dict[str, Resources] = {}
    for pod in strangers:
        if pod.bound and not pod.is_terminal:
            before = sums.get(pod.node, foreign.get(pod.node, {}))
            more = {name: before.get(name, 0) + amount for name, amount in pod.requests.items()}
            sums[pod.node] = {**before, **more}
    return {**foreign, **sums} if sums else foreign


def taken(
    snapshot: ClusterSnapshot, run_index: RunIndex, index: NodeIndex, pods: GangPodIndex
) -> tuple[NodeSet, NodeSet]:
    """(booked, ending) as a ledger of ``snapshot`` has them, as sets of nodes. All of its runs and pods were seen."""
    of_live, wanted = pods.nodes(index)
    for row in run_index.taking.values():
        wanted |= held(row, index)
    for nodes in snapshot.in_flight.values():
        wanted |= index.mask(nodes)
    return wanted | of_live, of_live & ~wanted


def held(row: RunRow, index: NodeIndex) -> NodeSet:
    """The nodes in the assignment of a run."""
    if row.mask[0] is not index.numbering:
        row.mask = index.numbering, index.mask(row.run.status.assignment.nodes)
    return row.mask[1]
