"""What is too large for a run's status, in a ConfigMap that is made once, never changed, and goes with the run."""

from collections.abc import Mapping

from lockstep.api.base import names
from lockstep.core.model.plan import EnsureConfigMap


def immutable_config_map(
    namespace: str, run: str, run_uid: str, name: str, data: Mapping[str, str], *, optional: bool = False
) -> EnsureConfigMap:
    """The ConfigMap ``name`` of a run. ``optional``: nothing rests on it."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                names.LABEL_RUN: run,
                names.LABEL_RUN_UID: run_uid,
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
            },
            "ownerReferences": [{"apiVersion": names.API_VERSION, "kind": names.RUN_KIND, "name": run, "uid": run_uid}],
        },
        "immutable": True,
        "data": dict(data),
    }
    return EnsureConfigMap(namespace, name, body, optional=optional)
