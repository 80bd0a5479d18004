"""What is sent to change a status: only the difference, so that other fields stay as they are."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core import reservation


def dump_status(status: TrainingRunStatus) -> dict[str, Any]:
    """The JSON form to write. An assignment or a reservation that lives in a ConfigMap is only named."""
    if status.assignment.config_map:
        named = status.assignment.model_copy(update={"nodes": (), "incarnations": (), "rank_to_slot": ()})
        status = status.model_copy(update={"assignment": named})
    if status.reservation is not None and status.reservation.config_map:
        status = status.model_copy(update={"reservation": reservation.named(status.reservation)})
    return status.dump()


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes ``new`` of ``old``; empty when they are equal.

    Fields that neither names stay as they are: an older operator keeps what a newer one wrote.
    """
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if changes := merge_patch(before, value):
                patch[key] = changes
        elif value != before or key not in old:
            patch[key] = value
    return patch
