"""Every name other programs may see: group, labels, annotations, ports, paths, environment."""

GROUP = "lockstep.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
RUNS = "trainingruns"
QUEUES = "trainingqueues"
RUN_KIND = "TrainingRun"
QUEUE_KIND = "TrainingQueue"

# Labels on gang pods. Everything that changes from attempt to attempt is absent on purpose.
LABEL_RUN = f"{GROUP}/run"
LABEL_RUN_UID = f"{GROUP}/run-uid"
LABEL_SLOT = f"{GROUP}/slot"
LABEL_INCARNATION = f"{GROUP}/incarnation"
LABEL_WORKER_SOURCE = f"{GROUP}/worker-source"
LABEL_ALLOW_PRIVILEGED = f"{GROUP}/allow-privileged"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "lockstep"

# Annotations on a TrainingRun. One-shot requests take any new token and are acknowledged in status.requests.
ANNOTATION_PAUSED = f"{GROUP}/paused"
ANNOTATION_RESTART_REQUEST = f"{GROUP}/restart-request"
ANNOTATION_REQUEUE_REQUEST = f"{GROUP}/requeue-request"
# On gang pods: what the spec left open, so that a lost status can be rebuilt from them.
ANNOTATION_RESOLVED = f"{GROUP}/resolved"

FIELD_MANAGER = "lockstep"
CONTROLLER = f"{GROUP}/operator"
GANG_PRIORITY_CLASS = "lockstep-gang"

# Declared by every gang pod, bound by nobody: kube-scheduler refuses a second one on the node,
# which makes it the last arbiter even for runs without GPUs.
NODE_MUTEX_PORT = 17771
DEFAULT_QUEUE = "default"
MAX_RUN_NAME = 40
GPU_RESOURCE = "nvidia.com/gpu"

CONTAINER_NAME = "trainer"
WORKER_MOUNT = "/lockstep"
WORKER_SCRATCH = "/run/lockstep"
TOKEN_MOUNT = "/var/run/secrets/lockstep.dev"
TOKEN_AUDIENCE = "lockstep"
TOKEN_SECONDS = 3600
LOCAL_CHECKPOINTS_MOUNT = "/local-checkpoints"
SHARED_CHECKPOINTS_MOUNT = "/shared-checkpoints"

TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
LABEL_HOSTNAME = "kubernetes.io/hostname"


def pod_name(run: str, run_uid: str, slot: int, incarnation: int) -> str:
    """The one name a slot's pod can have, so that creating it twice is harmless."""
    return f"{run}-{run_uid[:5]}-{slot}-{incarnation}"
