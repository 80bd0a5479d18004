"""An API server in memory, as the verbs of the command line use it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lockstep.cli.client import Cluster, Json, Query
from lockstep.cli.errors import ApiServerError

USER = "ada@example.net"
MADE_AT = "2026-01-01T12:00:00Z"

Changes = Iterable[tuple[str, Json]]


class CliServer(Cluster):
    """Keeps ``objects`` by the end of their paths ("trainingruns/llama"): an object, None (not there), an error to
    answer with, or a list of these, one for each look, of which the last stays. ``lists`` are whole answers by
    resource. What is created has ``statuses``, one for each look. ``watches`` are answered one after the other: with
    changes, an error, or what a function makes of the server; without any, a watch is a look. So many patches as
    ``conflicts`` says meet a newer version. ``refusals`` has errors by verb, resource or both ("list nodes"); the verbs
    are get, list, ask (a creation as a dry run), create, patch, delete.
    """

    def __init__(
        self,
        objects: Mapping[str, Any] | None = None,
        *,
        lists: Mapping[str, list[Json]] | None = None,
        statuses: Sequence[Any] = (),
        watches: Iterable[Changes | Exception | Callable[[CliServer], Changes]] | None = None,
        conflicts: int = 0,
        refusals: Mapping[str, BaseException] | None = None,
    ) -> None:
        super().__init__(None, "team")
        self.objects = dict(objects or {})
        self.lists = dict(lists or {})
        self.statuses = statuses
        self.watches = None if watches is None else [*watches]
        self.conflicts = conflicts
        self.refusals = dict(refusals or {})
        self.asked: list[str] = []  # whose metadata
        self.done: list[str] = []  # ask, create, patch, delete
        self.tried: list[Json] = []
        self.created: list[Json] = []
        self.patches: list[tuple[str, Json]] = []
        self.deleted: list[str] = []  # UIDs
        self.versions: list[Query] = []  # at which watches began

    def get(self, path: str, **query: Query) -> Json:
        """The next look at an object."""
        place = self._place(path)
        self._refuse("get", place)
        found = self.objects.get(place)
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if found is None and place.startswith("namespaces/"):
            return {"metadata": {"labels": {}}}
        if found is None:
            raise ApiServerError(404, f'"{place}" not found', name=place.partition("/")[2])
        if isinstance(found, BaseException):
            raise found
        return copy.deepcopy(dict(found))

    def metadata(self, path: str, *, first: int = 0) -> Json:
        """That of an object, or of all at ``path``."""
        resource = path.rpartition("/")[2]
        self.asked.append(resource if first else self._place(path))
        return self.list(path) if first else {"metadata": {"name": resource} | self.get(path).get("metadata", {})}

    def list(self, path: str, **query: Query) -> Json:
        """All of a resource that have the label, where one is asked for."""
        resource = path.rpartition("/")[2]
        self._refuse("list", resource)
        if resource in self.lists:
            return {"metadata": {}, "items": copy.deepcopy(self.lists[resource])}
        key, _, value = str(query.get("labelSelector", "")).partition("=")
        found = [raw for place, raw in self._shown() if place.startswith(f"{resource}/")]
        items = [raw for raw in found if not key or raw["metadata"].get("labels", {}).get(key) == value]
        return {"metadata": {}, "items": copy.deepcopy(items)}

    @property
    def made(self) -> Json:
        """What was created last."""
        return self.created[-1]

    def create(self, path: str, body: Json, **query: Query) -> Json:
        """The object as it was made: without a status."""
        resource = path.rpartition("/")[2]
        if resource == "selfsubjectreviews":
            if resource in self.refusals:
                raise self.refusals[resource]
            return {"status": {"userInfo": {"username": USER}}}
        verb = "ask" if query.get("dryRun") else "create"
        self.done.append(verb)
        if verb == "ask":
            self.tried.append(copy.deepcopy(body))
        self._refuse(verb, resource)
        name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{len(self.created):05}"
        place = f"{resource}/{name}"
        if place in self.objects:
            raise ApiServerError(409, f'"{place}" already exists', name=name)
        about = {"namespace": self.namespace, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
        made = copy.deepcopy(body)
        made["metadata"] = about | {"creationTimestamp": MADE_AT} | made["metadata"] | {"name": name}
        if verb == "create":
            self.created.append(made)
            looks = [made | {"status": each} for each in self.statuses] if "spec" in made else []
            self.objects[place] = looks or made
        return copy.deepcopy(made)

    def merge_patch(self, path: str, patch: Json) -> Json:
        """The object with the fields of ``patch``."""
        place = self._place(path)
        self.done.append("patch")
        self._refuse("patch", place)
        if self.conflicts:
            self.conflicts -= 1
            raise ApiServerError(409, "the object has been modified", name=place.partition("/")[2])
        self.patches.append((place, patch))
        self.objects[place] = _merged(self.get(path), patch)
        return self.get(path)

    def delete(self, path: str, uid: str) -> Json:
        """With what belongs to it."""
        self.done.append("delete")
        self._refuse("delete", self._place(path))
        self.deleted.append(uid)
        for place, raw in self._shown():
            about = raw.get("metadata", {})
            if uid in (about.get("uid"), *(owner["uid"] for owner in about.get("ownerReferences", ()))):
                del self.objects[place]
        return {}

    def watch(self, path: str, *, seconds: float, **query: Query) -> Iterator[tuple[str, Json]]:
        """What the next watch is answered with; then silence."""
        self.versions.append(query["resourceVersion"])
        if self.watches is None:
            name = str(query["fieldSelector"]).rpartition("=")[2]
            changes: Any = [("MODIFIED", self.get(f"{path}/{name}"))]
        else:
            changes = self.watches.pop(0) if self.watches else []
        if isinstance(changes, Exception):
            raise changes
        yield from changes(self) if callable(changes) else changes

    def _place(self, path: str) -> str:
        return next((key for key in self.objects if path.endswith(f"/{key}")), "/".join(path.split("/")[-2:]))

    def _shown(self) -> Sequence[tuple[str, Json]]:
        looks = ((place, raw[0] if isinstance(raw, list) else raw) for place, raw in self.objects.items())
        return [(place, raw) for place, raw in looks if isinstance(raw, dict)]

    def _refuse(self, verb: str, place: str) -> None:
        resource = place.partition("/")[0]
        for key in (verb, resource, f"{verb} {resource}"):
            if key in self.refusals:
                raise self.refusals[key]


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(patch, dict):
        return copy.deepcopy(patch)
    return old | {key: _merged(old.get(key), value) for key, value in patch.items()}
