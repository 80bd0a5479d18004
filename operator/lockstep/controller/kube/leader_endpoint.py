"""Where workers find the leader: one EndpointSlice of a Service without a selector, written by whoever leads.

A Service with a selector would send every second worker to the standby. Readiness cannot tell the two apart either:
a standby that is not ready holds up a rollout and looks like a fault.
"""

import ipaddress
import logging
from typing import Any

from lockstep.api.base import names, nesting
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.election import LostLeadershipError
from lockstep.controller.kube.errors import ApiError, KubeError
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import ENDPOINT_SLICES, SERVICES

CHECK_SECONDS = 15.0
"""So long the slice may be wrong after somebody else has changed or deleted it."""
RETRY_SECONDS = 1.0
PORT_NAME = "leader"
"""Of the Service and of the slice. Slices that Kubernetes made for an older Service, which had a selector, stay when
that goes; their port has another name, so nobody is sent to them."""

log = logging.getLogger("lockstep.endpoint")


class LeaderEndpoint:
    """Has the Service ``service`` lead to ``address`` and ``port``. ``pod``: name of the pod, for people."""

    def __init__(
        self, kube: KubeClient, clock: Clock, *, namespace: str, service: str, address: str, port: int, pod: str = ""
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._service = service
        self._address = address
        self._port = port
        self._pod = pod
        self._family = f"IPv{ipaddress.ip_address(address).version}"  # cannot be changed in a slice: one for each
        self._name = f"{service}-{self._family.lower()}"
        self._trouble = ""

    async def keep(self) -> None:
        """For as long as this process leads; never returns."""
        while True:
            await self._clock.sleep(CHECK_SECONDS if await self._tell_workers() else RETRY_SECONDS)

    async def point_here(self) -> None:
        """Have the slice name this replica, unless it does. Raises KubeError, LostLeadershipError."""
        owner = nesting.loads(await self._kube.get(SERVICES, self._service, self._namespace))
        found = await self._found()
        if found is not None and found.get("addressType") != self._family:
            # Whoever made it so: this field never changes, and no worker finds anybody by it.
            metadata = found["metadata"]
            version = metadata["resourceVersion"]
            log.warning("%s leads nowhere, as it is for %s: it is replaced", self._name, found.get("addressType"))
            await self._kube.delete(
                ENDPOINT_SLICES, self._name, self._namespace, uid=metadata["uid"], resource_version=version
            )
            found = None
        if found is None:
            body = self._slice(owner, {"name": self._name, "namespace": self._namespace})
            await self._kube.create(ENDPOINT_SLICES, body, self._namespace)
        else:
            body = self._slice(owner, found["metadata"])
            if all(found.get(field) == value for field, value in body.items()):
                return
            # With the version that was read: a leader that was stopped in between changes nothing.
            await self._kube.replace(ENDPOINT_SLICES, self._name, body, self._namespace)
        log.info("workers are sent to %s port %d", self._address, self._port)

    async def _found(self) -> dict[str, Any] | None:
        try:
            return dict(nesting.loads(await self._kube.get(ENDPOINT_SLICES, self._name, self._namespace)))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def _tell_workers(self) -> bool:
        """False: to be tried again soon."""
        try:
            await self.point_here()
        except (KubeError, LostLeadershipError) as error:  # whether the lease is lost its renewal says, not this
            if str(error) != self._trouble:  # once per trouble, not once per try
                self._trouble = str(error)
                log.warning("workers cannot be told that this replica leads: %s", error)
            # Without a Service there is nothing to tell, and nothing to hurry for.
            return isinstance(error, ApiError) and error.status == 404
        self._trouble = ""
        return True

    def _slice(self, service: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        labels = {
            **(metadata.get("labels") or {}),
            "kubernetes.io/service-name": self._service,
            "endpointslice.kubernetes.io/managed-by": names.MANAGED_BY,
        }
        # It goes with the Service, and a Service of the same name that comes later gets its own.
        reference = {"apiVersion": "v1", "kind": "Service", "name": self._service, "uid": service["metadata"]["uid"]}
        endpoint: dict[str, Any] = {
            "addresses": [self._address],
            "conditions": {"ready": True, "serving": True, "terminating": False},
        }
        if self._pod:
            endpoint["targetRef"] = {"kind": "Pod", "namespace": self._namespace, "name": self._pod}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": labels, "ownerReferences": [reference]},
            "addressType": self._family,
            "endpoints": [endpoint],
            "ports": [{"name": PORT_NAME, "port": self._port, "protocol": "TCP"}],
        }
