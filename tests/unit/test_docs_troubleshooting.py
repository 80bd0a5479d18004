"""docs/troubleshooting.md against the words that the code writes into status and events."""

import ast
import re
from pathlib import Path

from lockstep.core.failures.signs import HOPELESS_EXITS, Kind
from lockstep.core.model.conditions import TYPES
from lockstep.core.run.launching import Stage

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "lockstep"
WORKER_PAGE = (ROOT / "docs" / "worker.md").read_text(encoding="utf-8")
"""Explains how a process ended."""
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")

DECIDING = (
    *("core/" + name for name in ("barrier.py", "decide.py", "evidence.py", "launching.py", "lifecycle.py")),
    *("core/" + name for name in ("recovery.py", "regression.py", "report.py", "stopping.py", "resume.py")),
    *(
        "core/admission/admit.py",
        "core/admission/pending_status.py",
        "core/admission/extensions.py",
        "core/admission/refill.py",
        "core/admission/cache/excluded_runs.py",
        "core/admission/engine/cycle_result.py",
        "core/admission/queueing/holds.py",
        "core/admission/kueue_admission.py",
        "core/admission/queueing/queue_problems.py",
        "core/admission/queue_status.py",
        "core/admission/reservations.py",
        "core/model/tunables.py",
        "core/checkpoints/archiving.py",
    ),
    *("core/" + name for name in ("actions.py", "replacement.py", "roll_back.py", "accounting/account.py")),
    *("core/" + name for name in ("saves.py", "drain.py", "leaving.py", "requests.py", "time_limit.py")),
    *("core/" + name for name in ("spares.py", "elastic.py", "fencing.py", "origin.py", "pointing.py", "preflight.py")),
    "core/run/resume_point.py",
    "core/run/waiting.py",
    "core/run/kueue_follow.py",
    "core/model/test_only.py",
    *("core/arrays/run_set.py", "core/arrays/tally.py", "core/arrays/correspondence.py"),
    *("core/" + name for name in ("plain_gang.py", "plain_evidence.py", "plain_recovery.py", "plain_report.py")),
    "controller/reconcile/execute.py",
)
"""Where reasons come from."""

CAMEL_CASE = re.compile(r"[A-Z][a-z]+([A-Z][A-Za-z]*)*")

NO_REASONS = frozenset(
    {
        *TYPES,  # kinds of conditions; those that are reasons as well are checked by their own test
        *("True", "False", "Unknown", "Normal", "Warning"),
        # Values of spec and configuration.
        *("Auto", "Fresh", "Require", "Required", "TorchDCP", "Active", "Migrate", "Requeue", "Ignore"),
        *("None", "Never", "Block", "Full"),
        *("Megatron", "DeepSpeed", "HuggingFace", "NeMo", "Pointer", "Disabled"),
        *("Point", "WarmUp", "Preempt", "CreatePodGroup"),  # actions of events
        "AlreadyExists",  # of the API server
        *("Kueue", "Label", "Ready"),  # a backend, what named its queue, and the state of an admission check
        "StartError",  # of a container runtime
        "Archive",  # the action of every event about the archive
        *("Record", "CreateRun", "Waiting", "Cancel"),  # of arrays: actions of events, values of spec
        "Shared",  # a layout
        *("Valid", "Other"),  # a queue without mistakes, and its nodes of no configured GPU type
        # How an archive job ended; docs/checkpoints.md explains these.
        *("SourceInvalid", "SourceVanished", "Conflict", "ArchiveCorrupt", "NotPublished"),
        # Of an action; those that are written anywhere have other words.
        *("Complete", "ReplaceNodes"),
        # Of a resume decision; only those that block a start are written anywhere.
        *("Resume", "Verify", "Wait", "Blocked", "Restore", "List", "CheckpointInArchive", "ArchiveAsked"),
        *("CheckpointValid", "CheckpointUnknown", "CheckpointBeingRead", "NothingSaved", "StartModeFresh"),
    }
)


def words_in_code() -> dict[str, str]:
    """Every CamelCase string of the deciding modules, and a place where it stands."""
    found: dict[str, str] = {}
    for name in DECIDING:
        for node in ast.walk(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CAMEL_CASE.fullmatch(node.value):
                found.setdefault(node.value, f"{name}:{node.lineno}")
    reasons = {kind.value for kind in Kind if kind is not Kind.FINISHED} | HOPELESS_EXITS
    return found | dict.fromkeys(reasons, "core/failures/signs.py")


def words_on_page() -> set[str]:
    """What the page explains: code words in the first column of a table, headings, and words set as code."""
    return set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE)) | set(re.findall(r"^## (\w+)", PAGE, re.MULTILINE))


def test_every_reason_is_explained_in_the_troubleshooting_page() -> None:
    explained = words_on_page() | set(re.findall(r"`([A-Z][A-Za-z]+)`", WORKER_PAGE)) | NO_REASONS
    missing = {word: place for word, place in words_in_code().items() if word not in explained}
    assert not missing, "explain these in docs/troubleshooting.md, or say in NO_REASONS why they are none"


def test_the_page_explains_no_reason_that_the_code_does_not_know() -> None:
    in_first_column = {
        word for row in re.findall(r"^\| (`[^|]+) \|", PAGE, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    }
    assert in_first_column <= set(words_in_code())


def test_conditions_have_a_heading_each() -> None:
    for kind in TYPES:
        assert re.search(rf"^## .*\b{kind}\b", PAGE, re.MULTILINE), kind


def test_every_stage_of_a_launch_is_explained() -> None:
    for stage in Stage:
        assert stage is Stage.READY or f"| {stage.value} |" in PAGE, stage.value
