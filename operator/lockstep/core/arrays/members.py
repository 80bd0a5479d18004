"""The runs of a set: which they are, what they are made from, and what the set says to them.

A run belongs to the set that owns it by UID, at the index that its name ends in. Both are the operator's to write;
labels are there for people alone.
"""

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.indices import MAX_INDEX, parse_indices
from lockstep.api.run_set import INDEX_VARIABLE
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.core.model import assignment as slots
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.conditions import is_true
from lockstep.core.model.kept_nodes import nodes_kept
from lockstep.core.model.ranges import parse_ranges
from lockstep.core.model.reasons import ConditionType
from lockstep.core.model.snapshot import RunView

_SUSPENDED_BY = "suspend: true of its set "
_NAMED = re.compile(rf"(?<!\$){re.escape(INDEX_VARIABLE)}")


def run_name(run_set: str, index: int) -> str:
    """The one name that the run of an index can have, so that creating it twice is harmless."""
    return f"{run_set}-{index}"


def split_run_name(name: str) -> tuple[str, int] | None:
    """Set and index of a run that is named as those of sets are; None for any other name."""
    run_set, _, digits = name.rpartition("-")
    if not run_set or not digits.isascii() or not digits.isdigit() or len(digits) > len(str(MAX_INDEX)):
        return None
    return (run_set, int(digits)) if str(int(digits)) == digits else None


def index_of(run: RunView) -> int | None:
    """The index of a run in the set that owns it; None when it is in none, or named otherwise."""
    found = split_run_name(run.name) if run.set_uid else None
    return found[1] if found is not None and found[0] == run.set_name else None


def is_member(run: RunView, run_set: RunSetView) -> bool:
    """The run belongs to the set whose UID it refers to. Anybody may write, or copy, a reference: it has to fit."""
    fits = (run.namespace, run.set_name) == (run_set.namespace, run_set.name)
    return fits and index_of(run) is not None


def holds_nodes(run: RunView) -> bool:
    """The run has nodes, be it to end soon."""
    return slots.is_held(run.status.assignment) and not is_true(run.status, ConditionType.FINISHED)


def has_had_nodes(run: RunView) -> bool:
    """The run has nodes or had some: whoever gives them back for a while, as to a more urgent run, has begun."""
    return run.status.attempt > 0 or holds_nodes(run)


def governed(run: RunView, owner: RunSetView | None) -> RunView:
    """The run as its set will have it: suspended or cancelled by either of them.

    Nothing is written into the run's own spec, so that what its user said of it alone holds again afterwards.
    """
    own = run.own_spec or run.spec
    if own is None:
        return run
    field, words = _set_by_owner(owner, run, own)
    if words == run.set_says and (not field or getattr(run.spec, field) is True):
        return run
    if not field:
        return replace(run, spec=own, own_spec=None, set_says="")
    spec = changed(own, suspend=True) if field == "suspend" else changed(own, cancel=True)
    return replace(run, spec=spec, own_spec=own, set_says=words)


def is_suspended_by_set(run: RunView) -> bool:
    """Its set has it suspended by its spec, and nothing that is said of the run alone would have it go on."""
    return run.set_says.startswith(_SUSPENDED_BY)


def governance(run_set: RunSetView | None) -> object:
    """All of a set that ``governed`` reads: while it is equal, nothing changes for its runs."""
    if run_set is None or run_set.spec is None:
        return run_set is None
    spec, stop = run_set.spec, run_set.status.stop
    return spec.suspend, spec.cancel, spec.cancel_indices, stop.cancel if stop is not None else ""


def _set_by_owner(
    owner: RunSetView | None, run: RunView, own: TrainingRunSpec
) -> tuple[Literal["", "suspend", "cancel"], str]:
    """The field of the spec that the set has as true where the run has not, if any, and why."""
    if owner is None:
        return "", ""
    if is_true(run.status, ConditionType.FINISHED):  # a person's cancel ends its debug hold
        words = _cancelled_by_spec(run, owner) if nodes_kept(run.status) and not own.cancel else ""
        return ("cancel", words) if words else ("", "")
    if owner.spec is None:  # it may say that they wait, or end: who trains goes on, nobody starts
        waits = not own.suspend and not holds_nodes(run)
        return ("suspend", f"the spec of its set {owner.name} cannot be read") if waits else ("", "")
    if not own.cancel and (words := _cancelled_by(run, owner)):
        return "cancel", words
    if not own.suspend and owner.spec.suspend:
        return "suspend", f"{_SUSPENDED_BY}{owner.name}"
    return "", ""


def _cancelled_by_spec(run: RunView, owner: RunSetView) -> str:
    spec = owner.spec
    if spec is not None and spec.cancel:
        return f"cancel: true of its set {owner.name}"
    if spec is not None and spec.cancel_indices and index_of(run) in parse_indices(spec.cancel_indices):
        return f"it is among cancelIndices of its set {owner.name}"
    return ""


def _cancelled_by(run: RunView, owner: RunSetView) -> str:
    stop = owner.status.stop
    if words := _cancelled_by_spec(run, owner):
        return words
    if stop is not None and (stop.cancel == "All" or not has_had_nodes(run)):
        return f"its set {owner.name} has given up: {stop.message}"
    return ""


def is_recorded(run: RunView, owner: RunSetView | None) -> bool:
    """What came of the run stands where it outlives it: it may be deleted when its time is over.

    A set that is not known proves nothing: were it gone, its runs would go with it.
    """
    index = index_of(run)
    if index is None:
        return True
    if owner is None:
        return False
    known = owner.status.indices
    return any(index in read_ranges(text) for text in (known.succeeded, known.failed, known.cancelled))


def recorded_indices(run_set: RunSetView) -> frozenset[int]:
    """All with an outcome on record."""
    known = run_set.status.indices
    return frozenset().union(*(read_ranges(text) for text in (known.succeeded, known.failed, known.cancelled)))


@lru_cache(maxsize=32)  # every finished run of a set asks about the same few texts, which may be long
def read_ranges(text: str) -> frozenset[int]:
    """Indices in the status of a set. What is no ranges counts for nothing."""
    try:
        return parse_ranges(text)
    except ValueError:
        return frozenset()


def run_body(run_set: RunSetView, index: int, job_id: int | None = None) -> dict[str, Any]:
    """The run of one index, as it is created. ``job_id``: the array's number, of batch jobs."""
    assert run_set.spec is not None
    indices = parse_indices(run_set.spec.indices)
    template = run_set.spec.template
    shape = f"index={index} count={len(indices)} min={min(indices)} max={max(indices)}"
    user = run_set.annotations.get(names.ANNOTATION_USER)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.RUN_KIND,
        "metadata": {
            "namespace": run_set.namespace,
            "name": run_name(run_set.name, index),
            "labels": {
                **_with_index(template.metadata.labels, index),
                names.LABEL_SET: run_set.name,
                names.LABEL_INDEX: str(index),
            },
            "annotations": {
                **_with_index(template.metadata.annotations, index),
                **({names.ANNOTATION_USER: user} if user else {}),
                names.ANNOTATION_ARRAY: shape,
                **_of_batch_array(run_set.spec.indices, job_id),
            },
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.RUN_SET_KIND,
                    "name": run_set.name,
                    "uid": run_set.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": _with_index(template.spec.dump_written(), index),
    }


def _of_batch_array(indices: str, job_id: int | None) -> dict[str, str]:
    """What SLURM_ARRAY_* say beyond the shape."""
    step = re.fullmatch(r"[0-9]+-[0-9]+:([0-9]+)", indices)
    words = f"job={job_id} step={step[1] if step is not None else 1}"
    return {names.ANNOTATION_ARRAY_JOB: words} if job_id is not None else {}


def _with_index(value: Any, index: int) -> Any:
    """``value`` with the index wherever its variable stands; ``$$(…)`` stays, as everywhere."""
    match value:
        case str():
            return _NAMED.sub(str(index), value)
        case dict():
            return {key: _with_index(each, index) for key, each in value.items()}
        case list() | tuple():
            return [_with_index(each, index) for each in value]
    return value
