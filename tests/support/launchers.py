"""Specs with a launcher."""

from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec


def launched(launcher: str, command: list[str], **fields: Any) -> TrainingRunSpec:
    """A run of one node. Built past the checks of the CRD: what these let through today they may not tomorrow.

    ``settings`` are of the launcher, all others of the spec.
    """
    kind = {"type": launcher, **fields.pop("settings", {})}
    valid = TrainingRunSpec.model_validate({"nodes": 1, "image": "i", "command": ["x"], "launcher": kind, **fields})
    return changed(valid, command=tuple(command))
