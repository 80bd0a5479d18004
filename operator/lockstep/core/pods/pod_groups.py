"""PodGroups: a gang as other schedulers know one.

Lockstep has chosen the nodes and pins each pod to its own. What a group adds is that the scheduler binds the pods of a
launch as a whole or not at all, that Volcano counts them in its queue, and that other tools see what belongs together.

A group is of one launch, from admission until the nodes are given back, and is named in ``status.resolved`` together
with the nodes: no edit of the configuration and no change of what is served splits a gang. Pods that join a gang which
has started once (replacements, growth) are bound each by itself: their nodes are held, and a quorum of pods that live
in another group, or are gone for good, would never be met.
"""

from collections.abc import Mapping
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.run_spec import TrainingRunSpec
from lockstep.api.run_status import PodGroupStatus, TrainingRunStatus
from lockstep.core.model.plan import DeletePodGroup, EnsurePodGroup
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.pod_group_settings import VOLCANO, PodGroupSettings
from lockstep.core.model.quantities import amounts, quantity
from lockstep.core.model.resolved_record import end_pod_group
from lockstep.core.model.snapshot import PodView, RunView
from lockstep.core.pods import pod_template

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
PREEMPTABLE = "volcano.sh/preemptable"
"""Annotations by which Volcano reads a pod's group, its queue, and whether it may be evicted for others."""
_NATIVE_HELD = "pod group is unschedulable"
_VOLCANO_HELD = frozenset({"Schedulable", "Undetermined"})
_LATER = "-later"


def planned(run: RunView, settings: PodGroupSettings, attempt: int) -> PodGroupStatus | None:
    """The group of a launch that begins with ``attempt``; None: it gets none.

    A run whose podTemplate names another scheduler than Volcano keeps it, and is no business of Volcano's.
    """
    assert run.spec is not None
    version = settings.api_version
    if not version:
        return None
    group = PodGroupStatus(
        api_version=version,
        name=f"{run.name}-{run.uid[:5]}-a{attempt}",
        min_count=_least_nodes(run.spec),
    )
    if version != VOLCANO:
        return group
    template = run.spec.pod_template
    if pod_template.section(template, "spec").get("schedulerName", settings.scheduler_name) != settings.scheduler_name:
        return None
    queue = pod_template.section(template, "metadata", "annotations").get(QUEUE_NAME) or settings.queue
    return changed(group, queue=str(queue), scheduler_name=settings.scheduler_name)


def joined(body: dict[str, Any], run: RunView, status: TrainingRunStatus) -> dict[str, Any]:
    """The body of a pod that is made now, as a member of its group."""
    group, late = status.resolved.pod_group, _is_late(run, status)
    if group is None:
        return body
    metadata, spec = body["metadata"], body["spec"]
    if group.api_version != VOLCANO:
        return body if late else {**body, "spec": {**spec, "schedulingGroup": {"podGroupName": group.name}}}
    annotations = {PREEMPTABLE: "false", **metadata["annotations"], GROUP_NAME: _name(group, late)}
    return {
        **body,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "schedulerName": group.scheduler_name},
    }


def group_for(run: RunView, status: TrainingRunStatus, body: Mapping[str, Any]) -> EnsurePodGroup | None:
    """The group that has to be there before a pod like ``body`` is made; None: it needs none."""
    group, late = status.resolved.pod_group, _is_late(run, status)
    if group is None or (late and group.api_version != VOLCANO):
        return None
    name, quorum = _name(group, late), 1 if late else group.min_count
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": quorum}}}
    if group.api_version == VOLCANO:
        spec = {
            "minMember": quorum,
            "minResources": _requests(body["spec"], quorum),
            "priorityClassName": body["spec"]["priorityClassName"],
        } | ({"queue": group.queue} if group.queue else {})
    own = body["metadata"]
    metadata = {
        "name": name,
        "namespace": run.namespace,
        "labels": {key: own["labels"][key] for key in (names.MANAGED_BY_LABEL, names.LABEL_RUN, names.LABEL_RUN_UID)},
        "ownerReferences": own["ownerReferences"],
    }
    content = {"apiVersion": group.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    return EnsurePodGroup(run.namespace, name, group.api_version, content)


def let_go_of_group(plan: PlanBuilder) -> None:
    """The gang gives its nodes back; ``delete_ended_groups`` then ends its groups."""
    plan.status = end_pod_group(plan.status)


def delete_ended_groups(plan: PlanBuilder) -> None:
    """End the groups of gangs that gave their nodes back: in Volcano's queue they would go on to be counted.

    They are gone before status forgets them; deleting twice is harmless. Only when there is nothing else to write: an
    API server that does not delete them, as behind a webhook that fails, holds up neither a stop nor the next launch.
    """
    ended = plan.status.ended_pod_groups
    if not ended or plan.run.deleting or plan.status.dump() != plan.run.status.dump():
        return
    plan.pod_group_deletes += [
        DeletePodGroup(plan.run.namespace, _name(group, late), group.api_version)
        for group in ended
        for late in ((False, True) if group.api_version == VOLCANO else (False,))
    ]
    plan.status = changed(plan.status, ended_pod_groups=())


def is_held_by_group(pod: PodView) -> bool:
    """It would fit, and waits for others of its group that do not: nothing is wrong with its node.

    In the words of kube-scheduler 1.36 and Volcano 1.15. Where they change, it reads as not scheduled.
    """
    return not pod.bound and (pod.message.startswith(_NATIVE_HELD) or pod.reason in _VOLCANO_HELD)


def _is_late(run: RunView, status: TrainingRunStatus) -> bool:
    """It joins a gang that has started. Without workers every attempt is a launch: all of its pods are new."""
    return status.start is not None and (run.spec is None or run.spec.worker == "Enabled")


def _name(group: PodGroupStatus, late: bool) -> str:
    return group.name + (_LATER if late else "")


def _least_nodes(spec: TrainingRunSpec) -> int:
    """With so many of its pods the gang can train: an elastic one starts with what it gets, spares may come later."""
    return spec.elastic.min if spec.elastic is not None else spec.nodes


def _requests(pod: Mapping[str, Any], count: int) -> dict[str, str]:
    """What ``count`` such pods request together."""
    total = amounts(pod_template.section(pod["containers"][0], "resources", "requests"))
    for resource, value in pod_template.companions_request(pod, names.CONTAINER_NAME).items():
        total[resource] = total.get(resource, 0) + value
    for resource, value in pod_template.init_request(pod).items():
        total[resource] = max(total.get(resource, 0), value)
    return {resource: quantity(resource, count * value) for resource, value in sorted(total.items())}
