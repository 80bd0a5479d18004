"""A real S3 server for the tests of the archive, and checkpoints to put into it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import build

BUCKET = "golden"
ACCESS, SECRET = "lockstep-tests", "lockstep-tests-secret"
RUN_UID = "0b5c1d2e-0000-4000-8000-000000000001"
OPERATOR = Path(__file__).resolve().parents[2] / "operator"


@dataclass
class S3Server:
    """versitygw over a directory: what it holds can be looked at, and spoilt, as files."""

    root: Path
    port: int
    host: str = "127.0.0.1"
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def bucket(self) -> Path:
        return self.root / "buckets" / BUCKET

    def start(self) -> None:
        self.bucket.mkdir(parents=True, exist_ok=True)
        sidecar = self.root / "sidecar"
        sidecar.mkdir(exist_ok=True)
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(build.binary("versitygw"), "--quiet", "--port", f"{self.host}:{self.port}"),
                    *("--access", ACCESS, "--secret", SECRET, "posix", "--sidecar", sidecar),
                    self.root / "buckets",
                ],
                stdout=log,
                stderr=log,
            )
        for _ in range(1200):
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex((self.host, self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError(f"versitygw does not answer: {(self.root / 'server.log').read_text()}")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def objects(self, below: str = "") -> dict[str, Path]:
        """Every object by name, as the file that holds it."""
        root = self.bucket
        found = (path for path in root.rglob("*") if path.is_file() and ".sgwtmp" not in path.parts)
        named = {path.relative_to(root).as_posix(): path for path in found}
        return {name: path for name, path in named.items() if name.startswith(below)}


def save(directory: Path, files: dict[str, bytes], *, step: int = 300, attempt: int = 2, uid: str = RUN_UID) -> Path:
    """A checkpoint in the Manifest format, as a trainer writes it."""
    directory.mkdir(parents=True)
    entries = []
    for name, body in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
        entries.append({"name": name, "bytes": len(body), "crc32": f"{zlib.crc32(body):08x}"})
    manifest = {
        "format": "lockstep/1",
        "runUID": uid,
        "attempt": attempt,
        "step": step,
        "world": 2,
        "files": entries,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def run_job(server: S3Server, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """The program as a job runs it."""
    return subprocess.run(
        job_command(server, *arguments), env=job_environment(), capture_output=True, text=True, timeout=120, **options
    )


def job_command(server: S3Server, *arguments: str | Path) -> list[str]:
    action, *rest = map(str, arguments)
    fixed = ["--endpoint", server.endpoint, "--run-uid", RUN_UID]
    return [sys.executable, "-m", "lockstep.archive", action, *fixed, *rest]


def job_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(OPERATOR)}
