"""Every condition type and reason that Lockstep writes, by kind: one CamelCase word for programs, beside a message.

Status and events hold plain strings, as an operator of another version may have written them: what is read back is
``Recorded``. docs/troubleshooting.md explains each member; a test compares the two.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NewType

Recorded = NewType("Recorded", str)
"""A reason as it stands in status, of this version's enumerations or not."""


class Phase(StrEnum):
    """Where a run stands."""

    PENDING = "Pending"
    LAUNCHING = "Launching"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"


class Outcome(StrEnum):
    """How a run has ended: its state in place of the phase ``Finished``."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class ConditionType(StrEnum):
    """Types of the conditions of runs, arrays and queues."""

    # Of every run and array, in the order of a run's life; an array has no nodes, hence neither of the next two.
    ACCEPTED = "Accepted"
    ADMITTED = "Admitted"
    GANG_READY = "GangReady"
    PROGRESSING = "Progressing"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    SUCCEEDED = "Succeeded"
    # Of a run while they matter.
    STATE_REGRESSION = "StateRegression"
    CLUSTER_DISRUPTION = "ClusterDisruption"
    AT_FULL_SIZE = "AtFullSize"
    DIVERGING = "Diverging"
    STRAGGLING = "Straggling"
    KUEUE_RESERVATION = "KueueReservation"
    SCALE_UP = "ScaleUp"
    UNDECIDABLE = "Undecidable"  # of an array too
    # Of a queue.
    ACTIVE = "Active"
    VALID = "Valid"


class AnyReason(StrEnum):
    """Any of the kinds below. Equal to its word, hashes, prints and serialises as such."""


class WaitReason(AnyReason):
    """Pending reasons: why a run has no nodes, or not all of them. In ``status.queue``, and of ``Admitted=False``."""

    RESOURCES = "Resources"  # its nodes are not free, or there are none
    PLACEMENT = "Placement"  # not even on an idle cluster
    DEVICES_NOT_OFFERED = "DevicesNotOffered"  # nodes that have GPUs offer none now
    PRIORITY = "Priority"  # its nodes are free, or may become so, but somebody before it is to have them
    PREEMPTING = "Preempting"
    QUOTA = "Quota"
    QUOTA_TOO_SMALL = "QuotaTooSmall"  # not even if nobody used any of it
    RUNNING_RUNS_LIMIT = "RunningRunsLimit"
    PENDING_RUNS_LIMIT = "PendingRunsLimit"
    NODES_PER_RUN_LIMIT = "NodesPerRunLimit"
    MAX_RUNNING = "MaxRunning"
    WINDOW = "Window"  # it would overrun the beginning of a maintenance window
    BEGIN_TIME = "BeginTime"
    NODES_REFUSE_PODS = "NodesRefusePods"  # kubelet after kubelet
    DEADLINE_UNREACHABLE = "DeadlineUnreachable"
    TIME_LIMIT_TOO_LONG = "TimeLimitTooLong"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"
    SINGLETON = "Singleton"
    EARLIER_PODS = "EarlierPods"
    HELD_BY_ADMINISTRATOR = "HeldByAdministrator"
    PAUSED = "Paused"
    TEST_ONLY = "TestOnly"  # it waits for nothing
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_HELD = "QueueHeld"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    PRIORITY_CLASS_NOT_ALLOWED = "PriorityClassNotAllowed"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    GPU_HOURS_LIMIT = "GpuHoursLimit"
    GPU_HOURS_UNKNOWN = "GpuHoursUnknown"
    NOT_JUDGED = "NotJudged"  # it was edited
    ADMISSION_REFUSED = "AdmissionRefused"  # by the API server
    UNDECIDABLE = "Undecidable"  # a defect of the operator
    CLUSTER_DISRUPTION = "ClusterDisruption"  # no lost node is replaced while the breaker is open
    NO_NEW_ADMISSIONS = "NoNewAdmissions"
    REPORT_ONLY = "ReportOnly"
    WAITING_FOR_KUEUE = "WaitingForKueue"
    LOCAL_QUEUE_NOT_FOUND = "LocalQueueNotFound"
    KUEUE_NOT_INSTALLED = "KueueNotInstalled"
    KUEUE_DISABLED = "KueueDisabled"
    KUEUE_DEACTIVATED = "KueueDeactivated"
    KUEUE_ASSIGNMENT = "KueueAssignment"


class StopReason(AnyReason):
    """Why a run stops or has ended: ``status.stop``, ``Finished`` and ``Succeeded``, and the attempt it ended in."""

    SUSPENDED = "Suspended"
    CANCELLED = "Cancelled"
    # After these the run queues again.
    REQUEUED = "Requeued"
    PREEMPTED = "Preempted"
    NODES_LOST = "NodesLost"
    QUEUE_DRAINED = "QueueDrained"
    EVICTED_BY_KUEUE = "EvictedByKueue"
    RESERVATION_LOST = "ReservationLost"
    # It succeeded.
    ALL_RANKS_SUCCEEDED = "AllRanksSucceeded"
    # It failed.
    TIME_LIMIT = "TimeLimit"
    BUDGET_SPENT = "BudgetSpent"
    DEADLINE_UNREACHABLE = "DeadlineUnreachable"
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"
    PROCESS_FAILED = "ProcessFailed"
    COMMAND_NOT_FOUND = "CommandNotFound"
    COMMAND_NOT_EXECUTABLE = "CommandNotExecutable"
    PYTHON_NOT_FOUND = "PythonNotFound"
    LAUNCH_FAILED = "LaunchFailed"
    NO_PROGRESS = "NoProgress"
    DETERMINISTIC = "Deterministic"
    OUT_OF_MEMORY = "OutOfMemory"
    LIMIT_EXCEEDED = "LimitExceeded"
    DIVERGED = "Diverged"
    STOPPED_BY_PROGRAM = "StoppedByProgram"
    STOPPED_BY_RULE = "StoppedByRule"
    RULE_LIMIT = "RuleLimit"
    MAX_RESTARTS = "MaxRestarts"
    NOT_REQUEUED = "NotRequeued"
    NOTHING_TO_GO_BACK_TO = "NothingToGoBackTo"
    NO_VALID_CHECKPOINT = "NoValidCheckpoint"
    UNKNOWN_SAVES = "UnknownSaves"
    PREVIOUS_SAVES = "PreviousSaves"
    CHECKPOINT_REQUIRED = "CheckpointRequired"
    NO_START_CHECKPOINT = "NoStartCheckpoint"
    POINTER_FAILED = "PointerFailed"


class AttemptCause(AnyReason):
    """Classes of causes of an attempt's end. What is done depends on the class, and on what happened before."""

    FINISHED = "Finished"  # nothing failed; never written, see ``AttemptEnd``
    DELIBERATE = "Deliberate"
    DISRUPTION = "Disruption"
    NODE_LOST = "NodeLost"
    HARDWARE = "Hardware"
    APPLICATION = "Application"
    STORAGE = "Storage"
    OUT_OF_MEMORY = "OutOfMemory"
    LIMIT_EXCEEDED = "LimitExceeded"
    DETERMINISTIC = "Deterministic"
    HANG = "Hang"
    NAN = "NaN"
    LOSS_SPIKE = "LossSpike"
    STRAGGLER = "Straggler"
    CORRUPT_CHECKPOINT = "CorruptCheckpoint"
    UNKNOWN = "Unknown"


class AttemptEnd(AnyReason):
    """Ends of attempts in which nothing failed."""

    SUCCEEDED = "Succeeded"
    REQUESTED = "Requested"
    RESIZED = "Resized"
    DRAINED = "Drained"


class LossReason(AnyReason):
    """Evidence for which a pod or node counts as lost to the gang."""

    NODE_DELETED = "NodeDeleted"
    OUT_OF_SERVICE = "OutOfService"
    NODE_NOT_READY = "NodeNotReady"
    NODE_SILENT = "NodeSilent"
    NODE_CORDONED = "NodeCordoned"
    NODE_CHECK_FAILED = "NodeCheckFailed"
    POD_FAILED = "PodFailed"
    NODE_REFUSED = "NodeRefused"
    POD_DELETED = "PodDeleted"
    POD_VANISHED = "PodVanished"
    POD_TERMINATED = "PodTerminated"
    NOT_SCHEDULED = "NotScheduled"
    START_NOT_ACKNOWLEDGED = "StartNotAcknowledged"
    LAUNCH_DEADLINE = "LaunchDeadline"


class ConditionReason(AnyReason):
    """Reasons of a run's conditions, other than those why it waits, stops or has ended."""

    # Accepted
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    POD_REFUSED = "PodRefused"
    POD_NOT_JUDGED = "PodNotJudged"
    SPEC_CHANGED = "SpecChanged"
    POD_GROUPS_NOT_SERVED = "PodGroupsNotServed"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    CONFIG_MAP_KEY_NOT_FOUND = "ConfigMapKeyNotFound"
    SECRET_NOT_FOUND = "SecretNotFound"
    SERVICE_ACCOUNT_NOT_FOUND = "ServiceAccountNotFound"
    STORAGE_CLASS_NOT_FOUND = "StorageClassNotFound"
    QUEUE_NOT_FOUND = "QueueNotFound"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    NAME_TAKEN = "NameTaken"
    # Admitted, KueueReservation
    ADMITTED = "Admitted"
    # GangReady
    STARTED = "Started"
    GATHERING = "Gathering"
    PODS_STARTING = "PodsStarting"
    # Progressing
    STEPS_REPORTED = "StepsReported"
    NO_STEP_YET = "NoStepYet"
    STEPS_UNKNOWN = "StepsUnknown"
    # Suspended
    HELD = "Held"
    SUSPEND_REQUESTED = "SuspendRequested"
    NOT_SUSPENDED = "NotSuspended"
    # Finished, Succeeded
    NOT_FINISHED = "NotFinished"
    # Conditions that are there only while they matter.
    STATUS_BEHIND_PODS = "StatusBehindPods"
    RESIZED = "Resized"
    CANNOT_RESIZE = "CannotResize"
    BREAKER_OPEN = "BreakerOpen"
    CLUSTER_SLOW = "ClusterSlow"
    EXCLUSION_LIMIT = "ExclusionLimit"
    LOSS_SPIKE = "LossSpike"
    SLOW_RANK = "SlowRank"
    RESERVATION_LOST = "ReservationLost"
    KUEUE_NOT_INSTALLED = "KueueNotInstalled"
    KUEUE_DISABLED = "KueueDisabled"
    DECISION_FAILS = "DecisionFails"
    NODES_UNKNOWN = "NodesUnknown"  # the API server does not give the ConfigMap that has them
    # ScaleUp
    PLACEHOLDERS_WAIT = "PlaceholdersWait"
    PROVISIONING_REQUESTED = "ProvisioningRequested"
    PROVISIONING_ACCEPTED = "ProvisioningAccepted"
    NODES_PROVISIONED = "NodesProvisioned"
    PROVISIONING_FAILED = "ProvisioningFailed"
    SCALE_UP_REFUSED = "ScaleUpRefused"  # by the API server
    CANNOT_ASK_FOR_NODES = "CannotAskForNodes"
    # The phase of the run, where that is why.
    PENDING = "Pending"
    LAUNCHING = "Launching"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"


NAMED_IN_VAIN: Mapping[str, ConditionReason] = {
    WaitReason.QUEUE_NOT_FOUND: ConditionReason.QUEUE_NOT_FOUND,
    WaitReason.PRIORITY_CLASS_NOT_FOUND: ConditionReason.PRIORITY_CLASS_NOT_FOUND,
}
"""Verdicts of the admission cycle by which a run is not accepted. The cycle goes on looking at it, as it alone sees
when what is named is there."""


class ShownReason(AnyReason):
    """Only in ``status.reason``, a metric's label or the CLI, where nothing else says more."""

    NOT_ACCEPTED = "NotAccepted"
    SAVING_BEFORE_SUSPEND = "SavingBeforeSuspend"
    SAVING_BEFORE_CANCEL = "SavingBeforeCancel"
    SAVING_BEFORE_REQUEUE = "SavingBeforeRequeue"
    SAVING_BEFORE_END = "SavingBeforeEnd"
    NOT_SEEN_YET = "NotSeenYet"  # the CLI: the operator has written no status
    NEW = "New"  # a label: no reason was worked out yet


class QueueReason(AnyReason):
    """Reasons of the conditions Active and Valid of a TrainingQueue."""

    ADMITTING = "Admitting"
    HOLD = "Hold"
    DRAINING = "Draining"
    DRAINED = "Drained"
    NO_NEW_ADMISSIONS = "NoNewAdmissions"
    REPORT_ONLY = "ReportOnly"
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_GPU_TYPE = "UnknownGpuType"
    DEFAULT_TIME_LIMIT_TOO_LONG = "DefaultTimeLimitTooLong"
    LENDING_LIMIT_TOO_HIGH = "LendingLimitTooHigh"
    COHORT_OF_ONE = "CohortOfOne"
    QUOTAS_APART = "QuotasApart"
    NOTHING_TO_BORROW = "NothingToBorrow"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"


class SetReason(AnyReason):
    """Reasons of a TrainingRunSet's conditions and events, beside those it shares with a run."""

    INVALID_SPEC = "InvalidSpec"
    STATE_REGRESSION = "StateRegression"
    RUNS_ACTIVE = "RunsActive"
    SUSPENDED = "Suspended"
    MAX_RUNNING = "MaxRunning"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER_SATISFIED = "DependencyNeverSatisfied"
    NAME_TAKEN = "NameTaken"
    RUN_REFUSED = "RunRefused"
    RUN_DELETED = "RunDeleted"
    ALL_SUCCEEDED = "AllSucceeded"
    SOME_FAILED = "SomeFailed"
    SOME_CANCELLED = "SomeCancelled"
    CANCELLED = "Cancelled"
    STOPPED_ON_FAILURE = "StoppedOnFailure"


class EventReason(AnyReason):
    """Reasons of a run's events. The event of an end without success has a ``StopReason``."""

    ADMITTED = "Admitted"
    GPUS_UNUSED = "GpusUnused"
    WITHOUT_POD_GROUP = "WithoutPodGroup"
    GPU_HOURS_LIMIT = "GpuHoursLimit"
    UNDECIDABLE = "Undecidable"
    PACED = "Paced"
    TIME_LIMIT_EXTENDED = "TimeLimitExtended"
    NODES_REPLACED = "NodesReplaced"
    NODES_TO_GROW = "NodesToGrow"
    NODES_RESERVED = "NodesReserved"
    RESERVATION_LAPSED = "ReservationLapsed"
    PREEMPTION_NOTICE = "PreemptionNotice"
    PREEMPTION_WITHDRAWN = "PreemptionWithdrawn"
    SPARES_FOUND = "SparesFound"
    SPARE_USED = "SpareUsed"
    SHRUNK = "Shrunk"
    GROWN = "Grown"
    STARTED = "Started"
    JOINED = "Joined"
    NO_STEP_REPORTED = "NoStepReported"
    ATTEMPT_SKIPPED = "AttemptSkipped"
    CHECKPOINT_REJECTED = "CheckpointRejected"
    NO_CHECKPOINT = "NoCheckpoint"
    UNKNOWN_SAVES = "UnknownSaves"
    POINTER_FAILED = "PointerFailed"
    WARM_UP_FAILED = "WarmUpFailed"
    RESTARTING_IN_PLACE = "RestartingInPlace"
    REPLACING_GANG = "ReplacingGang"
    ROLLING_BACK = "RollingBack"
    ROLL_BACK_OVER = "RollBackOver"
    CAUSE_CORRECTED = "CauseCorrected"
    NODE_LOST = "NodeLost"
    POD_LOST = "PodLost"
    NODE_LEFT = "NodeLeft"
    DRAINED = "Drained"
    CLUSTER_DISRUPTION = "ClusterDisruption"
    CLUSTER_SLOW = "ClusterSlow"
    LOSS_SPIKE = "LossSpike"
    STRAGGLING = "Straggling"
    RESTART_REQUESTED = "RestartRequested"
    SAVE_REQUESTED = "SaveRequested"
    SAVE_COMPLETED = "SaveCompleted"
    SAVE_EXPIRED = "SaveExpired"
    SAVE_FAILED = "SaveFailed"
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    DEBUG_HOLD = "DebugHold"
    STATE_REGRESSION = "StateRegression"
    STATUS_REBUILT = "StatusRebuilt"
    GPU_HOURS_USED = "GpuHoursUsed"
    ARCHIVED = "Archived"
    RESTORED = "Restored"
    ARCHIVE_LISTED = "ArchiveListed"
    ARCHIVE_JOB_FAILED = "ArchiveJobFailed"
    ARCHIVE_JOB_IDLE = "ArchiveJobIdle"
    ARCHIVE_JOB_UNREAD = "ArchiveJobUnread"
    # The API server would not take it.
    ARCHIVE_JOB_REFUSED = "ArchiveJobRefused"
    STATUS_REFUSED = "StatusRefused"
    CONFIG_MAP_REFUSED = "ConfigMapRefused"
    POD_GROUP_REFUSED = "PodGroupRefused"
    POD_REFUSED = "PodRefused"
    POD_NAME_CONFLICT = "PodNameConflict"
    POD_OWNER_LOST = "PodOwnerLost"


class ActionWord(StrEnum):
    """What was done: ``action`` of events and of attempts."""

    ADMIT = "Admit"
    PLACE = "Place"
    PREEMPT = "Preempt"
    CREATE_POD = "CreatePod"
    CREATE_POD_GROUP = "CreatePodGroup"
    CREATE_CONFIG_MAP = "CreateConfigMap"
    CREATE_RUN = "CreateRun"
    WRITE_STATUS = "WriteStatus"
    REBUILD_STATUS = "RebuildStatus"
    RECORD = "Record"
    CHOOSE_RESUME = "ChooseResume"
    POINT = "Point"
    WARM_UP = "WarmUp"
    START = "Start"
    RESTART = "Restart"
    RESTART_IN_PLACE = "RestartInPlace"
    REPLACE = "Replace"
    REPLACE_POD = "ReplacePod"
    REPLACE_NODE = "ReplaceNode"
    REPLACE_GANG = "ReplaceGang"
    ROLL_BACK = "RollBack"
    REPORT = "Report"
    WAIT = "Wait"
    SAVE = "Save"
    ARCHIVE = "Archive"
    ACCOUNT = "Account"
    HOLD = "Hold"
    STOP = "Stop"
    FINISH = "Finish"
    COMPLETE = "Complete"


class RequestResult(AnyReason):
    """What became of a request by annotation, and of the save it asked for: ``status.requests``."""

    TAKEN_UP = "TakenUp"
    NOT_RUNNING = "NotRunning"
    NOBODY_LISTENS = "NobodyListens"
    SAVED = "Saved"
    EXPIRED = "Expired"
    FAILED = "Failed"


class PreemptionReason(AnyReason):
    """By whom a run is preempted: ``status.preemption``."""

    WITHIN_QUEUE = "WithinQueue"
    RECLAIM = "Reclaim"


class ResumeReason(AnyReason):
    """Of a resume decision that starts the gang or waits; those that stop it are a ``StopReason``. Never written."""

    START_MODE_FRESH = "StartModeFresh"
    NO_CHECKPOINT = "NoCheckpoint"
    NOTHING_SAVED = "NothingSaved"
    CHECKPOINT_VALID = "CheckpointValid"
    CHECKPOINT_UNKNOWN = "CheckpointUnknown"
    CHECKPOINT_BEING_READ = "CheckpointBeingRead"
    CHECKPOINT_IN_ARCHIVE = "CheckpointInArchive"
    ARCHIVE_ASKED = "ArchiveAsked"


class ExitReason(AnyReason):
    """How a rank's process ended, in its worker's words (docs/worker.md)."""

    COMPLETED = "Completed"
    ERROR = "Error"
    SIGNAL = "Signal"
    COMMAND_NOT_FOUND = "CommandNotFound"
    COMMAND_NOT_EXECUTABLE = "CommandNotExecutable"
    PROCESS_NOT_STARTED = "ProcessNotStarted"
    DIRECTORY_NOT_CREATED = "DirectoryNotCreated"
    FENCED = "Fenced"
    STOPPED_FOR_RESTART = "StoppedForRestart"
    STOPPED_ON_REQUEST = "StoppedOnRequest"
    WORKER_TERMINATED = "WorkerTerminated"


class ArchiveFailure(AnyReason):
    """How an archive job ended without success, in its own words (docs/checkpoints.md)."""

    COMMAND_REFUSED = "CommandRefused"
    SOURCE_INVALID = "SourceInvalid"
    SOURCE_VANISHED = "SourceVanished"
    ARCHIVE_CORRUPT = "ArchiveCorrupt"
    NOT_PUBLISHED = "NotPublished"
    STORE_UNAVAILABLE = "StoreUnavailable"
    INTERNAL = "Internal"
    DESTINATION_REFUSED = "DestinationRefused"
    DESTINATION_TAKEN = "DestinationTaken"
    DESTINATION_FULL = "DestinationFull"
    CONFLICT = "Conflict"
    STORAGE_UNREADABLE = "StorageUnreadable"
    INTERRUPTED = "Interrupted"
    STORE_REFUSED = "StoreRefused"
    CREDENTIALS_REFUSED = "CredentialsRefused"
    BUCKET_MISSING = "BucketMissing"


EndReason = AttemptCause | AttemptEnd | StopReason | LossReason
"""``cause`` of an attempt."""
SaveReason = AttemptEnd | StopReason | LossReason
"""What a save is asked for."""
