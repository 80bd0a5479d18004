"""What may happen in a fuzzed history, each as often as its weight says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from fuzz import edited_runs, lies, pods_and_nodes, values, worker_lies
from fuzz.world import FuzzedWorld, arrive
from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model.kueue.installation import Presence
from lockstep.core.model.worker_report import UnrecognisedReport
from support.world import node

Step = Callable[[FuzzedWorld, Random], None]


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
    code = rng.choice((0, 0, 1, *values.CODES))
    ranks = range(4) if rng.random() < 0.3 else [rng.randrange(4)]
    for rank in ranks:
        signs = rng.sample(worker_lies.KINDS, rng.choice((0, 0, 1, 2)))
        world.exit_child(
            name, rank, code, signs=signs, stderr=rng.choice(("", "Traceback: x")), late=rng.choice((0.0, 5.0))
        )


def end_step(world: FuzzedWorld, rng: Random) -> None:
    name = _run(world, rng)
    for _ in range(rng.choice((1, 3))):
        world.end_step(
            name,
            rng.randrange(4),
            code=rng.choice((None, 0, 1, *values.CODES)),
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
        reason = rng.choice(pods_and_nodes.POD_REASONS)
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
            world.nodes[name] = pods_and_nodes.altered_node(rng, world.nodes[name], world.now)


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
    body = known.dump_written() | rng.choice(edited_runs.EDITS)(rng, world.now)
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
        made = pods_and_nodes.forged(rng, rng.choice([*world.pods.values()]), world.now)
        world.spoiled = True
        if made is not None:
            world.pods.setdefault(made.name, replace(made, bound=False))


def wipe(world: FuzzedWorld, rng: Random) -> None:
    """A backup without status is restored."""
    world.spoiled = True
    world.wipe_status(_run(world, rng))


def edit_status(world: FuzzedWorld, rng: Random) -> None:
    """`kubectl edit --subresource=status`."""
    world.spoiled = True
    world._store(edited_runs.with_edited_status(rng, world.runs[_run(world, rng)], world.now))


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


STEPS: Sequence[tuple[str, Step]] = [
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
