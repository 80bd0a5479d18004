"""A run as it is written: in a manifest, or in flags and a command as with sbatch."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lockstep.api.base import names
from lockstep.cli import arrays, output
from lockstep.cli.client import Json
from lockstep.cli.errors import CliError, UsageError

_MANIFESTS = (".yaml", ".yml", ".json")
_WITH_IMAGE = "lockstep submit --image IMAGE --"


class _PlainLoader(yaml.SafeLoader):
    """Times stay as they are written, as they do in kubectl."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Flags:
    """A run told on the command line, as with sbatch. None and empty: left out of the spec."""

    nodes: int | None = None
    image: str | None = None
    gpus_per_node: int | None = None
    queue: str | None = None
    launcher: str | None = None
    claim: str | None = None
    shm_size: str | None = None
    env: Sequence[str] = ()
    only_nodes: Sequence[str] = ()
    exclude_nodes: Sequence[str] = ()
    command: Sequence[str] = ()

    def manifest(self, name: str | None) -> Json:
        """The TrainingRun. Raises UsageError on a variable without a value."""
        spec: Json = {"nodes": self.nodes or 1, "image": self.image, "command": list(self.command)}
        if self.gpus_per_node is not None:
            spec["gpusPerNode"] = self.gpus_per_node
        if self.queue:
            spec["queue"] = self.queue
        if self.launcher:
            spec["launcher"] = {"type": self.launcher}
        if self.claim:
            spec["checkpoint"] = {"shared": {"claimName": self.claim}}
        if self.shm_size:
            spec["shmSize"] = self.shm_size
        if self.env:
            spec["env"] = [_variable(assignment) for assignment in self.env]
        placement = {"nodes": list(self.only_nodes), "excludeNodes": list(self.exclude_nodes)}
        if any(placement.values()):
            spec["placement"] = {field: named for field, named in placement.items() if named}
        metadata = {"name": name} if name else {"generateName": f"{_stem(self.command)}-"}
        return {"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "metadata": metadata, "spec": spec}


def manifests_of(arguments: Sequence[str], flags: Flags, name: str | None) -> list[Json]:
    """What to create. With an image the arguments are the command, otherwise the one manifest."""
    if flags.image:
        if not arguments:
            raise UsageError("no command is given", "write it after --, e.g. -- torchrun train.py")
        return [Flags(**{**_fields(flags), "command": arguments}).manifest(name)]
    if len(arguments) != 1 or not _may_be_a_manifest(arguments[0]):
        raise _no_manifest(arguments)
    if any(value for value in _fields(flags).values()):
        raise UsageError(
            "with a manifest only --name, and when the run starts, may be said",
            "edit the manifest, or give --image too",
        )
    manifests = read_manifests(arguments[0])
    if name:
        if len(manifests) > 1:
            raise UsageError("--name needs a manifest with one run")
        manifests[0]["metadata"] = {k: v for k, v in manifests[0]["metadata"].items() if k != "generateName"}
        manifests[0]["metadata"]["name"] = name
    return manifests


def _may_be_a_manifest(path: str) -> bool:
    if path == "-" or path.endswith(_MANIFESTS):
        return True
    found = Path(path)
    if not found.is_file():
        return found.exists()  # a pipe, which can be read only once
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
        return UsageError(
            f"{script} is a script and no manifest",
            f"name the image that has it: {_WITH_IMAGE} bash {script}; options in its comments are not read",
        )
    command = shlex.join(arguments)
    return UsageError(f"no --image is given to run {command} in", f"{_WITH_IMAGE} {command}")


def read_manifests(path: str) -> list[Json]:
    """The runs in a file (-: standard input). Raises CliError on anything that is no run."""
    found = read_documents(path)
    for document in found:
        if not _is_run(document) and not arrays.is_set(document):
            kind = document.get("kind") if isinstance(document, dict) else None
            raise CliError(
                f"{path} holds {f'a {kind}, ' if kind else 'something '}not a {names.RUN_KIND} of {names.API_VERSION}",
                "lockstep takes runs only; create the rest with kubectl apply -f",
            )
    return found


def read_one_run(path: str) -> Json:
    """The only run in a file, whatever else is in it. Raises CliError when there is none, or more than one."""
    found: list[Json] = [document for document in read_documents(path) if _is_run(document)]
    if len(found) != 1:
        raise CliError(f"{path} holds {output.plural(len(found), 'run')}", "write one into a file of its own")
    return found[0]


def read_documents(path: str) -> list[Any]:
    """What a YAML file holds; ``metadata`` is there in every run. Raises CliError when it cannot be read."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        found = [document for document in yaml.load_all(text, _PlainLoader) if document]
    except OSError as error:
        raise CliError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CliError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not found:
        raise CliError(f"{path} holds no run")
    for document in found:
        if not (_is_run(document) or arrays.is_set(document)):
            continue
        document["metadata"] = document.get("metadata") or {}
    return found


def _is_run(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    return document.get("kind") == names.RUN_KIND and document.get("apiVersion") == names.API_VERSION


def _variable(assignment: str) -> Json:
    name, equals, value = assignment.partition("=")
    if not equals or not name:
        raise UsageError(f"--env {assignment} has no value", "write --env NAME=VALUE")
    return {"name": name, "value": value}


def _stem(command: Sequence[str]) -> str:
    """A name for people: that of the script, or of the program."""
    script = next((word for word in command if word.endswith((".py", ".sh"))), command[0])
    words = re.sub("[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return words[: names.MAX_RUN_NAME - 6].strip("-") or "run"


def _fields(flags: Flags) -> dict[str, Any]:
    return {name: getattr(flags, name) for name in Flags.__dataclass_fields__}
