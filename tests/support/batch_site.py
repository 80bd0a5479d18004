"""Batch scripts on nodes that really run: submitted by `lockstep sbatch` as they are, to a queue with a claim."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.training import CLAIM, NAMESPACE, TrainingRun, TrainingSite
from harness.waiting import wait_for
from localcluster.api import Request
from lockstep.api.base import names
from lockstep.cli.main import main
from support.batch_scripts import BatchScript

QUEUE = "batch"
MOUNT = "/gpfs"
RUNS = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUNS}"


class Job:
    """A batch job that was submitted."""

    def __init__(self, site: TrainingSite, number: int, folder: Path) -> None:
        self.number, self.folder = number, folder
        [body] = wait_for(f"a run has the number {number}", lambda: self._runs(site), seconds=60)
        metadata = body["metadata"]
        self.run = TrainingRun(site.world, metadata["name"], metadata["uid"], body["spec"]["nodes"])
        site.runs.append(self.run)

    def _runs(self, site: TrainingSite) -> list[dict[str, Any]]:
        listed = site.world.cluster.api.get(RUNS)["items"]
        return [body for body in listed if body.get("status", {}).get("jobId") == self.number]

    def output(self, name: str = "") -> str:
        return (self.folder / (name or f"slurm-{self.number}.out")).read_text()

    def lines(self, name: str = "") -> list[str]:
        return self.output(name).splitlines()

    def is_done(self) -> Job:
        self.run.wait_until_succeeded()
        return self


class BatchSite:
    """The login node: a folder that the queue's claim has, too."""

    def __init__(
        self, site: TrainingSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        self.site, self._capsys = site, capsys
        claim = site.world.claim_folder(NAMESPACE, CLAIM)
        self.folder = claim / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.inside = f"{MOUNT}/{name}"
        monkeypatch.setenv("KUBECONFIG", str(site.world.cluster.kubeconfig))
        monkeypatch.setenv("SBATCH_PARTITION", QUEUE)
        monkeypatch.setenv("SBATCH_GPUS_PER_NODE", "0")
        monkeypatch.chdir(self.folder)
        self.make_queue(QUEUE)

    def make_queue(self, name: str, **batch: Any) -> None:
        """One that has the folder for its scripts, and what else is said, unless it is there already."""
        volume = {"name": "work", "mountPath": MOUNT, "persistentVolumeClaim": {"claimName": CLAIM}}
        spec = {"batch": {"image": "none", "volumes": [volume], "submitFromInside": True, **batch}}
        body = {"apiVersion": names.API_VERSION, "kind": "TrainingQueue", "metadata": {"name": name}, "spec": spec}
        api, path = self.site.world.cluster.api, f"/apis/{names.API_VERSION}/{names.QUEUES}"
        if name not in [item["metadata"]["name"] for item in api.get(path)["items"]]:
            api.send(Request("POST", path, body))

    def sbatch(self, script: BatchScript, *options: str) -> int:
        """Its number. ``options`` are those of this site, not of the script."""
        code, number = self.ended(script, *options)
        assert code == 0
        return number

    def ended(self, script: BatchScript, *options: str) -> tuple[int, int]:
        """The code of sbatch, and the job's number."""
        script.write_into(self.folder)
        self._capsys.readouterr()
        words = [f"--kube-namespace={NAMESPACE}", f"--chdir={self.inside}", *options, script.name, *script.arguments]
        with pytest.raises(SystemExit) as exited:
            main(["sbatch", *words])
        found = re.search(r"Submitted batch job ([0-9]+)", self._capsys.readouterr().out)
        assert found is not None
        return int(exited.value.code or 0), int(found[1])

    def close(self) -> None:
        """Arrays are gone, and make no more runs."""
        api, path = self.site.world.cluster.api, f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.RUN_SETS}"
        for body in api.get(path)["items"]:
            api.send(Request("DELETE", f"{path}/{body['metadata']['name']}", absence_is_fine=True))

    def job(self, number: int) -> Job:
        return Job(self.site, number, self.folder)

    def submit(self, script: BatchScript, *options: str) -> Job:
        return self.job(self.sbatch(script, *options))
