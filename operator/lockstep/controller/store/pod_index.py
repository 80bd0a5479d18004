"""Every pod that is known, by what decisions ask of pods: whose they are, where, and what the others take."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

from lockstep.controller.kube.workqueue import run_key
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.store.change_log import AdmissionChanges
from lockstep.core.admission.cache.ledger import is_in_doubt, is_of_its_run, with_strangers
from lockstep.core.model.cluster_objects import AnyPod, ForeignPod
from lockstep.core.model.snapshot import PlaceholderView, PodView, Resources, RunView
from lockstep.core.pods.placeholders import asks_by_placeholders, foreign_placeholders, is_placeholder_of


class PodIndex:
    """Pods of gangs one by one; of all others the sums of what they request on each node.

    A pod that its run does not vouch for is no pod of a gang to admission: it takes what it requests. ``run`` is asked
    for the run with a UID, ``is_gone`` whether one is known to be no more, and ``is_new`` whether to have had no nodes.
    """

    def __init__(
        self,
        clock: Clock,
        changes: AdmissionChanges,
        run: Callable[[str], RunView | None],
        is_gone: Callable[[str], bool],
        is_new: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._changes = changes
        self._run = run
        self._is_gone = is_gone
        self._is_new = is_new
        self._strangers: dict[str, PodView] = {}  # pods, by UID, for which the run that they name does not vouch
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
        self._places_on: dict[str, dict[str, PlaceholderView]] = {}  # node -> pod UID -> pod
        self._false_places: dict[str, PlaceholderView] = {}  # those on nodes for which no run vouches, by UID
        self._asking: set[str] = set()  # UIDs of runs that vouched when they were last seen

    def change(self, old: AnyPod | None, new: AnyPod | None) -> None:
        """One pod came, changed or went."""
        self._keep(old, new)
        gangs = new if isinstance(new, PodView) else old
        if isinstance(gangs, PodView):
            self._sort_out(gangs.uid)

    def run_changed(self, run_uid: str) -> None:
        """It may vouch for others of its pods now."""
        if (asks := asks_by_placeholders(self._run(run_uid))) != (run_uid in self._asking):
            (self._asking.add if asks else self._asking.discard)(run_uid)
            for placeholder in self._placeholders_of(run_uid):
                self._sort_out_place(placeholder)
        for pod in self.for_run(run_uid):
            if self._is_stranger(pod) != (pod.uid in self._strangers):
                self._sort_out(pod.uid)

    def _keep(self, old: AnyPod | None, new: AnyPod | None) -> None:
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

    def placeholders_for(self, run: RunView) -> tuple[PlaceholderView, ...]:
        """Those of the run. Of other runs those on nodes that it has, and with these the ones that have none yet: they
        would be there at once, before the pods of the gang, which kube-scheduler tries again a while later."""
        found = [pod for pod in self._placeholders_of(run.uid) if pod.namespace == run.namespace]
        nodes = self._places_on.keys() & run.status.assignment.nodes if self._places_on else ()
        uids = {pod.run_uid for node in nodes for pod in self._places_on[node].values() if self.holds_a_place(pod)}
        theirs = [pod for uid in sorted(uids - {run.uid}) for pod in self._placeholders_of(uid)]
        return (*found, *(pod for pod in theirs if (not pod.node or pod.node in nodes) and self.holds_a_place(pod)))

    def holds_a_place(self, pod: PlaceholderView) -> bool:
        """Its run vouches for it."""
        return is_placeholder_of(pod, self._run(pod.run_uid))

    def for_run(self, run_uid: str) -> Collection[PodView]:
        """Every pod of a run that still exists; a label is anybody's to copy."""
        return self._of.get(run_uid, {}).values()

    def vouched_for(self, run_uid: str) -> tuple[PodView, ...]:
        """Those of them that are not only said to be its."""
        return tuple(pod for pod in self.for_run(run_uid) if pod.uid not in self._strangers)

    def all_of_gangs(self) -> Iterable[PodView]:
        """The pods of all runs that vouch for them."""
        return (pod for pods in self._of.values() for pod in pods.values() if pod.uid not in self._strangers)

    def in_doubt(self) -> Iterable[PodView]:
        """Those of a run that does not vouch for them, and does not start beside them either."""
        return (pod for pod in self._strangers.values() if is_in_doubt(pod, self._run(pod.run_uid)))

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
        requests = with_strangers(MappingProxyType(self._foreign), self._strangers.values())
        return foreign_placeholders(requests, self._false_places.values(), self._run)

    def _sort_out(self, pod_uid: str) -> None:
        """Whose a pod is, by what is known now: admission sees it, or only what it requests."""
        pod, before = self._known.get(pod_uid), self._strangers.pop(pod_uid, None)
        stranger = pod if pod is not None and self._is_stranger(pod) else None
        if stranger is not None:
            self._strangers[pod_uid] = stranger
        self._changes.pods.note(pod_uid, None if stranger is not None else pod)
        for each in (before, stranger):
            if each is not None:
                self._changes.nodes.note(each.node, None)

    def _is_stranger(self, pod: PodView) -> bool:
        uid = pod.run_uid
        return not is_of_its_run(pod, self._run(uid), gone=self._is_gone(uid), new=self._is_new(uid))

    def _placeholders_of(self, run_uid: str) -> Collection[PlaceholderView]:
        """Those that name the run as the one they hold a place for."""
        return self._placeholders.get(run_uid, {}).values()

    def _note_placeholder(self, old: AnyPod | None, new: AnyPod | None) -> None:
        if isinstance(old, PlaceholderView):
            for index, key in ((self._placeholders, old.run_uid), (self._places_on, old.node)):
                if (pods := index.get(key)) is not None:
                    pods.pop(old.uid, None)
                    if not pods:
                        del index[key]
            if self._false_places.pop(old.uid, None) is not None:
                self._changes.nodes.note(old.node, None)
        if isinstance(new, PlaceholderView):
            self._placeholders.setdefault(new.run_uid, {})[new.uid] = new
            if new.node:
                self._places_on.setdefault(new.node, {})[new.uid] = new
            self._sort_out_place(new)

    def _sort_out_place(self, pod: PlaceholderView) -> None:
        """It takes nothing from its node, or what it requests."""
        takes = bool(pod.node) and not pod.terminal and not self.holds_a_place(pod)
        if takes or pod.uid in self._false_places:
            self._changes.nodes.note(pod.node, None)
        if takes:
            self._false_places[pod.uid] = pod
        else:
            self._false_places.pop(pod.uid, None)

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
        self._changes.nodes.note(pod.node, None)
        if not sums:
            del self._foreign[pod.node]
