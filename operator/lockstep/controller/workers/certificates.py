"""The worker API's certificates while the operator runs: renewed in time, and the CA succeeded, without a restart."""

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from lockstep.api.base import names, nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import SECRETS
from lockstep.controller.workers.succession import next_step
from lockstep.controller.workers.tls import (
    SECRET_NAME,
    Material,
    SecretStore,
    ensure_material,
    load_serving,
    secret_of,
    stored,
)

log = logging.getLogger("lockstep.certificates")

CHECK_SECONDS = 300.0
FIRST_RETRY_SECONDS = 2.0
_NEVER = timedelta(seconds=-1)


def secret_in_cluster(kube: KubeClient, namespace: str) -> SecretStore:
    """The Secret in ``namespace``. Replicas write it at the same time, so no lease guards it: the first one wins."""

    async def read() -> Mapping[str, Any] | None:
        try:
            return dict(nesting.loads(await kube.get(SECRETS, SECRET_NAME, namespace)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create(body: Mapping[str, Any]) -> bool:
        return await _unless_conflict(kube.create(SECRETS, body, namespace, guarded=False))

    async def replace(body: Mapping[str, Any]) -> bool:
        return await _unless_conflict(kube.replace(SECRETS, SECRET_NAME, body, namespace, guarded=False))

    return SecretStore(read, create, replace)


async def first_material(secrets: SecretStore, namespace: str, hosts: Sequence[str], clock: Clock) -> Material:
    """The material as soon as the API server can be asked. Raises what it refuses, and what `ensure_material` does.

    A process that ends whenever the API server is away is started again ever more seldom, and late when that is back.
    """
    trouble = ""
    while True:
        try:
            return await ensure_material(secrets, namespace, hosts, clock.now())
        except KubeError as error:
            if isinstance(error, ApiError) and error.is_verdict:
                raise
            if str(error) != trouble:  # once per trouble, not once per try
                trouble = str(error)
                log.warning("the worker API's certificates cannot be read yet: %s", error)
        await clock.sleep(FIRST_RETRY_SECONDS)


class Certificates:
    """Keeps ``context`` and the workers' trust up to date with the Secret.

    ``overlap``: seconds between two steps of a change of CA; ``every``: between two looks. ``leads``: whether this
    replica may take a step. ``trust`` gets what workers are to trust from now on, ``steps`` what the certificates of
    steps are derived from. ``publish`` brings what is trusted to every namespace with runs; False: not to all of them
    yet.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        secrets: SecretStore,
        namespace: str,
        hosts: Sequence[str],
        clock: Clock,
        *,
        overlap: float,
        leads: Callable[[], bool],
        trust: Callable[[str], None],
        steps: Callable[[bytes], None],
        publish: Callable[[], Awaitable[bool]],
        every: float = CHECK_SECONDS,
    ) -> None:
        self._context = context
        self._secrets = secrets
        self._namespace = namespace
        self._hosts = hosts
        self._clock = clock
        self._overlap = timedelta(seconds=overlap)
        self._every = min(every, overlap / 4)
        self._leads = leads
        self._trust = trust
        self._steps = steps
        self._publish = publish
        self._taken: Material | None = None
        self._published: tuple[str, float] | None = None  # a bundle, and since when it is everywhere (monotonic)

    async def keep(self) -> None:
        """Look now and then; never returns."""
        while True:
            try:
                await self.renew()
            except Exception:
                # A month is left when renewal is first due, a year for a CA: there will be many more tries.
                log.warning("the worker API's certificates could not be checked", exc_info=True)
            await self._clock.sleep(self._every)

    async def renew(self) -> None:
        """Take up what the Secret has, and as the leader take the step that is due. Raises what prevents it."""
        known = self._taken.steps_key if self._taken is not None else b""
        material = await ensure_material(self._secrets, self._namespace, self._hosts, self._clock.now(), known)
        self._take_up(material)
        if not self._leads():
            self._published = None
            return
        await self._publish_now(material.ca_bundle)
        secret = await self._secrets.read()
        if secret is not None and stored(secret) == material:
            await self._take_step(material, secret)

    async def _publish_now(self, bundle: str) -> None:
        """Each time anew: namespaces come, and users may change what is in them."""
        everywhere = await self._publish()
        if not everywhere:
            self._published = None
        elif self._published is None or self._published[0] != bundle:
            self._published = bundle, self._clock.monotonic()

    async def _take_step(self, material: Material, secret: Mapping[str, Any]) -> None:
        annotations = dict(secret["metadata"].get("annotations") or {})
        step = next_step(
            material,
            self._hosts,
            self._clock.now(),
            overlap=self._overlap,
            published_for=self._published_for(),
            asked=names.ANNOTATION_ROTATE_CA in annotations,
        )
        if step == material:
            return
        if step.next_ca_cert:  # what was asked for is begun, and need not be asked for again
            annotations.pop(names.ANNOTATION_ROTATE_CA, None)
        before = {**secret, "metadata": {**secret["metadata"], "annotations": annotations}}
        if await self._secrets.replace(secret_of(self._namespace, step, before)):
            log.warning("the CA of the worker API changes: %s", _words(step))
            self._take_up(step)
            await self._publish_now(step.ca_bundle)

    def _take_up(self, material: Material) -> None:
        if material == self._taken:
            return
        self._taken = material
        load_serving(self._context, material)
        self._trust(material.ca_bundle)
        self._steps(material.steps_key)

    def _published_for(self) -> timedelta:
        if self._published is None:
            return _NEVER
        return timedelta(seconds=self._clock.monotonic() - self._published[1])


def _words(material: Material) -> str:
    if material.next_ca_cert:
        return "workers are told of the next one"
    if material.old_ca_cert:
        return "the next one has signed the certificate that is served now"
    return "the old one is trusted no more"


async def _unless_conflict(write: Awaitable[Any]) -> bool:
    try:
        await write
    except ApiError as error:
        if error.status == 409:
            return False
        raise
    return True
