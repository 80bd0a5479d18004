"""What the spec left open: ``status.resolved`` is changed here and nowhere else."""

from lockstep.api.base.changes import changed
from lockstep.api.run_status import MAX_ENDED_POD_GROUPS, PodGroupStatus, ResolvedStatus, TrainingRunStatus


def record_resolved(
    status: TrainingRunStatus,
    resolved: ResolvedStatus,
    *,
    pod_group: PodGroupStatus | None = None,
    provisioning_request: str = "",
    provisioning_class: str = "",
) -> TrainingRunStatus:
    """A gang gets its nodes, from which all of it follows, with the PodGroup of its launch and what brought them."""
    given = changed(
        resolved,
        pod_group=pod_group,
        provisioning_request=provisioning_request,
        provisioning_class=provisioning_class,
    )
    return changed(status, resolved=given)


def restore_resolved(status: TrainingRunStatus, resolved: ResolvedStatus) -> TrainingRunStatus:
    """It was lost, or is made up for a pod that never runs."""
    return changed(status, resolved=resolved)


def record_template(status: TrainingRunStatus, template_hash: str) -> TrainingRunStatus:
    """What the gang's pods are made from."""
    return changed(status, resolved=changed(status.resolved, template_hash=template_hash))


def record_spec(status: TrainingRunStatus, spec_hash: str, queue: str) -> TrainingRunStatus:
    """Of which spec the gang is, and whose nodes it has."""
    return changed(status, resolved=changed(status.resolved, spec_hash=spec_hash, queue=queue))


def record_origin(status: TrainingRunStatus, root: str, run: str, run_uid: str) -> TrainingRunStatus:
    """Where the checkpoints are that it starts from, and whose they are."""
    resolved = changed(status.resolved, start_root=root, start_run=run, start_run_uid=run_uid)
    return changed(status, resolved=resolved)


def record_size(status: TrainingRunStatus, nodes: int) -> TrainingRunStatus:
    """The gang has so many ranks."""
    return changed(status, resolved=changed(status.resolved, nodes=nodes))


def end_pod_group(status: TrainingRunStatus) -> TrainingRunStatus:
    """The launch of its PodGroup is over."""
    resolved = status.resolved
    if resolved.pod_group is None:
        return status
    ended = (*status.ended_pod_groups, resolved.pod_group)[-MAX_ENDED_POD_GROUPS:]
    return changed(status, resolved=changed(resolved, pod_group=None), ended_pod_groups=ended)


def forget_resolved(status: TrainingRunStatus) -> TrainingRunStatus:
    """Nothing is known of it."""
    return changed(status, resolved=ResolvedStatus())


def template_part(resolved: ResolvedStatus) -> ResolvedStatus:
    """Without the template's hash, which is taken of this, and without what is only told."""
    return changed(resolved, template_hash="", unused_gpus="")
