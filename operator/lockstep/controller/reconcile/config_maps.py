"""ConfigMaps that gangs need: those that never change, and the one with what workers trust, which does."""

import logging
from collections.abc import Callable, Iterable

from lockstep.api.base import nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import CONFIG_MAPS
from lockstep.core.model.plan import EnsureConfigMap

_THERE_SECONDS = 10.0
"""For so long a shared one that was there is taken to be there: thousands of gangs that start would each send it, the
worker program being most of what a start sends. Pods of one that was deleted meanwhile are replaced when they are late,
and the next launch makes it again."""

log = logging.getLogger("lockstep.configmaps")


class ConfigMaps:
    """Has those that plans name there, and remembers for a moment which ones all gangs of a namespace share."""

    def __init__(self, kube: KubeClient, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._there: dict[tuple[str, str], tuple[EnsureConfigMap, float]] = {}  # and until when that is believed

    async def ensure(self, wanted: EnsureConfigMap) -> None:
        """Have it there as it is wanted. Raises KubeError."""
        place, now = (wanted.namespace, wanted.name), self._clock.monotonic()
        seen, until = self._there.get(place, (None, 0.0))
        if seen == wanted and now < until:
            return
        await ensure(self._kube, wanted)
        if wanted.shared:
            self._there = {each: found for each, found in self._there.items() if now < found[1]}
            self._there[place] = wanted, now + _THERE_SECONDS


async def ensure(kube: KubeClient, wanted: EnsureConfigMap) -> None:
    """Have it there, up to date if it is one that changes. Raises KubeError."""
    if not wanted.changes:
        await _create_unless_there(kube, wanted)
        return
    try:
        found = nesting.loads(await kube.get(CONFIG_MAPS, wanted.name, wanted.namespace))
    except ApiError as error:
        if error.status != 404:
            raise
        await _create_unless_there(kube, wanted)
        return
    if found.get("data") == wanted.body["data"]:
        return
    # With the version that was read: what somebody else wrote meanwhile is looked at again.
    body = {**wanted.body, "metadata": {**wanted.body["metadata"], **_version(found)}}
    await kube.replace(CONFIG_MAPS, wanted.name, body, wanted.namespace)


async def ensure_everywhere(
    kube: KubeClient, namespaces: Iterable[str], wanted: Callable[[str], EnsureConfigMap]
) -> bool:
    """Have one in each namespace. False: in some the API server did not get to judge it.

    Where it refuses, that is the affair of that namespace alone (an immutable one in its place, a quota): the others
    must not wait for it. It is logged, and an event says so when a gang is launched there.
    """
    everywhere = True
    for namespace in namespaces:
        try:
            await ensure(kube, wanted(namespace))
        except KubeError as error:
            log.warning("the ConfigMap that workers of %s trust is not up to date: %s", namespace, error)
            everywhere = everywhere and isinstance(error, ApiError) and error.is_verdict
        except Exception:  # whatever is in the one that is there
            log.exception("the ConfigMap that workers of %s trust is not up to date", namespace)
    return everywhere


async def _create_unless_there(kube: KubeClient, wanted: EnsureConfigMap) -> None:
    try:
        await kube.create(CONFIG_MAPS, wanted.body, wanted.namespace)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _version(found: dict[str, dict[str, str]]) -> dict[str, str]:
    return {"resourceVersion": found["metadata"]["resourceVersion"]}
