"""What is watched of the cluster itself: pods, nodes, archive jobs, namespaces and priority classes."""

from typing import Any

from lockstep.api.base import names
from lockstep.controller.kube.client import KubeClient
from lockstep.controller.kube.informer import Informer
from lockstep.controller.runtime.clock import Clock
from lockstep.controller.runtime.resources import JOBS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES
from lockstep.controller.store.archive_jobs import parse_job
from lockstep.controller.store.store import Store
from lockstep.core.model.cluster_objects import parse_namespace, parse_node, parse_pod, parse_priority_class


def cluster_informers(kube: KubeClient, clock: Clock, store: Store) -> tuple[Informer[Any], ...]:
    """One informer for each, into its part of ``store``. Pods of gangs are apart from all others, of which only
    those that have a node matter, but for what holds places for gangs."""
    left = store.left_out
    return (
        Informer("gang-pods", kube, clock, PODS, parse_pod, store.gang_pods, labels=names.LABEL_RUN_UID, left_out=left),
        Informer(
            "other-pods",
            kube,
            clock,
            PODS,
            parse_pod,
            store.other_pods,
            labels=f"!{names.LABEL_RUN_UID},!{names.LABEL_PLACEHOLDER_OF}",
            fields="spec.nodeName!=",
            left_out=left,
        ),
        Informer(
            "placeholders",
            kube,
            clock,
            PODS,
            parse_pod,
            store.placeholder_pods,
            labels=f"!{names.LABEL_RUN_UID},{names.LABEL_PLACEHOLDER_OF}",
            left_out=left,
        ),
        Informer(
            "archive-jobs",
            kube,
            clock,
            JOBS,
            parse_job,
            store.archive_jobs.cache,
            labels=names.LABEL_ARCHIVE_OF,
            left_out=left,
        ),
        Informer("nodes", kube, clock, NODES, parse_node, store.nodes, left_out=left),
        Informer("namespaces", kube, clock, NAMESPACES, parse_namespace, store.namespaces, left_out=left),
        Informer(
            "priority-classes",
            kube,
            clock,
            PRIORITY_CLASSES,
            parse_priority_class,
            store.priority_classes,
            left_out=left,
        ),
    )
