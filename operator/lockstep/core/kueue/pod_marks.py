"""What the pods of a gang owe to its reservation, and what status keeps of it so that pods can be made from it."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import KueueStatus, KueueToleration
from lockstep.core.kueue.workload_request import Ask, topology_marks
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.kueue.workload import PodSetUpdate, WorkloadView
from lockstep.core.pods.pod_template import tolerations


def updates_of(workload: WorkloadView, kueue: Kueue) -> list[PodSetUpdate]:
    """What the flavors and admission checks of an admitted Workload want. Raises ValueError for an unknown flavor."""
    assert workload.admission is not None
    found = []
    for name in workload.admission.flavors:
        flavor = kueue.flavors.get(name)
        if flavor is None:
            raise ValueError(f"there is no ResourceFlavor {name}")
        found.append(flavor.update)
    return found + [check.update for check in workload.checks if check.update is not None]


def marked(kueue: KueueStatus, workload: WorkloadView, ask: Ask, update: PodSetUpdate) -> KueueStatus:
    """``kueue`` with the reservation that the gang rests on from now on, and what its pods carry for it."""
    admission = workload.admission
    assert admission is not None
    request = ask.spec["podSets"][0].get("topologyRequest", {})
    # By it Kueue knows that the pod is placed already. Without, it would count it a second time.
    placed = topology_marks(request) if admission.topology is not None else {}
    return changed(
        kueue,
        workload=workload.name,
        workload_uid=workload.uid,
        given_up="",
        cluster_queue=admission.cluster_queue,
        node_selector=dict(update.node_selector),
        tolerations=tuple(
            KueueToleration(key=each.key, operator=each.operator, value=each.value, effect=each.effect)
            for each in tolerations(update.tolerations)
        ),
        labels={**update.labels, api_names.LABEL_POD_SET: admission.pod_set},
        annotations={**update.annotations, **placed, api_names.ANNOTATION_WORKLOAD: workload.name},
    )


def held_back(pod: Mapping[str, Any]) -> str:
    """Why a pod that the API server answered with would never be scheduled, with the remedy; empty: nothing of Kueue's
    is in its way. Kueue's webhook takes a gang's pod for one of its own unless the run is its: it asks for a quota of
    the pod's own, in the LocalQueue ``default``."""
    gates = [str(gate.get("name", "")) for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]
    ours = [gate for gate in gates if gate.startswith(api_names.GATES)]
    if not ours:
        return ""
    return (
        f"Kueue's webhook holds pods of this namespace back (scheduling gate {ours[0]}): label the run with "
        f"{api_names.LABEL_QUEUE}, and name TrainingRun in Kueue's integrations.externalFrameworks, or have its "
        "managedJobsNamespaceSelector leave the namespace out"
    )
