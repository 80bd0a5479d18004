"""The simulated cluster with Kueue in it: Workloads in memory, and the double that admits them."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.recovery_status import ExcludedNode
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Flavor, Kueue, Presence
from lockstep.core.model.kueue.workload import PodSetUpdate, WorkloadView, parse_workload
from lockstep.core.model.kueue.writes import WorkloadVerb, WorkloadWrite
from lockstep.core.model.lifecycle import Phase, phase_of
from lockstep.core.model.plan import Plan
from lockstep.core.model.snapshot import ClusterSnapshot, RunSnapshot
from support.kueue_double import KueueDouble, Pool, check, condition, is_true
from support.world import World, node, spec

Json = dict[str, Any]
LABEL = {api_names.LABEL_QUEUE: "team"}


def kueue_world(nodes: int = 4, *, pods: int | None = None, **pool: Any) -> "KueueWorld":
    """Nodes n0 … and one LocalQueue, team, that may use ``pods`` of them."""
    views = {view.name: view for view in (node(f"n{index}", f"rack-{index // 2}") for index in range(nodes))}
    queue = Pool("cluster-queue", nodes if pods is None else pods, **pool)
    double = KueueDouble({("ns", "team"): queue}, {name: view.labels for name, view in views.items()})
    return KueueWorld(views, double=double, pool=queue, listens=True)


@dataclass
class KueueWorld(World):
    """Kueue acts whenever everybody does."""

    double: KueueDouble = field(default_factory=lambda: KueueDouble({}))
    pool: Pool = field(default_factory=lambda: Pool("", 0))
    workloads: dict[str, Json] = field(default_factory=dict)  # by name
    presence: Presence = Presence.PRESENT
    flavor: Flavor | None = None
    written: list[WorkloadWrite] = field(default_factory=list)
    refusal: str = ""  # what the API server says to a Workload that is made
    stripped: set[str] = field(default_factory=set)  # Workloads whose labels somebody took away: no watch has them
    stale: dict[tuple[str, str], WorkloadView] | None = None  # what the operator believes to be so

    def submit(self, name: str = "run", nodes: int = 2, labels: Mapping[str, str] = LABEL, **fields: object) -> None:
        """`kubectl apply` of a run that Kueue admits."""
        self.apply(name, spec(nodes, **{"gpusPerNode": 8, **fields}))
        self.label(name, **labels)

    def queue_up(self, name: str = "run", nodes: int = 2, **fields: Any) -> None:
        """Submit a run, and everybody acts until nothing changes."""
        self.submit(name, nodes, **fields)
        self.settle()

    def label(self, run: str, **labels: str) -> None:
        """`kubectl label`."""
        self._store(replace(self.runs[run], labels=dict(labels)))

    def workload(self, run: str = "run") -> Json:
        """The Workload as the API server has it."""
        return self.workloads[workload_name(self.runs[run])]

    def told(self, kind: str, run: str = "run") -> tuple[str, str]:
        """Status and reason of a condition of the Workload."""
        found = condition(self.workload(run), kind) or {}
        return found.get("status", ""), found.get("reason", "")

    def evict(self, reason: str, run: str = "run") -> None:
        """Kueue wants the reservation back."""
        workload = self.workload(run)
        self.double.evict(workload, reason, self.now)
        self._bump(workload)

    def activate(self, active: bool, run: str = "run") -> None:
        """`kubectl patch workload`, or Kueue that gives up."""
        self.workload(run)["spec"]["active"] = active
        self._bump(self.workload(run))

    def lose_workload(self, run: str = "run") -> None:
        """`kubectl delete workload`."""
        del self.workloads[workload_name(self.runs[run])]
        self.version += 1

    def strip_labels(self, run: str = "run") -> None:
        """`kubectl label workload ... lockstep.dev/run-uid-`: to a watch of that label it is deleted."""
        self.stripped.add(workload_name(self.runs[run]))
        self._bump(self.workload(run))

    def exclude_nodes(self, run: str, *nodes: str, seconds: float = 0) -> None:
        """All that recovery remembers of nodes that failed in earlier attempts."""
        view, since, until = self.runs[run], int(self.now), int(self.now + seconds)
        entries = tuple(ExcludedNode(node=node, reason="Xid 79", since=since, until=until) for node in nodes)
        recovery = changed(view.status.recovery, excluded_nodes=entries)
        self._store(replace(view, status=changed(view.status, recovery=recovery)))

    def freeze(self) -> None:
        """From now on the operator's watch of Workloads lags."""
        self.stale = self._views()

    def crash(self) -> None:
        super().crash()
        self.stale = None

    def snapshot(self, name: str) -> RunSnapshot:
        return replace(super().snapshot(name), kueue=self.kueue())

    def cluster_snapshot(self) -> ClusterSnapshot:
        return replace(super().cluster_snapshot(), kueue=self.kueue())

    def kueue(self) -> Kueue:
        """What the operator knows of Kueue."""
        if self.presence is not Presence.PRESENT:
            return Kueue(self.presence)
        pools = {pool.name: pool for pool in self.double.queues.values()}
        return Kueue(
            presence=Presence.PRESENT,
            workloads=self._views() if self.stale is None else self.stale,
            local_queues={key: pool.name for key, pool in self.double.queues.items()},
            cluster_queues={pool.name: (pool.flavor,) for pool in pools.values()},
            flavors={pool.flavor: self._flavor(pool) for pool in pools.values()},
            topologies={f"{pool.name}-topology": pool.levels for pool in pools.values() if pool.levels},
            pod_classes=self.classes,
            refused={("ns", workload_name(run)): self.refusal for run in self.runs.values() if self.refusal},
        )

    def settle(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            before = self.version
            super().settle(rounds)
            self.kueue_acts()
            if self.version == before:
                return

    def kueue_acts(self) -> None:
        """One cycle of Kueue's."""
        if self.presence is Presence.PRESENT:
            self.double.closed = {name for name, view in self.nodes.items() if view.unschedulable or not view.ready}
            self.double.busy = {pod.node for pod in self.pods.values() if not pod.is_terminal}
            for changed in self.double.decide(self.workloads.values(), self.now):
                self.workloads[changed["metadata"]["name"]] = changed
                self._bump(changed)

    def _flavor(self, pool: Pool) -> Flavor:
        update = PodSetUpdate(f"ResourceFlavor {pool.flavor}", node_selector=dict(pool.node_labels))
        return self.flavor or Flavor(update, f"{pool.name}-topology" if pool.levels else "")

    def _views(self) -> dict[tuple[str, str], WorkloadView]:
        seen = {name: raw for name, raw in self.workloads.items() if name not in self.stripped}
        return {("ns", name): parse_workload(raw) for name, raw in seen.items()}

    def _bump(self, workload: Json) -> None:
        self.version += 1
        workload["metadata"]["resourceVersion"] = str(self.version)

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        super()._execute(name, plan, crash_after)
        if plan.workload is None:
            return
        before = (plan.status is not None) + len(plan.deletes) + len(plan.creates)
        if crash_after is not None and crash_after <= before:
            if crash_after == before:
                self.crash()
            return
        self._write_workload(plan.workload)

    def _write_workload(self, write: WorkloadWrite) -> None:
        self.written.append(write)
        known = self.workloads.get(write.name)
        if write.verb is WorkloadVerb.FIND or (write.verb is WorkloadVerb.CREATE and known is not None):
            self.stale = None
            if write.name in self.stripped:  # the labels are given back
                self.stripped.remove(write.name)
                self._bump(self.workloads[write.name])
            return
        if write.verb is WorkloadVerb.CREATE:
            self.stale = None
            if known is None and not self.refusal:
                self.version += 1
                body: Json = deepcopy(dict(write.body))
                body["metadata"] |= {"uid": f"workload-{self.version}", "creationTimestamp": to_rfc3339(self.now)}
                body["status"] = {}
                check(None, body)
                self.workloads[write.name] = body
                self._bump(body)
            return
        if known is None or known["metadata"]["resourceVersion"] != write.resource_version:
            self.stale = None  # a conflict: it is read again
            return
        if write.verb is WorkloadVerb.DELETE:
            assert known["metadata"]["uid"] == write.uid
            self._check_nobody_is_left(known)
            del self.workloads[write.name]
            self.version += 1
            return
        patch = {"status": dict(write.body)} if write.verb is WorkloadVerb.TELL else write.body
        new = merged(known, patch)
        check(known, new)
        if is_true(known, "QuotaReserved") and (not is_true(new, "QuotaReserved") or is_true(new, "Finished")):
            self._check_nobody_is_left(known)
        self.workloads[write.name] = new
        self._bump(new)

    def _check_nobody_is_left(self, workload: Json) -> None:
        """The one promise to everybody else: what a gang uses is not given back."""
        uid = workload["metadata"]["ownerReferences"][0]["uid"]
        used = next((run.status.kueue for run in self.runs.values() if run.uid == uid), None)
        if used is None or used.workload_uid != workload["metadata"]["uid"]:
            return  # no pod rests on it
        left = [
            pod.name
            for pod in self.pods.values()
            if pod.run_uid == uid and not pod.is_terminal and pod.node not in self.silent_nodes
        ]
        assert not left, f"the quota of {left} was given back while they ran"


def merged(old: Any, patch: Mapping[str, Any]) -> Any:
    """RFC 7386."""
    found = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = merged(found.get(key), value)
        else:
            found[key] = deepcopy(value)
    return found


def phase(world: KueueWorld, run: str = "run") -> Phase:
    """Of a run, by its name."""
    view = world.runs[run]
    assert view.spec is not None
    return phase_of(view.status, view.spec.suspend)


def nodes(world: KueueWorld, run: str = "run") -> tuple[str, ...]:
    """That a run holds, by slot."""
    return world.status(run).assignment.nodes


def reason(world: KueueWorld, run: str = "run") -> tuple[str, str]:
    """Why a run waits: the word and the sentence."""
    queue = world.status(run).queue
    return queue.reason, queue.message


def running(**pool: Any) -> KueueWorld:
    """A run that trains, in a pool of this shape."""
    world = kueue_world(**pool)
    world.queue_up()
    assert phase(world) is Phase.RUNNING, reason(world)
    return world
