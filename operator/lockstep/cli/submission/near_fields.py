"""A field that there is not: which one was probably meant, and where it belongs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache

from lockstep.api.base.fields import fields_of
from lockstep.api.base.schema import ApiModel
from lockstep.api.run_set import TrainingRunSetSpec

_ALIKE, _MUCH_ALIKE = 0.6, 0.8
_PLACES = 2
_DEEPEST = 8
_LONGEST = 60
_OURS: Mapping[str, str] = {
    "resources": "resourcesPerNode, or gpusPerNode for GPUs alone",
    "gpus": "gpusPerNode",
    "replicas": "nodes",
}
"""By its name in other kinds, which is like that of no field here, or of a wrong one: what says it here."""
_INDEX = re.compile(r"\[[^]]*\]")


def no_such_field(field: str, root: type[ApiModel]) -> str:
    """What is wrong with ``spec.checkpoint.claim``, which is no field of ``root`` (``spec``)."""
    *parents, wrong = without_indices(field).split(".")
    model = model_at(parents, root)
    here = [each.name for each in fields_of(model)] if model is not None else []
    ours = _OURS.get(_nearest(wrong, _OURS, _MUCH_ALIKE), "")
    wrong = ours.partition(",")[0] or wrong
    if near := ours if wrong in here else _nearest(wrong, here, _MUCH_ALIKE):
        return f"unknown field; write {near}"
    if places := places_of(wrong, root, ".".join(parents)):
        return f"unknown field here; write it as {places}"
    if near := _nearest(wrong, here, _ALIKE):
        return f"unknown field; write {near}"
    kind = "trainingrunset" if root is TrainingRunSetSpec else "trainingrun"
    below = ".".join([kind, *parents]) if model is not None else f"{kind}.spec"
    return f"unknown field; kubectl explain {below} and docs/api.md list those there are"


def places_of(wrong: str, root: type[ApiModel], below: str = "spec") -> str:
    """Where fields of that name are, in words: those ``below`` the place where it was sought, else the nearest to the
    root; empty where there are none, or too many to be of help."""
    places = _places(root)
    found = places.get(_plain(wrong)) or places.get(_nearest(wrong, places, _MUCH_ALIKE)) or []
    found = [place for place in found if place.startswith(f"{below}.")] or found
    found = [place for place in found if place.count(".") == found[0].count(".")]
    return " or ".join(found) if len(found) <= _PLACES else ""


def without_indices(field: str) -> str:
    """``spec.env.name`` for ``spec.env[0].name``."""
    return _INDEX.sub("", field)


def model_at(parents: Sequence[str], root: type[ApiModel]) -> type[ApiModel] | None:
    """The model of what is at ``spec.checkpoint``; None where that has no fields of ours."""
    model: type[ApiModel] | None = root if parents else None
    for parent in parents[1:]:
        found = next((f.type for f in fields_of(model) if f.name == parent), None) if model is not None else None
        inner = found.item or found if found is not None else None
        model = inner.model if inner is not None else None
    return model


def _nearest(wrong: str, names: Iterable[str], cutoff: float) -> str:
    """Case and the like do not count: ``gpus_per_node`` is ``gpusPerNode``."""
    plain = {_plain(name): name for name in names}
    found = get_close_matches(_plain(wrong), plain, 1, cutoff)
    return plain[found[0]] if found else ""


def _plain(name: str) -> str:
    return re.sub("[-_ ]", "", name[:_LONGEST]).lower()


@cache
def _places(root: type[ApiModel]) -> Mapping[str, list[str]]:
    """Every field below ``root`` by its plain name: where it is, the nearest to the root first."""
    found: dict[str, list[str]] = {}
    for path, name in sorted(_fields_below("spec", root, 0), key=lambda each: each[0].count(".")):
        found.setdefault(_plain(name), []).append(f"{path}.{name}")
    return found


def _fields_below(path: str, model: type[ApiModel], depth: int) -> Iterator[tuple[str, str]]:
    for field in fields_of(model):
        yield path, field.name
        inner = field.type.item or field.type
        if inner.model is not None and depth < _DEEPEST:
            index = "[]" if field.type.item is not None else ""
            yield from _fields_below(f"{path}.{field.name}{index}", inner.model, depth + 1)
