"""docs/troubleshooting.md against the enumerations of reasons: each member has its row, each row is a member."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.core.model.conditions import TYPES
from lockstep.core.model.reasons import (
    ActionWord,
    ArchiveFailure,
    AttemptCause,
    AttemptEnd,
    ConditionReason,
    EventReason,
    ExitReason,
    LossReason,
    PreemptionReason,
    QueueReason,
    RequestResult,
    SetReason,
    ShownReason,
    StopReason,
    WaitReason,
)
from lockstep.core.run.launching import Stage

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
KINDS = {
    "Accepted": (ConditionReason, ShownReason),
    "Admitted and `status.queue`": (WaitReason, ConditionReason, ShownReason),
    "GangReady": (ConditionReason,),
    "Progressing": (ConditionReason,),
    "Suspended": (ConditionReason,),
    "`status.attempts`: causes": (AttemptCause, AttemptEnd, StopReason, LossReason, ActionWord),
    "Finished and Succeeded": (StopReason, ShownReason, ConditionReason, RequestResult),
    "StateRegression": (ConditionReason,),
    "Undecidable": (ConditionReason,),
    "AtFullSize": (ConditionReason,),
    "ClusterDisruption": (ConditionReason,),
    "Diverging and Straggling": (ConditionReason,),
    "KueueReservation": (ConditionReason,),
    "ScaleUp": (ConditionReason,),
    "Active and Valid of a TrainingQueue": (QueueReason,),
    "A TrainingRunSet": (SetReason,),
    "Events": (EventReason, PreemptionReason),
}
"""What the tables and paragraphs of each section explain."""
COLUMNS = ("Reason", "Cause", "Action")


def rows_of(section: str) -> Iterator[str]:
    """The words that the tables of a section are about."""
    column = None
    for line in SECTIONS[section].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            column = None
        elif column is None:
            column = next((at for at, cell in enumerate(cells) if cell.strip("| ") in COLUMNS), len(cells))
        elif column < len(cells):
            yield from re.findall(r"`([A-Z]\w+)`", cells[column])


def code_of(text: str) -> set[str]:
    """Words set as code."""
    return set(re.findall(r"`([A-Z]\w+)`", text))


def test_the_tables_of_every_section_are_read() -> None:
    unread = {title for title, text in SECTIONS.items() if title not in KINDS and re.search(r"^\| `[A-Z]", text, re.M)}
    assert not unread
    assert len(list(rows_of("Events"))) > 40
    assert {"InvalidSpec", "RunRefused"} <= set(rows_of("A TrainingRunSet"))


@pytest.mark.parametrize("section", KINDS)
def test_a_row_is_a_member_of_its_kind(section: str) -> None:
    members = {member for kind in KINDS[section] for member in kind}
    assert set(rows_of(section)) <= members


@pytest.mark.parametrize(
    "kind", sorted({kind for kinds in KINDS.values() for kind in kinds}, key=lambda kind: kind.__name__)
)
def test_every_reason_is_explained_under_its_kind(kind: type) -> None:
    explained = set().union(*(code_of(SECTIONS[title]) for title, kinds in KINDS.items() if kind in kinds))
    if kind is EventReason:  # those that are the reason of something else as well are explained there
        explained |= code_of(PAGE)
    assert set(kind) - {AttemptCause.FINISHED} <= explained, "explain these in docs/troubleshooting.md"


def test_the_row_of_every_end_names_the_command_that_goes_on() -> None:
    """Of a run that has ended nothing can be changed: a remedy in its spec is one for a new run."""
    ends = re.findall(r"^\| (`[A-Z].*)$", SECTIONS["Finished and Succeeded"].partition("While a run stops")[0], re.M)
    without = {row.partition(" |")[0] for row in ends if "`lockstep retry NAME" not in row}
    assert without == {"`AllRanksSucceeded`"}
    assert len(ends) > 20


def test_how_processes_and_archive_jobs_end_is_explained_on_their_own_pages() -> None:
    for kind, page in ((ExitReason, "worker.md"), (ArchiveFailure, "checkpoints.md")):
        assert set(kind) <= code_of((DOCS / page).read_text(encoding="utf-8"))


def test_conditions_have_a_heading_each() -> None:
    for kind in TYPES:
        assert re.search(rf"^## .*\b{kind}\b", PAGE, re.MULTILINE), kind


def test_every_stage_of_a_launch_is_explained() -> None:
    for stage in Stage:
        assert stage is Stage.READY or f"| {stage.value} |" in PAGE, stage.value
