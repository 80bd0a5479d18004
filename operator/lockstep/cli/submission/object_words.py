"""What is wrong with a manifest around its spec: its name, labels, and what is no field of an object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from lockstep.api.base import names
from lockstep.api.base.schema import ApiModel
from lockstep.cli.client import Json
from lockstep.cli.submission.array_manifests import is_set
from lockstep.cli.submission.field_words import wrong_type
from lockstep.cli.submission.near_fields import places_of

_NAME = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PARTS = ("apiVersion", "kind", "metadata", "spec", "status")


def object_problems(manifest: Json, root: type[ApiModel]) -> Iterator[tuple[str, str]]:
    """By field. What is wrong is taken out of ``manifest``, so that the rest can be judged. ``root``: its spec."""
    for part in [part for part in manifest if part not in _PARTS]:
        del manifest[part]
        near = get_close_matches(str(part), _PARTS, 1)
        places = places_of(str(part), root)
        if near or not places:
            yield str(part), f"unknown field; {f'write {near[0]}' if near else 'move it below spec'}"
        else:
            yield str(part), f"unknown field here; write it as {places}"
    yield from _name_problems(manifest)
    metadata = manifest["metadata"]
    for kind in ("labels", "annotations"):
        yield from _texts(metadata, kind)


def _name_problems(manifest: Json) -> Iterator[tuple[str, str]]:
    metadata = manifest["metadata"]
    most = names.MAX_RUN_SET_NAME if is_set(manifest) else names.MAX_RUN_NAME
    given = "name" if metadata.get("name") is not None else "generateName"
    name = metadata.get(given)
    if name is None or name == "":
        metadata["name"] = "a-name"
        yield "metadata.name", "is missing; write it, or give --name"
    elif not isinstance(name, str):
        metadata[given] = "a-name"
        yield f"metadata.{given}", wrong_type("metadata.name", "string_type", name)
    elif given == "name" and (len(name) > most or not _NAME.fullmatch(name)):
        metadata["name"] = fit = re.sub("[^a-z0-9]+", "-", name[:200].lower()).strip("-")[:most].strip("-") or "a-name"
        shown = f"{name[:60]}…" if len(name) > 60 else name
        wrong = (
            f"has {len(name)} characters, and {most} are the most"
            if _NAME.fullmatch(name)
            else "may have only lower case letters, digits, and '-' between them"
        )
        yield "metadata.name", f"{shown} {wrong}; write {fit}"


def _texts(metadata: Json, kind: str) -> Iterator[tuple[str, str]]:
    given: Json = metadata.get(kind) or {}
    for key in [key for key, text in given.items() if not isinstance(text, str)]:
        yield f"metadata.{kind}.{key}", wrong_type(kind, "string_type", given.pop(key))
