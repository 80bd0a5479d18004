"""A container's environment and command line, as the kubelet computes them. Pure."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localcluster.processnodes.errors import ContainerConfigError

Json = dict[str, Any]
_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ConfigObjects:
    """The ConfigMaps and Secrets of one namespace that a pod names, by name. Absent ones are missing."""

    config_maps: Mapping[str, Json] = field(default_factory=dict)
    secrets: Mapping[str, Json] = field(default_factory=dict)

    def keys(self, kind: str, name: str, *, optional: bool) -> Mapping[str, bytes] | None:
        """The data of ``configMap`` or ``secret`` ``name``; None when it is optional and missing."""
        found = (self.config_maps if kind == "configMap" else self.secrets).get(name)
        if found is None:
            if optional:
                return None
            raise ContainerConfigError(f'{kind.lower()} "{name}" not found')
        return decoded(kind, found)


def decoded(kind: str, body: Json) -> dict[str, bytes]:
    """All keys of a ConfigMap or Secret as bytes."""
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
    text = {key: value.encode() for key, value in (body.get("data") or {}).items()}
    return text | {key: base64.b64decode(value) for key, value in (body.get("binaryData") or {}).items()}


def referenced(pod: Json) -> set[tuple[str, str]]:
    """``(kind, name)`` of every ConfigMap and Secret the pod's environments name."""
    names: set[tuple[str, str]] = set()
    for container in all_containers(pod):
        for source in container.get("envFrom") or ():
            names |= {(kind, source[f"{kind}Ref"]["name"]) for kind in KINDS if source.get(f"{kind}Ref")}
        for entry in container.get("env") or ():
            origin = entry.get("valueFrom") or {}
            names |= {(kind, origin[f"{kind}KeyRef"]["name"]) for kind in KINDS if origin.get(f"{kind}KeyRef")}
    return names


KINDS = ("configMap", "secret")


def all_containers(pod: Json) -> list[Json]:
    """Init containers first, in the order they run."""
    return [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; ``$$`` is a dollar sign and unknown names stay as they are."""

    def replacement(match: re.Match[str]) -> str:
        if match.group(0) == "$$":
            return "$"
        return values.get(match.group(1), match.group(0))

    return _REFERENCE.sub(replacement, text)


def command_line(container: Json, environment: Mapping[str, str]) -> list[str]:
    """``command`` and ``args``, expanded. There is no image here whose ENTRYPOINT could be used instead."""
    command = container.get("command") or ()
    if not command:
        raise ContainerConfigError("process nodes run no image: give the container a command")
    return [expand(part, environment) for part in [*command, *(container.get("args") or ())]]


def field_value(pod: Json, path: str, address: str) -> str:
    """A downward API field. ``address`` is both the pod's and the host's IP."""
    metadata, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript.group(1)) or {}).get(subscript.group(2), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.partition(".")[2]) or {}
        return "\n".join(f"{key}={json.dumps(value)}" for key, value in sorted(entries.items()))
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec["nodeName"],
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": address,
        "status.hostIPs": address,
        "status.podIP": address,
        "status.podIPs": address,
    }
    if path not in simple:
        raise ContainerConfigError(f"fieldRef {path} is not known to process nodes")
    return str(simple[path])


def environment_of(
    pod: Json, container: Json, config: ConfigObjects, address: str, path_prepend: Sequence[str] = ()
) -> dict[str, str]:
    """All variables of one container. Raises ContainerConfigError when something named is missing."""
    values = {
        "PATH": ":".join([*path_prepend, SYSTEM_PATH]),
        "HOME": "/root",
        "HOSTNAME": hostname_of(pod),
    }
    for source in container.get("envFrom") or ():
        for kind in KINDS:
            reference = source.get(f"{kind}Ref")
            if reference:
                keys = config.keys(kind, reference["name"], optional=reference.get("optional", False))
                prefix = source.get("prefix", "")
                values |= {prefix + key: value.decode() for key, value in (keys or {}).items()}
    for entry in container.get("env") or ():
        value = _value(pod, entry, config, address, values)
        if value is not None:
            values[entry["name"]] = value
    return values


def _value(pod: Json, entry: Json, config: ConfigObjects, address: str, before: Mapping[str, str]) -> str | None:
    origin = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value", ""), before)
    if "fieldRef" in origin:
        return field_value(pod, origin["fieldRef"]["fieldPath"], address)
    for kind in KINDS:
        reference = origin.get(f"{kind}KeyRef")
        if reference:
            optional = reference.get("optional", False)
            keys = config.keys(kind, reference["name"], optional=optional)
            if keys is not None and reference["key"] in keys:
                return keys[reference["key"]].decode()
            if optional:
                return None
            raise ContainerConfigError(
                f"couldn't find key {reference['key']} in {kind} {pod['metadata']['namespace']}/{reference['name']}"
            )
    raise ContainerConfigError(f"variable {entry['name']}: {next(iter(origin))} is not known to process nodes")


def hostname_of(pod: Json) -> str:
    """The node's name on the host network, else the pod's own."""
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        return str(spec["nodeName"])
    return str(spec.get("hostname") or pod["metadata"]["name"])[:63]
