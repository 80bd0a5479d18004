"""Runs that really train: one world with process nodes, and what tests do to a run and look at in it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from harness import stub_trainer
from harness.kube import OPERATOR_NAMESPACE, Kubectl, create_namespace
from harness.waiting import wait_for
from harness.world import World, started
from localcluster.api import MERGE_PATCH, ApiClient, Request
from localcluster.errors import ApiError, KubectlError
from localcluster.processnodes.node import NodeShape
from lockstep.api.base import names

Json = dict[str, Any]
NAMESPACE = "training"
CLAIM = "checkpoints"
NODES = [NodeShape(f"train-{index}", rack=f"rack-{index // 2:03d}") for index in range(4)]
# Everything that is waited for, shortened; and losses of tests that follow each other are no disruption.
SETTINGS: Json = {
    "heartbeatMin": 1.0,
    "heartbeatMax": 1.5,
    "stepsStoppedAfter": 3.0,
    "progressWriteInterval": 1.0,
    "stopGrace": 10,
    "checkGpus": False,
    "localStorage": {"nvme": "/nvme"},
    "kueue": {"enabled": True},
    "breaker": {"window": 2.0},
    "deadlines": {"shrink": 8.0},
    "archive": {"image": "none", "cpu": "200m", "memory": "256Mi"},
}
SILENT_AFTER = 5.0
"""Seconds without heartbeats after which these settings call a worker silent."""
TRAINER = Path(stub_trainer.__file__)
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/lockstep-operator"


class HasApi(Protocol):
    """What a local cluster has, and any other."""

    @property
    def api(self) -> ApiClient: ...


class HasLog(Protocol):
    """What an operator has that is a process here, and one that is a pod."""

    def log_tail(self, lines: int = 15) -> str: ...


class AnyWorld(Protocol):
    """What runs need of where they are: so much has every cluster with Lockstep."""

    @property
    def cluster(self) -> HasApi: ...
    @property
    def operator(self) -> HasLog: ...
    @property
    def kubectl(self) -> Kubectl: ...
    def claim_folder(self, namespace: str, claim: str) -> Path: ...


@dataclass
class AnySite(ABC):
    """The world, and the runs of one test."""

    world: AnyWorld
    runs: list[TrainingRun] = field(default_factory=list)
    pod_template: Json = field(default_factory=dict)
    """What pods need here beside what their run says."""

    @property
    @abstractmethod
    def gateway(self) -> str:
        """The address of this machine to which nodes have a way."""

    @property
    @abstractmethod
    def nodes(self) -> list[str]:
        """Those that runs train on, by name."""

    @abstractmethod
    def kill_node(self, node: str) -> None:
        """Power off."""

    @abstractmethod
    def put_in_order(self) -> None:
        """Mend every node, remove every run, and wait until all nodes are free."""

    def forget_runs(self) -> None:
        """They are deleted. What they saved goes as well: a run of the same name would be asked about it."""
        for run in self.runs:
            shutil.rmtree(run.folder.parent, ignore_errors=True)
        self.runs.clear()

    @property
    def all_but_one(self) -> int:
        """Ranks of a gang that leaves one node for what may happen to the others."""
        return len(self.nodes) - 1

    def apply(self, name: str, nodes: int, command: Sequence[str], **spec: Any) -> TrainingRun:
        """A run that saves to the claim; ``spec`` goes over what is usual here."""
        usual = {
            "nodes": nodes,
            "gpusPerNode": 0,
            "image": "none",
            "command": list(command),
            "checkpoint": {"format": "Manifest", "shared": {"claimName": CLAIM}},
            "volumes": [{"name": "app", "mountPath": "/app", "readOnly": True, "configMap": {"name": "trainer"}}],
        }
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.RUN_KIND,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": usual | spec,
        }
        path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}"
        made = self.world.cluster.api.send(Request("POST", path, body))
        claim = made["spec"].get("checkpoint", {}).get("shared", {}).get("claimName", CLAIM)
        run = self.applied(name, made["metadata"]["uid"], nodes, claim)
        self.runs.append(run)
        return run

    def applied(self, name: str, uid: str, ranks: int, claim: str) -> TrainingRun:
        """What was applied, with its processes."""
        return TrainingRun(self.world, name, uid, ranks, claim)

    def train(self, name: str, nodes: int, steps: int, *options: str, **spec: Any) -> TrainingRun:
        """A run of the stub trainer."""
        command = ["python3", "-B", f"/app/{TRAINER.name}", f"--steps={steps}", *options]
        return self.apply(name, nodes, command, **spec)


@dataclass
class TrainingSite(AnySite):
    """On process nodes, with the operator as a process: all of it can be broken. Process nodes' Python is root's."""

    world: World
    pod_template: Json = field(default_factory=lambda: {"spec": {"securityContext": {"runAsUser": 0}}})

    @property
    def gateway(self) -> str:
        return self.world.process_nodes.gateway

    @property
    def nodes(self) -> list[str]:
        return [node["name"] for node in self.world.process_nodes.state()["nodes"]]

    def kill_node(self, node: str) -> None:
        self.world.process_nodes.kill_node(node)

    def kill_operator(self) -> None:
        """kill -9. Its successor need not wait for the lease to run out: the object goes with it."""
        self.world.operator.kill9()
        self.drop_lease()

    def drop_lease(self) -> None:
        self.world.cluster.api.send(Request("DELETE", LEASE, absence_is_fine=True))

    def declare_not_ready(self, node: str) -> None:
        """What the node controller writes when a kubelet was silent for its grace period, without the wait."""
        api, path = self.world.cluster.api, f"/api/v1/nodes/{node}"
        conditions = api.get(path)["status"]["conditions"]
        for condition in conditions:
            if condition["type"] == "Ready":
                condition |= {"status": "Unknown", "reason": "NodeStatusUnknown"}
        api.send(Request("PATCH", f"{path}/status", {"status": {"conditions": conditions}}, MERGE_PATCH))

    def put_in_order(self) -> None:
        world, nodes = self.world, self.world.process_nodes
        for node in nodes.state()["nodes"]:
            if node["state"] == "dead":
                nodes.return_node(node["name"])
            elif node["state"] == "frozen":
                nodes.thaw_node(node["name"])
            if node["cuts"]:
                nodes.heal_node(node["name"])
        for run in self.runs:
            world.cluster.api.send(Request("DELETE", run.path, absence_is_fine=True))
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        wait_for("all pods are gone", lambda: not world.cluster.api.get(pods)["items"], seconds=240)
        self.forget_runs()
        for name in self.nodes:
            wait_for(f"{name} is in order", partial(is_in_order, world, name), seconds=240)


def is_in_order(world: World, node: str) -> bool:
    """Ready, and without a taint."""
    found = world.cluster.api.get(f"/api/v1/nodes/{node}")
    ready = [c["status"] for c in found["status"]["conditions"] if c["type"] == "Ready"]
    return ready == ["True"] and not found["spec"].get("taints")


@dataclass(frozen=True)
class TrainingRun:
    """One TrainingRun that was applied, its pods, its processes and its files."""

    world: AnyWorld
    name: str
    uid: str
    ranks: int
    claim: str = CLAIM

    # What the API server says

    @property
    def path(self) -> str:
        return f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}/{self.name}"

    @property
    def status(self) -> Json:
        found: Json = self.world.cluster.api.get(self.path).get("status", {})
        return found

    @property
    def nodes(self) -> list[str]:
        """The node of each rank."""
        return list(self.status["assignment"]["nodes"])

    @property
    def pods(self) -> list[Json]:
        selector = f"labelSelector={names.LABEL_RUN_UID}={self.uid}"
        found: list[Json] = self.world.cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
        return found

    @property
    def pod_uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods}

    @property
    def attempts(self) -> list[Json]:
        """Oldest first."""
        return sorted(self.status.get("attempts", ()), key=lambda entry: int(entry["number"]))

    def condition(self, kind: str) -> Json:
        found = [c for c in self.status.get("conditions", ()) if c["type"] == kind]
        return found[0] if found else {}

    def is_true(self, kind: str) -> bool:
        return bool(self.condition(kind).get("status") == "True")

    def events(self, reason: str) -> list[str]:
        """What the events of one reason say."""
        listing = self.world.cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")
        mine = [e for e in listing["items"] if e["regarding"].get("uid") == self.uid]
        return [str(event["note"]) for event in mine if event["reason"] == reason]

    def change(self, **spec: Any) -> None:
        """Patch fields of the spec."""
        self.world.cluster.api.send(Request("PATCH", self.path, {"spec": spec}, MERGE_PATCH))

    def log(self, rank: int, incarnation: int = 1) -> str:
        pod = names.pod_name(self.name, self.uid, rank, incarnation)
        return self.world.kubectl("logs", "-n", NAMESPACE, pod)

    # Waiting

    def wait(self, what: str, look: Callable[[], Any], seconds: float = 180.0) -> Any:
        return wait_for(f"{self.name}: {what}", look, seconds=seconds, last_seen=self.summary)

    def wait_until_step(self, attempt: int, step: int, seconds: float = 180.0) -> None:
        """Until every rank of that attempt has taken the step: they need not keep pace."""
        self.wait(f"attempt {attempt} takes step {step}", lambda: self._slowest(attempt) >= step, seconds)

    def wait_until_saved(self, attempt: int, step: int, seconds: float = 180.0) -> None:
        manifest = self.folder / f"a{attempt}" / f"step-{step}" / "manifest.json"
        self.wait(f"attempt {attempt} saves step {step}", manifest.exists, seconds)

    def wait_until_finished(self, seconds: float = 240.0) -> None:
        self.wait("Finished", lambda: self.is_true("Finished"), seconds)

    def wait_until_succeeded(self, seconds: float = 240.0) -> None:
        self.wait_until_finished(seconds)
        assert self.is_true("Succeeded"), self.summary()

    def summary(self) -> str:
        """All that helps to see why a test failed."""
        with contextlib.suppress(ApiError, OSError):
            status = self.status
            shown = {
                key: status.get(key) for key in ("state", "reason", "attempt", "start", "stop", "queue", "progress")
            }
            shown |= {"assignment": status.get("assignment"), "attempts": status.get("attempts")}
            ready = self.condition("GangReady").get("message", "")
            logs = "\n".join(f"--- rank {rank}\n{self._log_tail(rank)}" for rank in range(self.ranks))
            return f"{json.dumps(shown)} {ready}\n{logs}\n--- operator\n{self.world.operator.log_tail(8)}"
        return "nothing can be asked"

    def _log_tail(self, rank: int) -> str:
        incarnations = self.status.get("assignment", {}).get("incarnations") or [1] * self.ranks
        try:
            return "\n".join(self.log(rank, incarnations[rank]).splitlines()[-6:])
        except KubectlError as error:
            return str(error)

    # Files

    @property
    def folder(self) -> Path:
        """The shared tier: one directory per attempt."""
        return self.world.claim_folder(NAMESPACE, self.claim) / NAMESPACE / self.name / self.uid

    def files(self, attempt: int) -> dict[str, bytes]:
        """Every whole file of an attempt."""
        folder = self.folder / f"a{attempt}"
        whole = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp"]
        return {str(path.relative_to(folder)): path.read_bytes() for path in whole}

    def lineage(self, attempt: int, rank: int) -> list[Json]:
        """The steps that a rank took in one attempt, in order; a line cut short by the end is none."""
        lines = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / f"a{attempt}" / f"lineage-rank{rank}.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):
                    lines.append(json.loads(line))
        return lines

    def step(self, attempt: int) -> int:
        """The last step that rank 0 took in that attempt."""
        return self._step(attempt, 0)

    def _slowest(self, attempt: int) -> int:
        return min(self._step(attempt, rank) for rank in range(self.ranks))

    def _step(self, attempt: int, rank: int) -> int:
        lines = self.lineage(attempt, rank)
        return int(lines[-1]["step"]) if lines else 0

    def assert_lineage_is(self, expected: Callable[[int], Sequence[Json]]) -> None:
        """Every step of every attempt is as ``expected(rank)`` has it, bit for bit: those taken twice as well.

        Each attempt begins right after its resume step, and the line that leads to the result has every step once.
        """
        for rank in range(self.ranks):
            wanted = expected(rank)
            result: list[Json] = []
            for entry in self.attempts:
                # What was learnt from a loss that is no number is rolled back.
                taken = list(takewhile(lambda line: line["loss"] != "nan", self.lineage(entry["number"], rank)))
                if not taken:
                    continue
                begin = int(entry.get("resumeStep") or 0)
                assert begin <= len(result), f"rank {rank}: attempt {entry['number']} skips steps after {len(result)}"
                assert taken == list(wanted[begin : begin + len(taken)]), f"rank {rank}, attempt {entry['number']}"
                result = [*result[:begin], *taken]
            assert result == list(wanted), f"rank {rank} ends after step {len(result)}"

    def assert_undisturbed(self, steps: int) -> None:
        """The stub trainer's steps are those of a run to which nothing happened."""
        self.assert_lineage_is(lambda rank: list(stub_trainer.undisturbed(steps, self.ranks, rank)))

    # Processes

    def processes(self) -> dict[int, int]:
        """Pid of the training process of each rank that has one, as this machine counts."""
        found: dict[int, int] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    environ = dict(
                        entry.split(b"=", 1)
                        for entry in (folder / "environ").read_bytes().split(b"\0")
                        if b"=" in entry
                    )
                    rank = environ.get(b"LOCKSTEP_NODE_RANK")
                    if rank is not None and environ.get(b"LOCKSTEP_RUN_UID") == self.uid.encode():
                        found[int(rank)] = int(folder.name)
        return found

    def kill_process(self, rank: int) -> None:
        """kill -9 of the training process, not of the pod."""
        self.signal_process(rank, signal.SIGKILL)

    def signal_process(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to the training process of a rank, and to nothing else in its pod."""
        os.kill(self.processes()[rank], number)


@contextlib.contextmanager
def training_world(settings: Mapping[str, Any] = SETTINGS, nodes: Sequence[NodeShape] = NODES) -> Iterator[World]:
    """Process nodes, four unless others are named, the operator, and a namespace with the trainer and a claim."""
    with started(process_nodes=nodes, settings=settings) as world:
        create_namespace(world.kubectl, NAMESPACE)
        make_claim(world, CLAIM)
        world.kubectl("create", "configmap", "trainer", "-n", NAMESPACE, f"--from-file={TRAINER}")
        yield world


def make_claim(world: World, name: str) -> None:
    """A claim of the namespace, which all nodes share."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    world.kubectl("apply", "-f", "-", text=json.dumps(claim))
