"""Two operators at work behind one Service, with recorded workers that know nothing but that Service."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.kube import Kubectl, install
from harness.recorded_workers import RecordedWorkers
from harness.replicas import Replica, Replicas
from harness.site import SETTINGS, TLS_SECRET, Run, Site
from localcluster import LocalCluster


class ReplicaSite(Site):
    """A Site whose runs may be looked after by either replica. ``proxy`` and ``operator`` are those of the first."""

    def __init__(self, cluster: LocalCluster, replicas: Replicas, workers: RecordedWorkers) -> None:
        first = replicas.members[0]
        super().__init__(cluster, first.api, first.process, workers)
        self.replicas = replicas

    @classmethod
    @contextlib.contextmanager
    def with_replicas(
        cls, cluster: LocalCluster, folder: Path, settings: Mapping[str, Any] | None = None
    ) -> Iterator[ReplicaSite]:
        """Bring it up on ``cluster``, where Lockstep is installed for it, and take it down at the end."""
        kubectl = Kubectl(cluster.kubeconfig)
        install(kubectl, settings)
        given = SETTINGS | {"localStorage": {"nvme": "/mnt/nvme"}} | dict(settings or {})
        with Replicas.started(kubectl, folder, settings=given) as replicas:
            ca = base64.b64decode(cluster.api.get(TLS_SECRET)["data"]["ca.crt"]).decode()
            workers = RecordedWorkers(cluster.kubeconfig, replicas.service.url, ca)
            workers.start()
            try:
                yield cls(cluster, replicas, workers)
            finally:
                workers.stop()


class Footprint:
    """What a replica has written up to now, and whether it has written since."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._writes = len(replica.api.writes)
        self._beside = len(replica.api.beside)

    @property
    def since(self) -> list[str]:
        """Every write that the API server took from it since then. What is asked by POST stores nothing."""
        told = [words for words in self._replica.api.beside[self._beside :] if "tokenreviews" not in words[1]]
        writes = [write.words for write in self._replica.api.writes[self._writes :]]
        return writes + [f"{method} {path}" for method, path in told]


def seen_of(run: Run) -> tuple[Any, ...]:
    """What must be the same after a change of leader that had nothing to do for the run."""
    status = run.status
    return (
        run.pod_uids,
        status["attempt"],
        status["start"],
        status["assignment"],
        run.heard.attempts(),
    )
