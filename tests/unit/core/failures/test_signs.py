"""What exit codes, signs, pod reasons and conditions are read as: the tables of docs/recovery.md."""

import pytest

from lockstep.core.failures import signs
from lockstep.core.failures.signs import is_refused_by_node, read_exit, read_pod
from lockstep.core.model.reasons import AttemptCause
from lockstep.core.model.snapshot import PodPhase, PodView
from lockstep.core.model.worker_report import ExitReport, Sign
from support.stored_runs import pod as a_pod

END = 1000.0


def ended(code: int = 1, *, signal: int = 0, reason: str = "Error", tail: str = "") -> ExitReport:
    return ExitReport(code=code, signal=signal, at=END, reason=reason, stderr_tail=tail)


def sign(kind: str, *, before: float = 1.0, text: str = "") -> Sign:
    return Sign(kind, END - before, text=text)


def pod(**changes: object) -> PodView:
    return a_pod(**{"exit_code": 1, "reason": "Error", "phase": PodPhase.FAILED} | changes)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, AttemptCause.APPLICATION),
        (2, AttemptCause.APPLICATION),
        (14, AttemptCause.HARDWARE),
        (16, AttemptCause.APPLICATION),
        (17, AttemptCause.DELIBERATE),
        (93, AttemptCause.DELIBERATE),
        (128, AttemptCause.HARDWARE),
        (134, AttemptCause.APPLICATION),
        (137, AttemptCause.APPLICATION),
        (139, AttemptCause.APPLICATION),
        (143, AttemptCause.APPLICATION),
        (201, AttemptCause.HARDWARE),
        (202, AttemptCause.HARDWARE),
        (247, AttemptCause.OUT_OF_MEMORY),
    ],
)
def test_an_exit_code_is_read_by_the_table(code: int, kind: AttemptCause) -> None:
    assert read_exit(ended(code), ()).kind is kind


def test_hardware_by_an_exit_code_alone_is_only_the_programs_word() -> None:
    assert read_exit(ended(201), ()).weak
    assert not read_exit(ended(201), [sign("Xid:79")]).weak


@pytest.mark.parametrize("number", [6, 9, 11])
def test_a_signal_has_the_root_of_its_shell_code(number: int) -> None:
    assert read_exit(ended(0, signal=number, reason="Signal"), ()).root == f"exit {128 + number}"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("CommandNotFound", AttemptCause.DETERMINISTIC),
        ("CommandNotExecutable", AttemptCause.DETERMINISTIC),
        ("OOMKilled", AttemptCause.OUT_OF_MEMORY),
        ("DirectoryNotCreated", AttemptCause.STORAGE),
        ("ProcessNotStarted", AttemptCause.UNKNOWN),
        ("Fenced", AttemptCause.DISRUPTION),
        ("StoppedForRestart", AttemptCause.DISRUPTION),
        ("StoppedOnRequest", AttemptCause.DISRUPTION),
        ("WorkerTerminated", AttemptCause.DISRUPTION),
    ],
)
def test_a_reason_of_the_worker_goes_before_the_code(reason: str, kind: AttemptCause) -> None:
    assert read_exit(ended(137, reason=reason), [sign("Xid:79")]).kind is kind


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("Xid:79", AttemptCause.HARDWARE),
        ("Xid:48", AttemptCause.HARDWARE),
        ("Xid:95", AttemptCause.HARDWARE),
        ("Xid:64", AttemptCause.HARDWARE),
        ("Xid:13", AttemptCause.APPLICATION),
        ("Xid:31", AttemptCause.APPLICATION),
        ("Xid:94", AttemptCause.APPLICATION),
        ("Xid:45", AttemptCause.APPLICATION),
        ("CUDA:Ecc", AttemptCause.HARDWARE),
        ("CUDA:Error", AttemptCause.APPLICATION),
        ("CUDA:OutOfMemory", AttemptCause.APPLICATION),
        ("NCCL:Timeout", AttemptCause.APPLICATION),
        ("NCCL:RemoteError", AttemptCause.APPLICATION),
        ("Storage:NoSpace", AttemptCause.STORAGE),
        ("Storage:IO", AttemptCause.STORAGE),
        ("Checkpoint:Corrupt", AttemptCause.CORRUPT_CHECKPOINT),
        ("Checkpoint:Unreadable", AttemptCause.CORRUPT_CHECKPOINT),
        ("Loss:NaN", AttemptCause.NAN),
        ("Port:InUse", AttemptCause.APPLICATION),
        ("Import:Error", AttemptCause.APPLICATION),
        ("Kubernetes:NoToken", AttemptCause.APPLICATION),
    ],
)
def test_a_sign_tells_what_a_bare_exit_code_does_not(kind: str, read: AttemptCause) -> None:
    reading = read_exit(ended(1), [sign(kind)])
    assert (reading.kind, reading.root) == (read, kind)


def test_a_program_that_asks_kubernetes_is_told_what_to_say_to_jax() -> None:
    reading = read_exit(ended(1), [sign("Kubernetes:NoToken")])
    assert 'cluster_detection_method="deactivate" to jax.distributed.initialize()' in reading.words
    assert reading.by_nature  # on any node


@pytest.mark.parametrize("number", [37, 43, 63, 66, 92, 154])
def test_informational_xids_say_nothing(number: int) -> None:
    assert read_exit(ended(1), [sign(f"Xid:{number}")]).root == "exit 1"


def test_every_xid_is_in_one_set() -> None:
    sets = [signs.XID_RESET_GPU, signs.XID_REBOOT, signs.XID_WORKFLOW, signs.XID_INFORMATIONAL]
    assert sum(map(len, sets)) == len(frozenset().union(*sets))


@pytest.mark.parametrize(("text", "hardware"), [("12028, Non-fatal, Link 32", False), ("20034, Fatal, LTSSM", True)])
def test_a_switch_error_counts_when_its_driver_calls_it_fatal(text: str, hardware: bool) -> None:
    assert signs.is_hardware(sign("SXid:1", text=text)) is hardware


@pytest.mark.parametrize("kind", ["Storage:IO", "Checkpoint:Unreadable"])
def test_what_was_logged_long_before_the_end_does_not_explain_it(kind: str) -> None:
    assert read_exit(ended(1), [sign(kind, before=5000.0)]).root == "exit 1"


@pytest.mark.parametrize(
    ("kind", "read"),
    [("Checkpoint:Corrupt", AttemptCause.CORRUPT_CHECKPOINT), ("Loss:NaN", AttemptCause.NAN)],
)
def test_what_cannot_mend_itself_explains_an_end_however_long_ago_it_was_logged(kind: str, read: AttemptCause) -> None:
    assert read_exit(ended(1), [sign(kind, before=5000.0)]).kind is read


def test_of_like_lines_the_earliest_is_quoted_in_whatever_order_they_came() -> None:
    later, earlier = sign("CUDA:Error", before=1.0, text="later"), sign("CUDA:Error", before=2.0, text="earlier")
    assert read_exit(ended(1), [later, earlier]).words == "CUDA:Error: earlier"


@pytest.mark.parametrize(
    "kind",
    [
        *("Storage:IO", "CUDA:OutOfMemory", "Import:Error", "Port:InUse", "CUDA:Error", "NCCL:Internal"),
        *("NCCL:SystemError", "NCCL:Timeout", "NCCL:RemoteError", "Rendezvous:Timeout"),
    ],
)
def test_what_a_file_could_not_be_read_for_says_more_than_that_it_could_not(kind: str) -> None:
    reading = read_exit(ended(1), [sign("Checkpoint:Unreadable", before=2.0), sign(kind)])
    assert reading.root == kind
    assert read_exit(ended(1), [sign("Checkpoint:Corrupt"), sign(kind)]).root == "Checkpoint:Corrupt"


@pytest.mark.parametrize(("path", "of_node"), [("/local-checkpoints/ns/one", True), ("/shared-checkpoints/ns", False)])
def test_storage_is_the_nodes_own_where_the_line_names_the_local_tier(path: str, of_node: bool) -> None:
    reading = read_exit(ended(1), [sign("Storage:IO", text=f"Input/output error: {path}")])
    assert (reading.kind, reading.on_node) == (AttemptCause.STORAGE, of_node)


def test_a_termination_message_tells_what_a_bare_exit_code_does_not() -> None:
    left = sign("Message", text="RuntimeError: the shapes differ")
    assert read_exit(ended(1), [left]).root == "RuntimeError: the shapes differ"
    prose = read_exit(ended(1), [sign("Message", text="the GPU is gone")])
    assert (prose.root, prose.words, prose.bare) == ("exit 1", "the GPU is gone", True)
    assert read_exit(ended(1, tail="KeyError: 'x'"), [left]).root == "KeyError: 'x'", "its stderr is nearer to it"


def test_an_uncorrectable_nvlink_error_is_a_fault_of_the_machine() -> None:
    assert read_exit(ended(1), [sign("CUDA:NvLink")]).kind is AttemptCause.HARDWARE


def test_channels_torn_down_are_the_cause_only_where_nothing_else_was_logged() -> None:
    torn_down, other = sign("Xid:45", before=2.0), sign("Xid:31", before=1.0)
    assert read_exit(ended(1), [torn_down, other]).root == "Xid:31"
    assert read_exit(ended(1), [torn_down]).root == "Xid:45"


def test_a_fault_of_the_machine_goes_before_what_followed_from_it() -> None:
    assert read_exit(ended(1), [sign("NCCL:Timeout"), sign("CUDA:Error"), sign("Xid:79")]).kind is AttemptCause.HARDWARE


@pytest.mark.parametrize("kind", ["NCCL:Timeout", "NCCL:RemoteError", "JAX:PeerLost", "Rendezvous:Timeout"])
def test_complaints_about_peers_are_symptoms(kind: str) -> None:
    assert read_exit(ended(1), [sign(kind)]).symptom
    assert not read_exit(ended(1), [sign(kind), sign("CUDA:Error")]).symptom


def test_what_jax_says_at_the_end_hides_no_exception_before_it() -> None:
    seen = [sign("JAX:PeerLost")]
    assert (
        read_exit(ended(1, tail="TypeError: f() takes no arguments\n"), seen).root
        == "TypeError: f() takes no arguments"
    )
    reset = "JaxRuntimeError: UNKNOWN: Gloo AllReduce failed: Read error [10.0.0.1]:7: Connection reset by peer\n"
    assert read_exit(ended(1, tail=reset), seen).root == "JAX:PeerLost"


@pytest.mark.parametrize(
    "words",
    [
        "JaxRuntimeError: UNKNOWN: Gloo all-reduce failed: [pair.cc:547] Connection closed by peer [10.0.0.1]:2729",
        "ValueError: UNKNOWN: Gloo AllGather failed: [pair.cc:538] Read error [10.0.0.1]:9: Connection reset by peer",
        "JaxRuntimeError: UNKNOWN: Gloo AllReduce failed: [unbound_buffer.cc:76] Timed out waiting 30000ms for recv",
    ],
)
def test_what_gloo_says_is_a_complaint_about_a_peer(words: str) -> None:
    assert read_exit(ended(1, tail=words + "\n"), ()).symptom


TORCHRUN = """
[rank3]: Traceback (most recent call last):
[rank3]:   File "/train.py", line 9, in <module>
[rank3]: ModuleNotFoundError: No module named 'apex'
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""


def test_the_exception_is_found_behind_what_torchrun_prints_after_it() -> None:
    reading = read_exit(ended(1, tail=TORCHRUN), ())
    assert reading.root == "ModuleNotFoundError: No module named 'apex'"
    assert reading.by_nature


def test_of_exceptions_raised_while_another_was_handled_the_last_one_ended_it() -> None:
    tail = "KeyError: 'loss'\n\nDuring handling of the above exception, another occurred:\n\nRuntimeError: no loss"
    assert read_exit(ended(tail=tail), ()).root == "RuntimeError: no loss"


@pytest.mark.parametrize(
    ("code", "tail", "by_nature"),
    [
        (1, "RuntimeError: size mismatch for head.weight", True),
        (1, "RuntimeError: The size of tensor a (4) must match the size of tensor b (5)", True),
        (1, "RuntimeError: bad batch", False),
        (2, "usage: train.py [-h] --data DATA", True),
        (1, "", False),
    ],
)
def test_mistakes_that_any_node_would_meet_are_told_from_others(code: int, tail: str, by_nature: bool) -> None:
    assert read_exit(ended(code, tail=tail), ()).by_nature is by_nature


def test_numbers_and_addresses_are_no_part_of_a_root() -> None:
    first = read_exit(ended(tail="RuntimeError: bad batch 17 at 0x7f00"), ())
    again = read_exit(ended(tail="RuntimeError: bad batch 99 at 0x7e1c"), ())
    assert first.root == again.root
    assert not first.bare


def test_a_lost_connection_is_a_symptom() -> None:
    tail = "ConnectionResetError: [Errno 104] Connection reset by peer"
    assert read_exit(ended(tail=tail), ()).symptom


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"disruption": "EvictionByEvictionAPI", "exit_code": 137}, AttemptCause.DISRUPTION),
        ({"disruption": "PreemptionByKubeScheduler", "exit_code": 1}, AttemptCause.DISRUPTION),
        ({"disruption": "DeletionByTaintManager", "exit_code": 143}, AttemptCause.DISRUPTION),
        ({"disruption": "TerminationByKubelet", "exit_code": 137}, AttemptCause.DISRUPTION),
        ({"reason": "Evicted", "exit_code": None}, AttemptCause.DISRUPTION),
        ({"reason": "NodeShutdown", "exit_code": None}, AttemptCause.DISRUPTION),
        ({"exit_code": 143}, AttemptCause.DISRUPTION),
        ({"reason": "OOMKilled", "exit_code": 137}, AttemptCause.OUT_OF_MEMORY),
        ({"exit_code": 137}, AttemptCause.UNKNOWN),
        ({"exit_code": 93}, AttemptCause.DELIBERATE),
        ({"reason": "ErrImagePull", "exit_code": None}, AttemptCause.STORAGE),
        ({"reason": "UnexpectedAdmissionError", "exit_code": None}, AttemptCause.UNKNOWN),
        ({"reason": "DeadlineExceeded", "exit_code": None}, AttemptCause.LIMIT_EXCEEDED),
    ],
)
def test_the_end_of_a_pod_is_read_by_what_ended_it(changes: dict[str, object], kind: AttemptCause) -> None:
    assert read_pod(pod(**changes)).kind is kind


OVER_EMPTY_DIR = 'Usage of EmptyDir volume "cache" exceeds the limit "10Gi". '
OVER_CONTAINERS = "Pod ephemeral local storage usage exceeds the total limit of containers 5Gi. "
OVER_CONTAINER = 'Container trainer exceeded its local ephemeral storage limit "5Gi". '
PRESSURE = (
    "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. "
    "Container trainer was using 90Gi, request is 0, has larger consumption of ephemeral-storage. "
)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [(OVER_EMPTY_DIR, "sizeLimit"), (OVER_CONTAINERS, "LimitRange"), (OVER_CONTAINER, "LimitRange")],
)
@pytest.mark.parametrize("disruption", ["", "TerminationByKubelet"])
def test_a_pod_beyond_a_limit_of_its_own_is_not_driven_away_by_the_cluster(
    message: str, remedy: str, disruption: str
) -> None:
    reading = read_pod(pod(reason="Evicted", message=message, disruption=disruption, exit_code=None))
    assert reading.kind is AttemptCause.LIMIT_EXCEEDED
    assert remedy in reading.words


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "Evicted", "message": PRESSURE, "disruption": "TerminationByKubelet"},
        {"reason": "Evicted", "message": "Pod was rejected: The node had condition: [DiskPressure]. "},
        {"reason": "Evicted", "message": OVER_EMPTY_DIR, "disruption": "EvictionByEvictionAPI"},
    ],
)
def test_pressure_on_the_node_and_evictions_by_others_are_nobodys_excess(changes: dict[str, object]) -> None:
    assert read_pod(pod(exit_code=None, **changes)).kind is AttemptCause.DISRUPTION


def test_a_program_cannot_say_of_itself_that_the_kubelet_ended_it() -> None:
    assert read_pod(pod(reason="Error", message=OVER_EMPTY_DIR)).kind is AttemptCause.UNKNOWN
    assert not is_refused_by_node(pod(reason="Error", message="Pod was rejected: no"))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("UnexpectedAdmissionError", "Pod was rejected: Allocate failed due to no healthy devices"),
        ("UnexpectedAdmissionError", ""),
        ("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"),
        ("OutOfnvidia.com/gpu", ""),
        ("OutOfpods", ""),
        ("TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality"),
        ("SMTAlignmentError", ""),
        ("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"),
        ("NodePorts", ""),
        ("NodeName", ""),
        ("TaintToleration", ""),
        ("InvalidNodeInfo", ""),
        ("UnexpectedPredicateFailureType", ""),
        ("SomethingNewInKubernetes", "Pod was rejected: for a reason of tomorrow"),
    ],
)
def test_what_the_kubelet_will_not_take_is_refused_by_its_node(reason: str, message: str) -> None:
    refused = pod(reason=reason, message=message, exit_code=None)
    assert is_refused_by_node(refused)
    reading = read_pod(refused)
    assert (reading.kind, reading.on_node, reading.waits) == (AttemptCause.UNKNOWN, True, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "OutOfMemory", "exit_code": 1},
        {"reason": "NodeShutdown", "exit_code": None},
        {"reason": "", "exit_code": None},
        {"reason": "UnexpectedAdmissionError", "exit_code": None, "phase": PodPhase.PENDING},
    ],
)
def test_a_pod_that_ran_or_still_may_is_refused_by_nobody(changes: dict[str, object]) -> None:
    assert not is_refused_by_node(pod(**changes))


PEER_GONE = """[node-1:00000] *** An error occurred in Socket closed
[node-1:00000] *** reported by process [3160080385,3]
[node-1:00000] *** on a NULL communicator
[node-1:00000] *** Unknown error
[node-1:00000] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
[node-1:00000] ***    and MPI will try to terminate your MPI job as well)
"""
TRUNCATED = """[node-1:00000] *** An error occurred in MPI_Recv
[node-1:00000] *** reported by process [3160080385,3]
[node-1:00000] *** on communicator MPI_COMM_WORLD
[node-1:00000] *** MPI_ERR_TRUNCATE: message truncated
[node-1:00000] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
"""


@pytest.mark.parametrize(
    ("stderr", "root", "symptom"),
    [
        (PEER_GONE, "MPI: Socket closed: a fatal error", True),
        (TRUNCATED, "MPI: MPI_Recv: MPI_ERR_TRUNCATE: message truncated", False),
    ],
)
def test_what_open_mpi_ends_a_rank_with_is_no_code_of_anybody_elses(stderr: str, root: str, symptom: bool) -> None:
    for code in (14, 15):
        reading = read_exit(ExitReport(code, 0, 5.0, "Error", stderr), ())
        assert (reading.kind, reading.root, reading.symptom) == (AttemptCause.APPLICATION, root, symptom)
