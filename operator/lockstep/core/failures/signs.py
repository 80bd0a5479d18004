"""What exit codes, signals, log lines, pod reasons and node conditions mean: tables, and how to read them.

The classes are those of docs/recovery.md. Exit codes are what launchers agree on (DLRover, NVRx, Megatron),
XIDs are those of NVIDIA's catalogue of October 2025, node conditions those of the node problem detector.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.core.model.reasons import AttemptCause, ExitReason
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.worker_report import ExitReport, Sign


@dataclass(frozen=True, slots=True)
class Reading:
    """What one end of a process or pod means.

    ``root`` is what failures that look alike share. ``symptom``: it tells of a peer's end rather than of its
    own. ``bare``: nothing but a number is known, which failures of all sorts have in common. ``by_nature``: it
    would be the same on any node. ``weak``: hardware by the program's word alone, or a checkpoint that no word
    names. ``waits``: starting again at once would only repeat it. ``on_node``: whatever it is, it belongs to the
    node. ``passing``: bad luck that nobody is to blame for, as long as it does not go on. ``link``: it tells of the
    way between two nodes, so that either of them may be the bad one, or neither.
    """

    kind: AttemptCause
    root: str
    words: str = ""
    symptom: bool = False
    bare: bool = False
    by_nature: bool = False
    weak: bool = False
    waits: bool = False
    on_node: bool = False
    passing: bool = False
    link: bool = False


def _numbers(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


XID_RESET_GPU = _numbers("46,62,64,95,109,110,119,120,136,140,143,155,156,158")
XID_REBOOT = _numbers("79")
XID_WORKFLOW = _numbers("48,54,74,78,142,144-151")
"""Double-bit errors, NVLink, power, driver: a person or a repair workflow has to look at the node."""
XID_INFORMATIONAL = _numbers("37,38,43,44,63,66,67,92,93,121,137,141,152-154,157,160,161")
XID_HARDWARE = XID_RESET_GPU | XID_REBOOT | XID_WORKFLOW
"""No container can reset a GPU safely, so that all of these mean another node."""


UNHEALTHY_DEVICE = "UnhealthyDevice"
"""Stands beside the conditions: the node has fewer healthy GPUs left than the gang needs of it."""

DELIBERATE_CODES: Mapping[int, str] = {
    93: "the program asked not to be started again",
    17: "the program's validation of its results failed",
}
HARDWARE_CODES: Mapping[int, str] = {
    14: "a GPU fault",
    128: "a GPU fault",
    201: "a GPU driver fault",
    202: "an unknown device",
}
RESUME_TO_DISAMBIGUATE = 16
OUT_OF_MEMORY, OUT_OF_MEMORY_CODE = "OOMKilled", 247
SIGTERM_CODE, SIGKILL_CODE = 143, 137
CODE_WORDS: Mapping[int, str] = {
    RESUME_TO_DISAMBIGUATE: "a result did not repeat, and the program wants to compute it again",
    134: "aborted: an assertion, or NCCL's watchdog",
    135: "bus error: often /dev/shm is full (shmSize)",
    SIGKILL_CODE: "killed",
    139: "segmentation fault",
    SIGTERM_CODE: "told to end by somebody else",
}

DISRUPTED_PODS = frozenset({"Evicted", "Preempting", "Preempted", "NodeShutdown", "Shutdown", "Terminated", "NodeLost"})
"""Reasons of pods that were ended by the cluster."""
_EPHEMERAL = (
    "raise ephemeral-storage in resourcesPerNode, or write less outside of volumes; "
    "where the run names no limit, a LimitRange of its namespace does"
)
_LIMITS = (
    ("exceeds the limit", "raise that volume's sizeLimit, or shmSize for /dev/shm, or write less there"),
    ("exceeds the total limit of containers", _EPHEMERAL),
    ("exceeded its local ephemeral storage limit", _EPHEMERAL),
)
"""What the kubelet says of a pod that it evicts for a limit of the pod's own, and the remedy. Of a node under pressure
it says none of it."""
IMAGE_PROBLEMS = frozenset(
    {"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
    | {"RegistryUnavailable"}
)
REFUSED_BY_KUBELET = frozenset(
    {
        *("UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "InvalidNodeInfo"),
        *("NodeAffinity", "NodeName", "NodePorts", "NodeUnschedulable", "TaintToleration"),
        *("TopologyAffinityError", "SMTAlignmentError", "ResourceManagerError"),
    }
)
"""The node itself would not take the pod, its devices being gone for one; also OutOfcpu and the like."""
_REJECTED = "Pod was rejected"
"""How the kubelet's words begin for whatever reason it does not take a pod."""
_OF_CONTAINERS = frozenset({"", "Completed", "Error", "OOMKilled", "StartError", "ContainerCannotRun"})
"""Reasons of containers, whose message the program writes."""

HOPELESS_EXITS = frozenset({ExitReason.COMMAND_NOT_FOUND, ExitReason.COMMAND_NOT_EXECUTABLE})
STOPPED_FROM_OUTSIDE = frozenset(
    {ExitReason.FENCED, ExitReason.STOPPED_FOR_RESTART, ExitReason.STOPPED_ON_REQUEST, ExitReason.WORKER_TERMINATED}
)
"""Reasons of exits that are no failure of the program."""

MISTAKES = frozenset(
    {
        *("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError", "AttributeError"),
        *("TypeError", "ValueError", "KeyError", "IndexError", "NotImplementedError", "ValidationError"),
    }
)
"""Exceptions that a program raises for itself: before the first step another node cannot help."""
PEERS_GONE = frozenset(
    {
        *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError"),
        *("BrokenPipeError", "DistNetworkError", "DistStoreError"),
    }
)
"""Exceptions by which a rank notices that another has ended."""
_PEERS_GONE_WORDS = ("onnection reset by peer", "onnection closed by", "Gloo ")
"""The same where the exception is one for everything: what Gloo cannot do is always due to a peer or the way there."""
USAGE_ERROR = 2

SIGN_LIVES = 900.0
"""Seconds before an end in which a line in the log may explain it: NCCL gives up after ten minutes."""

_LAST_WORDS = "JAX:PeerLost"
"""JAX may say it of any process whose end the others did not await: an exception before it has more to tell."""
# The first kind of these that a rank showed is what its end is about.
_SIGN_ORDER = (
    ("Checkpoint:Corrupt", Reading(AttemptCause.CORRUPT_CHECKPOINT, "Checkpoint:Corrupt")),
    ("Loss:NaN", Reading(AttemptCause.NAN, "Loss:NaN")),
    ("CUDA:OutOfMemory", Reading(AttemptCause.APPLICATION, "CUDA:OutOfMemory", by_nature=True)),
    ("Import:Error", Reading(AttemptCause.APPLICATION, "Import:Error", by_nature=True)),
    ("Kubernetes:NoToken", Reading(AttemptCause.APPLICATION, "Kubernetes:NoToken", by_nature=True)),
    ("Storage:NoSpace", Reading(AttemptCause.STORAGE, "Storage:NoSpace", waits=True)),
    ("Storage:IO", Reading(AttemptCause.STORAGE, "Storage:IO", waits=True)),
    ("Port:InUse", Reading(AttemptCause.APPLICATION, "Port:InUse", passing=True)),
    ("CUDA:Error", Reading(AttemptCause.APPLICATION, "CUDA:Error")),
    ("NCCL:Internal", Reading(AttemptCause.APPLICATION, "NCCL:Internal")),
    ("NCCL:SystemError", Reading(AttemptCause.APPLICATION, "NCCL:SystemError")),
    ("Rendezvous:Timeout", Reading(AttemptCause.APPLICATION, "Rendezvous:Timeout", symptom=True, waits=True)),
    ("NCCL:Timeout", Reading(AttemptCause.APPLICATION, "NCCL:Timeout", symptom=True)),
    ("NCCL:RemoteError", Reading(AttemptCause.APPLICATION, "NCCL:RemoteError", symptom=True)),
    # A program may have done without that file: what else it showed says more.
    ("Checkpoint:Unreadable", Reading(AttemptCause.CORRUPT_CHECKPOINT, "Checkpoint:Unreadable", weak=True)),
    (_LAST_WORDS, Reading(AttemptCause.APPLICATION, _LAST_WORDS, symptom=True)),
)
_SIGN_REMEDIES = {
    "Kubernetes:NoToken": "the program asked Kubernetes, where its pod has no account: if that was JAX, give "
    'cluster_detection_method="deactivate" to jax.distributed.initialize()',
}
_FAULTY_DEVICE = frozenset({"CUDA:Ecc", "CUDA:NvLink"})
_MESSAGE = "Message"  # what the program left as its last words
_FOLLOWS_FROM_OTHERS = "Xid:45"  # channels torn down: after whatever failed, and the cause only where it stands alone
_WHENEVER = frozenset({"Checkpoint:Corrupt", "Loss:NaN"})
_OF_LOADING = frozenset({"Checkpoint:Corrupt", "Checkpoint:Unreadable"})
_LOCAL_TIER = "/local-checkpoints"

_RAISED = re.compile(
    r"^(?:\[[^\]]*\]:?\s*)*(?P<name>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt))(?::\s*(?P<words>.*))?$"
)
_MPI_FATAL = re.compile(
    r"\*\*\* An error occurred in (?P<where>[^\n]{1,80})\n(?:[^\n]*\n){0,4}?"
    r"(?:[^\n]*\*\*\* (?P<error>MPI_ERR_[^\n]{1,80})\n)?[^\n]*\*\*\* MPI_ERRORS_ARE_FATAL"
)
"""What Open MPI writes before it ends a rank."""
_MPI_PEERS = frozenset({"Socket closed"})
"""Of these another rank's end is the reason."""
_ONLY_PASSED_ON = frozenset({"ChildFailedError", "SubprocessError", "CalledProcessError"})
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")
_ROOT_LENGTH = 120


def is_hardware(sign: Sign) -> bool:
    """The line tells of a fault of the machine, whichever program ran."""
    family, _, detail = sign.kind.partition(":")
    if family == "Xid":
        return detail.isdecimal() and int(detail) in XID_HARDWARE
    if family == "SXid":  # the driver says itself which of them leave the fabric intact
        return "non-fatal" not in sign.text.lower()
    return sign.kind in _FAULTY_DEVICE


def is_of_loading(sign: Sign) -> bool:
    """The line tells of a checkpoint that is loaded: it was loaded all the same, where a step was made afterwards."""
    return sign.kind in _OF_LOADING


def read_exit(exit_report: ExitReport, signs: Sequence[Sign]) -> Reading:
    """What the end of a rank's process means, given what it printed before."""
    code = shell_code(exit_report)
    if exit_report.reason in HOPELESS_EXITS:
        return Reading(AttemptCause.DETERMINISTIC, exit_report.reason, by_nature=True)
    if exit_report.reason in STOPPED_FROM_OUTSIDE:
        return Reading(AttemptCause.DISRUPTION, exit_report.reason, "not of its own accord", bare=True)
    if code in DELIBERATE_CODES:
        return Reading(AttemptCause.DELIBERATE, f"exit {code}", DELIBERATE_CODES[code])
    if exit_report.reason == OUT_OF_MEMORY or code == OUT_OF_MEMORY_CODE:
        return Reading(AttemptCause.OUT_OF_MEMORY, "OutOfMemory", "the host's memory did not suffice")
    if exit_report.reason == ExitReason.PROCESS_NOT_STARTED:
        return Reading(
            AttemptCause.UNKNOWN, exit_report.reason, "the node had no room for another process", on_node=True
        )
    if exit_report.reason == ExitReason.DIRECTORY_NOT_CREATED:
        return Reading(AttemptCause.STORAGE, exit_report.reason, waits=True, on_node=True)
    recent = [s for s in signs if s.kind in _WHENEVER or exit_report.at - s.at <= SIGN_LIVES]
    told = _read_signs(recent)
    if told is not None and told.root == _LAST_WORDS:
        raised = _read_words(exit_report, recent, code)
        return told if raised.bare or raised.symptom else raised
    if told is not None:
        return told
    fatal = _MPI_FATAL.search(exit_report.stderr_tail)
    if fatal is not None:  # its exit code is the number of an MPI error, and means nothing else
        words = f"MPI: {fatal['where']}: {fatal['error'] or 'a fatal error'}"
        return Reading(
            AttemptCause.APPLICATION,
            _VARYING.sub("#", words)[:_ROOT_LENGTH],
            words,
            symptom=fatal["where"] in _MPI_PEERS,
        )
    if code in HARDWARE_CODES:
        return Reading(
            AttemptCause.HARDWARE, f"exit {code}", f"{HARDWARE_CODES[code]}, as it says", bare=True, weak=True
        )
    return _read_words(exit_report, recent, code)


def read_pod(pod: PodView) -> Reading:
    """What the end of a pod means that nobody here ended."""
    beyond = _limit_exceeded(pod)
    if beyond:
        return Reading(AttemptCause.LIMIT_EXCEEDED, AttemptCause.LIMIT_EXCEEDED, f"a limit of its own: {beyond}")
    if pod.disruption:
        return Reading(AttemptCause.DISRUPTION, pod.disruption, f"disrupted: {pod.disruption}")
    if pod.reason in DISRUPTED_PODS or pod.exit_code == SIGTERM_CODE:
        return Reading(AttemptCause.DISRUPTION, pod.reason or "SIGTERM", "ended by the cluster")
    if pod.reason in IMAGE_PROBLEMS:
        return Reading(AttemptCause.STORAGE, "ImagePull", "the image could not be pulled", waits=True)
    if is_refused_by_node(pod):
        return Reading(AttemptCause.UNKNOWN, pod.reason, "the node would not take it", on_node=True, waits=True)
    if pod.reason == OUT_OF_MEMORY or pod.exit_code == OUT_OF_MEMORY_CODE:
        return Reading(AttemptCause.OUT_OF_MEMORY, "OutOfMemory", "the host's memory did not suffice")
    if pod.exit_code is not None and pod.exit_code in DELIBERATE_CODES:
        return Reading(AttemptCause.DELIBERATE, f"exit {pod.exit_code}", DELIBERATE_CODES[pod.exit_code])
    return Reading(AttemptCause.UNKNOWN, f"pod {pod.reason or 'ended'} {pod.exit_code}", bare=True)


def is_refused_by_node(pod: PodView) -> bool:
    """The kubelet did not take the pod, so that nothing of it ever ran. Not where the node is under pressure or shuts
    down: that reads as a disruption."""
    if pod.phase is not PodPhase.FAILED or pod.exit_code is not None or pod.reason in (DISRUPTED_PODS | _OF_CONTAINERS):
        return False
    named = pod.reason in REFUSED_BY_KUBELET or pod.reason.startswith("OutOf")
    return named or pod.message.startswith(_REJECTED)


def _limit_exceeded(pod: PodView) -> str:
    """How to keep to the limit of its own for which the kubelet ended the pod; empty where it was no such limit."""
    if pod.reason == "DeadlineExceeded":
        return "an admission webhook gave it activeDeadlineSeconds; have that left out, a run has its timeLimit"
    if pod.reason != "Evicted" or pod.disruption not in ("", "TerminationByKubelet"):
        return ""
    return next((remedy for words, remedy in _LIMITS if words in pod.message), "")


def shell_code(exit_report: ExitReport) -> int:
    """The exit code as a shell gives it: 128 plus the signal when it was killed by one."""
    return 128 + exit_report.signal if exit_report.signal else exit_report.code


def _read_signs(signs: Iterable[Sign]) -> Reading | None:
    seen = sorted(signs, key=lambda sign: sign.at)
    for sign in seen:
        if is_hardware(sign):
            return Reading(AttemptCause.HARDWARE, sign.kind, f"{sign.kind}: {sign.text}".rstrip(": "), on_node=True)
    for kind, reading in _SIGN_ORDER:
        for sign in seen:
            if sign.kind == kind:
                of_node = reading.kind is AttemptCause.STORAGE and _LOCAL_TIER in sign.text
                words, remedy = f"{kind}: {sign.text}".rstrip(": "), _SIGN_REMEDIES.get(kind, "")
                return replace(reading, words=f"{words}; {remedy}" if remedy else words, on_node=of_node)
    for sign in sorted(seen, key=lambda sign: sign.kind == _FOLLOWS_FROM_OTHERS):
        number = sign.kind.removeprefix("Xid:")
        if number != sign.kind and not (number.isdecimal() and int(number) in XID_INFORMATIONAL):
            return Reading(AttemptCause.APPLICATION, sign.kind, f"{sign.kind}: {sign.text}".rstrip(": "))
    return None


def _read_words(exit_report: ExitReport, signs: Sequence[Sign], code: int) -> Reading:
    """What it said at its end: on stderr, else in its termination message, where launchers leave a rank's error."""
    read = _read_stderr(exit_report.stderr_tail, code)
    message = next((sign.text for sign in signs if sign.kind == _MESSAGE and sign.text), "")
    if not read.bare or not message:
        return read
    left = _read_stderr(message, code)
    return replace(read, words=message[:200]) if left.bare else left


def _read_stderr(tail: str, code: int) -> Reading:
    """The exception that ended it, where there is one; else the bare code."""
    for line in reversed(tail.splitlines()):
        raised = _RAISED.match(line.strip())
        if raised is None:
            continue
        name = raised["name"].rpartition(".")[2]
        if name in _ONLY_PASSED_ON:
            continue
        words = f"{name}: {raised['words']}" if raised["words"] else name
        return Reading(
            AttemptCause.APPLICATION,
            _VARYING.sub("#", words)[:_ROOT_LENGTH],
            words[:200],
            symptom=name in PEERS_GONE or any(gone in words for gone in _PEERS_GONE_WORDS),
            by_nature=name in MISTAKES or "size mismatch" in words or "must match" in words,
        )
    root = f"exit {code}"
    return Reading(AttemptCause.APPLICATION, root, CODE_WORDS.get(code, ""), bare=True, by_nature=code == USAGE_ERROR)
