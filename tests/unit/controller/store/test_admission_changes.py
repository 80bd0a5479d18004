"""Cycles that only look at what the store says to have changed find everything that has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.forgetful import anew
from lockstep.api.base.changes import changed
from lockstep.api.run_status import AssignmentStatus, TrainingRunStatus
from lockstep.controller.kube.workqueue import WorkQueue
from lockstep.controller.reconcile.threaded_admission import detached
from lockstep.controller.runtime.patches import dump_status
from lockstep.controller.store.change_log import ChangeLog
from lockstep.controller.store.store import Store
from lockstep.controller.store.usage_index import UsageIndex
from lockstep.core.admission import admit as admitting
from lockstep.core.admission import cycle_state, scheduling
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.ledger import is_of_its_run
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.admission.queueing.fair_share import ChargedUsage
from lockstep.core.model.cluster_objects import ForeignPod, Unread, Versioned
from lockstep.core.model.snapshot import Changes, ClusterSnapshot, Leadership, PodPhase, PodView
from lockstep.core.model.tunables import Tunables
from lockstep.core.placement.node_index import NodeIndex
from support.admission import ACCEPTED, FINISHED, NOW, node, pod
from support.examples import examples
from support.manual_clock import ManualClock

LEADER = Leadership(since=0.0)
BREAKS = [(cycle_state, "taken"), (scheduling, "backfill"), (admitting, "queue_writes")]


class Cluster:
    """The store, fed with what the API server says, and the cycles of a leader."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.version = 10
        self.now = NOW
        clock = ManualClock()
        self.store = Store(WorkQueue(clock), clock)
        self.memory, self.usage = CycleMemory(), UsageIndex()
        self.runs: dict[str, dict[str, Any]] = {}  # as the API server has them, by UID
        self.changes: list[Callable[[], object]] = [
            *(self.create_run, self.edit_run, self.delete_run, self.list_runs, self.assume, self.answer),
            *(self.change_pod, self.relabel_pod, self.remove_pod, self.change_foreign_pod, self.change_node),
            *(self.remove_node, self.write_status),
        ]
        for _ in range(12):
            self.change_node()
            self.create_run()

    def happen(self, most: int = 4) -> None:
        for _ in range(self.chance.randrange(most + 1)):
            self.chance.choice(self.changes)()

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def apply(self, raw: dict[str, Any]) -> None:
        raw["metadata"]["resourceVersion"] = str(self.next_version())
        self.runs[raw["metadata"]["uid"]] = raw
        self.store.runs.apply(raw)

    def create_run(self) -> None:
        """Maybe under the name of another, of which nobody has heard that it is gone."""
        name, uid = f"r{self.chance.randrange(8)}", f"u{self.next_version()}"
        self.runs = {uid: raw for uid, raw in self.runs.items() if raw["metadata"]["name"] != name}
        metadata = {"namespace": "team", "name": name, "uid": uid, "generation": 1}
        spec = {"nodes": self.chance.randint(1, 3), "image": "i", "command": ["train"]}
        status = dump_status(TrainingRunStatus(conditions=(ACCEPTED,)))
        created = {"creationTimestamp": "1970-01-01T00:00:00Z"}
        self.apply({"metadata": metadata | created, "spec": spec, "status": status})

    def edit_run(self) -> None:
        if self.runs:
            raw = self.any_run()
            spec = raw["spec"] | {"nodes": self.chance.randint(1, 3), "suspend": self.chance.random() < 0.3}
            self.apply(raw | {"spec": spec, "metadata": dict(raw["metadata"])})

    def write_status(self) -> None:
        """The run's own reconcile writes it."""
        if self.runs:
            raw = self.any_run()
            ends = self.chance.random() < 0.3
            conditions = (ACCEPTED, FINISHED) if ends else (ACCEPTED,)
            known = self.store.runs.get(raw["metadata"]["uid"])
            assert known is not None
            had = AssignmentStatus(incarnations=(self.chance.randint(1, 2),) * self.chance.randrange(3))
            status = changed(known.status, conditions=conditions, attempt=self.chance.randrange(3))
            if self.chance.random() < 0.5:
                status = changed(status, assignment=had)
            self.apply(raw | {"status": dump_status(status), "metadata": dict(raw["metadata"])})

    def delete_run(self) -> None:
        if self.runs:
            uid = self.any_run()["metadata"]["uid"]
            del self.runs[uid]
            self.store.runs.hear_gone(uid, self.next_version())

    def list_runs(self) -> None:
        """Of some the watch has not told that they are gone."""
        self.runs = {uid: raw for uid, raw in self.runs.items() if self.chance.random() < 0.9}
        items = [
            Versioned(uid, int(raw["metadata"]["resourceVersion"]), Unread("team", msgspec.Raw(orjson.dumps(raw))))
            for uid, raw in self.runs.items()
        ]
        self.store.runs.compare(items, self.next_version(), 0.0)

    def assume(self) -> None:
        if self.runs:
            uid = self.any_run()["metadata"]["uid"]
            self.store.writes.assume(uid, TrainingRunStatus(conditions=(ACCEPTED,), attempt=9))

    def answer(self) -> None:
        """Of a write that a cycle decided the answer is there, or it was refused."""
        for uid in [*self.runs] if self.runs else ():
            assumed = self.store.writes.assumed(uid)
            if assumed is None or self.chance.random() < 0.5:
                continue
            if self.chance.random() < 0.7:
                raw = self.runs[uid]
                self.apply(raw | {"status": dump_status(assumed), "metadata": dict(raw["metadata"])})
            self.store.writes.release(uid)
            self.store.writes.drop_assumption(uid)

    def any_run(self) -> dict[str, Any]:
        return self.chance.choice([*self.runs.values()])

    def some_pod(self) -> PodView | None:
        views = [view for uid in self.runs if (view := self.store.runs.get(uid)) is not None]
        if not views:
            return None
        phase = self.chance.choice([*PodPhase])
        view = pod(self.chance.choice(views), self.chance.randrange(2), f"n{self.chance.randrange(6)}", phase)
        # The run vouches for it now, later, or never.
        incarnation, bound = self.chance.choice([1, 1, 2]), self.chance.random() < 0.7
        requests = {"nvidia.com/gpu": self.chance.randrange(3)}
        owner = view.owner_uid if self.chance.random() < 0.7 else "somebody-else"  # then it takes what it requests
        return replace(view, incarnation=incarnation, bound=bound, requests=requests, owner_uid=owner)

    def change_pod(self) -> None:
        if (view := self.some_pod()) is not None:
            self.store.gang_pods.upsert(Versioned(view.uid, self.next_version(), view))

    def relabel_pod(self) -> None:
        """One watch tells of it now, and the other no more, in either order."""
        if (view := self.some_pod()) is not None:
            source, target = self.chance.sample([self.store.gang_pods, self.store.other_pods], 2)
            version = self.next_version()
            moves = [
                lambda: source.remove(view.uid, version),
                lambda: target.upsert(Versioned(view.uid, version, view)),
            ]
            for move in self.chance.sample(moves, 2):
                move()

    def remove_pod(self) -> None:
        caches = self.store.gang_pods, self.store.other_pods
        known = [(cache, uid) for cache in caches for uid in cache.uids()]
        if known:
            cache, uid = self.chance.choice(known)
            cache.remove(uid, self.next_version())

    def change_foreign_pod(self) -> None:
        view = ForeignPod(f"n{self.chance.randrange(7)}", {"nvidia.com/gpu": self.chance.randrange(3)}, False)
        uid = f"foreign-{self.chance.randrange(4)}"
        self.store.other_pods.upsert(Versioned(uid, self.next_version(), view))

    def change_node(self) -> None:
        """Maybe one that was made anew under the same name."""
        view = node(f"n{self.chance.randrange(6)}", self.chance.choice(["r1", "r2"]))
        view = replace(view, uid=f"{view.name}-{self.chance.randrange(2)}", unschedulable=self.chance.random() < 0.3)
        self.store.nodes.upsert(Versioned(view.uid, self.next_version(), view))

    def remove_node(self) -> None:
        if uids := [*self.store.nodes.uids()]:
            self.store.nodes.remove(self.chance.choice(uids), self.next_version())

    def cycle(self, breaks: int | None) -> None:
        """One that finishes, or breaks off there. What happens meanwhile, the next one sees."""
        self.now += self.chance.choice([0.0, 1.0, 700.0])
        snapshot = detached(self.store.begin_cycle(LEADER))
        self.happen(2)
        self.usage.update(snapshot.runs, snapshot.changes.runs)
        if breaks is not None:
            module, name = BREAKS[breaks]
            with patch.object(module, name, side_effect=RuntimeError), suppress(RuntimeError):
                admit(snapshot, Tunables(), self.now, self.memory)
            return
        plan = admit(snapshot, Tunables(), self.now, self.memory)
        self.store.changes.finish()
        self.check(snapshot)
        assert plan == admit(replace(snapshot, changes=Changes()), Tunables(), self.now, anew(self.memory))
        for write in plan.writes:
            if write.uid in self.runs:
                self.store.writes.book(write.uid, write.nodes)
                self.store.writes.assume(write.uid, write.status)

    def check(self, snapshot: ClusterSnapshot) -> None:
        """What is kept is of this very snapshot, and that has the pods that runs vouch for now."""
        runs = self.store.runs
        of_runs = [
            view.uid
            for uid, pods in self.store._pods._of.items()
            for view in pods.values()
            if is_of_its_run(view, runs.get(uid), gone=runs.cache.is_gone(uid), new=runs.has_had_no_nodes(uid))
        ]
        assert [view.uid for view in self.store.snapshot_cluster(LEADER).gang_pods] == of_runs
        memory = self.memory
        assert {uid: id(row.run) for uid, row in memory.run_index.rows.items()} == {
            view.uid: id(view) for view in snapshot.runs
        }
        owned = {view.uid for view in snapshot.gang_pods if view.owner_uid == view.run_uid}
        assert {view.uid for views in memory.pods.by_run.values() for view in views} == owned
        index = NodeIndex.from_nodes(
            snapshot.nodes, snapshot.foreign_requests, Tunables().topology_levels, Tunables().gpu_types
        )
        assert memory.index is not None
        assert memory.index.names(memory.index.everything) == index.names(index.everything)
        for name in snapshot.nodes:
            assert memory.index.view(name) is index.view(name)
            assert memory.index.free(name, "nvidia.com/gpu") == index.free(name, "nvidia.com/gpu")
        for mine, other in zip(memory.pods.nodes(index), _nodes_of(snapshot, index), strict=True):
            assert index.names(mine) == other
        held = ChargedUsage.from_runs(snapshot.runs)
        assert self.usage.held.nodes == {key: count for key, count in held.nodes.items() if count}


def _nodes_of(snapshot: ClusterSnapshot, index: NodeIndex) -> list[tuple[str, ...]]:
    live = [view for view in snapshot.gang_pods if not view.is_terminal]
    staying = [view for view in live if not view.deleting]
    return [index.names(index.mask(view.node for view in views)) for views in (live, staying)]


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.integers(0, 2**32), st.lists(st.sampled_from([None, None, 0, 1, 2]), min_size=1, max_size=8))
def test_cycles_told_what_has_changed_decide_as_one_that_looks_at_everything(
    seed: int, breaks: list[int | None]
) -> None:
    """Whatever breaks off, and whoever leads."""
    cluster = Cluster(Random(seed))
    for each in breaks:
        cluster.happen()
        if cluster.chance.random() < 0.1:
            cluster.memory = CycleMemory()  # another leader
        cluster.cycle(each)
    cluster.cycle(None)
    cluster.happen()
    cluster.cycle(None)


def test_what_a_reader_that_did_not_finish_has_read_is_read_again() -> None:
    log = ChangeLog[int]()
    log.note("early", 1)
    assert log.read() is None  # the first looks at everything
    assert log.read() is None  # it has not finished
    log.note("a", 1)
    log.finish()
    log.note("b", 1)
    assert log.read() == {"a": 1, "b": 1}
    log.note("b", None)
    assert log.read() == {"a": 1, "b": None}
    log.note("c", 3)
    log.finish()
    assert log.read() == {"c": 3}
