"""Nodes of a batch job, as step servers, and Slurm's commands as programs of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from harness.step_gang import StepGang
from lockstep.slurm.environment import SlurmJob, batch_environment
from lockstep.worker.launchers import slurm
from lockstep.worker.settings import Settings
from lockstep.worker.steps.place import VARIABLE
from lockstep.worker.steps.programs import offer_programs, program_environment

SECONDS = 60
CPUS = 4


class SlurmGang:
    """A job on nodes of this machine, and what its batch shell would find."""

    def __init__(self, directory: Path, nodes: int, **job: Any) -> None:
        self.folder = directory / "work"
        for folder in (self.folder, directory / "gang", directory / "scratch"):
            folder.mkdir()
        settings = Settings(
            "https://127.0.0.1:1", "team", "hello", "u", 0, 1, "p", ["slurm_script"], launcher="Slurm",
            scratch=str(directory / "scratch"),
        )  # fmt: skip
        offer_programs(settings)
        found = program_environment(settings, {"PATH": "/usr/bin:/bin"})
        self.gang = StepGang(directory / "gang", nodes, env=found)
        addresses = [peer.address for peer in self.gang.gang.peers]
        fields: dict[str, Any] = {
            "id": 123, "nodes": addresses, "cpus": [CPUS] * nodes, "gpus": 0, "name": "train", "user": "ann",
            "uid": 1000, "partition": "gpu", "cluster": "main", "submit_dir": str(self.folder),
            "submit_host": "login", "start_time": 1_700_000_000, "end_time": 0,
        }  # fmt: skip
        self.job = SlurmJob(**{**fields, **job})
        for node in self.gang.nodes:
            given = {
                "job": self.job._asdict(), "words": [[f"node-{rank}"] for rank in range(nodes)],
                "directory": str(self.folder), "command": "/home/ann/jobs/train.sbatch",
            }  # fmt: skip
            (node.directory / "job.json").write_text(json.dumps(given))
            (node.directory.parent / slurm.ASKS).mkdir(exist_ok=True)
        self.directory = self.gang.nodes[0].directory
        self.environment = {**found, VARIABLE: str(self.directory), **batch_environment(self.job)}

    def run(self, script: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """As lines of the batch script."""
        return subprocess.run(
            ["bash", "-c", script], env={**self.environment, **environ}, cwd=self.folder, input=text,
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip

    def close(self) -> None:
        self.gang.close()
