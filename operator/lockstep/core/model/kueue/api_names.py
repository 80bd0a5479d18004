"""Every name of Kueue's API that we read or write."""

GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"
API_VERSION = f"{GROUP}/{VERSION}"

LABEL_QUEUE = f"{GROUP}/queue-name"  # on a TrainingRun: the LocalQueue that admits it
LABEL_PRIORITY_CLASS = f"{GROUP}/priority-class"  # on a TrainingRun: a WorkloadPriorityClass
LABEL_JOB_UID = f"{GROUP}/job-uid"  # on a Workload: UID of its owner
LABEL_POD_SET = f"{GROUP}/podset"  # on pods
ANNOTATION_WORKLOAD = f"{GROUP}/workload"  # on pods

REQUIRED_TOPOLOGY = f"{GROUP}/podset-required-topology"  # on pods: the pod set was placed by Kueue
PREFERRED_TOPOLOGY = f"{GROUP}/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY = f"{GROUP}/podset-unconstrained-topology"

POD_SET = "gang"
HOSTNAME_LEVEL = "kubernetes.io/hostname"

# Conditions of a Workload.
QUOTA_RESERVED, ADMITTED, EVICTED, REQUEUED = "QuotaReserved", "Admitted", "Evicted", "Requeued"
PODS_READY, FINISHED = "PodsReady", "Finished"
# Reasons of PodsReady.
WAIT_FOR_START, STARTED = "WaitForStart", "Started"
WAIT_FOR_RECOVERY, RECOVERED = "WaitForRecovery", "Recovered"
BACK_IN_THE_HEAP = ("Preempted", "NodeFailures")
"""Reasons of an eviction after which the owner itself sets Requeued to True."""
ASKED_ANEW = "AskedAnew"
"""Reason of Requeued, which Kueue leaves alone: the owner changes what the Workload asks for."""
GATES = "kueue.x-k8s.io/"
"""Begins the name of each scheduling gate of Kueue's."""
DUE_TO = "DueTo"
"""Before the cause, in reasons such as DeactivatedDueToRequeuingLimitExceeded."""
