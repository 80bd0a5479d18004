"""Every pod that is known, by what decisions ask of pods: whose they are, where, and what the others take."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from lockstep.controller.kube.workqueue import run_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.store.change_log import ChangeLog
from lockstep.core.model.cluster_objects import AnyPod, ForeignPod
from lockstep.core.model.snapshot import PlaceholderView, PodView, Resources


class PodIndex:
    """Pods of gangs one by one; of all others the sums of what they request on each node."""

    def __init__(self, clock: Clock, changed_nodes: ChangeLog[None]) -> None:
        self._clock = clock
        self._changed_nodes = changed_nodes
        self._of: dict[str, dict[str, PodView]] = {}  # run UID -> pod UID -> pod
        self._named: dict[str, Counter[str]] = {}  # run key -> run UID -> number of pods
        self._on: dict[str, dict[str, str]] = {}  # node -> pod UID -> key of the run
        self._known: dict[str, PodView] = {}  # by its UID
        # One watch tells of pods with our labels, another of those without: of one that has just lost them or got them
        # back both tell, in either order.
        self._seen_twice: set[str] = set()
        self._first_seen: dict[str, float] = {}  # pod UID -> monotonic seconds
        self._foreign: dict[str, dict[str, int]] = {}  # node -> resource -> sum of requests
        self._placeholders: dict[str, dict[str, PlaceholderView]] = {}  # run UID -> pod UID -> pod

    def change(self, old: AnyPod | None, new: AnyPod | None) -> None:
        """One pod came, changed or went."""
        self._count_foreign(old, -1)
        self._count_foreign(new, +1)
        self._note_placeholder(old, new)
        if isinstance(new, PodView):
            known = self._known.get(new.uid)
            if known is not None:
                self._forget(known)
                if not isinstance(old, PodView):
                    self._seen_twice.add(new.uid)
            self._add(new)
        elif isinstance(old, PodView):
            if old.uid in self._seen_twice:
                self._seen_twice.remove(old.uid)
                return
            self._forget(self._known[old.uid])
            del self._first_seen[old.uid]

    def placeholders_of(self, run_uid: str) -> Collection[PlaceholderView]:
        """Those that name the run as the one they hold a place for."""
        return self._placeholders.get(run_uid, {}).values()

    def all_placeholders(self) -> Iterable[PlaceholderView]:
        """Those of all runs."""
        return (pod for pods in self._placeholders.values() for pod in pods.values())

    def for_run(self, run_uid: str) -> Collection[PodView]:
        """Every pod of a run that still exists; a label is anybody's to copy."""
        return self._of.get(run_uid, {}).values()

    def get(self, pod_uid: str) -> PodView | None:
        """A gang's pod, or one that says so."""
        return self._known.get(pod_uid)

    def all_of_gangs(self) -> Iterable[PodView]:
        """The pods of all runs, and those that say so."""
        return (pod for pods in self._of.values() for pod in pods.values())

    def runs_on(self, node: str) -> set[str]:
        """Keys of the runs that have pods there."""
        return set(self._on.get(node, {}).values())

    def uids_of_runs_named(self, key: str) -> tuple[str, ...]:
        """UIDs of the runs of this name that have pods, of which at most one exists."""
        return tuple(self._named.get(key, ()))

    def first_seen(self, pod_uid: str) -> float:
        """When a gang's pod was first heard of, in monotonic seconds."""
        return self._first_seen[pod_uid]

    @property
    def foreign_requests(self) -> Mapping[str, Resources]:
        """By node: the sums of what everything but gangs requests there, with the pods themselves counted."""
        return MappingProxyType(self._foreign)

    def _note_placeholder(self, old: AnyPod | None, new: AnyPod | None) -> None:
        if isinstance(old, PlaceholderView) and (pods := self._placeholders.get(old.run_uid)) is not None:
            pods.pop(old.uid, None)
            if not pods:
                del self._placeholders[old.run_uid]
        if isinstance(new, PlaceholderView):
            self._placeholders.setdefault(new.run_uid, {})[new.uid] = new
        for pod in (old, new):
            if isinstance(pod, PlaceholderView) and pod.node:
                self._changed_nodes.note(pod.node, None)  # it may have been taken for anybody's

    def _add(self, pod: PodView) -> None:
        self._known[pod.uid] = pod
        self._of.setdefault(pod.run_uid, {})[pod.uid] = pod
        key = run_key(pod.namespace, pod.run)
        self._named.setdefault(key, Counter())[pod.run_uid] += 1
        self._on.setdefault(pod.node, {})[pod.uid] = key
        self._first_seen.setdefault(pod.uid, self._clock.monotonic())

    def _forget(self, pod: PodView) -> None:
        del self._known[pod.uid]
        pods = self._of[pod.run_uid]
        del pods[pod.uid]
        if not pods:
            del self._of[pod.run_uid]
        key = run_key(pod.namespace, pod.run)
        named = self._named[key]
        named[pod.run_uid] -= 1
        if not named[pod.run_uid]:
            del named[pod.run_uid]
        if not named:
            del self._named[key]
        runs = self._on[pod.node]
        del runs[pod.uid]
        if not runs:
            del self._on[pod.node]

    def _count_foreign(self, pod: AnyPod | None, sign: int) -> None:
        if not isinstance(pod, ForeignPod) or pod.terminal or not pod.node:
            return
        sums = dict(self._foreign.get(pod.node, {}))  # a copy: the old sums may be in a snapshot
        for name, value in pod.requests.items():
            if total := sums.get(name, 0) + sign * value:
                sums[name] = total
            else:
                sums.pop(name, None)
        self._foreign[pod.node] = sums
        self._changed_nodes.note(pod.node, None)
        if not sums:
            del self._foreign[pod.node]
