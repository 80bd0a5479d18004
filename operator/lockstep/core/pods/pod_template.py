"""The user's podTemplate: what it asks of nodes, and merging it by name over what Lockstep makes.

What it may not say is refused before a run is accepted (template_rules); here Lockstep's own value wins,
and what makes no sense is passed on, for the API server's dry run to name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.core.model.cluster_objects import pod_requests
from lockstep.core.model.quantities import amounts
from lockstep.core.placement.node_fit import Expression, Toleration

Object = Mapping[str, Any]

# Lists whose items are merged by a key, as the API server itself does; all others are joined.
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
}


def merged(ours: Object, theirs: Object) -> dict[str, Any]:
    """``theirs`` under ``ours``: objects and named items key by key, other lists joined, ours first."""
    result = dict(ours)
    for key, value in theirs.items():
        mine = ours.get(key)
        if mine is None:
            result[key] = value
        elif isinstance(mine, Mapping) and isinstance(value, Mapping):
            result[key] = merged(mine, value)
        elif isinstance(mine, list):
            more = value if isinstance(value, list) else [value]
            name = MERGE_KEYS.get(key)
            result[key] = _merged_items(mine, more, name) if name else [*mine, *more]
    return result


def _merged_items(ours: list[Any], theirs: list[Any], key: str) -> list[Any]:
    result = list(ours)
    place = {item[key]: index for index, item in enumerate(ours)}
    for item in theirs:
        at = place.get(item.get(key)) if isinstance(item, Mapping) else None
        if at is None:
            result.append(item)
        else:
            result[at] = merged(result[at], item)
    return result


def section(template: Object | None, *path: str) -> Object:
    """The object at ``path``; empty when it is absent or no object."""
    found: Any = template
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def items(owner: Object, key: str) -> list[Object]:
    """The objects in a list; empty when it is absent or no list."""
    value = owner.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def tolerations(raw: Iterable[Object]) -> tuple[Toleration, ...]:
    """Tolerations as core/v1 writes them."""
    return tuple(
        Toleration(
            str(item.get("key") or ""),
            str(item.get("operator") or "Equal"),
            str(item.get("value") or ""),
            str(item.get("effect") or ""),
        )
        for item in raw
    )


def node_selector(pod_spec: Object) -> tuple[tuple[str, str], ...]:
    """The labels that ``nodeSelector`` asks for."""
    return tuple((str(key), str(value)) for key, value in section(pod_spec, "nodeSelector").items())


def affinity_terms(pod_spec: Object) -> list[Object]:
    """The raw terms of the required node affinity, of which one must hold."""
    required = section(pod_spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return items(required, "nodeSelectorTerms")


def terms(pod_spec: Object) -> tuple[tuple[Expression, ...], ...]:
    """The terms of the required node affinity. An empty term matches no node, as in Kubernetes."""
    parsed = []
    for term in affinity_terms(pod_spec):
        lines = [*items(term, "matchExpressions"), *items(term, "matchFields")]
        parsed.append(tuple(_expression(line) for line in lines) or (Expression("", "Nothing"),))
    return tuple(parsed)


def _expression(line: Object) -> Expression:
    values = line.get("values")
    return Expression(
        str(line.get("key")),
        str(line.get("operator")),
        tuple(map(str, values)) if isinstance(values, list) else (),
    )


def companions_request(pod_spec: Object, trainer: str) -> dict[str, int]:
    """What the pod requests beside its ``trainer`` container: sidecars, and init containers that stay.

    Init containers that end are left out: they run before the trainer, and what they need is in ``init_request``.
    Raises ValueError on what is no quantity.
    """
    total: dict[str, int] = {}
    stay = [item for item in items(pod_spec, "initContainers") if _stays(item)]
    for container in [*items(pod_spec, "containers"), *stay]:
        if container.get("name") == trainer:
            continue
        for resource, value in _request(container).items():
            total[resource] = total.get(resource, 0) + value
    return total


def init_request(pod_spec: Object) -> dict[str, int]:
    """The most that the pod requests before its containers start: a node that has less never takes it.

    Raises ValueError on what is no quantity.
    """
    before = [(_request(item), _stays(item)) for item in items(pod_spec, "initContainers")]
    return {resource: value for resource, value in pod_requests((), before, {}, {}).items() if value > 0}


def has_quantities(pod_spec: Object) -> bool:
    """All that its containers request can be read."""
    try:
        for container in (*items(pod_spec, "containers"), *items(pod_spec, "initContainers")):
            _request(container)
    except ValueError:
        return False
    return True


def _stays(init_container: Object) -> bool:
    return init_container.get("restartPolicy") == "Always"


def _request(container: Object) -> dict[str, int]:
    # A limit without a request is a request, as in Kubernetes.
    return amounts({**section(container, "resources", "limits"), **section(container, "resources", "requests")})
