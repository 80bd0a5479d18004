"""The operator as a process of this machine, kept running as a Deployment would keep it."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from harness.kube import ROOT, Kubectl, operator_kubeconfig
from harness.waiting import wait_for
from localcluster import processes
from localcluster.errors import LocalClusterError
from localcluster.state import component_environment, free_ports

_CHECK_SECONDS = 0.1
_RESTART_SECONDS = 0.5
_STOP_SECONDS = 15.0
_ANSWER_SECONDS = 15.0


class OperatorProcess:
    """One operator under its own service account; whenever it ends unasked it is started again.

    ``url`` is where workers reach it, ``metrics_url`` its probes and metrics, ``log`` its log file. ``code`` is the
    folder that its package lies in.
    """

    def __init__(
        self, folder: Path, config: Mapping[str, Any], kubeconfig: Path, code: Path = ROOT / "operator"
    ) -> None:
        self.folder = folder
        self.log = folder / "operator.log"
        self.url = str(config["workerUrl"])
        self.metrics_url = f"http://{config['metricsListen']}:{config['metricsPort']}"
        self.starts = 0
        self._kubeconfig = kubeconfig
        self._code = code
        self._config = folder / "operator.yaml"
        self._config.write_text(yaml.safe_dump(dict(config), sort_keys=False))
        self._process: processes.ProcessRecord | None = None
        self._changing = threading.Lock()
        self._wanted = False
        self._supervisor: threading.Thread | None = None

    @classmethod
    def start(
        cls,
        kubectl: Kubectl,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        settings: Mapping[str, Any] | None = None,
        kubeconfig: Path | None = None,
    ) -> OperatorProcess:
        """Start one for a cluster where Lockstep is installed; returns when it leads.

        Workers are to reach it at ``address``. ``settings`` go over the configuration made here (see
        lockstep.config); ``kubeconfig`` is its own, else one is made. Raises WaitedInVain with the end of its log.
        """
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(("workers", "metrics"))
        config: dict[str, Any] = {
            "workerUrl": f"https://{address}:{ports['workers']}",
            "workerListen": address,
            "workerPort": ports["workers"],
            "metricsListen": "127.0.0.1",
            "metricsPort": ports["metrics"],
        }
        kubeconfig = kubeconfig or operator_kubeconfig(kubectl, folder / "operator.kubeconfig")
        operator = cls(folder, config | dict(settings or {}), kubeconfig)
        operator.run()
        try:
            operator.wait_until_leading()
        except BaseException:
            operator.stop()
            raise
        return operator

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        process = self._process
        return process.pid if process is not None and processes.is_alive(process) else None

    def run(self) -> None:
        """Start the process, and keep it running. Once it was stopped, this starts it again."""
        with self._changing:
            if self._wanted:
                raise LocalClusterError("the operator runs already")
            self._wanted = True
            self._spawn()
        self._supervisor = threading.Thread(target=self._supervise, name="operator-supervisor", daemon=True)
        self._supervisor.start()

    def stop(self) -> None:
        """End it in peace (it gives up its lease) and let it stay ended."""
        self._end(grace=_STOP_SECONDS)

    def kill_for_good(self) -> None:
        """SIGKILL, and nobody starts it again: an outage until `run`."""
        self._end(grace=0)

    def kill9(self) -> None:
        """SIGKILL. It comes back by itself, as a pod does."""
        with self._changing:
            if self._process is not None:
                processes.end([self._process], grace=0)

    def restart(self) -> None:
        """An orderly restart; returns when the new process leads."""
        before = self.starts
        with self._changing:
            if self._process is not None:
                processes.end([self._process], grace=_STOP_SECONDS)
        wait_for("the operator starts again", lambda: self.starts > before, seconds=10, last_seen=self.log_tail)
        self.wait_until_leading()

    def wait_until_leading(self, seconds: float = 60.0) -> None:
        """Return when it leads and sees the cluster. After kill9 the lease of the dead one has to run out."""
        wait_for("the operator leads", self._is_leading, seconds=seconds, last_seen=self.log_tail)

    def metrics(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """``{sample name: {sorted label pairs: value}}``. Raises OSError when it does not answer."""
        with urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=_ANSWER_SECONDS) as answer:
            text = answer.read().decode()
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "no log was written"

    def _is_leading(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.metrics_url}/readyz", timeout=_ANSWER_SECONDS):
                pass
            return sum(self.metrics().get("lockstep_leader", {}).values()) == 1
        except (OSError, urllib.error.HTTPError):
            return False

    def _end(self, grace: float) -> None:
        with self._changing:
            self._wanted = False
            if self._process is not None:
                processes.end([self._process], grace=grace)
            _record(self.folder).unlink(missing_ok=True)
        if self._supervisor is not None:
            self._supervisor.join()

    def _supervise(self) -> None:
        while True:
            time.sleep(_CHECK_SECONDS)
            process = self._process
            if self._wanted and process is not None and processes.is_alive(process):
                continue
            time.sleep(_RESTART_SECONDS if self._wanted else 0)
            with self._changing:
                if not self._wanted:
                    return
                self._spawn()

    def _spawn(self) -> None:
        command = [sys.executable, "-m", "lockstep.controller.main"]
        options = ["--config", str(self._config), "--kubeconfig", str(self._kubeconfig)]
        environment = component_environment() | {"PYTHONPATH": str(self._code)}
        environment.pop("KUBECONFIG", None)
        self._process = processes.spawn([*command, *options], self.log, environment)
        _record(self.folder).write_text(json.dumps(asdict(self._process)))
        self.starts += 1


def end_abandoned(folder: Path) -> None:
    """End the operator of a supervisor that was itself killed. None there is fine."""
    record = _record(folder)
    if record.exists():
        processes.end([processes.ProcessRecord(**json.loads(record.read_text()))], grace=0)
        record.unlink()


def _record(folder: Path) -> Path:
    return folder / "operator.json"
