"""Steps saved with a manifest, and a node that looks for them."""

import json
import zlib
from pathlib import Path
from typing import Any

from lockstep.worker.checkpoints.formats import examine
from lockstep.worker.settings import Settings, Tier

RUN_UID = "run-1"


def manifest(files: dict[str, bytes], **changed: Any) -> dict[str, Any]:
    listed = [{"name": n, "bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"} for n, data in files.items()]
    return {
        "format": "lockstep/1", "runUID": RUN_UID, "attempt": 1, "step": 100, "world": 2, "files": listed, **changed
    }  # fmt: skip


def commit(directory: Path, files: dict[str, bytes] | None = None, **changed: Any) -> Path:
    files = {"a.bin": b"aaaa", "sub/b.bin": b"bb"} if files is None else files
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(data)
    (directory / "manifest.json").write_text(json.dumps(manifest(files, **changed)))
    return directory


def step_of(root: Path, attempt: int, name: str) -> Path:
    return root / RUN_UID / f"a{attempt}" / name


def look(directory: Path, **how: Any) -> tuple[str, str]:
    finding = examine(str(directory), run_uid=RUN_UID, step=100, **how)
    assert finding is not None
    return finding.verdict, finding.reason


def node(shared: Path, local: Path) -> Settings:
    return Settings(
        operator_url="https://10.0.0.1:1", namespace="team", run="hello", run_uid=RUN_UID, slot=0, incarnation=1,
        pod_uid="p", command=["x"], scratch=str(local.parent),
        tiers={
            "local": Tier("local", str(local), 1.0),
            "shared": Tier("shared", str(shared), 2.0),
        },
    )  # fmt: skip
