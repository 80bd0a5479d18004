"""What administrators get wrong in a queue, and the words they get back."""

from __future__ import annotations

from typing import Any

import pytest

from localcluster.cluster import LocalCluster
from support.good_specs import refusal

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crds_installed")]

QUOTA = {"gpuType": "H100", "nominalNodes": 4}
QUEUES = "/apis/lockstep.dev/v1alpha1/trainingqueues"


@pytest.mark.parametrize(
    ("queue", "field", "remedy"),
    [
        ({"stopPolicy": "Drain"}, "spec.stopPolicy", 'supported values: "None", "Hold"'),
        ({"limits": {"maxNodesPerRun": 0}}, "spec.limits.maxNodesPerRun", "greater than or equal to 1"),
        ({"nodeSelector": {"pool": True}}, "spec.nodeSelector.pool", "must be of type string"),
        ({"limit": {}}, "spec.limit", "unknown field"),
        ({"quotas": [{"gpuType": "H100"}]}, "spec.quotas[0].nominalNodes", "Required value"),
        ({"quotas": [{"gpuType": "H100", "nominalNodes": -1}]}, "spec.quotas[0].nominalNodes", "or equal to 0"),
        ({"quotas": [QUOTA, QUOTA]}, "spec.quotas[1]", "Duplicate value"),
        ({"quotas": [QUOTA | {"borrowingLimit": 2}]}, "spec.quotas", "need a cohort; name one or leave them out"),
        ({"quotas": [QUOTA | {"lendingLimit": 2}]}, "spec.quotas", "need a cohort; name one or leave them out"),
        ({"cohort": "research"}, "spec.cohort", "a queue of a cohort needs quotas"),
        ({"fairSharing": {"weight": 0}}, "spec.fairSharing.weight", "greater than or equal to 1"),
        ({"limits": {"maxTimeLimit": "72"}}, "spec.limits.maxTimeLimit", "write a duration as 90s"),
        ({"limits": {"gpuHoursPerDay": 0}}, "spec.limits.gpuHoursPerDay", "greater than or equal to 1"),
        ({"limits": {"onGpuHours": "Stop"}}, "spec.limits.onGpuHours", 'supported values: "Warn", "Block"'),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
            "spec.namespaceSelector.matchExpressions[0].values",
            "In and NotIn need values",
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists", "values": ["a"]}]}},
            "spec.namespaceSelector.matchExpressions[0].values",
            "Exists and DoesNotExist take none",
        ),
        ({"heldRuns": ["llama"]}, "spec.heldRuns[0]", "write a run as namespace/name"),
        ({"allowedPriorityClasses": ["high", "high"]}, "spec.allowedPriorityClasses[1]", "Duplicate value"),
        ({"preemption": {"withinQueue": "Any"}}, "spec.preemption.withinQueue", 'supported values: "Never", "Lower'),
        ({"preemption": {"minRuntime": "10"}}, "spec.preemption.minRuntime", "write a duration as 90s"),
        ({"backend": "kueue"}, "spec.backend", 'supported values: "Builtin", "Kueue"'),
        ({"localQueue": "team"}, "spec.localQueue", "write backend: Kueue, or leave localQueue out"),
        ({"backend": "Kueue", "quotas": [QUOTA]}, "spec.quotas", "the ClusterQueue has the quotas; leave them out"),
        ({"backend": "Kueue", "cohort": "research"}, "spec.cohort", "the ClusterQueue has the cohort; leave it out"),
        (
            {"backend": "Kueue", "preemption": {"withinQueue": "LowerPriority"}},
            "spec.preemption",
            "the ClusterQueue says who is preempted",
        ),
        ({"backend": "Kueue", "limits": {"maxRunningRuns": 3}}, "spec.limits", "leave maxRunningRuns and maxP"),
        ({"backend": "Kueue", "scaleUp": "Enabled"}, "spec.scaleUp", "admission check of the ClusterQueue asks"),
        ({"scaleUp": "enabled"}, "spec.scaleUp", 'supported values: "Disabled", "Enabled"'),
        ({"provisioningClass": "c"}, "spec.provisioningClass", "leave provisioningClass out"),
        (
            {"scaleUp": "Disabled", "provisioningClass": "c"},
            "spec.provisioningClass",
            "is of scaleUp: Enabled; write that",
        ),
        (
            {"scaleUp": "Enabled", "provisioningClass": "Queued Provisioning"},
            "spec.provisioningClass",
            "write a name such as queued-provisioning.gke.io",
        ),
        ({"batch": {"launcher": "Slurm"}}, "spec.batch.launcher", 'supported values: "Plain", "Torchrun"'),
        ({"batch": {"checkpointClaim": ""}}, "spec.batch.checkpointClaim", "at least 1 chars long"),
        ({"batch": {"scriptCheckpointClaim": ""}}, "spec.batch.scriptCheckpointClaim", "at least 1 chars long"),
        ({"visibility": "None"}, "spec.visibility", 'supported values: "Full", "OwnNamespace"'),
    ],
)
def test_a_bad_queue_is_refused_with_field_and_remedy(
    cluster: LocalCluster, queue: dict[str, Any], field: str, remedy: str
) -> None:
    body = {
        "apiVersion": "lockstep.dev/v1alpha1",
        "kind": "TrainingQueue",
        "metadata": {"name": "q"},
        "spec": queue,
    }
    words = refusal(cluster, "POST", QUEUES, body)
    assert field in words
    assert remedy in words
