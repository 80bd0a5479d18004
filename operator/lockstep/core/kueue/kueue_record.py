"""What status keeps of a run that Kueue admits: ``status.kueue`` is changed here and nowhere else."""

from collections.abc import Mapping

from lockstep.api.base.changes import changed
from lockstep.api.kueue_status import ChosenBy, KueueStatus, KueueToleration
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.kueue.choice import workload_name
from lockstep.core.model.kueue import api_names
from lockstep.core.model.kueue.installation import Kueue
from lockstep.core.model.kueue.workload import PodSetUpdate, WorkloadView
from lockstep.core.model.snapshot import RunView
from lockstep.core.pods.pod_template import tolerations


def record_choice(status: TrainingRunStatus, queue: str, by: ChosenBy, given_up: str = "") -> TrainingRunStatus:
    """It is admitted by this LocalQueue. ``given_up``: UID of the Workload whose reservation is no longer its own."""
    return changed(status, kueue=KueueStatus(queue=queue, chosen_by=by, given_up=given_up))


def record_reservation(
    status: TrainingRunStatus, workload: WorkloadView, placed: Mapping[str, str], update: PodSetUpdate
) -> TrainingRunStatus:
    """The reservation that its gang rests on from now on, and what its pods carry for it. ``placed``: by which Kueue
    knows that a pod is placed already."""
    kueue, admission = status.kueue, workload.admission
    assert kueue is not None
    assert admission is not None
    rests = changed(
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
    return changed(status, kueue=rests)


def workload_rested_on(run: RunView, status: TrainingRunStatus, kueue: Kueue) -> WorkloadView | None:
    """The Workload whose reservation gave the run its nodes, where it is seen."""
    found = kueue.workloads.get((run.namespace, workload_name(run)))
    return found if found is not None and status.kueue is not None and found.uid == status.kueue.workload_uid else None


def give_up_reservation(status: TrainingRunStatus) -> TrainingRunStatus:
    """It is let go of; of a run that Kueue does not admit nothing changes."""
    kueue = status.kueue
    if kueue is None:
        return status
    return record_choice(status, kueue.queue, kueue.chosen_by, kueue.workload_uid)


def forget_kueue(status: TrainingRunStatus) -> TrainingRunStatus:
    """It is not Kueue's."""
    return changed(status, kueue=None)
