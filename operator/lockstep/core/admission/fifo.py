"""One admission pass: replacements first, then every queue in the order its runs came, whole gangs only.

A run that cannot start for want of free nodes holds back all that came after it in its queue. One that
waits for something else (its time, a limit, nodes that do not exist) holds back nobody.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import QueueStatus, TrainingRunStatus
from lockstep.core import assignment as slots
from lockstep.core import gang
from lockstep.core.admission.holds import hold_of, mode_words, queue_spec
from lockstep.core.admission.ledger import Ledger
from lockstep.core.conditions import find, is_true
from lockstep.core.leftovers import holds_up
from lockstep.core.placement import Cluster, Placed, Unplaceable, place
from lockstep.core.plan import ClusterPlan, EnsureConfigMap, Event, StatusWrite
from lockstep.core.requirement import avoided_nodes, requirement_of, resolve
from lockstep.core.snapshot import ClusterSnapshot, PodView, RunView
from lockstep.core.topology import fullest_domains
from lockstep.core.tunables import Mode, Tunables

ADMISSIONS_PER_PASS = 16
"""Most runs that one pass admits. The rest is looked at right after, so that no pass takes long."""

_LONGEST_MESSAGE = 1024
_NODES_NAMED = 8


def admit(snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> ClusterPlan:
    """Decide who gets nodes at ``now``. Deterministic; deciding again after the writes changes nothing.

    The plan's ``wake_at`` is ``now`` when more runs are to be looked at than one pass takes.
    """
    admission = _Pass(snapshot, tunables, now)
    in_order = sorted(snapshot.runs, key=lambda run: (run.created_at, run.key))
    entries = [_Entry(run, run.status) for run in in_order if not snapshot.in_flight.get(run.uid)]
    # 1. Gangs that lost nodes come before gangs that have not begun.
    for entry in entries:
        if _lacks_nodes(entry.run):
            admission.replace_lost_nodes(entry)
    # 2. Who waits, in order: the whole gang or nothing.
    admission.admit_in_order([entry for entry in entries if _is_pending(entry.run)])
    # 3. Reasons come last, when it is known what is left.
    for entry in entries:
        admission.give_reason(entry)
    return ClusterPlan(tuple(write for entry in entries for write in entry.writes()), admission.wake_at)


@dataclass(slots=True)
class _Wait:
    """Why a run got nothing, or not all it lacks. ``booked``: how many nodes were when ``message`` was true."""

    reason: str
    message: str
    position: int = 0
    booked: int | None = None  # None: it does not depend on bookings


@dataclass(slots=True)
class _Entry:
    """A run in this pass: as it was seen, and what has been decided for it."""

    run: RunView
    status: TrainingRunStatus
    nodes: frozenset[str] = frozenset()
    events: list[Event] = field(default_factory=list)
    wait: _Wait | None = None
    considered: bool = True

    @property
    def view(self) -> RunView:
        """The run as it will be."""
        return replace(self.run, status=self.status)

    @property
    def spec(self) -> TrainingRunSpec:
        """Runs without a valid spec have no part in a pass."""
        assert self.run.spec is not None
        return self.run.spec

    def writes(self) -> Iterable[StatusWrite]:
        """The write that this entry needs, if any."""
        if self.status == self.run.status:
            return
        run, status = self.run, self.status
        config_maps: tuple[EnsureConfigMap, ...] = ()
        if self.nodes:
            assignment, spill = slots.spilled(status.assignment, run.namespace, run.name, run.uid)
            status = status.model_copy(update={"assignment": assignment})
            config_maps = (spill,) if spill is not None else ()
        yield StatusWrite(
            namespace=run.namespace,
            name=run.name,
            uid=run.uid,
            resource_version=run.resource_version,
            status=status,
            nodes=self.nodes,
            config_maps=config_maps,
            events=tuple(self.events),
        )


class _Pass:
    """The cluster while nodes are given away."""

    def __init__(self, snapshot: ClusterSnapshot, tunables: Tunables, now: float) -> None:
        self.wake_at: float | None = None
        self._snapshot = snapshot
        self._tunables = tunables
        self._now = now
        ledger = Ledger.of(snapshot)
        self._booked = set(ledger.booked_nodes)
        self._cluster = Cluster(
            nodes=snapshot.nodes,
            foreign=snapshot.foreign_requests,
            booked=self._booked,
            levels=tunables.topology_levels,
            gpu_types=tunables.gpu_types,
            ending=ledger.ending,
        )
        self._pods: dict[str, list[PodView]] = {}
        for pod in (pod for pod in snapshot.gang_pods if pod.owner_uid == pod.run_uid):
            self._pods.setdefault(pod.run_uid, []).append(pod)

    def replace_lost_nodes(self, entry: _Entry) -> None:
        """Fill vacant slots; whoever stays keeps its rank."""
        if self._tunables.mode is Mode.REPORT_ONLY:
            entry.wait = _Wait("ReportOnly", mode_words(self._tunables.mode))
            return
        if self._snapshot.leadership.disruption:
            entry.wait = _Wait("ClusterDisruption", f"no node is replaced: {self._snapshot.leadership.disruption}")
            return
        vacant = entry.status.assignment.vacant
        placed = self._place(entry, len(vacant))
        if isinstance(placed, Unplaceable):
            entry.wait = _Wait("Resources", placed.message, booked=len(self._booked))
            # It gets what there is, so that nobody who came later does; but a rule that must hold for
            # the whole gang is not tied down by a part of it.
            wishes = entry.spec.placement
            some = min(placed.fits, len(vacant) - 1)
            if not some or wishes.nodes or any(rule.mode == "Required" for rule in wishes.topology):
                return
            placed = self._place(entry, some)
            if isinstance(placed, Unplaceable):
                return
        found = self._by_slot(entry.status.assignment.nodes, vacant, placed.nodes)
        assignment = slots.filled(entry.status.assignment, found)
        entry.status = entry.status.model_copy(update={"assignment": assignment})
        named = [f"slot {slot} on {node}" for slot, node in sorted(found.items())]
        note = ", ".join(named[:_NODES_NAMED]) + (" and more" if len(named) > _NODES_NAMED else "")
        self._book(entry, found.values(), Event("Normal", "NodesReplaced", "Place", f"lost nodes replaced: {note}"))

    def admit_in_order(self, entries: Sequence[_Entry]) -> None:
        """The first run that lacks free nodes (or a place among those running) blocks the rest of its queue."""
        running = self._running_by_queue()
        waiting: dict[str, int] = {}
        heads: dict[str, str] = {}
        admitted = 0
        for entry in entries:
            if admitted == ADMISSIONS_PER_PASS:
                entry.considered = False
                self._wake(self._now)
                continue
            queue = entry.spec.queue
            entry.wait = self._hold(entry)
            if entry.wait is None and queue in heads:
                entry.wait = _Wait("Priority", f"behind {heads[queue]}")
            elif entry.wait is None:
                entry.wait = self._try(entry, running.get(queue, 0))
                if entry.wait is None:
                    running[queue] = running.get(queue, 0) + 1
                    admitted += 1
                    continue
                if entry.wait.reason != "Placement":
                    heads[queue] = entry.run.key
            waiting[queue] = entry.wait.position = waiting.get(queue, 0) + 1

    def give_reason(self, entry: _Entry) -> None:
        """Say in status why the run waits; who waits for nothing gives no reason."""
        if entry.run.deleting or is_true(entry.run.status, "Finished") or not entry.considered:
            return
        queue = QueueStatus()
        if entry.wait is not None:
            queue = QueueStatus(
                position=entry.wait.position,
                reason=entry.wait.reason,
                message=self._current_message(entry, entry.wait)[:_LONGEST_MESSAGE],
            )
        if entry.status.queue != queue:
            entry.status = entry.status.model_copy(update={"queue": queue})

    def _hold(self, entry: _Entry) -> _Wait | None:
        live = any(holds_up(pod, self._snapshot.nodes) for pod in self._pods.get(entry.run.uid, ()))
        hold = hold_of(entry.run, self._snapshot, self._tunables, self._now, has_live_pods=live)
        if hold is None:
            return None
        if hold.until is not None:
            self._wake(hold.until)
        return _Wait(hold.reason, hold.message)

    def _try(self, entry: _Entry, running: int) -> _Wait | None:
        """Admit the run, or say why not."""
        queue = entry.spec.queue
        placed = self._place(entry, entry.spec.nodes)
        if isinstance(placed, Unplaceable) and placed.hopeless:
            # What an idle cluster could not hold either would block its queue for ever.
            return _Wait("Placement", placed.message, booked=len(self._booked))
        most = queue_spec(self._snapshot, queue).limits.max_running_runs
        if most is not None and running >= most:
            return _Wait("RunningRunsLimit", f"queue {queue} lets at most {most} runs hold nodes")
        if isinstance(placed, Unplaceable):
            return _Wait("Resources", placed.message, booked=len(self._booked))
        before = entry.status.assignment.model_copy(update={"incarnations": self._seen_incarnations(entry)})
        resolved = resolve(entry.run, self._cluster, placed.nodes, placed.gpu_type)
        entry.status = entry.status.model_copy(
            update={
                "attempt": entry.status.attempt + 1,
                "assignment": slots.assigned(before, placed.nodes),
                "resolved": resolved,
            }
        )
        template = gang.template_for(entry.run, entry.status, self._tunables)
        resolved = resolved.model_copy(update={"template_hash": template.hash})
        entry.status = entry.status.model_copy(update={"resolved": resolved})
        self._book(entry, placed.nodes, Event("Normal", "Admitted", "Admit", self._map_in_words(placed.nodes)))
        return None

    def _place(self, entry: _Entry, count: int) -> Placed | Unplaceable:
        """Find ``count`` nodes beside those the run has."""
        run = entry.view
        held = slots.is_held(run.status.assignment)
        kept = [node for node in run.status.assignment.nodes if node]
        labels = queue_spec(self._snapshot, entry.spec.queue).node_selector
        requirement = requirement_of(run, labels, self._tunables, self._now, held=held)
        return place(self._cluster, requirement, len(kept) + count, entry.spec.placement, kept)

    def _book(self, entry: _Entry, nodes: Iterable[str], event: Event) -> None:
        entry.nodes = frozenset(nodes)
        entry.events.append(event)
        self._booked |= entry.nodes

    def _by_slot(self, held: Sequence[str], vacant: Sequence[int], nodes: Sequence[str]) -> dict[int, str]:
        """New nodes to vacant slots: into the rack of a neighbouring rank first, then as they come."""
        kept = set(held)
        new = [node for node in nodes if node not in kept]
        found: dict[int, str] = {}
        for slot in vacant:
            beside = {self._rack(held[near]) for near in (slot - 1, slot + 1) if 0 <= near < len(held)} - {""}
            same = next((node for node in new if self._rack(node) in beside), None)
            if same is not None:
                found[slot] = same
                new.remove(same)
        return found | dict(zip((slot for slot in vacant if slot not in found), new, strict=False))

    def _rack(self, node: str) -> str:
        view = self._snapshot.nodes.get(node)
        narrowest = next(iter(self._tunables.topology_levels.values()), "")
        return view.labels.get(narrowest, "") if view is not None else ""

    def _seen_incarnations(self, entry: _Entry) -> tuple[int, ...]:
        """The highest incarnation of every slot. Pods count too, should status have been set back."""
        seen = dict(enumerate(entry.status.assignment.incarnations))
        for pod in self._pods.get(entry.run.uid, ()):
            seen[pod.slot] = max(seen.get(pod.slot, 0), pod.incarnation)
        return tuple(seen.get(slot, 0) for slot in range(max(seen, default=-1) + 1))

    def _running_by_queue(self) -> dict[str, int]:
        running: dict[str, int] = {}
        for run in self._snapshot.runs:
            holds = slots.is_held(run.status.assignment) or bool(self._snapshot.in_flight.get(run.uid))
            if run.spec is not None and holds and not is_true(run.status, "Finished"):
                running[run.spec.queue] = running.get(run.spec.queue, 0) + 1
        return running

    def _map_in_words(self, nodes: Sequence[str]) -> str:
        words = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}, rank 0 on {nodes[0]}"
        labels: Mapping[str, Mapping[str, str]] = {name: self._snapshot.nodes[name].labels for name in nodes}
        for level, label in self._tunables.topology_levels.items():
            lying = fullest_domains(labels, label, shown=_NODES_NAMED)
            if lying:
                return f"{words}; nodes by {level}: {lying}"
        return words

    def _current_message(self, entry: _Entry, wait: _Wait) -> str:
        if wait.booked is None:
            return wait.message
        for avoided in avoided_nodes(entry.status.recovery.excluded_nodes, self._now):
            if avoided.until is not None:
                self._wake(avoided.until)
        if wait.booked == len(self._booked):
            return wait.message
        lacking = len(entry.status.assignment.vacant) or entry.spec.nodes
        placed = self._place(entry, lacking)
        return placed.message if isinstance(placed, Unplaceable) else wait.message

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def _lacks_nodes(run: RunView) -> bool:
    """The gang holds its place and waits for a node in some slot."""
    wanted = run.spec is not None and not run.spec.cancel and not run.spec.suspend and not run.deleting
    return wanted and bool(run.status.assignment.nodes and run.status.assignment.vacant) and not _is_ending(run)


def _is_pending(run: RunView) -> bool:
    """The run is accepted as it is now, wants nodes and has none."""
    if run.spec is None or run.spec.suspend or run.spec.cancel or run.deleting or _is_ending(run):
        return False
    if is_true(run.status, "StateRegression"):
        return False
    accepted = find(run.status, "Accepted")
    if accepted is None or accepted.status != "True" or accepted.observed_generation != run.generation:
        return False
    return not slots.is_held(run.status.assignment)


def _is_ending(run: RunView) -> bool:
    return run.status.stop is not None or is_true(run.status, "Finished")
