"""What the worker reads off a program's stderr."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.worker.child.signs import MAX_SIGNS, QUEUED_CHUNKS, RuleMatcher, Signs, StderrReader, sign_of

DEADLINE = 60.0


SAVE = "/shared/one/a1/step-300"


def never() -> str:
    return ""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


JAX_GIVES_UP = (
    "F1122 07:24:43.658623 6 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died; see the other task logs for more details. Disable "
    "Python buffering, i.e. `python -u`, to be sure to see all the previous output. absl::Status: DEADLINE_EXCEEDED: "
    "Deadline Exceeded"
)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[  123.4] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "Xid:79"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 31 LTSSM Fault Up", "SXid:20034"),
        (
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE)",
            "NCCL:Timeout",
        ),
        ("ncclRemoteError: A call failed possibly due to a network error", "NCCL:RemoteError"),
        (
            "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclSystemError: System call",
            "NCCL:SystemError",
        ),
        ("ncclInternalError: Internal check failed.", "NCCL:Internal"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "CUDA:OutOfMemory"),
        ("jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes", "CUDA:OutOfMemory"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "CUDA:Ecc"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "CUDA:Error"),
        ("OSError: [Errno 28] No space left on device: '/shared/step-5/x.bin'", "Storage:NoSpace"),
        ("OSError: [Errno 116] Stale file handle", "Storage:IO"),
        ("torch.distributed.DistNetworkError: The client socket has timed out after 600000ms", "Rendezvous:Timeout"),
        (JAX_GIVES_UP, "JAX:PeerLost"),
        ("OSError: [Errno 98] Address already in use", "Port:InUse"),
        (
            "kubernetes.config.config_exception.ConfigException: Service token file does not exist.",
            "Kubernetes:NoToken",
        ),
        ("ModuleNotFoundError: No module named 'apex'", "Import:Error"),
        ("[rank2]: ImportError: cannot import name 'x'", "Import:Error"),
        ("warning: ImportError: flash attention is not there, going on without", ""),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", ""),
        ("step 12 loss 2.31", ""),
    ],
)
def test_a_line_is_told_for_what_it_is(line: str, kind: str) -> None:
    signs = Signs()
    reader = StderrReader(signs, [], never)
    reader.feed(line.encode() + b"\n")
    reader.finish()
    assert [sign["kind"] for sign in signs.report()] == ([kind] if kind else [])


TENSORSTORE = 'ValueError: DATA_LOSS: Error reading "zarr3" driver: Error reading local file "%s/d/1": CRC-32C mismatch'


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (TENSORSTORE % SAVE, "Checkpoint:Corrupt"),
        (TENSORSTORE % "/data/corpus", ""),
        (TENSORSTORE % f"{SAVE}0", ""),  # the save of another step
        (TENSORSTORE % f"/mirror{SAVE}", ""),
        (f"safetensors_rust.SafetensorError: {SAVE}/model.safetensors: incomplete metadata", "Checkpoint:Corrupt"),
        (f"OSError: Unable to load weights from pytorch checkpoint file for '{SAVE}/m.bin'", "Checkpoint:Corrupt"),
        (f"zipfile.BadZipFile: {SAVE}: File is not a zip file", "Checkpoint:Corrupt"),
        ("safetensors_rust.SafetensorError: /models/base.safetensors: incomplete metadata", ""),
        ("SafetensorError: Error while deserializing header: incomplete metadata", "Checkpoint:Unreadable"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: no directory", "Checkpoint:Unreadable"),
        ("RuntimeError: PytorchStreamReader failed (valid at /pytorch/x/container.cc:178)", "Checkpoint:Unreadable"),
        ("RuntimeError: unexpected EOF, expected 4 more bytes. The file might be corrupted.", "Checkpoint:Unreadable"),
        ("_pickle.UnpicklingError: Weights only load failed. Re-running", "Checkpoint:Unreadable"),
        ("torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:", "Checkpoint:Unreadable"),
        (f"FileNotFoundError: [Errno 2] No such file or directory: '{SAVE}/opt.pt'", "Checkpoint:Unreadable"),
        (f'NOT_FOUND: Error opening "zarr" driver: Metadata at local file "{SAVE}/w/.zarray"', "Checkpoint:Unreadable"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/corpus.idx'", ""),
        ("FileNotFoundError: no tokenizer", ""),
        (f"[rank3]: FileNotFoundError: [Errno 2] No such file: '{SAVE}/opt.pt'", "Checkpoint:Unreadable"),
        (f"[default0]:[rank0]: ValueError: NOT_FOUND: Error opening {SAVE}/w", "Checkpoint:Unreadable"),
        (f"ValueError: [process=0] NOT_FOUND: Error opening {SAVE}/w", "Checkpoint:Unreadable"),
        (f"(RayTrainWorker pid=71, ip=10.0.0.7) FileNotFoundError: [Errno 2] '{SAVE}/opt.pt'", "Checkpoint:Unreadable"),
        (f"RuntimeError: FileNotFoundError: [Errno 2] No such file: '{SAVE}/opt.pt'", "Checkpoint:Unreadable"),
        ("(RayTrainWorker pid=71) EOFError: Ran out of input", "Checkpoint:Unreadable"),
        ("3: EOFError: Ran out of input", "Checkpoint:Unreadable"),
        (f"WARNING no loader state: FileNotFoundError: [Errno 2] '{SAVE}/loader.pt', starting afresh", ""),
        (f"WARNING: FileNotFoundError: '{SAVE}/loader.pt'", ""),
        ("EOFError: Ran out of input", "Checkpoint:Unreadable"),
        ("[rank1]: _pickle.UnpicklingError: pickle data was truncated", "Checkpoint:Unreadable"),
        (r"_pickle.UnpicklingError: invalid load key, '\x00'.", "Checkpoint:Unreadable"),
        ("zipfile.BadZipFile: File is not a zip file", "Checkpoint:Unreadable"),
        ("zipfile.BadZipFile: /data/corpus.npz: File is not a zip file", ""),
        ("WARNING no cache: EOFError: Ran out of input", ""),
        ("EOFError", ""),
        (f"INFO resumed from {SAVE}", ""),
    ],
)
def test_a_checkpoint_that_is_loaded_is_called_corrupt_by_what_is_said_of_its_own_files(line: str, kind: str) -> None:
    assert sign_of(line.encode(), SAVE) == kind
    assert sign_of(line.encode(), "") == ""  # none is loaded
    signs = Signs()
    reader = StderrReader(signs, [], lambda: SAVE)
    reader.feed(line.encode() + b"\n")
    reader.finish()
    assert [sign["kind"] for sign in signs.report()] == ([kind] if kind else [])


def test_the_first_of_each_kind_is_kept_with_its_step_and_never_more_than_sixteen() -> None:
    signs = Signs()
    signs.step = 7
    signs.add("CUDA:Error", 2.0, "first")
    signs.step = 8
    signs.add("CUDA:Error", 3.0, "second")
    for number in range(40):
        signs.add(f"Xid:{number}", 1.0, "")
    report = signs.report()
    assert len(report) == MAX_SIGNS
    assert report[-1] == {"kind": "CUDA:Error", "at": 2.0, "step": 7, "text": "first"}


def test_a_sign_of_long_ago_gives_way_to_a_newer_one_of_its_kind_and_to_others_when_there_are_too_many() -> None:
    signs = Signs()
    signs.add("Port:InUse", 0.0, "harmless")
    signs.add("Loss:NaN", 0.0, "the first")
    signs.add("Port:InUse", 5000.0, "the end")
    signs.add("Loss:NaN", 5000.0, "again")
    assert [sign["text"] for sign in signs.report()] == ["the first", "the end"]
    for number in range(14):
        signs.add(f"Xid:{number}", 5001.0, "")
    signs.add("CUDA:Error", 5002.0, "one too many")
    assert "CUDA:Error" not in {sign["kind"] for sign in signs.report()}
    signs.add("CUDA:Error", 6000.0, "later")
    kinds = {sign["kind"] for sign in signs.report()}
    assert {"CUDA:Error", "Loss:NaN"} <= kinds
    assert "Port:InUse" not in kinds


def test_lines_in_pieces_without_an_end_and_far_too_long_are_read() -> None:
    signs = Signs()
    reader = StderrReader(signs, [], never)
    for part in (b"x" * 100_000, b" CUDA error: far away", b"\nncclIn", b"ternalError: x\rEADDR", b"INUSE"):
        reader.feed(part)
    reader.finish()
    assert [sign["kind"] for sign in signs.report()] == ["NCCL:Internal", "Port:InUse"]


def test_words_of_a_program_that_had_all_threads_are_read_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    signs = Signs()
    reader = StderrReader(signs, [], never)
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        reader.feed(b"ncclInternalError: x\n")
    reader.finish()
    assert [sign["kind"] for sign in signs.report()] == ["NCCL:Internal"]


@pytest.mark.process
def test_a_rule_of_the_user_is_found_with_its_line() -> None:
    signs = Signs()
    rules = [{"name": "driver", "pattern": r"driver \d+ lost"}, {"name": "other", "pattern": "nowhere"}]
    reader = StderrReader(signs, rules, never)
    reader.feed(b"all is well\nthe driver 12 lost it\nthe driver 13 lost it\n")
    until(signs.report)
    reader.finish()
    (sign,) = signs.report()
    assert (sign["kind"], sign["text"]) == ("Rule:driver", "the driver 12 lost it")
    assert not Path(f"/proc/{reader.helper}/fd").exists()


@pytest.mark.process
def test_the_last_line_before_the_end_is_matched_too() -> None:
    signs = Signs()
    rules = [{"name": "begin", "pattern": "^begin$"}, {"name": "end", "pattern": "^the end$"}]
    reader = StderrReader(signs, rules, never)
    reader.feed(b"begin\n")
    until(signs.report)  # it has come up: the last look is bounded
    reader.feed(b"the end")
    reader.finish()
    assert {sign["kind"] for sign in signs.report()} == {"Rule:begin", "Rule:end"}


@pytest.mark.process
def test_a_pattern_that_is_none_is_said_and_the_others_work() -> None:
    signs = Signs()
    reader = StderrReader(signs, [{"name": "bad", "pattern": "("}, {"name": "good", "pattern": "x"}], never)
    reader.feed(b"x\n")
    until(lambda: len(signs.report()) == 2)
    reader.finish()
    kinds = {sign["kind"]: sign["text"] for sign in signs.report()}
    assert "rule bad is not understood" in kinds["Watch:Problem"]
    assert "Rule:good" in kinds


@pytest.mark.process
def test_a_catastrophic_pattern_is_given_up_and_the_others_go_on() -> None:
    signs = Signs()
    rules = [{"name": "slow", "pattern": "(a+)+$"}, {"name": "good", "pattern": "^good$"}]
    reader = StderrReader(signs, rules, never)
    began = time.monotonic()
    for _ in range(5):
        reader.feed(b"a" * 3000 + b"!\n")
    assert time.monotonic() - began < 10  # whoever feeds is not held up
    reader.feed(b"good\n")
    until(lambda: len(signs.report()) == 2)
    reader.finish()
    kinds = {sign["kind"]: sign["text"] for sign in signs.report()}
    assert kinds["Watch:Problem"] == "the pattern of rule slow takes too long and is given up"
    assert "Rule:good" in kinds


@pytest.mark.process
def test_a_reader_that_cannot_keep_up_leaves_no_process_and_no_thread() -> None:
    held = threading.Event()
    reader = StderrReader(Signs(), [{"name": "any", "pattern": "x"}], lambda: str(held.wait(DEADLINE)))
    reader.feed(b"EADDRINUSE\n")  # the reader is busy with this one from now on
    until(lambda: reader._chunks.empty())
    for _ in range(QUEUED_CHUNKS):
        reader.feed(b"x\n")
    reader.finish()
    assert not Path(f"/proc/{reader.helper}/fd").exists()
    held.set()
    until(lambda: not reader._thread.is_alive())


@pytest.mark.process
def test_once_it_is_finished_nothing_is_written_where_another_file_may_have_its_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matcher = RuleMatcher(Signs(), [{"name": "any", "pattern": "x"}])
    matcher.finish(0.1)
    written: list[int] = []
    monkeypatch.setattr(os, "write", lambda descriptor, data: written.append(descriptor))
    matcher.feed(1.0, b"x")
    assert written == []
