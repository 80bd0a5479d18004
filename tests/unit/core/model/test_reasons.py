"""Reasons by kind: plain strings to whoever reads them, and the same words wherever they are spelt."""

import ast
import copy
import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import orjson
import pytest

from lockstep.api.run_status import StopStatus, TrainingRunStatus
from lockstep.archive.outcomes import REASONS
from lockstep.controller.metrics.exporter import ENDS, PREEMPTED_FOR
from lockstep.core.admission.kueue_admission import KUEUES
from lockstep.core.failures.actions import Verb
from lockstep.core.failures.evidence import LossKind
from lockstep.core.failures.signs import HOPELESS_EXITS, STOPPED_FROM_OUTSIDE
from lockstep.core.model.conditions import with_condition
from lockstep.core.model.lifecycle import Outcome, Phase
from lockstep.core.model.reasons import (
    ActionWord,
    AnyReason,
    ArchiveFailure,
    AttemptCause,
    AttemptEnd,
    ConditionReason,
    ConditionType,
    EventReason,
    ExitReason,
    LossReason,
    PreemptionReason,
    QueueReason,
    SetReason,
    ShownReason,
    StopReason,
    WaitReason,
)
from lockstep.core.model.tunables import Mode
from lockstep.present.explanation import ACTIONS, WAITS
from support.sources import PACKAGE, nodes, trees

ROOT = Path(__file__).parents[4]
KINDS = (*AnyReason.__subclasses__(), ActionWord, ConditionType, Phase, Outcome)
WORDS = [word for kind in KINDS for word in kind]
PANELS = (ROOT / "charts/lockstep/files/alerts.yaml", *sorted((ROOT / "charts/dashboards").glob("*.yaml")))
ENDS_OF_ATTEMPTS = {*AttemptCause, *AttemptEnd, *StopReason, *LossReason} - {AttemptCause.FINISHED}
LABELS = {
    "cause": ENDS_OF_ATTEMPTS,
    "action": {*ActionWord},
    "reason": {*WaitReason, *ConditionReason, *ShownReason, *PreemptionReason},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_member_is_called_as_it_is_spelt(kind: type[AnyReason]) -> None:
    for word in kind:
        assert word.name.replace("_", "").lower() == word.value.lower()
        assert re.fullmatch(r"[A-Z][A-Za-z]+", word.value)


@pytest.mark.parametrize(
    "written",
    [
        str,
        format,
        "{}".format,
        "%s".__mod__,
        "".join,
        lambda word: json.loads(json.dumps([word]))[0],
        lambda word: orjson.loads(orjson.dumps([word]))[0],
        lambda word: orjson.loads(orjson.dumps([word], option=orjson.OPT_PASSTHROUGH_SUBCLASS))[0],
        lambda word: next(iter(json.loads(json.dumps({word: 1})))),
        lambda word: msgspec.json.decode(msgspec.json.encode([word]))[0],
        lambda word: StopStatus(reason=word, message="", time=0.0, deadline=0.0).reason,
    ],
)
def test_a_member_is_written_as_its_word(written: Callable[[str], str]) -> None:
    for word in WORDS:
        found = written(word)
        assert type(found) is str
        assert found == word.value


def test_a_member_is_found_by_what_stands_in_status() -> None:
    for word in WORDS:
        read = orjson.loads(orjson.dumps(word.value))
        assert word == read
        assert read in {word}
        assert {read: 1}[word] == 1
        assert pickle.loads(pickle.dumps(word)) is copy.deepcopy(word) is word


def test_a_condition_holds_a_plain_string() -> None:
    status = with_condition(
        TrainingRunStatus(), ConditionType.ACCEPTED, False, ConditionReason.INVALID_SPEC, "", now=0.0, generation=1
    )
    assert type(status.conditions[0].type) is type(status.conditions[0].reason) is str


def test_words_of_other_enumerations_are_reasons_where_they_are_given_as_such() -> None:
    assert {ConditionReason(phase.value) for phase in Phase}
    assert {EventReason(kind.value) for kind in LossKind}
    assert {ActionWord(verb.value) for verb in Verb if verb is not Verb.REPLACE_NODES}
    for mode in set(Mode) - {Mode.ACTIVE}:
        assert WaitReason(mode.value) == QueueReason(mode.value)
    assert {StopReason(word.value) for word in HOPELESS_EXITS}
    assert set(ExitReason) > STOPPED_FROM_OUTSIDE
    assert set(KUEUES) < set(WaitReason)
    assert {reason.word for reason in REASONS} == set(ArchiveFailure)


def test_a_worker_ends_processes_with_the_words_that_are_read() -> None:
    spelt = {node.value for _, node in nodes(ast.Constant, PACKAGE / "worker")}
    assert set(ExitReason) <= spelt


def test_the_command_line_has_words_for_every_pending_reason_and_for_no_other() -> None:
    assert set(WAITS) == set(WaitReason), "say in WAITS of present/explanation.py what such a run waits for"
    assert set(ACTIONS) <= set(ActionWord)


def test_metrics_tell_of_reasons_that_there_are() -> None:
    assert {cause for cause, _ in ENDS} <= {*AttemptCause}
    assert set(PREEMPTED_FOR) == set(PreemptionReason)


def chosen_by_label() -> Iterator[tuple[str, str, str]]:
    """(file, label, word) of every reason that an alert or a panel chooses series by."""
    for path in PANELS:
        for label, words in re.findall(
            r"\b(cause|action|reason)[=!]~?\\?\"([^\"\\]+)", path.read_text(encoding="utf-8")
        ):
            yield from ((path.name, label, word) for word in words.split("|"))


def test_alerts_and_panels_choose_by_reasons_that_are_written() -> None:
    found = list(chosen_by_label())
    assert {name for name, *_ in found} == {"alerts.yaml", "nodes.yaml"}
    assert [each for each in found if each[2] not in LABELS[each[1]]] == []


def spelt_out(tree: ast.AST) -> Iterator[ast.Constant]:
    """Strings of a module, but for those of types and enumerations."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            continue
        if isinstance(node, ast.ClassDef) and any(
            isinstance(b, ast.Name) and b.id in ("StrEnum", "AnyReason") for b in node.bases
        ):
            continue
        if isinstance(node, ast.Constant):
            yield node
        yield from spelt_out(node)


def test_no_module_spells_a_reason_condition_type_or_phase_for_itself() -> None:
    """Where the word means nothing else, that is. Types of conditions are given as such: mypy finds the other words."""
    kinds = (WaitReason, StopReason, LossReason, ConditionReason, EventReason, QueueReason, SetReason, ShownReason)
    reasons = {word for kind in kinds for word in kind if re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)+", word)}
    words = (reasons - NO_REASONS) | ({*ConditionType, *Phase, *Outcome} - AMBIGUOUS)
    for path, tree in trees().items():
        if path.relative_to(PACKAGE).parts[0] in ("worker", "archive", "api"):
            continue
        found = {node.value: node.lineno for node in spelt_out(tree)}
        assert not found.keys() & words, path


NO_REASONS = {"NodeLost", "OutOfMemory"}
"""Why the kubelet ended a pod; what failures that look alike share."""
AMBIGUOUS = {"Active", "Admitted", "Failed", "Finished", "Pending", "Stopping", "Succeeded"}
"""States of pods, jobs and Workloads, conditions of dependencies, verdicts, column heads."""
