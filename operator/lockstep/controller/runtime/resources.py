"""The kinds of objects the controller reads and writes, by their place in the API's paths."""

from dataclasses import dataclass

from lockstep.api.base import names


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of a collection, an object or a subresource; an empty namespace means all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps")
SECRETS = Resource("", "v1", "secrets")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
POD_TEMPLATES = Resource("", "v1", "podtemplates")
PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
JOBS = Resource("batch", "v1", "jobs")
SERVICES = Resource("", "v1", "services")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
EVENTS = Resource("events.k8s.io", "v1", "events")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
RUNS = Resource(names.GROUP, names.VERSION, names.RUNS)
RUN_SETS = Resource(names.GROUP, names.VERSION, names.RUN_SETS)
QUEUES = Resource(names.GROUP, names.VERSION, names.QUEUES, namespaced=False)
