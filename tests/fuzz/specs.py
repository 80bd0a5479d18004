"""Specs by the CRDs' schemas, from being read to the pods that come of them: of runs, of sets of runs, of queues."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Any

from fuzz.judging import FoundError, Judge, Tally, guarded
from fuzz.structural import Making, problem, schema_of
from fuzz.world import FuzzedWorld
from lockstep.api.run_set import TrainingRunSetStatus
from lockstep.core.arrays.members import governed, index_of
from lockstep.core.arrays.run_set import decide_run_set
from lockstep.core.arrays.run_set import without_deciding as without_deciding_set
from lockstep.core.model.array_views import RunSetSnapshot
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.own_objects import parse_queue, parse_run, parse_run_set
from lockstep.core.model.tunables import Tunables
from support.world import node

NOW = 1_795_000_000.0
SPECS = 20
"""Of a case."""
_QUANTITIES = (1, 8, 0, "8", "1e0", "1k", "1Ki", "0.5", "500m", "1e900", "9" * 30, "190", "1800Gi", "-1", "x", "")
_DURATIONS = ("5m", "1h", "0s", "1d", "99999d", "1d1h1m1s", "9999999999999999999d", "x")
_LENGTHS = (
    *("timeLimit", "minTimeLimit", "growAfter", "leadTime", "ttlAfterFinished", "gracePeriod", "interval", "max"),
    *("keepFor", "debugHold", "startJitter", "hangTimeout", "defaultTimeLimit", "maxTimeLimit", "minRuntime"),
)
_WORDS: dict[str, tuple[Any, ...]] = {
    "nodes": (1, 1, 2, 2, 3, 16_384),
    "min": (1, 1, 2),
    "multipleOf": (1, 1, 2),
    "spareNodes": (0, 0, 1, 64),
    "gpusPerNode": (0, 1, 8, 8, 128),
    "queue": ("default", "default", "q", "gone", "x"),
    "image": ("i", "i@sha256:0", "é"),
    "command": (["train"], ["torchrun", "train.py"], ["$(LOCKSTEP_RESUME_PATH)", "$(X", "$$"], ["", ""]),
    "claimName": ("lustre", "lustre", "Not a name"),
    "storage": ("nvme", "nvme", "gone"),
    "priorityClassName": ("low", "high", "gone"),
    "resourcesPerNode": tuple(
        {key: value} for key in ("nvidia.com/gpu", "cpu", "memory", "x/y", "") for value in _QUANTITIES
    ),
    "shmSize": ("64Gi", "1Gi", "0.5Ki", "9Ei"),
    "minDisk": ("1Gi", "9Ei"),
    "suspend": (False, False, False, True),
    "cancel": (False, False, False, True),
    "worker": ("Enabled", "Enabled", "Disabled"),
    "storageName": ("nvme",),
    "level": ("rack", "zone", "gone"),
    "indices": ("0-3", "0-9999", "1,3,7-9", "0-99:2", "3-1", "0-99999", "00000"),
    "cancelIndices": ("", "0", "0-3", "99999"),
    "afterCorr": ("b", "gone"),
    "name": ("one", "A", "a", "lockstep-x", "x.y", "trainer", "mine"),
    "mountPath": ("/data", "/dev/shm/x", "/a//b", "/../etc", "/lockstep"),
    "path": ("team/x", "/etc", "a/$(LOCKSTEP_ARRAY_INDEX)", "x"),
    "uri": ("s3://bucket/x", "gs://b/" + "x" * 300, "az://é/x"),
    "pattern": ("ckpt_{step}.pt", "ckpt.pt", "{step}", "[", "(?P<step>a+)+$"),
    "logPattern": ("x", "(a+)+$", "[", "(?i)é", "x" * 256),
    "noProgressLimit": ("Adaptive", 1, 3, 2**31, 0, "x"),
    "keepLast": (1, 2, "Disabled", 0),
    "exitCodes": ([1], [0], [2**31], [-1, 137]),
    "nproc": (1, 8),
    "notBefore": ("2026-11-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-20T00:00:00.5+14:00"),
    "deadline": ("2026-12-24T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    "nodeSelector": ({}, {"x": "y"}),
    "gpuType": ("H100", "Any", "gone"),
    "gpuTypes": ([], [], ["H100"], ["gone"]),
    "cohort": ("lab",),
    "matchLabels": ({}, {"a": "b"}),
    "backend": ("Builtin", "Builtin", "Kueue"),
} | dict.fromkeys(_LENGTHS, _DURATIONS)
_MAKING = Making(_WORDS, fill=0.12)
_TUNABLES = Tunables(gang=GangSettings(local_storages={"nvme": "/mnt/nvme"}))
_ROUNDS = 2


def specs(case: str, steps: Collection[int] | None = None, tally: Tally | None = None) -> Tally:
    """Of a case; ``steps``: those of them that are to be tried."""
    tally = tally or Tally()
    for number in range(SPECS):
        if steps is None or number in steps:
            rng = Random(f"{case}/{number}")
            try:
                (_try_set if rng.random() < 0.3 else _try_run)(rng, tally)
            except FoundError as error:
                tally.note(error, f"spec {number}")
    return tally


def _try_run(rng: Random, tally: Tally) -> None:
    tally.done["specs"] += 1
    world = _world(rng, tally)
    spec = _spec(rng)
    view = guarded("parse_run", lambda: parse_run(_object("one", spec)))
    world.runs["one"] = replace(view, resource_version="1")
    tally.done["specs that can be read"] += view.spec is not None
    _live(world, rng, tally, spec)


def _live(world: FuzzedWorld, rng: Random, tally: Tally, spec: Any) -> None:
    try:
        for _ in range(_ROUNDS):
            world.settle(rounds=2)
            world.now += rng.choice((1.0, 60.0, 4000.0))
        for name in world.runs:
            world.judge.at_rest(world.snapshot(name), world.tunables, world.now)
            world.judge.without_deciding(world.snapshot(name), world.tunables, world.now)
    except FoundError as error:
        raise FoundError(error.signature, f"spec: {json.dumps(spec)[:3000]}\n{error.words}") from error
    tally.done["specs that got nodes"] += any(view.status.last_admitted is not None for view in world.runs.values())


def _try_set(rng: Random, tally: Tally) -> None:
    tally.done["specs"] += 1
    schema = schema_of("trainingrunsets", "spec")
    spec = _with_template(_MAKING.value(schema, rng), rng)
    spec["template"]["spec"] |= {"suspend": False, "cancel": False}
    spec["template"]["spec"]["nodes"] = rng.choice((1, 2, 3))
    world = _world(rng, tally)
    before = _status_of_set(rng)
    view = guarded("parse_run_set", lambda: parse_run_set(_object("sweep", spec) | {"status": before}))
    tally.done["specs that can be read"] += view.spec is not None
    sets = {view.name: view}
    try:
        for _ in range(_ROUNDS):
            own = {run.name: governed(run, view) for run in world.runs.values()}
            runs = {index: run for run in own.values() if (index := index_of(run)) is not None}
            refused = {rng.choice((0, 1, 99_999)): "é" * 2000} if rng.random() < 0.2 else {}
            snapshot = RunSetSnapshot(view, runs, refused=refused, fruitless=rng.choice((0, 3)), sets=sets)
            plan = guarded("decide_run_set", lambda: decide_run_set(snapshot, _TUNABLES, world.now))  # noqa: B023
            guarded("without_deciding of a set", lambda: without_deciding_set(view, _TUNABLES, world.now, "X"))  # noqa: B023
            tally.done["decisions of sets"] += 1
            if plan.status is not None:
                _check_set(plan.status)
                view = replace(view, status=TrainingRunSetStatus.load(plan.status.dump()))
            for create in plan.creates[:3]:
                body = json.loads(json.dumps(create.body))
                body["metadata"] |= _object(create.name, {})["metadata"]
                world.runs[create.name] = guarded("parse_run of a set", lambda: parse_run(body))  # noqa: B023
            world.settle(rounds=2)
            world.now += rng.choice((1.0, 60.0, 4000.0))
    except FoundError as error:
        raise FoundError(error.signature, f"set: {json.dumps(spec)[:3000]}\nstatus {before}\n{error.words}") from error


def _check_set(status: TrainingRunSetStatus) -> None:
    body = guarded("the status of a set", status.dump)
    size = len(json.dumps(body))
    if size > 64 * 1024:
        raise FoundError("status size of a set", f"{size} bytes")
    if refused := problem(schema_of("trainingrunsets", "status"), body):
        raise FoundError(f"schema of a set {refused.partition(':')[0]}", f"the CRD refuses status{refused}")


def _status_of_set(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {}
    ranges = ("", "0", "0-3", "0,0", "3-1", "x", "0-99999999999", "99999")
    making = Making(dict.fromkeys(("active", "succeeded", "failed", "cancelled", "met", "never", "indices"), ranges))
    made: dict[str, Any] = making.value(schema_of("trainingrunsets", "status"), rng)
    return made


def _world(rng: Random, tally: Tally) -> FuzzedWorld:
    gpus = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    views = {view.name: view for view in (node(f"n{index}", f"rack-{index // 2}") for index in range(4))}
    if rng.random() < 0.5:
        views = {name: replace(view, labels={**view.labels, **gpus}) for name, view in views.items()}
    world = FuzzedWorld(views, tunables=_TUNABLES, judge=Judge(tally), rng=rng, listens=True, spoiled=True)
    world.now = NOW
    world.classes = {"low": 1, "high": 1000}
    raw = {"metadata": {"name": "q", "uid": "q", "resourceVersion": "1", "creationTimestamp": "2026-11-01T00:00:00Z"}}
    raw["spec"] = _MAKING.value(schema_of("trainingqueues", "spec"), rng)
    view = guarded("parse_queue", lambda: parse_queue(raw), but=(ValueError,))
    if view is not None:
        world.queues["q"] = view
    return world


def _spec(rng: Random) -> dict[str, Any]:
    schema = schema_of("trainingruns", "spec")
    made = _with_template({"template": {"spec": _MAKING.value(schema, rng)}}, rng)["template"]["spec"]
    return dict(made)


def _with_template(of_set: dict[str, Any], rng: Random) -> dict[str, Any]:
    """A schema says nothing of what is inside a pod template."""
    run = of_set["template"]["spec"]
    run.pop("podTemplate", None)
    if rng.random() < 0.4:
        run["podTemplate"] = _template(rng)
    for volume in run.get("volumes", ()):
        if "projected" in volume:
            volume["projected"] = _any(rng, 3)
    return of_set


def _template(rng: Random) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for _ in range(rng.choice((1, 2, 4))):
        key, value = rng.choice(_PARTS)
        spec[key] = value if rng.random() < 0.6 else _spoilt(rng, value)
    meta = rng.choice((None, {}, {"labels": {"a": "b"}, "annotations": None}, {"labels": {"a": None}}, {"labels": 5}))
    template: dict[str, Any] = {"spec": spec} | ({"metadata": meta} if meta is not None else {})
    return template if rng.random() < 0.95 else {"spec": _any(rng, 2), "x": _any(rng, 2)}


def _spoilt(rng: Random, value: Any) -> Any:
    """Somewhere in it something of another type, or nothing."""
    if isinstance(value, dict) and value and rng.random() < 0.7:
        key = rng.choice([*value])
        return value | {key: _spoilt(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        index = rng.randrange(len(value))
        return [*value[:index], _spoilt(rng, value[index]), *value[index + 1 :]]
    return _any(rng, 2)


def _any(rng: Random, levels: int) -> Any:
    kind = rng.randrange(8 if levels else 6)
    if kind == 6:
        return [_any(rng, levels - 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {rng.choice(("name", "key", "x", "")): _any(rng, levels - 1) for _ in range(rng.randrange(3))}
    return rng.choice((None, True, 0, -1, 2**63 - 1, 1.5, "", "x", "trainer", "1e900"))


_TERM = {
    "matchExpressions": [{"key": "x", "operator": "In", "values": ["y"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}],
}
_PARTS: tuple[tuple[str, Any], ...] = (
    ("affinity", {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}}),
    (
        "affinity",
        {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _TERM}]}},
    ),
    ("affinity", None),
    ("tolerations", [{"key": "x", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]),
    ("tolerations", [{"operator": "Gt", "key": "x", "value": "5"}]),
    ("nodeSelector", {"x": "y"}),
    (
        "containers",
        [{"name": "trainer", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "1e0"}}}],
    ),
    ("containers", [{"name": "logs", "image": "i", "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": 1}}}]),
    (
        "containers",
        [
            {
                "name": "trainer",
                "livenessProbe": {"exec": {"command": ["x"]}},
                "ports": [{"containerPort": 17771, "hostPort": 17771}],
            }
        ],
    ),
    ("initContainers", [{"name": "a", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}}]),
    ("volumes", [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "b", "hostPath": {"path": "/"}}]),
    ("securityContext", {"runAsUser": 0, "sysctls": [{"name": "x", "value": "1"}], "seLinuxOptions": {"type": "x"}}),
    ("overhead", {"cpu": "1"}),
    ("topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "x", "whenUnsatisfiable": "DoNotSchedule"}]),
    ("terminationGracePeriodSeconds", 30),
    ("terminationGracePeriodSeconds", 2**63 - 1),
    ("activeDeadlineSeconds", 5),
    ("schedulerName", "x"),
    ("priorityClassName", "x"),
    ("hostNetwork", True),
    ("nodeName", "n0"),
    ("resources", {"requests": {"cpu": "1"}}),
    ("schedulingGates", [{"name": "x"}]),
    ("restartPolicy", "Always"),
    ("imagePullSecrets", [{"name": "x"}]),
)


def _object(name: str, spec: Any) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    return {"metadata": meta | {"creationTimestamp": "2026-11-01T00:00:00Z"}, "spec": spec}
