"""What is sent to change a status: only the difference, so that other fields stay as they are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model import reservation
from lockstep.core.model.assignment import without_spilled


def status_patch(old: TrainingRunStatus, new: TrainingRunStatus) -> dict[str, Any]:
    """The JSON merge patch that makes ``new`` of ``old``. What is the same object in both is not even dumped."""
    changed = {name for name in TrainingRunStatus.model_fields if getattr(old, name) is not getattr(new, name)}
    return merge_patch(dump_status(old, changed), dump_status(new, changed))


def dump_status(status: TrainingRunStatus, only: set[str] | None = None) -> dict[str, Any]:
    """The JSON form to write, of all fields or of some ``only``.

    An assignment or a reservation that lives in a ConfigMap is only named.
    """
    if status.assignment.config_map:
        status = changed(status, assignment=without_spilled(status.assignment))
    if status.reservation is not None and status.reservation.config_map:
        status = changed(status, reservation=reservation.named(status.reservation))
    return status.dump() if only is None else status.dump_only(only)


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


def dropped(patch: Mapping[str, Any], kept: Mapping[str, Any], at: str = "status") -> Iterator[str]:
    """The paths of what ``patch`` wrote and the answer to it lacks.

    A server drops, without a word, what its definition of a kind does not know.
    """
    for key, value in patch.items():
        path = f"{at}.{key}"
        if value is None:
            continue
        if key not in kept:
            yield path
        elif isinstance(value, Mapping) and isinstance(kept[key], Mapping):
            yield from dropped(value, kept[key], path)
        elif _has_objects(value) and _has_objects(kept[key]):
            for index, (wrote, has) in enumerate(zip(value, kept[key], strict=False)):
                yield from dropped(wrote, has, f"{path}[{index}]")


def _has_objects(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) > 0 and isinstance(value[0], Mapping)
