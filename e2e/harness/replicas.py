"""Two operators that compete for one Lease, as the chart installs them, behind a stand-in for their Service."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.kube import OPERATOR_NAMESPACE, ROOT, Kubectl, operator_kubeconfig
from harness.operator import OperatorProcess
from harness.proxy import ApiProxy
from harness.service import ServiceProxy
from harness.waiting import wait_for
from localcluster import processes
from localcluster.state import free_ports

SERVICE = "lockstep-operator"
_ADDRESSES = "192.0.2"  # for documentation: the API server takes no loopback address in a slice


@dataclass(frozen=True)
class Replica:
    """One operator, and what stands between it and the API server."""

    number: int
    process: OperatorProcess
    api: ApiProxy
    port: int
    """Where it listens to workers."""

    @property
    def leads(self) -> bool:
        """By its own word. False when it does not answer."""
        try:
            return sum(self.process.metrics().get("lockstep_leader", {}).values()) == 1
        except OSError:
            return False

    @property
    def is_ready(self) -> bool:
        """As the kubelet would see it."""
        try:
            with urllib.request.urlopen(f"{self.process.metrics_url}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def stop_dead(self) -> None:
        """SIGSTOP: it does nothing until ``go_on``, and does not know that time passes."""
        processes.freeze(self._record())

    def go_on(self) -> None:
        """SIGCONT."""
        processes.send(self._record(), signal.SIGCONT)

    def _record(self) -> processes.ProcessRecord:
        record = processes.record_of(self.process.pid) if self.process.pid is not None else None
        if record is None:
            raise RuntimeError(f"replica {self.number} does not run")
        return record


class Replicas:
    """They run until the end of ``started``; whichever ends unasked is started again."""

    def __init__(self, kubectl: Kubectl, members: tuple[Replica, ...], service: ServiceProxy) -> None:
        self.members = members
        self.service = service
        self._kubectl = kubectl

    @classmethod
    @contextlib.contextmanager
    def started(
        cls, kubectl: Kubectl, folder: Path, *, count: int = 2, settings: Mapping[str, Any] | None = None
    ) -> Iterator[Replicas]:
        """Start them for a cluster where Lockstep is installed; yields when one leads and all are Ready.

        ``settings`` go over the configuration made here (see lockstep.config).
        """
        kubectl("apply", "-f", "-", text=json.dumps(_service()))
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            service = ServiceProxy(kubectl.kubeconfig, OPERATOR_NAMESPACE, SERVICE)
            service.start()
            stack.callback(service.stop)
            members = []
            for number in range(count):
                place = folder / f"operator-{number}"
                place.mkdir()
                api = ApiProxy(operator_kubeconfig(kubectl, place / "direct.kubeconfig"))
                api.start()
                stack.callback(api.stop)
                config = _config(number, service.url) | dict(settings or {})
                process = OperatorProcess(place, config, api.kubeconfig(place / "operator.kubeconfig"))
                process.run()
                stack.callback(_end, process)
                members.append(Replica(number, process, api, config["workerPort"]))
            replicas = cls(kubectl, tuple(members), service)
            replicas.wait_until_whole()
            yield replicas

    @property
    def leader(self) -> Replica:
        """The one that leads; waits for it."""
        return wait_for("a replica leads", lambda: self._leaders()[0:1], seconds=60, last_seen=self.log_tail)[0]

    def other_than(self, replica: Replica) -> Replica:
        """The other one of two."""
        (other,) = [member for member in self.members if member is not replica]
        return other

    def lease(self) -> dict[str, Any]:
        """The Lease's spec."""
        found: dict[str, Any] = self._kubectl.json("get", "lease", "lockstep-operator", "-n", OPERATOR_NAMESPACE)
        return dict(found["spec"])

    def wait_until_whole(self, seconds: float = 90.0) -> None:
        """One leads and workers are sent to it; all are Ready."""

        def is_whole() -> bool:
            leaders = self._leaders()
            return (
                len(leaders) == 1
                and all(member.is_ready for member in self.members)
                and self.service.leads_to == leaders[0].port
            )

        wait_for("both replicas are Ready, one leads", is_whole, seconds=seconds, last_seen=self.log_tail)

    def log_tail(self) -> str:
        """The end of each one's log."""
        return "\n".join(f"operator-{m.number}: {m.process.log_tail(4)}" for m in self.members)

    def _leaders(self) -> list[Replica]:
        return [member for member in self.members if member.leads]


def _end(process: OperatorProcess) -> None:
    """Also one that was stopped dead: a signal to end would reach it only when it goes on."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
    process.stop()


def _config(number: int, url: str) -> dict[str, Any]:
    ports = free_ports(("workers", "metrics"))
    return {
        "identity": f"operator-{number}",
        "workerUrl": url,
        "workerListen": "127.0.0.1",
        "workerPort": ports["workers"],
        "workerAddress": f"{_ADDRESSES}.{number + 1}",
        "metricsListen": "127.0.0.1",
        "metricsPort": ports["metrics"],
    }


def _service() -> dict[str, Any]:
    """The chart's own, as its manifest has it."""
    manifest = (ROOT / "manifests" / "install.yaml").read_text(encoding="utf-8")
    objects = [each for each in yaml.safe_load_all(manifest) if each]
    (found,) = [o for o in objects if o["kind"] == "Service" and o["metadata"]["name"] == SERVICE]
    return dict(found)
