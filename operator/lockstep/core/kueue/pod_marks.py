"""What the pods of a gang owe to its reservation, and what status keeps of it so that pods can be made from it."""

from collections.abc import Mapping
from typing import Any

from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.kueue.kueue_record import record_reservation
from lockstep.core.kueue.workload_request import Ask, topology_marks
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.kueue.workload import PodSetUpdate, WorkloadView


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


def marked(status: TrainingRunStatus, workload: WorkloadView, ask: Ask, update: PodSetUpdate) -> TrainingRunStatus:
    """``status`` with the reservation that the gang rests on from now on, and what its pods carry for it."""
    assert workload.admission is not None
    request = ask.spec["podSets"][0].get("topologyRequest", {})
    # By it Kueue knows that the pod is placed already. Without, it would count it a second time.
    placed = topology_marks(request) if workload.admission.topology is not None else {}
    return record_reservation(status, workload, placed, update)


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
