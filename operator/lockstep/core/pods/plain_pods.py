"""Pods without a worker: the container's command is the user's own, and what an attempt is stands in its environment.

Apart from that they are the pods of ``gang``: the same resources, volumes, pins and tolerations, and what the user's
pod template adds. As nothing in a pod can change while it lives, every attempt has pods of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from lockstep.api.base import names
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.snapshot import NodeView, PodView, RunView
from lockstep.core.model.start_record import CollectiveStart, Members
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import WorkerPhase, WorkerReport
from lockstep.core.pods.array_environment import array_environment
from lockstep.core.pods.gang import DRY_RUN_NODE, GangTemplate, dry_run_status, shared_path, template_for
from lockstep.core.pods.launchers import plain_launcher_of
from lockstep.core.pods.launchers.rendezvous import Rendezvous
from lockstep.core.pods.secret_variables import holds_secrets

CONTRACT = "1"
NODELIST_LIMIT = 32 * 1024
"""Bytes of addresses that a pod's environment takes; Linux allows 128 KiB for one variable."""
FIRST_PORT, PORTS = 20_000, 10_000
"""Below what Linux gives to outgoing connections and Kubernetes to NodePorts, away from the node mutex."""
_WORKERS_OWN = frozenset({"lockstep-worker", "lockstep-token", "lockstep-scratch"})


@dataclass(frozen=True, slots=True)
class PlainAttempt:
    """What is the same in all pods of an attempt. ``addresses``: of the nodes, by rank; empty: not known."""

    number: int
    world: int
    master_address: str
    master_port: int
    addresses: tuple[str, ...] = ()


class PlainTemplate:
    """Makes the pods of one attempt. Bodies share their parts: they are for reading only."""

    def __init__(self, run: RunView, status: TrainingRunStatus, tunables: Tunables, attempt: PlainAttempt) -> None:
        assert run.spec is not None
        self._spec, self._attempt, self._gpus = run.spec, attempt, status.resolved.gpus_per_node
        self._gang = _without_worker(template_for(run, status, tunables), attempt.number)
        self._contract = _contract(run, attempt)

    @property
    def body(self) -> Mapping[str, Any]:
        """What all pods of the attempt have in common, but for the environment of their ranks."""
        return self._gang.body

    def pod_body(self, slot: int, incarnation: int, node: str, *, rank: int) -> dict[str, Any]:
        """The pod of ``slot``."""
        body = self._gang.pod_body(slot, incarnation, node)
        trainer, *sidecars = body["spec"]["containers"]
        launcher, attempt = plain_launcher_of(self._spec), self._attempt
        rendezvous = Rendezvous(rank, attempt.world, attempt.master_address, attempt.master_port, self._gpus)
        theirs = [variable for variable in trainer["env"] if not variable["name"].startswith("LOCKSTEP_")]
        set_by_user = {variable["name"] for variable in theirs}
        ours = {**self._contract, "LOCKSTEP_NODE_RANK": str(rank), **launcher.environment(rendezvous)}
        # Ours come first: the user's may refer to them.
        env = [{"name": name, "value": value} for name, value in ours.items() if name not in set_by_user]
        command = list(launcher.command(self._spec, rendezvous))
        containers = [{**trainer, "command": command, "env": [*env, *theirs]}, *sidecars]
        return {**body, "spec": {**body["spec"], "containers": containers}}


def master_port(run_uid: str, attempt: int) -> int:
    """A port on rank 0's node, another one for every attempt. Whether it is free nobody can ask beforehand."""
    digest = sha256(f"{run_uid}/{attempt}".encode()).digest()
    return FIRST_PORT + int.from_bytes(digest[:4], "big") % PORTS


def nodelist(addresses: Sequence[str]) -> str | None:
    """The addresses as LOCKSTEP_NODELIST has them; None: they are too many for a variable."""
    joined = ",".join(addresses)
    return joined if len(joined) <= NODELIST_LIMIT else None


def plain_dry_run_body(run: RunView, tunables: Tunables) -> dict[str, Any]:
    """A pod made as those that the run will have, to be put to the API server before nodes are sought."""
    assert run.spec is not None
    attempt = PlainAttempt(1, run.spec.nodes, "127.0.0.1", FIRST_PORT)
    status = dry_run_status(run, tunables.accelerators)
    return PlainTemplate(run, status, tunables, attempt).pod_body(0, 0, DRY_RUN_NODE, rank=0)


def plain_reports(run: RunView, nodes: Mapping[str, NodeView], pods: Mapping[int, PodView]) -> dict[int, WorkerReport]:
    """What workers would say of the attempt that the pods (by slot) were made for, when status has lost it."""
    first = nodes.get(pods[min(pods)].node) if pods else None
    by_incarnation: dict[int, list[int]] = {}
    for slot, pod in pods.items():
        by_incarnation.setdefault(pod.incarnation, []).append(slot)
    members = tuple(Members(format_ranges(slots), incarnation) for incarnation, slots in sorted(by_incarnation.items()))
    found = {}
    for slot, pod in pods.items():
        address = first.internal_ip if first is not None else ""
        start = CollectiveStart(pod.attempt, "", address, master_port(run.uid, pod.attempt), members=members)
        found[slot] = WorkerReport(
            slot=slot,
            incarnation=pod.incarnation,
            pod_uid=pod.uid,
            node=pod.node,
            phase=WorkerPhase.RUNNING,
            received_at=pod.created_at,
            attempt=pod.attempt,
            start=start if pod.attempt else None,
        )
    return found


def _contract(run: RunView, attempt: PlainAttempt) -> Mapping[str, str]:
    """docs/worker-disabled.md; the names are those that the worker gives its child."""
    assert run.spec is not None
    checkpoint = run.spec.checkpoint
    directory = f"{run.uid}/a{attempt.number}"
    shared = shared_path(run)
    local = checkpoint is not None and checkpoint.local is not None
    values = {
        "LOCKSTEP_CONTRACT": CONTRACT,
        "LOCKSTEP_RUN": run.name,
        "LOCKSTEP_RUN_UID": run.uid,
        "LOCKSTEP_ATTEMPT": str(attempt.number),
        "LOCKSTEP_NNODES": str(attempt.world),
        "LOCKSTEP_MASTER_ADDR": attempt.master_address,
        "LOCKSTEP_MASTER_PORT": str(attempt.master_port),
        "LOCKSTEP_RESUME_PATH": "",
        "LOCKSTEP_RESUME_STEP": "",
        "LOCKSTEP_RESUME_DIR": "",
        "LOCKSTEP_CHECKPOINT_DIR": f"{names.SHARED_CHECKPOINTS_MOUNT}/{shared}/{directory}" if shared else "",
        "LOCKSTEP_LOCAL_CHECKPOINT_DIR": f"{names.LOCAL_CHECKPOINTS_MOUNT}/{run.key}/{directory}" if local else "",
    }
    array = array_environment(run)
    values |= {name: value for name, value in array.items() if name.startswith("LOCKSTEP_")}
    addresses = nodelist(attempt.addresses)
    return values | ({"LOCKSTEP_NODELIST": addresses} if addresses else {})


def _without_worker(template: GangTemplate, attempt: int) -> GangTemplate:
    """The gang's template without what only the worker needs."""
    body = template.body
    metadata, spec = body["metadata"], body["spec"]
    trainer, *sidecars = spec["containers"]
    plain = {key: value for key, value in trainer.items() if key != "args"}
    plain["volumeMounts"] = [mount for mount in trainer["volumeMounts"] if mount["name"] not in _WORKERS_OWN]
    # The last lines of the log are then in the pod's status, which is all that is heard of a failure. Nobody could take
    # secrets out of them on the way.
    plain.setdefault("terminationMessagePolicy", "File" if holds_secrets(plain) else "FallbackToLogsOnError")
    annotations = {**metadata["annotations"], names.ANNOTATION_ATTEMPT: str(attempt)}
    return GangTemplate(
        run=template.run,
        run_uid=template.run_uid,
        body={
            **body,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {
                **spec,
                "containers": [plain, *sidecars],
                "volumes": [volume for volume in spec["volumes"] if volume["name"] not in _WORKERS_OWN],
            },
        },
        terms=template.terms,
    )
