"""ProvisioningRequests at the API server: whether it serves them, and making, reading and ending those of runs.

They are read when their runs are looked at, and by name: few runs ask at a time, so nobody watches them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lockstep.api.base import names, nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.discovery import Discovery
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import POD_TEMPLATES, PROVISIONING_REQUESTS, Resource
from lockstep.core.model import sanitise
from lockstep.core.model.plan import DeleteProvisioning, EnsureProvisioning
from lockstep.core.model.settings import ScaleUpSettings
from lockstep.core.model.snapshot import ProvisioningState, ProvisioningView, RunView
from lockstep.core.pods.placeholders import API_VERSION

_LASTS = 3.0
"""Seconds for which what was read counts, while its run is looked at again and again."""
_LONGEST = 256


class ProvisioningApi(Discovery[ScaleUpSettings]):
    """Whether the API server serves ProvisioningRequests: until it is known no run may ask in another way. An
    autoscaler may be installed later."""

    kind = "ProvisioningRequests"

    def _is_used(self, settings: ScaleUpSettings) -> bool:
        return settings.provisioning_requests

    async def _found(self, before: ScaleUpSettings) -> ScaleUpSettings:
        served = PROVISIONING_REQUESTS.plural in await self._kube.served(API_VERSION)
        return ScaleUpSettings(**{**dict(before), "served": served})

    def _words(self, settings: ScaleUpSettings) -> str:
        return f"gangs ask for nodes by {settings.by}"


class ScaleUps:
    """What was read of the ProvisioningRequests of runs, by their UIDs. ``run``: the one of a UID, if it is there."""

    def __init__(self, clock: Clock, run: Callable[[str], RunView | None]) -> None:
        self._clock = clock
        self._run = run
        self._seen: dict[str, tuple[ProvisioningView, float]] = {}

    def seen(self, run: RunView) -> ProvisioningView | None:
        """That of ``run``, if it asks by one and it was read."""
        asked = run.status.scale_up
        if asked is None or asked.by != "ProvisioningRequest":
            return None
        found = self._seen.get(run.uid)
        return None if found is None else found[0]

    def is_due(self, run: RunView) -> bool:
        """It is to be read before the run is looked at."""
        asked = run.status.scale_up
        if asked is None or asked.by != "ProvisioningRequest":
            return False
        found = self._seen.get(run.uid)
        return found is None or self._clock.monotonic() - found[1] >= _LASTS

    def keep(self, run_uid: str, view: ProvisioningView) -> None:
        """Take in what was read, unless the run went meanwhile: nobody would forget it."""
        if self._run(run_uid) is not None:
            self._seen[run_uid] = view, self._clock.monotonic()

    def forget(self, run_uid: str) -> None:
        """It was written, or is gone: what was read says nothing any more."""
        self._seen.pop(run_uid, None)


class ProvisioningRequests:
    """Reads, makes and ends those of runs."""

    def __init__(self, kube: KubeClient, scale_ups: ScaleUps) -> None:
        self._kube = kube
        self._scale_ups = scale_ups

    async def read(self, run: RunView) -> None:
        """Read what the run asks by. What goes wrong is part of what is known: the run goes on to be looked at."""
        self._scale_ups.keep(run.uid, await self._view(run))

    async def _view(self, run: RunView) -> ProvisioningView:
        name = names.scale_up_name(run.name, run.uid)
        try:
            found = await self._get(PROVISIONING_REQUESTS, name, run.namespace)
        except KubeError as error:
            return ProvisioningView(problem=error.words[:_LONGEST])
        return ProvisioningView() if found is None else view_of(found, run)

    async def ensure(self, run: RunView, wanted: EnsureProvisioning) -> None:
        """Make the request and before it the PodTemplate that it names. What is there of an earlier attempt is
        deleted, and the next look makes it anew. Raises any KubeError, a 409 where somebody else has the name."""
        self._scale_ups.forget(run.uid)
        for resource, body in ((POD_TEMPLATES, wanted.template), (PROVISIONING_REQUESTS, wanted.body)):
            if not await self._made(run, resource, wanted.name, body):
                return

    async def _made(self, run: RunView, resource: Resource, name: str, body: Mapping[str, Any]) -> bool:
        try:
            await self._kube.create(resource, body, run.namespace)
            return True
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            found = await self._get(resource, name, run.namespace)
            if found is None:
                return False
            if not _is_own(found, run):
                words = f"a {body['kind']} {name} that is not of this run is in the way; delete or rename it"
                raise ApiError(409, error.reason, words) from error
            if _attempt(found) == _attempt(body):
                return True
            await self._kube.delete(resource, name, run.namespace, uid=found["metadata"]["uid"])
            return False

    async def delete(self, run: RunView, gone: DeleteProvisioning) -> None:
        """Delete the PodTemplate, then the request, as far as they are of this run: once that is gone, both are. Raises
        any KubeError."""
        self._scale_ups.forget(run.uid)
        for resource in (POD_TEMPLATES, PROVISIONING_REQUESTS):
            found = await self._get(resource, gone.name, gone.namespace)
            if found is not None and _is_own(found, run):
                await self._kube.delete(resource, gone.name, gone.namespace, uid=found["metadata"]["uid"])

    async def _get(self, resource: Resource, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            return nesting.read_object(await self._kube.get(resource, name, namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise


def view_of(raw: Mapping[str, Any], run: RunView) -> ProvisioningView:
    """A ProvisioningRequest as decisions see it."""
    conditions: Sequence[Mapping[str, Any]] = (raw.get("status") or {}).get("conditions") or ()
    true = {each.get("type"): each for each in conditions if each.get("status") == "True"}
    state = next((state for state in ProvisioningState if state in true), None)
    message = sanitise.line(str(true[state].get("message") or ""))[:_LONGEST] if state is not None else ""
    return ProvisioningView(raw["metadata"]["uid"], _is_own(raw, run), _attempt(raw), state, message)


def _is_own(raw: Mapping[str, Any], run: RunView) -> bool:
    owners = raw["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == run.uid for owner in owners)


def _attempt(raw: Mapping[str, Any]) -> int:
    """Anybody may have edited it: what is no number is none of ours."""
    text = str((raw["metadata"].get("annotations") or {}).get(names.ANNOTATION_SCALE_UP, ""))
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
