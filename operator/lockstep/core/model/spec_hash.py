"""One word for all of a spec that stays as it is while a gang has nodes."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from lockstep.api.base.fields import fields_of
from lockstep.api.base.schema import Changeable, MapList, SetList
from lockstep.api.run_spec import TrainingRunSpec


def spec_hash(spec: TrainingRunSpec) -> str:
    """Hash of the fields that change only while the run is suspended.

    What equals its default counts for nothing: the next release, which may have more fields, finds the same. The order
    of sets and of items that have names counts for nothing either, as to the API server's rule that keeps them.
    """
    said = spec.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    known = {
        ".".join(path): sorted(value, key=_text) if path in _WITHOUT_ORDER else value
        for path in FIXED_FIELDS
        if (value := _at(said, path)) not in (None, {}, [])
    }
    return sha256(_text(known).encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def hash_record(generation: int, spec: TrainingRunSpec) -> str:
    """As status has it: the generation that it was last found in, and the hash. The first spares the second."""
    return f"{generation}/{spec_hash(spec)}"


def read_hash(record: str) -> tuple[int, str]:
    """The two of ``hash_record``; 0 and nothing where it is none."""
    generation, _, found = record.partition("/")
    return (int(generation), found) if found and generation.isdecimal() and len(generation) < 20 else (0, "")


def _at(said: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        said = said.get(name)
        if said is None:
            return None
    return said


def _fixed(
    model: type[BaseModel], above: tuple[str, ...] = (), inherited: Changeable | None = None
) -> Iterator[tuple[tuple[str, ...], bool]]:
    for field in fields_of(model):
        when, group, path = field.type.one(Changeable) or inherited, field.type.model, (*above, field.name)
        if group is not None and when in (None, Changeable.WHILE_SUSPENDED):
            yield from _fixed(group, path, when)
        elif when is Changeable.WHILE_SUSPENDED:
            yield path, bool(field.type.one(MapList) or field.type.one(SetList))


FIXED_FIELDS = tuple(path for path, _ in _fixed(TrainingRunSpec))
"""The paths of these fields, as on the wire."""
_WITHOUT_ORDER = frozenset(path for path, is_set in _fixed(TrainingRunSpec) if is_set)
