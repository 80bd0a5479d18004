"""Code that went along with a run, in ConfigMaps that go with the last one that mounts them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.core.pods.pod_template import items, section

LABEL = f"{names.GROUP}/code"
_NAME = re.compile(r"[a-z0-9][-a-z0-9.]*-code-[a-z0-9]{5}")


def mounted_by(manifest: Mapping[str, Any]) -> Iterator[str]:
    """ConfigMaps of code that a run or array mounts, by their names: each is to be looked at for its label."""
    spec = section(manifest, "spec", "template", "spec") or section(manifest, "spec")
    for volume in items(spec, "volumes"):
        yield from maps_of(volume)


def maps_of(volume: Mapping[str, Any]) -> Iterator[str]:
    """The same of one volume."""
    for source in items(section(volume, "projected"), "sources"):
        name = section(source, "configMap").get("name")
        if volume.get("name") == names.CODE_VOLUME and isinstance(name, str) and _NAME.fullmatch(name):
            yield name


def adoption(config_map: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch by which code goes once the last of those that mount it is gone, ``owner`` among them. Both are
    objects as the API server has them."""
    about, metadata = owner["metadata"], config_map["metadata"]
    mine = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"]}
    owners = [*(metadata.get("ownerReferences") or ()), mine]
    return {"metadata": {"resourceVersion": metadata["resourceVersion"], "ownerReferences": owners}}


def is_code(config_map: Mapping[str, Any]) -> bool:
    """It went along with a run."""
    return (config_map["metadata"].get("labels") or {}).get(LABEL) == "true"
