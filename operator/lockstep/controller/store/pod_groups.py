"""PodGroups at the API server: which versions it serves, and making and ending those of gangs."""

import logging
from collections.abc import Sequence

from lockstep.api.base import nesting
from lockstep.api.base.changes import changed
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.discovery import Discovery
from lockstep.controller.kube.errors import ApiError
from lockstep.controller.runtime.resources import Resource
from lockstep.core.model.plan import DeletePodGroup, EnsurePodGroup
from lockstep.core.model.pod_group_settings import PodGroupSettings
from lockstep.core.model.snapshot import RunView

log = logging.getLogger("lockstep.pod-groups")
_PLURAL = "podgroups"


class PodGroupApi(Discovery[PodGroupSettings]):
    """Which PodGroups the API server serves: until it is known no run may be refused, or start without a group. What is
    installed later is used by launches from then on."""

    kind = "PodGroups"

    def _is_used(self, settings: PodGroupSettings) -> bool:
        return bool(settings.versions)

    async def _found(self, before: PodGroupSettings) -> PodGroupSettings:
        served = [version for version in before.versions if _PLURAL in await self._kube.served(version)]
        return changed(before, served=tuple(served))

    def _words(self, settings: PodGroupSettings) -> str:
        return f"gangs get PodGroups of {settings.api_version or 'no kind: none is served'}"


class PodGroups:
    """Makes and ends the groups that plans name."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube

    async def ensure(self, run: RunView, group: EnsurePodGroup) -> None:
        """Make the group, unless it is there. Raises any KubeError, a 409 where the name is taken."""
        resource = _resource(group.api_version)
        try:
            await self._kube.create(resource, group.body, group.namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            if await self._uid_of_own(run, resource, group) is None:
                words = f"a PodGroup {group.name} that is not of this run is in the way; delete or rename it"
                raise ApiError(409, error.reason, words) from error

    async def delete(self, run: RunView, gone: DeletePodGroup) -> None:
        """Delete the group if there is one of this run. What the API server refuses is left to the garbage collector,
        which ends it with the run. Raises a KubeError that is worth another try."""
        resource = _resource(gone.api_version)
        try:
            uid = await self._uid_of_own(run, resource, gone)
            if uid is not None:
                await self._kube.delete(resource, gone.name, gone.namespace, uid=uid)
        except ApiError as error:
            if not error.is_verdict:
                raise
            log.warning("PodGroup %s/%s is left until its run is deleted: %s", gone.namespace, gone.name, error)

    async def _uid_of_own(self, run: RunView, resource: Resource, group: EnsurePodGroup | DeletePodGroup) -> str | None:
        try:
            found = nesting.loads(await self._kube.get(resource, group.name, group.namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        owners: Sequence[dict[str, str]] = found["metadata"].get("ownerReferences", [])
        return str(found["metadata"]["uid"]) if any(owner["uid"] == run.uid for owner in owners) else None


def _resource(api_version: str) -> Resource:
    group, _, version = api_version.partition("/")
    return Resource(group, version, _PLURAL)
