"""What is to be created: what a file holds, or what flags and a command say, as with sbatch."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lockstep.api.base import names
from lockstep.cli.client import Json
from lockstep.cli.errors import CliError, UsageError
from lockstep.cli.submission.array_manifests import is_run, is_set, put_fields
from lockstep.cli.submission.field_words import shown
from lockstep.cli.submission.flags import INTERPRETERS, Flags, laid_over
from lockstep.present.amounts import plural

_MANIFESTS = (".yaml", ".yml", ".json")
_WITH_IMAGE = "lockstep submit --image IMAGE --"


class _PlainLoader(yaml.SafeLoader):
    """Times stay as they are written, as they do in kubectl."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def manifests_of(arguments: Sequence[str], flags: Flags, name: str | None) -> list[Json]:
    """What to create: the one manifest, with what flags say laid over it, or with an image the command."""
    if is_made_of_flags(arguments, flags):
        if not arguments:
            raise UsageError("no command is given", "write it after --, e.g. -- torchrun train.py")
        return [replace(flags, command=arguments).manifest(name)]
    if not name_a_manifest(arguments):
        raise _no_manifest(arguments)
    manifests = read_manifests(arguments[0])
    fields = flags.fields()
    if (fields or flags.code or flags.code_claim) and len(manifests) > 1:
        raise UsageError("flags that say what a run is need a manifest with one run", "edit the manifest instead")
    for manifest in manifests:
        lay_over(manifest, fields)
    if name:
        if len(manifests) > 1:
            raise UsageError("--name needs a manifest with one run")
        manifests[0]["metadata"] = {k: v for k, v in manifests[0]["metadata"].items() if k != "generateName"}
        manifests[0]["metadata"]["name"] = name
    return manifests


def is_made_of_flags(arguments: Sequence[str], flags: Flags) -> bool:
    """Whether what is to be created is what flags and a command say, and lies in no file."""
    return bool(flags.image) and not (len(arguments) == 1 and is_named_as_a_manifest(arguments[0]))


def are_a_manifest(arguments: Sequence[str], flags: Flags) -> bool:
    """Whether they are a file, and no command; that of an image may be a file too, unless it is named as a manifest."""
    if flags.image:
        return not is_made_of_flags(arguments, flags)
    return name_a_manifest(arguments)


def name_a_manifest(arguments: Sequence[str]) -> bool:
    """Whether they are a file, and no command."""
    return len(arguments) == 1 and _may_be_a_manifest(arguments[0])


def lay_over(manifest: Json, fields: Json) -> None:
    """Have a run, or the runs of a set, be as flags say. A spec that is none is left for others to refuse."""
    spec = manifest.get("spec") or {}
    if not fields:
        return
    if is_set(manifest):
        put_fields(manifest, fields, laid_over)
    elif isinstance(spec, dict):
        manifest["spec"] = laid_over(spec, fields)


def is_named_as_a_manifest(path: str) -> bool:
    """Rather than as a program."""
    return path == "-" or path.endswith(_MANIFESTS)


def _may_be_a_manifest(path: str) -> bool:
    if is_named_as_a_manifest(path):
        return True
    found = Path(path)
    if not found.is_file():
        return found.exists()  # a pipe, which can be read only once
    if found.suffix in INTERPRETERS:
        return False
    with found.open("rb") as file:
        return file.read(2) != b"#!"


def _no_manifest(arguments: Sequence[str]) -> UsageError:
    """What lacks, by what was probably meant."""
    if not arguments:
        return UsageError("nothing is given to submit", f"lockstep submit run.yaml, or {_WITH_IMAGE} torchrun train.py")
    if all(path.endswith(_MANIFESTS) for path in arguments):
        return UsageError("submit takes one manifest at a time", "it may hold several runs, with --- between them")
    if len(arguments) == 1 and Path(arguments[0]).is_file():
        script = arguments[0]
        interpreter = INTERPRETERS.get(Path(script).suffix, "bash")
        unread = "; options in its comments are not read" if interpreter == "bash" else ""
        remedy = f"name the image that has it: {_WITH_IMAGE} {interpreter} {shlex.quote(script)}{unread}"
        return UsageError(f"{script} is a script and no manifest", remedy)
    command = shlex.join(arguments)
    return UsageError(f"no --image is given to run {command} in", f"{_WITH_IMAGE} {command}")


def read_manifests(path: str) -> list[Json]:
    """The runs in a file (-: standard input). Raises CliError on anything that is no run."""
    found = read_documents(path)
    for document in found:
        if not is_run(document) and not is_set(document):
            kind = document.get("kind") if isinstance(document, dict) else None
            raise CliError(
                f"{path} holds {f'a {kind}, ' if kind else 'something '}not a {names.RUN_KIND} of {names.API_VERSION}",
                "lockstep takes runs only; create the rest with kubectl apply -f",
            )
    return found


def read_one_run(path: str) -> Json:
    """The only run in a file, whatever else is in it. Raises CliError when there is none, or more than one."""
    found: list[Json] = [document for document in read_documents(path) if is_run(document)]
    if len(found) != 1:
        raise CliError(f"{path} holds {plural(len(found), 'run')}", "write one into a file of its own")
    return found[0]


def read_documents(path: str) -> list[Any]:
    """What a YAML file holds; ``metadata`` is there in every run. Raises CliError when it cannot be read."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        found = [document for document in yaml.load_all(text, _PlainLoader) if document]
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8 text") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: no number that Python reads
        raise CliError(f"{path} is no YAML: {_why_no_yaml(error, path)}") from error
    if not found:
        raise CliError(f"{path} holds no run")
    for document in found:
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind in (names.RUN_KIND, names.RUN_SET_KIND) and "apiVersion" not in document:
            raise CliError(f"{path} says kind {kind} and no apiVersion", f"write apiVersion: {names.API_VERSION}")
        if is_run(document) or is_set(document):
            _check_parts(document, path)
    return found


def _why_no_yaml(error: Exception, path: str) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).replace("<unicode string>", path).split())


def _check_parts(document: Json, path: str) -> None:
    """It is an object as API servers know them, as far as all that follows rests on it. Raises CliError."""
    try:
        json.dumps(document)
    except (TypeError, ValueError) as error:
        words = f"{path} holds what is no JSON: {error}"
        raise CliError(words, "write text, numbers, true, false, lists and maps only; quote what is text") from error
    for part in ("metadata", "spec"):
        document[part] = _map(document.get(part), part, path)
    if not isinstance(document["metadata"].get("namespace") or "", str):
        raise CliError(f"{path}: metadata.namespace is {shown(document['metadata']['namespace'])}", "quote it")
    for part in ("labels", "annotations"):
        _map(document["metadata"].get(part), f"metadata.{part}", path)


def _map(value: Any, part: str, path: str) -> Json:
    if value and not isinstance(value, dict):
        raise CliError(f"{path}: {part} is {shown(value)}", "write its fields below it, one on a line")
    return value or {}
