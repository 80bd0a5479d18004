"""A run in whose directories something lies that no format recognises."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from lockstep.worker.settings import Settings, Tier
from lockstep.worker.start import Launch

UID = "6f7a1c9e-0000-4111-8222-333344445555"
OTHER_UID = "6f7a1c9e-0000-4111-8222-999944445555"
MIB = 1 << 20


def settings(root: Path, **changed: object) -> Settings:
    base = Settings(
        operator_url="", namespace="ns", run="one", run_uid=UID, slot=0, incarnation=1, pod_uid="p", command=["true"],
        tiers={"shared": Tier("shared", str(root / "ns" / "one"), 2.0)},
    )  # fmt: skip
    return replace(base, **changed)  # type: ignore[arg-type]


def attempt_of(root: Path, attempt: int = 1) -> Path:
    return root / "ns/one" / UID / f"a{attempt}"


def launch(attempt: int = 1, rank: int = 0) -> Launch:
    return Launch(attempt, rank, 2, "10.1.0.1", 40123, "", "", [])


def names(rows: list[dict[str, object]]) -> list[str]:
    return [os.path.basename(str(row["path"])) for row in rows]
