"""The world of a fuzzed history: a few runs of any shape on a few nodes, whose workers may lie."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fuzz import edited_runs, lies, worker_lies
from fuzz.judging import FoundError, Judge
from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.cache.ledger import is_in_doubt, is_of_its_run, with_strangers
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.admission_settings import AdmissionSettings, Backfill, MaintenanceWindow
from lockstep.core.model.assignment import bookable
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.plan import Plan, StatusWrite
from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupKind, PodGroupSettings
from lockstep.core.model.settings import ArchiveSettings, Breaker, GpuRates
from lockstep.core.model.snapshot import ClusterSnapshot, DryRunResult, PodView, RefusedCreate, RunSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.kueue_double import KueueDouble, Pool, RefusedError
from support.kueue_world import KueueWorld
from support.world import Worker, node, spec

CLASSES = {"low": 10, "high": 1000}
_GANG = GangSettings(local_storages={"nvme": "/mnt/nvme"})
_LIMITS = (None, None, None, "1s", "1m", "10m", "1h")


@dataclass
class FuzzedWorld(KueueWorld):
    """Lets workers lie, and judges what is decided."""

    judge: Judge = field(default_factory=Judge)
    rng: Random = field(default_factory=Random)
    liars: set[str] = field(default_factory=set)  # by pod UID
    refuses: dict[str, RefusedCreate] = field(default_factory=dict)  # by pod
    unjudged: DryRunResult | None = None
    memory: CycleMemory | None = None
    spoiled: bool = False
    """Somebody has edited a status: what the double is sure of may not be so."""
    leaves: Callable[[FoundError, str], None] = lambda *_: None

    def snapshot(self, name: str) -> RunSnapshot:
        known = super().snapshot(name)
        known = replace(known, refused_creates=self.refuses)
        return replace(known, dry_run=self.unjudged) if self.unjudged is not None else known

    def cluster_snapshot(self) -> ClusterSnapshot:
        """As the store has it for admission."""
        known = super().cluster_snapshot()
        by_uid = {run.uid: run for run in known.runs}
        vouched = [pod for pod in known.gang_pods if self._is_of_its_run(pod, by_uid)]
        ours = {*map(id, vouched)}
        strangers = [pod for pod in known.gang_pods if id(pod) not in ours]
        return replace(
            known,
            runs=tuple(map(as_booked, known.runs)),
            gang_pods=tuple(vouched),
            doubtful_pods=tuple(pod for pod in strangers if is_in_doubt(pod, by_uid.get(pod.run_uid))),
            foreign_requests=with_strangers(known.foreign_requests, strangers),
        )

    @staticmethod
    def _is_of_its_run(pod: PodView, by_uid: Mapping[str, RunView]) -> bool:
        return is_of_its_run(pod, by_uid.get(pod.run_uid), gone=pod.run_uid not in by_uid)

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        if name not in self.runs:
            return Plan()
        snapshot = self.snapshot(name)
        plan = self.judge.decided(snapshot, self.tunables, self.now)
        self._execute(name, plan, crash_after)
        return plan

    def admit(self, *, crash_after: int | None = None) -> tuple[StatusWrite, ...]:
        cluster = self.cluster_snapshot()
        self.judge.taken(cluster)
        plan = self.judge.admitted(cluster, self.tunables, self.now, self.memory)
        for count, write in enumerate(plan.writes):
            if crash_after is not None and count >= crash_after:
                self.crash()
                break
            if write.name in self.runs:
                self._write_status(write.name, write.status)
        return plan.writes

    def crash(self) -> None:
        super().crash()
        if self.memory is not None:
            self.memory = CycleMemory()

    def mutate(self, name: str, rng: Random) -> None:
        """Decide for a snapshot of the run with lies in it, of which nothing is kept."""
        snapshot, now, words = lies.corrupted(rng, self.snapshot(name), self.now)
        try:
            chance = rng.random()
            if chance < 0.08:
                self.judge.at_rest(snapshot, self.tunables, now)
            elif chance < 0.16:
                self.judge.without_deciding(snapshot, self.tunables, now)
            else:
                self.judge.decided(snapshot, self.tunables, now)
        except FoundError as error:
            self.leaves(error, f"changed: {words}")

    def kueue_acts(self) -> None:
        try:
            super().kueue_acts()
        except RefusedError:
            raise FoundError("Kueue refuses", traceback.format_exc()[-600:]) from None

    def _report(self, pod: PodView, worker: Worker) -> None:
        super()._report(pod, worker)
        known = self.reports.get(pod.run_uid, {}).get(worker.slot)
        if known is not None and pod.uid in self.liars:
            self.reports[pod.run_uid][worker.slot] = worker_lies.lied(self.rng, known, self.now)

    def _execute(self, name: str, plan: Plan, crash_after: int | None) -> None:
        super()._execute(name, plan, crash_after)
        if plan.jobs and name in self.runs and crash_after is None:
            made = tuple(lies.job(self.rng, self.runs[name], each.name, self.now) for each in plan.jobs)
            self.jobs[name] = (*self.jobs.get(name, ()), *made)[-4:]

    def _write_status(self, name: str, status: TrainingRunStatus) -> None:
        if self.spoiled:
            view = replace(self.runs[name], status=TrainingRunStatus.load(status.dump()))
            self._store(view)
        else:
            super()._write_status(name, status)


def as_booked(run: RunView) -> RunView:
    """As admission sees it."""
    whole = bookable(run.status.assignment)
    return run if whole is run.status.assignment else replace(run, status=changed(run.status, assignment=whole))


def new_world(rng: Random, judge: Judge) -> FuzzedWorld:
    """At its beginning, with runs, queues and ways of its own."""
    count = rng.randrange(3, 8)
    views = {view.name: view for view in (node(f"n{index}", f"rack-{index // 3}") for index in range(count))}
    pool = Pool("cluster-queue", count, levels=rng.choice(((), ("kubernetes.io/hostname",))))
    world = FuzzedWorld(
        views,
        tunables=_tunables(rng),
        listens=rng.random() < 0.7,
        format=rng.choice(("TorchDCP", "TorchDCP", "Megatron", "Orbax", "")),
        double=KueueDouble({("ns", "team"): pool}, {name: view.labels for name, view in views.items()}),
        pool=pool,
        presence=Presence.PRESENT if rng.random() < 0.15 else Presence.ABSENT,
        judge=judge,
        memory=CycleMemory() if rng.random() < 0.5 else None,
        breaker=rng.random() < 0.3,
    )
    world.now = 1_795_000_000.0 + rng.random()
    world.classes = CLASSES
    if rng.random() < 0.4:
        preemption = {"withinQueue": "LowerPriority", "minRuntime": "0s"}
        world.queue("default", preemption=preemption, batch={"submitFromInside": rng.random() < 0.8})
    if rng.random() < 0.3:
        world.queue(
            "own",
            quotas=[{"gpuType": "Any", "nominalNodes": 2}],
            cohort="lab",
            preemption={"reclaimWithinCohort": "Any"},
        )
        world.queue("lent", quotas=[{"gpuType": "Any", "nominalNodes": 2}], cohort="lab")
    if rng.random() < 0.3:
        table = [
            (rng.choice((0.0, 5.0, 70.0)), rng.choice((0.0, 30.0)), rng.choice((0.0, 2.0)), rng.choice((0.0, 4.0)))
            for _ in range(4)
        ]
        world.delays = lambda slot: table[slot % 4]
    for name in ("one", "two")[: rng.choice((1, 2, 2))]:
        arrive(world, rng, name)
    for _ in range(rng.randrange(4)):
        try:
            world.settle(rounds=6)
        except FoundError as error:
            judge.tally.note(error, "at the beginning")
            break
    return world


def _tunables(rng: Random) -> Tunables:
    windows = (MaintenanceWindow("firmware", 1_795_000_600.0, 900.0, rng.choice((0.0, 7200.0)), frozenset({"n1"})),)
    return Tunables(
        gang=_GANG,
        archive=ArchiveSettings(image="operator"),
        pod_groups=PodGroupSettings(kind=PodGroupKind.VOLCANO, served=(VOLCANO,))
        if rng.random() < 0.2
        else PodGroupSettings(),
        breaker=Breaker(min_nodes=rng.choice((1, 3))),
        admission=AdmissionSettings(windows=windows if rng.random() < 0.2 else (), backfill=rng.choice([*Backfill])),
        gpu_rates={"": GpuRates(price=2.0, watts=700.0, peak_flops=1e15), "Any": GpuRates(price=1e300)}
        if rng.random() < 0.3
        else {},
        drain_taints=("x",) if rng.random() < 0.3 else (),
        taint_suspects=rng.random() < 0.2,
        slot_retries_on_node=rng.choice((0, 2)),
    )


def arrive(world: FuzzedWorld, rng: Random, name: str) -> None:
    """`kubectl apply` of a run, of any shape."""
    world.apply(name, _spec(rng, world.now))
    if world.presence is Presence.PRESENT and rng.random() < 0.7:
        world.label(name, **{api_names.LABEL_QUEUE: "team"})
    if rng.random() < 0.05:
        world.annotate(name, test_only="true")


def _spec(rng: Random, now: float) -> TrainingRunSpec:
    nodes = rng.choice((1, 2, 2, 3, 4))
    fields: dict[str, Any] = {"priorityClassName": rng.choice((None, "low", "high")), "timeLimit": rng.choice(_LIMITS)}
    plain = rng.random() < 0.15
    if plain:
        fields["worker"] = "Disabled"
    else:
        fields["spareNodes"] = rng.choice((0, 0, 1, 2))
        if rng.random() < 0.3:
            fields["elastic"] = {"min": 1, "growAfter": "1m"}
        if rng.random() < 0.15:
            fields["preflight"] = {"warmUp": rng.choice(("Ring", "Pairwise")), "startJitter": "5s"}
        if rng.random() < 0.15:
            fields["network"] = "Pod"
    fields["checkpoint"] = _checkpoint(rng, plain)
    fields["queue"] = rng.choice(("default", "default", "own", "lent"))
    if rng.random() < 0.3:
        fields["recovery"] = dict(rng.choice(edited_runs.RECOVERIES))
    if rng.random() < 0.2:
        fields["onTimeLimit"] = {"action": rng.choice(("Fail", "Requeue")), "leadTime": rng.choice(("0s", "1m"))}
    if rng.random() < 0.1:
        fields["dependsOn"] = [
            {"name": rng.choice(("one", "two", "gone")), "condition": rng.choice(("Succeeded", "Started"))}
        ]
        fields["onUnsatisfiable"] = rng.choice(("Hold", "Fail"))
    if rng.random() < 0.1:
        fields["deadline"] = to_rfc3339(now + rng.choice((60, 4000)))
    if rng.random() < 0.1:
        fields["singleton"] = "x"
    if rng.random() < 0.2:
        fields["progress"] = {"totalSteps": rng.choice((10, 1000)), "tokensPerStep": 2**20, "flopsPerToken": 2**36}
    if rng.random() < 0.1:
        fields["budget"] = {"gpuHours": 1, "action": rng.choice(("Warn", "Stop"))}
    if rng.random() < 0.1:
        fields["launcher"] = {"type": rng.choice(("Torchrun", "JAX"))}
    if not plain and rng.random() < 0.2:
        fields["launcher"] = rng.choice(({"type": "MPI"}, {"type": "JAX", "steps": True}, {"type": "Ray"}))
    if not plain and rng.random() < 0.12:
        fields["launcher"], fields["command"] = {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun x\n"}}, []
        fields.pop("elastic", None)
        if rng.random() < 0.5:
            fields["checkpoint"] = None
    if rng.random() < 0.1:
        fields["ttlAfterFinished"] = "1m"
    if rng.random() < 0.15:
        fields["placement"] = {
            "topology": [{"level": "rack", "policy": rng.choice(("Pack", "Contiguous")), "mode": "Required"}]
        }
    return spec(nodes, **{key: value for key, value in fields.items() if value is not None})


def _checkpoint(rng: Random, plain: bool) -> dict[str, Any] | None:
    shared, local = {"claimName": "lustre"}, {"storage": "nvme", "keepLast": rng.choice((1, 2, "Disabled"))}
    tiers: list[dict[str, Any] | None] = [
        None,
        {"shared": shared},
        {"local": local},
        {"shared": shared, "local": local},
    ]
    checkpoint = rng.choice([*tiers, {"shared": shared, "local": local}, {"shared": shared, "layout": "Shared"}])
    if checkpoint is None:
        return None
    checkpoint = {**checkpoint, "gracePeriod": rng.choice(("5s", "60s"))}
    if "shared" in checkpoint and not plain:
        if rng.random() < 0.25:
            checkpoint["archive"] = {"uri": "s3://bucket/x", "interval": "1m", "retention": {"keepLast": 2}}
        if rng.random() < 0.2:
            checkpoint["retention"] = {"keepLast": 1}
        if rng.random() < 0.2:
            checkpoint["resumeBy"] = "Pointer"
    if rng.random() < 0.1 and "shared" in checkpoint:
        checkpoint["start"] = rng.choice(
            ({"mode": "Require"}, {"mode": "Fresh"}, {"run": "two"}, {"path": "x", "acceptCopy": True})
        )
    if rng.random() < 0.2:
        checkpoint["cadence"] = {"interval": rng.choice(("Disabled", "1m"))}
    return checkpoint
