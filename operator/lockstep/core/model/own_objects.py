"""Our own objects as the API server has them, read into views: the same for operator and CLI."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from lockstep.api.base import names
from lockstep.api.base.durations import parse_duration
from lockstep.api.base.nesting import TOO_DEEP, UNREADABLE
from lockstep.api.base.times import to_unix
from lockstep.api.queue import TrainingQueueSpec, TrainingQueueStatus
from lockstep.api.run_set import TrainingRunSetSpec, TrainingRunSetStatus
from lockstep.api.run_spec import MAX_NODES, TrainingRunSpec
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.model.array_views import RunSetView
from lockstep.core.model.exits_record import forget_exits
from lockstep.core.model.kueue import api_names as words
from lockstep.core.model.quantities import are_quantities
from lockstep.core.model.ranges import distinct_ranges, parse_order, parse_ranges
from lockstep.core.model.resolved_record import forget_resolved
from lockstep.core.model.scale_up_record import forget_scale_up
from lockstep.core.model.snapshot import CLOSED_QUEUE, QueueView, RunView
from lockstep.core.model.start_record import forget_start

BEYOND_COUNTS = 2**60
"""Steps end at 2**53, and so do bytes."""


def parse_run(raw: Mapping[str, Any], known: RunView | None = None) -> RunView:
    """A TrainingRun. A spec that does not parse is explained in ``spec_error``, field by field, and what of it does is
    known.

    Of a status that does not parse, as a newer operator may have left it, what does counts. The rest reads as never
    written: decisions then treat it as lost, not as true. The spec of one
    that is ``known`` in the same generation is not read again: every change of it is another generation.
    """
    meta = raw["metadata"]
    if known is not None and (known.uid, known.generation) == (meta["uid"], meta.get("generation")):
        spec, spec_error, ttl = known.own_spec or known.spec, known.spec_error, known.ttl_written
    else:
        spec, spec_error = _spec_of_run(raw.get("spec") or {})
        ttl = _ttl_written(raw.get("spec")) if spec_error else None
    status = _status_of_run(raw.get("status") or {})
    owner: Mapping[str, Any] = next(filter(_is_run_set, meta.get("ownerReferences") or ()), {})
    return RunView(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        resource_version=meta["resourceVersion"],
        created_at=to_unix(meta["creationTimestamp"]),
        spec=spec,
        spec_error=spec_error,
        ttl_written=ttl,
        status=status,
        deleting=meta.get("deletionTimestamp") is not None,
        annotations=_our_annotations(meta),
        set_uid=owner.get("uid", ""),
        set_name=owner.get("name", ""),
        labels={key: value for key, value in (meta.get("labels") or {}).items() if key.startswith(f"{words.GROUP}/")},
    )


def _spec_of_run(raw: Mapping[str, Any]) -> tuple[TrainingRunSpec | None, str]:
    try:
        return TrainingRunSpec.model_validate(raw), ""
    except ValidationError as error:
        return _legible(raw, error), _in_words(error)


def _legible(raw: Mapping[str, Any], error: ValidationError) -> TrainingRunSpec | None:
    """The spec without the fields that do not parse: others rely on its queue, its limits and its cancel."""
    unreadable = {each["loc"][0] for each in error.errors() if each["loc"]}
    try:
        return TrainingRunSpec.model_validate({name: value for name, value in raw.items() if name not in unreadable})
    except (ValidationError, AttributeError):  # which is a spec that is no object
        return None


def _ttl_written(raw: Any) -> str | None:
    """How long its record is to be kept, whatever else of the spec can be read: a duration, or empty where this cannot
    be read either; None: it is kept."""
    written = raw.get("ttlAfterFinished") if isinstance(raw, Mapping) else ""
    if written is None:
        return None
    is_read = isinstance(written, str) and _is_read(lambda: parse_duration(written))
    return written if is_read else ""


def _status_of_run(raw: Mapping[str, Any]) -> TrainingRunStatus:
    """Without the fields that do not parse: that a run has finished, and which nodes it holds, is to be known whatever
    else is not."""
    kept = {name: value for name, value in raw.items() if not _is_beyond(value)}
    try:
        return _without_unread_texts(TrainingRunStatus.load(kept))
    except ValidationError as error:
        unreadable = {each["loc"][0] for each in error.errors() if each["loc"]}
    try:
        return _without_unread_texts(
            TrainingRunStatus.load({name: value for name, value in kept.items() if name not in unreadable})
        )
    except ValidationError:
        return TrainingRunStatus()


def _is_beyond(value: Any) -> bool:
    """A number in it is one that nothing counts up to: what is added to it would be none that can be written."""
    if isinstance(value, int):
        return not -BEYOND_COUNTS < value < BEYOND_COUNTS
    if isinstance(value, dict):
        return any(map(_is_beyond, value.values()))
    return isinstance(value, list) and any(map(_is_beyond, value))


def _without_unread_texts(status: TrainingRunStatus) -> TrainingRunStatus:
    """Without texts, and numbers of what to make, that no operator wrote: what they told is found out as where it is
    lost."""
    start, exits = status.start, status.exits
    if start is not None and not _is_read(
        lambda: (distinct_ranges(m.slots for m in start.members), parse_order(start.order))
    ):
        status = forget_start(status)
    if not _is_read(lambda: parse_ranges(exits.succeeded)):
        status = forget_exits(status)
    resolved = status.resolved
    if status.scale_up is not None and not 0 <= status.scale_up.nodes <= MAX_NODES:
        status = forget_scale_up(status)
    if not are_quantities((resolved.cpu, resolved.memory, *resolved.resources.values())):
        status = forget_resolved(status)
    return status


def _is_read(read: Callable[[], object]) -> bool:
    try:
        read()
    except ValueError:
        return False
    return True


def parse_run_set(raw: Mapping[str, Any]) -> RunSetView:
    """A TrainingRunSet. Neither spec nor status need parse, as with a run."""
    meta = raw["metadata"]
    spec: TrainingRunSetSpec | None = None
    spec_error = status_error = ""
    try:
        spec = TrainingRunSetSpec.model_validate(raw.get("spec") or {})
    except ValidationError as error:
        spec_error = _in_words(error)
    try:
        status = TrainingRunSetStatus.load(raw.get("status"))
    except ValidationError as error:
        status, status_error = TrainingRunSetStatus(), _in_words(error, "status")
    return RunSetView(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        resource_version=meta["resourceVersion"],
        created_at=to_unix(meta["creationTimestamp"]),
        spec=spec,
        spec_error=spec_error,
        status_error=status_error,
        status=status,
        deleting=meta.get("deletionTimestamp") is not None,
        annotations=_our_annotations(meta),
    )


def parse_queue(raw: Mapping[str, Any], known: QueueView | None = None) -> QueueView:
    """A TrainingQueue. Neither spec nor status need parse: of a spec that does not ``spec_error`` says why, field by
    field, and the rules are those of the one that is ``known``."""
    meta, spec_error = raw["metadata"], ""
    try:
        spec = TrainingQueueSpec.model_validate(raw.get("spec") or {})
    except ValidationError as error:
        spec, spec_error = known.spec if known is not None else CLOSED_QUEUE, _in_words(error)
    try:
        status = TrainingQueueStatus.load(raw.get("status"))
    except ValidationError:
        status = TrainingQueueStatus()
    return QueueView(
        name=meta["name"],
        spec=spec,
        created_at=to_unix(meta["creationTimestamp"]),
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        resource_version=meta["resourceVersion"],
        status=status,
        spec_error=spec_error,
    )


def _our_annotations(meta: Mapping[str, Any]) -> dict[str, str]:
    annotations = meta.get("annotations") or {}
    return {key: value for key, value in annotations.items() if key.startswith(f"{names.GROUP}/")}


def _is_run_set(owner: Mapping[str, Any]) -> bool:
    return owner.get("kind") == names.RUN_SET_KIND and owner.get("apiVersion", "").startswith(f"{names.GROUP}/")


def _in_words(error: ValidationError, part: str = "spec") -> str:
    problems = []
    for problem in error.errors():
        field = ".".join((part, *map(str, problem["loc"])))
        mark = problem["input"] if problem["input"] in (TOO_DEEP, UNREADABLE) else ""
        words = mark or problem["msg"].removeprefix("Value error, ")
        problems.append(f"{field}: {words}")
    return "; ".join(problems)
