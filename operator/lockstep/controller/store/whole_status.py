"""What is too large for a run's status and stands in ConfigMaps: the run with it, once it is known."""

from collections.abc import Iterable
from dataclasses import replace

from lockstep.api.base.changes import changed
from lockstep.api.preemption_status import ReservationStatus
from lockstep.api.run_status import AssignmentStatus
from lockstep.core.model import assignment as slots
from lockstep.core.model import reservation as reserved
from lockstep.core.model.assignment import lost, restored
from lockstep.core.model.snapshot import PodView, RunView


class MissingAssignmentError(Exception):
    """The nodes of a run are in a ConfigMap that has not been read: nothing may be decided before it is."""

    def __init__(self, run: RunView) -> None:
        self.run_uid = run.uid
        self.namespace = run.namespace
        reservation = run.status.reservation
        lacks = reservation if reservation is not None and reserved.is_unread(reservation) else run.status.assignment
        self.config_map = lacks.config_map
        super().__init__(f"{run.key}: the nodes in ConfigMap {self.config_map} have not been read")


class WholeStatus:
    """The newest assignment and reservation of each run that were written or read in full."""

    def __init__(self) -> None:
        self._assignments: dict[str, AssignmentStatus] = {}  # by run UID
        self._reservations: dict[str, ReservationStatus] = {}

    def wrote(self, run_uid: str, assignment: AssignmentStatus | None, reservation: ReservationStatus | None) -> None:
        """What our own write of a status left to a ConfigMap need not be read."""
        if assignment is not None:
            self._assignments[run_uid] = assignment
        if reservation is not None:
            self._reservations[run_uid] = reservation

    def read_assignment(self, run: RunView, content: str) -> RunView:
        """The run with the content of the ConfigMap that its status names.

        Raises ValueError when it is not the assignment whose hash is in status.
        """
        if is_assignment_missing(run):
            self._assignments[run.uid] = restored(run.status.assignment, content)
        return self.completed(run)

    def read_reservation(self, run: RunView, content: str) -> RunView:
        """As ``read_assignment``, of the nodes that are kept for a run."""
        if run.status.reservation is not None and is_reservation_missing(run):
            self._reservations[run.uid] = reserved.restored(run.status.reservation, content)
        return self.completed(run)

    def forget(self, run_uid: str) -> None:
        """The run is gone."""
        self._assignments.pop(run_uid, None)
        self._reservations.pop(run_uid, None)

    def completed(self, run: RunView) -> RunView:
        """The run with its whole assignment and reservation, where status only names them and they are known."""
        if is_reservation_missing(run):
            run = self._with_reservation(run)
        known, named = self._assignments.get(run.uid), run.status.assignment
        if not is_assignment_missing(run) or known is None or known.hash != named.hash:
            return run
        whole = changed(
            named,
            nodes=known.nodes,
            incarnations=known.incarnations,
            rank_to_slot=known.rank_to_slot,
            vacant=known.vacant,
        )
        return replace(run, status=changed(run.status, assignment=whole))

    def _with_reservation(self, run: RunView) -> RunView:
        known, named = self._reservations.get(run.uid), run.status.reservation
        if known is None or named is None or known.hash != named.hash:
            return run
        whole = changed(named, nodes=known.nodes, victims=known.victims)
        return replace(run, status=changed(run.status, reservation=whole))


def without_assignment(run: RunView) -> RunView:
    """The run of which the ConfigMap that its status names is gone, or holds something else."""
    return replace(run, status=changed(run.status, assignment=lost(run.status.assignment)))


def without_reservation(run: RunView) -> RunView:
    """As ``without_assignment``, of a reservation: it lapses."""
    if run.status.reservation is None:
        return run
    return replace(run, status=changed(run.status, reservation=reserved.lost(run.status.reservation)))


def held_by_pods(run: RunView, pods: Iterable[PodView]) -> RunView:
    """The run whose nodes cannot be read, for others to keep away from: what its pods are on. Never to be written, so
    nobody is to wait for its answer; and it asks for nothing itself."""
    live = {pod.slot: pod.node for pod in pods if not pod.is_terminal}
    nodes = tuple(live.get(slot, "") for slot in range(max(live, default=-1) + 1))
    assignment = changed(run.status.assignment, nodes=nodes, vacant=(), rank_to_slot=())
    whole = replace(run, status=changed(run.status, assignment=assignment)) if is_assignment_missing(run) else run
    asks = run.spec if slots.is_held(whole.status.assignment) else None
    return replace(without_reservation(whole), spec=asks, unread=True)


def is_known_by_pods(run: RunView, pods: Iterable[PodView]) -> bool:
    """Every slot has a pod: no node can be held that none of them is on."""
    if run.spec is None or run.spec_error or not is_assignment_missing(run):
        return False
    slots = {pod.slot for pod in pods if not pod.is_terminal} | set(run.status.assignment.vacant)
    return len(slots) >= max(run.spec.nodes, run.status.resolved.nodes) + run.spec.spare_nodes


def is_assignment_missing(run: RunView) -> bool:
    """The status names a ConfigMap for the nodes, and it has not been read."""
    return bool(run.status.assignment.config_map) and not run.status.assignment.nodes


def is_reservation_missing(run: RunView) -> bool:
    """The status names a ConfigMap for the nodes that are kept for the run, and it has not been read."""
    return reserved.is_unread(run.status.reservation)
