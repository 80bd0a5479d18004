"""Stands in for Kueue where the real one is not at hand: its scheduler and Workload controller, as far as we meet them.

Made from what its v1beta2 API and its controllers are known to do (docs/kueue.md#assumptions), not from its code; what
is tested with both (`tests/support/kueue_at_work.py`) holds it to the real one. It counts pods, of one flavor per
ClusterQueue, and places by host name or by rack.

What it does not do: resources other than pods, cohorts, fair sharing, partial admission, admission checks that decide
by themselves (tests set them), node selectors and affinity other than In and NotIn of host names, taints, MultiKueue,
the pod webhook, requeueing by back-off (tests turn ``requeue`` on), and counting pods that are not its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from lockstep.api.base.times import to_rfc3339

Json = dict[str, Any]
Key = tuple[str, str]
HOSTNAME = "kubernetes.io/hostname"
BACKED_OFF = ("PodsReadyTimeout", "AdmissionCheck")
"""Reasons of a Requeued that Kueue turns to True after a while; of all others it is the owner's."""


class RefusedError(Exception):
    """What Kueue's CEL rules and webhooks would not take."""


@dataclass
class Pool:
    """A ClusterQueue with its one flavor. ``levels``: of its Topology; empty: it does not place."""

    name: str
    pods: int
    flavor: str = "gpus"
    levels: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = field(default_factory=dict)
    preempts: bool = False
    stopped: str = "None"
    """`stopPolicy`: None, Hold, or HoldAndDrain, which evicts."""


@dataclass
class KueueDouble:
    """``queues``: pools by namespace and name of the LocalQueue. ``nodes``: labels by host name. ``closed``: hosts that
    are cordoned or not Ready, which it names no more; it names others in their place once they have no pods
    (``busy``)."""

    queues: dict[Key, Pool]
    nodes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    requeue: bool = True
    unhealthy: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    busy: set[str] = field(default_factory=set)

    def decide(self, workloads: Iterable[Json], now: float) -> Iterable[Json]:
        """One cycle over all Workloads: those whose status changes, as they are to be."""
        world = {(w["metadata"]["namespace"], w["metadata"]["name"]): deepcopy(w) for w in workloads}
        before = deepcopy(world)
        for workload in world.values():
            self._keep_up(workload, world.values(), now)
        waiting = [w for w in world.values() if _is_queued(w) and self._pool(w) is not None]
        waiting.sort(key=lambda w: (-w["spec"].get("priority", 0), _queued_since(w), w["metadata"]["name"]))
        blocked: set[str] = set()
        for workload in waiting:
            pool = self._pool(workload)
            assert pool is not None
            if pool.stopped != "None":
                words = f"ClusterQueue {pool.name} is inactive"
                set_condition(workload, "QuotaReserved", False, "Suspended", words, now)
            elif pool.name not in blocked and not self._admit(workload, pool, world.values(), now):
                blocked.add(pool.name)  # strict order: nobody overtakes
        return [w for key, w in world.items() if w["status"] != before[key].get("status")]

    def evict(self, workload: Json, reason: str, now: float, message: str = "") -> None:
        """As Kueue's controllers do: nothing but conditions."""
        set_condition(workload, "Evicted", True, reason, message or f"evicted for {reason}", now)
        if reason == "Preempted":
            set_condition(workload, "Preempted", True, "InClusterQueue", message, now)

    def _keep_up(self, workload: Json, everybody: Iterable[Json], now: float) -> None:
        status = workload.setdefault("status", {})
        if is_true(workload, "Finished"):
            return
        self._deactivate(workload, now)
        active, pool = _is_active(workload), self._pool(workload)
        is_here = is_true(workload, "Admitted") and not is_true(workload, "Evicted")
        if pool is not None and pool.stopped == "HoldAndDrain" and is_here:
            self.evict(workload, "ClusterQueueStopped", now, "The ClusterQueue is stopped")
        requeued = condition(workload, "Requeued")
        if active and requeued and requeued["status"] == "False" and self.requeue:
            # From Deactivated alone: one that was deactivated by Kueue and says why stays where it is.
            if requeued["reason"] == "Deactivated":
                set_condition(workload, "Requeued", True, "Reactivated", "", now)
            elif requeued["reason"] == "ClusterQueueStopped":
                if pool is not None and pool.stopped == "None":
                    set_condition(workload, "Requeued", True, "ClusterQueueRestarted", "", now)
            elif requeued["reason"] in BACKED_OFF:
                set_condition(workload, "Requeued", True, "BackoffFinished", "", now)
        if is_true(workload, "QuotaReserved") and not is_true(workload, "Evicted"):
            self._replace_nodes(workload, everybody, now)
        elif not is_true(workload, "QuotaReserved"):
            status.pop("unhealthyNodes", None)

    def _deactivate(self, workload: Json, now: float) -> None:
        """By somebody, or because Kueue gives up: then that is a condition first, and goes into the reason."""
        target = condition(workload, "DeactivationTarget")
        if target is not None:
            workload["spec"]["active"] = False
            workload["status"]["conditions"].remove(target)
        if not _is_active(workload) and is_true(workload, "QuotaReserved") and not is_true(workload, "Evicted"):
            why = f"DueTo{target['reason']}" if target is not None else ""
            self.evict(workload, f"Deactivated{why}", now, "The workload is deactivated")

    def _replace_nodes(self, workload: Json, everybody: Iterable[Json], now: float) -> None:
        """One failed node is replaced in place; without a spare, and with a second one, the Workload is evicted."""
        hosts = assigned_hosts(workload)
        named = {each["name"] for each in workload["status"].get("unhealthyNodes", ())}
        failed = self.unhealthy | named | (self.closed - self.busy)
        bad = [host for host in hosts if host in failed]
        if not bad:
            workload["status"].pop("unhealthyNodes", None)
            return
        if len(bad) > 1:
            self.evict(workload, "NodeFailures", now, f"Workload eviction triggered due to {len(bad)} failed nodes")
            return
        workload["status"]["unhealthyNodes"] = [{"name": bad[0]}]
        pool = self._pool(workload)
        unused = self._free(pool, self._holders(pool, everybody))
        free = [host for host in unused if host not in hosts and host not in bad]
        if pool is not None and not free:
            words = f"Workload was evicted as there was no replacement for unhealthy node(s): {bad[0]}"
            self.evict(workload, "NodeFailures", now, words)
        elif pool is not None:
            swapped = sorted({*hosts, free[0]} - {bad[0]})
            assignment = workload["status"]["admission"]["podSetAssignments"][0]
            assignment["topologyAssignment"] = encode([HOSTNAME], [((host,), 1) for host in swapped])
            workload["status"].pop("unhealthyNodes")

    def _pool(self, workload: Json) -> Pool | None:
        return self.queues.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", "")))

    def _admit(self, workload: Json, pool: Pool, everybody: Iterable[Json], now: float) -> bool:
        pod_set = workload["spec"]["podSets"][0]
        holders = self._holders(pool, everybody)
        used = sum(w["status"]["admission"]["podSetAssignments"][0]["count"] for w in holders)
        count = pod_set["count"]
        if count > pool.pods - used:
            return self._wait(workload, pool, holders, count - (pool.pods - used), now)
        assignment = {"name": pod_set["name"], "count": count, "flavors": {"pods": pool.flavor}}
        if pool.levels:
            topology = self._place(pod_set, pool, holders)
            if topology is None:
                words = f"topology {pool.levels} doesn't allow to fit {count} pods"
                set_condition(workload, "QuotaReserved", False, "TopologyPlacementFailed", words, now)
                return False
            assignment["topologyAssignment"] = topology
        workload["status"]["admission"] = {"clusterQueue": pool.name, "podSetAssignments": [assignment]}
        set_condition(workload, "QuotaReserved", True, "QuotaReserved", f"Quota reserved in {pool.name}", now)
        set_condition(workload, "Admitted", True, "Admitted", f"Admitted by {pool.name}", now)
        for kind in ("Evicted", "Preempted"):
            if condition(workload, kind):
                set_condition(workload, kind, False, "QuotaReserved", "Previously: evicted", now)
        return True

    def _wait(self, workload: Json, pool: Pool, holders: Sequence[Json], short: int, now: float) -> bool:
        pod_set = workload["spec"]["podSets"][0]
        name, count = pod_set["name"], pod_set["count"]
        reason, lacks = (
            "WaitingForQuota",
            f"insufficient unused quota for pods in flavor {pool.flavor}, {short} more needed",
        )
        if count > pool.pods:
            reason = "ExceedsMaxQuota"
            lacks = (
                f"insufficient quota for pods in flavor {pool.flavor}, previously considered podsets requests (0) + "
                f"current podset request ({count}) > maximum capacity ({pool.pods})"
            )
        words = f"couldn't assign flavors to pod set {name}: {lacks}"
        lower = [w for w in holders if w["spec"].get("priority", 0) < workload["spec"].get("priority", 0)]
        if pool.preempts and sum(w["spec"]["podSets"][0]["count"] for w in lower) >= short:
            reason, words = "WaitingForPreemptedWorkloads", "Preempted workloads have not ended yet"
            for victim in lower:
                if not is_true(victim, "Evicted"):
                    self.evict(victim, "Preempted", now, f"Preempted to accommodate {workload['metadata']['name']}")
        set_condition(workload, "QuotaReserved", False, reason, words, now)
        return False

    def _holders(self, pool: Pool | None, everybody: Iterable[Json]) -> list[Json]:
        """Who uses its quota: at an eviction until the release, but not a moment longer than it is active."""
        reserved = (w for w in everybody if is_true(w, "QuotaReserved") and not is_true(w, "Finished"))
        return [w for w in reserved if _is_active(w) and self._pool(w) is pool]

    def _free(self, pool: Pool | None, holders: Iterable[Json]) -> list[str]:
        taken = {host for w in holders for host in assigned_hosts(w)}
        labels = pool.node_labels if pool is not None else {}
        return [
            host
            for host, has in sorted(self.nodes.items())
            if host not in taken | self.unhealthy | self.closed and all(has.get(k) == v for k, v in labels.items())
        ]

    def _place(self, pod_set: Json, pool: Pool, holders: Iterable[Json]) -> Json | None:
        free = self._free(pool, holders)
        if pool.levels[-1] == HOSTNAME:  # a wider domain is no node, whose labels could be looked at
            free = [host for host in free if _admits(pod_set, host)]
        count, required = pod_set["count"], pod_set.get("topologyRequest", {}).get("required")
        if required:
            by_domain = groupby(sorted(free, key=lambda h: self.nodes[h][required]), lambda h: self.nodes[h][required])
            free = next((hosts for _, group in by_domain if len(hosts := list(group)) >= count), [])
        if len(free) < count:
            return None
        chosen = free[:count]
        if pool.levels[-1] == HOSTNAME:
            return encode([HOSTNAME], [((host,), 1) for host in chosen])
        domains: dict[tuple[str, ...], int] = {}
        for host in chosen:
            values = tuple(self.nodes[host][level] for level in pool.levels)
            domains[values] = domains.get(values, 0) + 1
        return encode(list(pool.levels), list(domains.items()))


def encode(levels: Sequence[str], domains: Sequence[tuple[tuple[str, ...], int]], slices: int = 1) -> Json:
    """As compressed as v1beta2 allows, in ``slices`` parts."""
    size = -(-len(domains) // slices) if domains else 1
    parts = [domains[at : at + size] for at in range(0, len(domains), size)]
    return {"levels": list(levels), "slices": [_slice(part) for part in parts]}


def _slice(domains: Sequence[tuple[tuple[str, ...], int]]) -> Json:
    counts = [count for _, count in domains]
    columns = zip(*(values for values, _ in domains), strict=True)
    pods = {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts}
    values = [_values(list(column)) for column in columns]
    return {"domainCount": len(domains), "valuesPerLevel": values, "podCounts": pods}


def _values(values: list[str]) -> Json:
    if len(set(values)) == 1 and len(values) > 1:
        return {"universal": values[0]}
    prefix = _common(values)
    roots = [value[len(prefix) :] for value in values]
    suffix = _common([root[::-1] for root in roots])[::-1]
    roots = [root[: len(root) - len(suffix)] for root in roots]
    shared = ({"prefix": prefix} if prefix else {}) | ({"suffix": suffix} if suffix else {})
    return {"individual": {"roots": roots} | shared}


def _common(values: Sequence[str]) -> str:
    """The longest prefix of all of them."""
    first, last = min(values), max(values)
    return next((first[:at] for at, letter in enumerate(first) if letter != last[at : at + 1]), first)


def assigned_hosts(workload: Json) -> list[str]:
    """Host names of an assignment made by this double, in rank order."""
    if not is_true(workload, "QuotaReserved"):
        return []
    topology = workload["status"]["admission"]["podSetAssignments"][0].get("topologyAssignment")
    if not topology or topology["levels"][-1] != HOSTNAME:
        return []
    hosts: list[str] = []
    for part in topology["slices"]:
        values = part["valuesPerLevel"][-1]
        each = values.get("individual", {"roots": [values.get("universal", "")] * part["domainCount"]})
        hosts += [each.get("prefix", "") + root + each.get("suffix", "") for root in each["roots"]]
    return hosts


def condition(workload: Mapping[str, Any], kind: str) -> Json | None:
    """The condition of a type."""
    return next((c for c in workload.get("status", {}).get("conditions", ()) if c["type"] == kind), None)


def is_true(workload: Mapping[str, Any], kind: str) -> bool:
    """The condition is there and True."""
    found = condition(workload, kind)
    return found is not None and found["status"] == "True"


def set_condition(workload: Json, kind: str, value: bool, reason: str, message: str, now: float) -> None:
    """As apimachinery's SetStatusCondition."""
    conditions = workload.setdefault("status", {}).setdefault("conditions", [])
    found, status = condition(workload, kind), str(value)
    since = found["lastTransitionTime"] if found and found["status"] == status else to_rfc3339(now)
    said = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    if found is None:
        conditions.append(said)
    else:
        found.update(said)


def check(old: Json | None, new: Json) -> None:
    """Raises RefusedError for what Kueue's API would refuse."""
    status = new.get("status", {})
    if is_true(new, "QuotaReserved") and not status.get("admission"):
        raise RefusedError("status.admission: must be set while QuotaReserved is True")
    if new["spec"].get("priorityClassRef") and "priority" not in new["spec"]:
        raise RefusedError("priority should not be nil when priorityClassRef is set")
    if len(status.get("conditions", ())) > 16:
        raise RefusedError("status.conditions: must have at most 16 items")
    for said in status.get("conditions", ()):
        if not said["reason"] or not said["lastTransitionTime"]:
            raise RefusedError(f"status.conditions[{said['type']}]: reason and lastTransitionTime are required")
    if old is not None and is_true(old, "QuotaReserved"):
        for name in ("podSets", "queueName"):
            if old["spec"].get(name) != new["spec"].get(name):
                raise RefusedError(f"spec.{name} is immutable while quota is reserved")


def _is_active(workload: Json) -> bool:
    return bool(workload["spec"].get("active", True))


def _is_queued(workload: Json) -> bool:
    requeued = condition(workload, "Requeued")
    held = requeued is not None and requeued["status"] == "False"
    over = is_true(workload, "Finished") or is_true(workload, "QuotaReserved")
    return _is_active(workload) and not (held or over)


def _queued_since(workload: Json) -> str:
    evicted = condition(workload, "Evicted")
    return str((evicted or {}).get("lastTransitionTime") or workload["metadata"].get("creationTimestamp", ""))


def _admits(pod_set: Json, host: str) -> bool:
    lines = [line for term in _terms(pod_set) for line in term.get("matchExpressions", ()) if line["key"] == HOSTNAME]
    return all((host in line["values"]) == (line["operator"] == "In") for line in lines)


def _terms(pod_set: Json) -> list[Json]:
    affinity = pod_set["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ()))
