"""Every name other programs may see: group, labels, annotations, ports, paths, environment."""

GROUP = "lockstep.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
RUNS = "trainingruns"
QUEUES = "trainingqueues"
RUN_SETS = "trainingrunsets"
RUN_KIND = "TrainingRun"
QUEUE_KIND = "TrainingQueue"
RUN_SET_KIND = "TrainingRunSet"

# Labels on gang pods. Everything that changes from attempt to attempt is absent on purpose.
LABEL_RUN = f"{GROUP}/run"
LABEL_RUN_UID = f"{GROUP}/run-uid"
LABEL_SLOT = f"{GROUP}/slot"
LABEL_INCARNATION = f"{GROUP}/incarnation"
LABEL_WORKER_SOURCE = f"{GROUP}/worker-source"
LABEL_ALLOW_PRIVILEGED = f"{GROUP}/allow-privileged"
LABEL_POD_SECURITY = "pod-security.kubernetes.io/enforce"
# On the runs of a TrainingRunSet, for people to select by; what belongs to a set is told by its owner and name.
LABEL_SET = f"{GROUP}/set"
LABEL_INDEX = f"{GROUP}/index"
# On archive jobs and their pods: the run's UID. No gang label, as their pods are no part of a gang.
LABEL_ARCHIVE_OF = f"{GROUP}/archive-of"
# On pods that only hold a place for a gang that waits for nodes: the run's UID. No gang label, as they are none of it.
LABEL_PLACEHOLDER_OF = f"{GROUP}/placeholder-of"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "lockstep"

# Annotations on a TrainingRun. One-shot requests take any new token and are acknowledged in status.requests.
ANNOTATION_USER = f"{GROUP}/user"  # who submitted it, as they say; counts for fair share alone
# What the run goes on from that was deleted for it: JSON, as in status.previous.
ANNOTATION_PREVIOUS = f"{GROUP}/previous"
ANNOTATION_PAUSED = f"{GROUP}/paused"
# On the runs of a TrainingRunSet: "index=3 count=100 min=0 max=99", for the environment of the training container.
ANNOTATION_ARRAY = f"{GROUP}/array"
# There as well, of a batch array: "job=12 step=2", its number and the step of its indices.
ANNOTATION_ARRAY_JOB = f"{GROUP}/array-job"
# On a run that a batch job submitted from inside: UID of that job's run, and the request.
ANNOTATION_SUBMITTED_BY = f"{GROUP}/submitted-by"
# "true" on a run that had no nodes yet: it is told when it would start, never starts, and is deleted after a while.
ANNOTATION_TEST_ONLY = f"{GROUP}/test-only"
ANNOTATION_RESTART_REQUEST = f"{GROUP}/restart-request"
ANNOTATION_REQUEUE_REQUEST = f"{GROUP}/requeue-request"
ANNOTATION_CHECKPOINT_REQUEST = f"{GROUP}/checkpoint-request"
ANNOTATION_DEBUG_RELEASE = f"{GROUP}/debug-release"
# On a Node: why its gangs are to leave it, after a save.
ANNOTATION_DRAIN = f"{GROUP}/drain"
# On a Node: ranks that failed first there, why it is suspect, and since when that is forgiven.
ANNOTATION_FIRST_FAILURES = f"{GROUP}/first-failures"
ANNOTATION_SUSPECT = f"{GROUP}/suspect"
ANNOTATION_FAILURES_CLEARED = f"{GROUP}/failures-cleared"
# On gang pods: what the spec left open, so that a lost status can be rebuilt from them.
ANNOTATION_RESOLVED = f"{GROUP}/resolved"
# On what asks an autoscaler for nodes: which of the run's requests it is.
ANNOTATION_SCALE_UP = f"{GROUP}/scale-up"
# On gang pods without a worker alone: the attempt that they were made for.
ANNOTATION_ATTEMPT = f"{GROUP}/attempt"
# On the Secret with the worker API's certificates: another CA is wanted.
ANNOTATION_ROTATE_CA = f"{GROUP}/rotate-ca"

FIELD_MANAGER = "lockstep"
CONTROLLER = f"{GROUP}/operator"
GANG_PRIORITY_CLASS = "lockstep-gang"
PLACEHOLDER_PRIORITY_CLASS = "lockstep-placeholder"

# Declared by every gang pod, bound by nobody: kube-scheduler refuses a second one on the node,
# which makes it the last arbiter even for runs without GPUs.
NODE_MUTEX_PORT = 17771
DEFAULT_QUEUE = "default"
MAX_RUN_NAME = 40
MAX_RUN_SET_NAME = 34  # its runs have a dash and up to five digits more
GPU_RESOURCE = "nvidia.com/gpu"

CONTAINER_NAME = "trainer"
WORKER_MOUNT = "/lockstep"
WORKER_SCRATCH = "/run/lockstep"
TOKEN_MOUNT = "/var/run/secrets/lockstep.dev"
CA_FILE = "ca.crt"  # beside the token
USAGE_CONFIG_MAP, USAGE_FILE = "lockstep-usage", "usage.json"  # who used how much; in the operator's namespace
JOB_IDS_CONFIG_MAP = "lockstep-job-ids"  # the next number of a batch job; there as well
CA_CONFIG_MAP = "lockstep-worker-ca"
TOKEN_AUDIENCE = "lockstep"
TOKEN_SECONDS = 3600
LOCAL_CHECKPOINTS_MOUNT = "/local-checkpoints"
LOCAL_VOLUME = "lockstep-local"
CODE_VOLUME = "code"  # of what --code takes along; users name theirs otherwise
SHARED_CHECKPOINTS_MOUNT = "/shared-checkpoints"

TAINT_SUSPECT = f"{GROUP}/suspect"
TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
TAINT_NOT_READY = "node.kubernetes.io/not-ready"
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
TAINT_UNREACHABLE = "node.kubernetes.io/unreachable"
LABEL_HOSTNAME = "kubernetes.io/hostname"


def pod_name(run: str, run_uid: str, slot: int, incarnation: int) -> str:
    """The one name a slot's pod can have, so that creating it twice is harmless."""
    return f"{run}-{run_uid[:5]}-{slot}-{incarnation}"


def scale_up_name(run: str, run_uid: str) -> str:
    """Of whatever asks an autoscaler for nodes for it; no gang pod is called so."""
    return f"{run}-{run_uid[:5]}-scale-up"
