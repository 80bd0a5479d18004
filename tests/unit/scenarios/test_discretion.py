"""With visibility OwnNamespace no run hears the name of another namespace's run, whatever becomes of either."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep.api.queue import TrainingQueueSpec
from lockstep.core.admission.admit import admit
from lockstep.core.admission.cache.memory import CycleMemory
from lockstep.core.model.plan import ClusterPlan
from lockstep.core.model.snapshot import ClusterSnapshot, RunView
from lockstep.core.model.tunables import Tunables
from support.admission import NOW, run, world
from support.examples import examples

NAMESPACES = ("team", "rivals")
CLASSES = {"low": 1, "high": 100}


def rules(chance: Random) -> TrainingQueueSpec:
    within, reclaim = chance.choice(["Never", "LowerPriority"]), chance.choice(["Never", "Any"])
    return TrainingQueueSpec.model_validate(
        {
            "cohort": "lab",
            "visibility": "OwnNamespace",
            "quotas": [{"gpuType": "Any", "nominalNodes": chance.randint(1, 4)}],
            "limits": {"maxRunningRuns": chance.choice([2, 3])},
            "preemption": {"withinQueue": within, "reclaimWithinCohort": reclaim, "minRuntime": "1m"},
        }
    )


def comes(chance: Random, now: float) -> RunView:
    wanted = {"queue": chance.choice("ab"), "priorityClassName": chance.choice([*CLASSES])}
    new = run(f"r{chance.randrange(10**9)}", chance.randint(1, 3), at=now, timeLimit="1h", **wanted)
    return replace(new, namespace=chance.choice(NAMESPACES))


def carried_out(snapshot: ClusterSnapshot, plan: ClusterPlan) -> ClusterSnapshot:
    written = {write.uid: write.status for write in plan.writes}
    return replace(snapshot, runs=tuple(replace(r, status=written.get(r.uid, r.status)) for r in snapshot.runs))


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.integers(0, 2**32))
def test_no_name_of_another_namespace_is_in_what_is_written(seed: int) -> None:
    chance, memory, now = Random(seed), CycleMemory(), NOW
    snapshot = world([comes(chance, NOW) for _ in range(5)], 5, queues={"a": {}, "b": {}}, classes=CLASSES)
    for _ in range(12):
        if chance.random() < 0.4:
            queues = {name: replace(view, spec=rules(chance)) for name, view in snapshot.queues.items()}
            snapshot = replace(snapshot, queues=queues)
        elif chance.random() < 0.3:
            snapshot = replace(snapshot, runs=(*snapshot.runs, comes(chance, now)))
        elif chance.random() < 0.2 and snapshot.runs:
            gone = chance.choice(snapshot.runs)
            snapshot = replace(snapshot, runs=tuple(r for r in snapshot.runs if r is not gone))
        now += chance.choice([1.0, 1.0, 70.0, 600.0])
        if all(view.spec.visibility == "OwnNamespace" for view in snapshot.queues.values()):
            plan = admit(snapshot, Tunables(), now, memory)
            for write in plan.writes:
                [other] = {*NAMESPACES} - {write.namespace}
                said = [write.status.model_dump_json(), *(each.note for each in write.events)]
                assert not any(f"{other}/" in words for words in said)
                event(f"heard: {', '.join({each.reason for each in write.events}) or write.status.queue.reason}")
            snapshot = carried_out(snapshot, plan)
