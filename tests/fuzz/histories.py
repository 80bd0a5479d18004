"""Lives of a few runs on a few nodes, in which anything happens at any time, and snapshots of them with lies in them.

A history is a list of steps, each with random numbers of its own, so that one with fewer steps is a history too: that
is how a case is made smaller.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fuzz import lies
from fuzz.judging import FoundError, Judge, Tally, difference
from lockstep.api.base.changes import changed
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.admission_settings import AdmissionSettings, Backfill, MaintenanceWindow
from lockstep.core.model.assignment import bookable
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.plan import Plan, StatusWrite
from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupKind, PodGroupSettings
from lockstep.core.model.settings import ArchiveSettings, Breaker, GpuRates
from lockstep.core.model.snapshot import (
    ClusterSnapshot,
    DryRunResult,
    PodView,
    RefusedCreate,
    RunSnapshot,
    RunView,
    UnrecognisedReport,
)
from lockstep.core.model.tunables import Tunables
from support.kueue_double import KueueDouble, Pool, RefusedError
from support.kueue_world import KueueWorld
from support.world import Worker, node, spec

STEPS = 40
EDITED_AFTER = 16
MUTANTS = 12
"""Snapshots with lies in them for each step of a history."""
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
        return replace(known, runs=tuple(map(_as_booked, known.runs)))

    def reconcile(self, name: str, *, crash_after: int | None = None) -> Plan:
        if name not in self.runs:
            return Plan()
        snapshot = self.snapshot(name)
        plan = self.judge.decided(snapshot, self.tunables, self.now)
        self._execute(name, plan, crash_after)
        return plan

    def admit(self, *, crash_after: int | None = None) -> tuple[StatusWrite, ...]:
        plan = self.judge.admitted(self.cluster_snapshot(), self.tunables, self.now, self.memory)
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
            self.reports[pod.run_uid][worker.slot] = lies.lied(self.rng, known, self.now)

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


def edits(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """A short history, and then decisions for a status that was edited in every field that there is, one each."""
    tally = tally or Tally()
    world = _world(Random(f"{case}/world"), Judge(tally))
    tally.done["edited runs"] += 1
    for number in range(EDITED_AFTER):
        rng = Random(f"{case}/{number}")
        world.rng = rng
        _, step = rng.choice(_STEPS)
        if world.runs and (steps is None or number in steps):
            try:
                step(world, rng)
            except Exception:
                return tally  # that is for histories to find
    rng = Random(f"{case}/edits")
    for name in [*world.runs]:
        known = world.snapshot(name)
        for run in lies.statuses(rng, known.run, world.now):
            snapshot = replace(known, run=run)
            try:
                if rng.random() < 0.1:
                    world.judge.at_rest(snapshot, world.tunables, world.now)
                elif rng.random() < 0.1:
                    world.judge.without_deciding(snapshot, world.tunables, world.now)
                else:
                    world.judge.decided(snapshot, world.tunables, world.now)
                if rng.random() < 0.1:
                    run = _as_booked(run)
                    others = tuple(run if each.name == name else each for each in world.runs.values())
                    cluster = replace(world.cluster_snapshot(), runs=others)
                    world.judge.admitted(cluster, world.tunables, world.now)
            except FoundError as error:
                tally.note(error, f"edited: {difference(known.run.status, run.status)}")
    return tally


def _as_booked(run: RunView) -> RunView:
    whole = bookable(run.status.assignment)
    return run if whole is run.status.assignment else replace(run, status=changed(run.status, assignment=whole))


Step = Callable[[FuzzedWorld, Random], None]


def history(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """Live through one, or through those of its ``steps`` alone. What is found is in the tally."""
    tally = tally or Tally()
    _live(case, steps, tally)
    tally.done["histories"] += 1
    tally.done["decisions of histories"] = tally.done["decisions"]
    return tally


def _live(case: str, steps: Collection[int] | None, tally: Tally) -> None:
    world = _world(Random(f"{case}/world"), Judge(tally))
    world.leaves = tally.note
    for number in range(STEPS):
        if steps is not None and number not in steps:
            continue
        rng = Random(f"{case}/{number}")
        world.rng = rng
        name, step = rng.choice(_STEPS)
        try:
            if not world.runs:
                arrive(world, rng, "one")
            step(world, rng)
            if world.runs:
                for _ in range(MUTANTS):
                    world.mutate(rng.choice([*world.runs]), rng)
        except FoundError as error:
            tally.note(error, f"at {name}")
            return  # nothing can be decided for it, or only what nobody would carry out
        except Exception as error:
            if not world.spoiled:  # else the world is not as the double takes for granted
                words = "".join(traceback.format_exception(error)[-4:])
                tally.note(FoundError(f"the double: {error!s:.80}", words), f"at {name}")
            return
    _rest(world, tally)


def _rest(world: FuzzedWorld, tally: Tally) -> None:
    """Nothing happens any more, and workers go on saying what they said: nothing much is written."""
    for name in world.runs:
        try:
            world.judge.at_rest(world.snapshot(name), world.tunables, world.now)
        except FoundError as error:
            tally.note(error, "left alone")


# -- the beginning -----------------------------------------------------------------------------------


def _world(rng: Random, judge: Judge) -> FuzzedWorld:
    count = rng.randrange(3, 8)
    views = {view.name: view for view in (node(f"n{index}", f"rack-{index // 3}") for index in range(count))}
    pool = Pool("cluster-queue", count, levels=rng.choice(((), (api_names_host(),))))
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
        world.queue("default", preemption=preemption)
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


def api_names_host() -> str:
    return "kubernetes.io/hostname"


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
        fields["recovery"] = dict(rng.choice(lies.RECOVERIES))
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
        fields["launcher"] = rng.choice(({"type": "MPI"}, {"type": "JAX", "steps": True}))
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


# -- what happens ------------------------------------------------------------------------------------


def _run(world: FuzzedWorld, rng: Random) -> str:
    return rng.choice([*world.runs])


def _crash(rng: Random) -> int | None:
    return rng.choice((None, None, 0, 1, 2, 3))


def settle(world: FuzzedWorld, rng: Random) -> None:
    world.settle(rounds=rng.choice((2, 6)))


def look(world: FuzzedWorld, rng: Random) -> None:
    for name in [*world.runs]:
        world.reconcile(name, crash_after=_crash(rng))


def admit(world: FuzzedWorld, rng: Random) -> None:
    world.admit(crash_after=_crash(rng))


def work(world: FuzzedWorld, rng: Random) -> None:
    world.directives_reach = rng.choice((None, None, 0, 1, 2))
    world.kubelets()
    world.work()
    world.directives_reach = None


def pass_time(world: FuzzedWorld, rng: Random) -> None:
    world.now += rng.choice((0.5, 3.0, 9.0, 40.0, 120.0, 400.0, 4000.0, 90_000.0))


def live(world: FuzzedWorld, rng: Random) -> None:
    seconds = rng.choice((5.0, 60.0, 400.0))
    world.pass_time(seconds, step=seconds / 3)


def train(world: FuzzedWorld, rng: Random) -> None:
    for name in world.runs:
        world.train(name, rng.choice((1, 5, 50)))
    world.work()
    if rng.random() < 0.4:
        name = _run(world, rng)
        world.tell_of_save(name, max(world.saved.get(f"uid-{name}", [0])))


def end(world: FuzzedWorld, rng: Random) -> None:
    name = _run(world, rng)
    code = rng.choice((0, 0, 1, *lies.CODES))
    ranks = range(4) if rng.random() < 0.3 else [rng.randrange(4)]
    for rank in ranks:
        signs = rng.sample(lies.KINDS, rng.choice((0, 0, 1, 2)))
        world.exit_child(
            name, rank, code, signs=signs, stderr=rng.choice(("", "Traceback: x")), late=rng.choice((0.0, 5.0))
        )


def end_step(world: FuzzedWorld, rng: Random) -> None:
    name = _run(world, rng)
    for _ in range(rng.choice((1, 3))):
        world.end_step(
            name,
            rng.randrange(4),
            code=rng.choice((None, 0, 1, *lies.CODES)),
            signal=rng.choice((None, 9, 15)),
            ago=rng.choice((0.0, 0.5, 60.0, 4000.0)),
            asked=rng.random() < 0.2,
            stderr=rng.choice(("", "Traceback: x")),
        )


def end_pod(world: FuzzedWorld, rng: Random) -> None:
    name, rank = _run(world, rng), rng.randrange(3)
    if rng.random() < 0.5:
        world.fail_pod(name, rank)
    elif rank < len(world.status(name).assignment.nodes):
        reason = rng.choice(lies.POD_REASONS)
        if rank < len(world.status(name).assignment.rank_to_slot or world.status(name).assignment.nodes):
            world.end_pod(name, rank, rng.choice((0, 1, 137)), reason=reason, message="x")


def trouble_a_node(world: FuzzedWorld, rng: Random) -> None:
    if not world.nodes:
        return
    name = rng.choice([*world.nodes])
    match rng.randrange(9):
        case 0:
            world.lose_node(name)
        case 1:
            world.cut_off_node(name)
        case 2:
            world.fail_node(name)
        case 3 | 4:
            world.return_node(name)
        case 5:
            world.drain(name, rng.choice(("", "new firmware")))
        case 6:
            world.cordon(name, rng.random() < 0.7)
        case _:
            world.nodes[name] = lies.altered_node(rng, world.nodes[name], world.now)


def lose_or_bring_a_node(world: FuzzedWorld, rng: Random) -> None:
    if world.nodes and rng.random() < 0.5:
        name = rng.choice([*world.nodes])
        world.lose_node(name)
        del world.nodes[name]
    else:
        name = f"n{rng.randrange(8)}"
        world.silent_nodes.discard(name)
        world.nodes[name] = node(name)


def edit(world: FuzzedWorld, rng: Random) -> None:
    """`kubectl edit` of a spec."""
    name = _run(world, rng)
    known = world.runs[name].spec
    if known is None:
        return
    body = known.dump_written() | rng.choice(lies.EDITS)(rng, world.now)
    world.apply(name, TrainingRunSpec.model_validate({key: value for key, value in body.items() if value is not None}))


def suspend(world: FuzzedWorld, rng: Random) -> None:
    name = _run(world, rng)
    known = world.runs[name].spec
    if known is not None:
        world.apply(name, changed(known, suspend=not known.suspend))


def request(world: FuzzedWorld, rng: Random) -> None:
    name = rng.choice(("checkpoint_request", "restart_request", "requeue_request", "debug_release", "paused"))
    world.annotate(_run(world, rng), **{name: rng.choice(("a", "b", "true", ""))})


def tell_to_end(world: FuzzedWorld, rng: Random) -> None:
    world.tell_to_end(_run(world, rng), rng.randrange(3), rng.choice((3.0, 60.0)))


def come_or_go(world: FuzzedWorld, rng: Random) -> None:
    """A run is deleted, or another comes."""
    name = rng.choice(("one", "two", "three"))
    known = world.runs.get(name)
    if known is None:
        arrive(world, rng, name)
    elif rng.random() < 0.3:
        world._store(replace(known, deleting=True))
    elif known.deleting and all(pod.run_uid != known.uid for pod in world.pods.values()):
        del world.runs[name]


def hold(world: FuzzedWorld, rng: Random) -> None:
    """An administrator holds runs back, or no longer."""
    held = rng.choice(([], ["ns/one"], ["ns/one", "ns/two"]))
    world.queue(
        "default",
        heldRuns=held,
        stopPolicy=rng.choice(("None", "None", "Hold", "HoldAndDrain")),
        limits=rng.choice(({}, {"defaultTimeLimit": "5m"}, {"maxRunningRuns": 1})),
    )


def die(world: FuzzedWorld, rng: Random) -> None:
    world.crash()


def change_ways(world: FuzzedWorld, rng: Random) -> None:
    """Programs and helpers behave otherwise from now on."""
    match rng.randrange(6):
        case 0:
            world.listens, world.saves_succeed = rng.random() < 0.5, rng.random() < 0.7
        case 1:
            world.tells_losses = rng.choice((None, (), (0,)))
        case 2:
            rows = (UnrecognisedReport("shared", "/shared/model.bin", rng.choice((0, 1)), "no format knows it"),)
            world.unrecognised = rng.choice((None, (), rows))
        case 3:
            world.hung_at_pointers = set(rng.sample([*world.nodes], min(1, len(world.nodes))))
        case 4:
            world.deaf_to = dict.fromkeys(rng.sample([*world.nodes], min(2, len(world.nodes))), "n1")
        case _:
            world.clock_skews = dict.fromkeys(rng.sample([*world.nodes], min(1, len(world.nodes))), 3600.0)


def refuse(world: FuzzedWorld, rng: Random) -> None:
    """The API server takes no pods, or none of one slot."""
    if world.refuses or world.unjudged is not None:
        world.refuses, world.unjudged = {}, None
        return
    name = _run(world, rng)
    refused = lies.refusals(rng, replace(world.snapshot(name), refused_creates={}), world.now)
    assert refused is not None
    world.refuses = dict(refused.refused_creates)
    world.unjudged = refused.dry_run if not world.refuses else None


def lie(world: FuzzedWorld, rng: Random) -> None:
    """A worker begins to lie, or all are honest again."""
    uids = [*world.workers]
    world.liars = {rng.choice(uids)} if uids and rng.random() < 0.7 else set()


def forge(world: FuzzedWorld, rng: Random) -> None:
    """Somebody makes a pod in the name of a gang."""
    if world.pods:
        made = lies.forged(rng, rng.choice([*world.pods.values()]), world.now)
        world.spoiled = True
        world.pods.setdefault(made.name, replace(made, bound=False))


def wipe(world: FuzzedWorld, rng: Random) -> None:
    """A backup without status is restored."""
    world.spoiled = True
    world.wipe_status(_run(world, rng))


def edit_status(world: FuzzedWorld, rng: Random) -> None:
    """`kubectl edit --subresource=status`."""
    world.spoiled = True
    world._store(lies.with_edited_status(rng, world.runs[_run(world, rng)], world.now))


def trouble_kueue(world: FuzzedWorld, rng: Random) -> None:
    if world.presence is not Presence.PRESENT or not world.workloads:
        return
    match rng.randrange(4):
        case 0:
            world.evict("Preempted") if "one" in world.runs and len(world.workloads) else None
        case 1:
            world.workloads.pop(rng.choice([*world.workloads]))
        case 2:
            world.freeze()
        case _:
            world.pool.pods = rng.choice((0, 1, 6))


def lag(world: FuzzedWorld, rng: Random) -> None:
    snapshot = next(iter(world.runs), None)
    if snapshot is not None:
        found = lies.cluster(rng, world.snapshot(snapshot), world.now)
        assert found is not None
        world.lag = found.leadership.lag


_STEPS: Sequence[tuple[str, Step]] = [
    (step.__name__, step)
    for step, weight in (
        (settle, 8),
        (look, 5),
        (admit, 3),
        (work, 4),
        (pass_time, 5),
        (live, 5),
        (train, 6),
        (end, 6),
        (end_step, 3),
        (end_pod, 3),
        (trouble_a_node, 5),
        (lose_or_bring_a_node, 2),
        (edit, 4),
        (suspend, 3),
        (request, 3),
        (tell_to_end, 2),
        (come_or_go, 3),
        (hold, 2),
        (die, 2),
        (change_ways, 3),
        (refuse, 1),
        (lie, 4),
        (forge, 1),
        (wipe, 1),
        (edit_status, 2),
        (trouble_kueue, 1),
        (lag, 1),
    )
    for _ in range(weight)
]
