"""Cause and history -> action: every row of the table in docs/recovery.md."""

from dataclasses import replace

import pytest

from lockstep.api.recovery_spec import RecoverySpec
from lockstep.core.failures.actions import ONE_DAY, Case, Verb, act
from lockstep.core.failures.causes import Cause
from lockstep.core.model.reasons import AttemptCause, LossReason
from support.failure_cases import BACK, IN_PLACE, LINK, REPLACE, STOP, alike, case, cause, failed_before

MISTAKE = cause(AttemptCause.APPLICATION, by_nature=True)
APPLICATION = cause(AttemptCause.APPLICATION)
NAN = cause(AttemptCause.NAN, exited=False)
LOST = case(lost_slots=(1,))
REFUSED = cause(AttemptCause.UNKNOWN, exited=False, lost=True, on_node=True, waits=True, reason=LossReason.NODE_REFUSED)

ROWS: list[tuple[str, Cause, Case, Verb, str, bool]] = [
    # name, cause, case, verb, reason of a stop, charged
    ("finished", cause(AttemptCause.FINISHED), case(), Verb.COMPLETE, "", False),
    ("deliberate", cause(AttemptCause.DELIBERATE), case(), STOP, "StoppedByProgram", False),
    (
        "no such command",
        cause(AttemptCause.DETERMINISTIC, reason="CommandNotFound"),
        case(),
        STOP,
        "CommandNotFound",
        False,
    ),
    ("disruption", cause(AttemptCause.DISRUPTION, exited=False, lost=True), case(lost_slots=(1,)), REPLACE, "", False),
    ("ended from outside", cause(AttemptCause.DISRUPTION), case(), IN_PLACE, "", False),
    ("node lost", cause(AttemptCause.NODE_LOST, exited=False, lost=True), case(lost_slots=(1,)), REPLACE, "", False),
    (
        "node lost while the cluster is disrupted",
        cause(AttemptCause.NODE_LOST, exited=False, lost=True),
        case(held="the cluster is disrupted"),
        Verb.WAIT,
        "",
        False,
    ),
    (
        "its peers ended as well",
        cause(AttemptCause.NODE_LOST, exited=False, lost=True, victims=(0,)),
        case(held="the cluster is disrupted"),
        IN_PLACE,
        "",
        False,
    ),
    ("hardware", cause(AttemptCause.HARDWARE, on_node=True), case(), REPLACE, "", False),
    (
        "hardware without a checkpoint",
        cause(AttemptCause.HARDWARE, on_node=True),
        case(checkpoints=False),
        REPLACE,
        "",
        False,
    ),
    ("hardware by its own word", cause(AttemptCause.HARDWARE, weak=True, bare=True), case(), REPLACE, "", True),
    (
        "the same word on another node",
        cause(AttemptCause.HARDWARE, weak=True, bare=True, node="n2"),
        case(roots=alike("n1")),
        IN_PLACE,
        "",
        True,
    ),
    ("application", APPLICATION, case(), IN_PLACE, "", True),
    ("application, node first twice in a day", APPLICATION, case(first_failures=failed_before()), REPLACE, "", True),
    ("application, long ago", APPLICATION, case(first_failures=failed_before(ago=ONE_DAY + 1)), IN_PLACE, "", True),
    (
        "several at once, no node is to blame",
        cause(AttemptCause.APPLICATION, tied=(2,)),
        case(first_failures=failed_before()),
        IN_PLACE,
        "",
        True,
    ),
    (
        "a symptom, no node is to blame",
        cause(AttemptCause.APPLICATION, symptom=True),
        case(first_failures=failed_before()),
        IN_PLACE,
        "",
        True,
    ),
    ("without checkpoint", APPLICATION, case(checkpoints=False), STOP, "ProcessFailed", True),
    ("no restart allowed", APPLICATION, case(recovery=RecoverySpec(maxRestarts=0)), STOP, "MaxRestarts", True),
    ("storage", cause(AttemptCause.STORAGE, waits=True), case(), IN_PLACE, "", True),
    (
        "storage of the node, twice",
        cause(AttemptCause.STORAGE, waits=True, on_node=True),
        case(first_failures=failed_before()),
        REPLACE,
        "",
        True,
    ),
    ("a peer that could not be reached", LINK, case(), IN_PLACE, "", False),
    ("… without a checkpoint", LINK, case(checkpoints=False), IN_PLACE, "", False),
    ("… twice in a day", LINK, case(first_failures=failed_before()), REPLACE, "", False),
    ("… again and again, wherever", LINK, case(roots=alike("n2", "n3", "n4")), IN_PLACE, "", True),
    ("… and never otherwise", LINK, case(roots=alike("n2", "n3", "n4"), streak=2), STOP, "NoProgress", True),
    ("port taken", cause(AttemptCause.APPLICATION, "Port:InUse", passing=True), case(), IN_PLACE, "", False),
    (
        "port taken again and again",
        cause(AttemptCause.APPLICATION, "Port:InUse", passing=True),
        case(roots=alike(*["n1"] * 3, root="Port:InUse", step=0)),
        IN_PLACE,
        "",
        True,
    ),
    ("memory of the host", cause(AttemptCause.OUT_OF_MEMORY), case(), IN_PLACE, "", True),
    ("memory, no step", cause(AttemptCause.OUT_OF_MEMORY), case(step=None), STOP, "OutOfMemory", True),
    ("memory again", cause(AttemptCause.OUT_OF_MEMORY), case(roots=alike("n1")), STOP, "OutOfMemory", True),
    (
        "memory again, saved between",
        cause(AttemptCause.OUT_OF_MEMORY),
        case(roots=alike("n1"), progressed=True),
        IN_PLACE,
        "",
        True,
    ),
    ("a limit of the pod", cause(AttemptCause.LIMIT_EXCEEDED, exited=False, lost=True), LOST, REPLACE, "", True),
    (
        "a limit of the pod again",
        cause(AttemptCause.LIMIT_EXCEEDED, exited=False, lost=True),
        replace(LOST, roots=alike("n1")),
        STOP,
        "LimitExceeded",
        True,
    ),
    (
        "a limit of the pod again, elsewhere in the training",
        cause(AttemptCause.LIMIT_EXCEEDED, exited=False, lost=True),
        replace(LOST, roots=alike("n2", step=10)),
        STOP,
        "LimitExceeded",
        True,
    ),
    (
        "a limit of the pod again, saved between",
        cause(AttemptCause.LIMIT_EXCEEDED, exited=False, lost=True),
        replace(LOST, roots=alike("n1"), progressed=True),
        REPLACE,
        "",
        True,
    ),
    ("refused by its node", REFUSED, LOST, REPLACE, "", False),
    ("refused by node after node", REFUSED, replace(LOST, roots=alike("n2", "n3", "n4")), REPLACE, "", False),
    ("refused, other failures before", REFUSED, replace(LOST, streak=2, allowed=3), REPLACE, "", False),
    (
        "START not acknowledged on node after node",
        cause(AttemptCause.UNKNOWN, exited=False, lost=True, on_node=True, reason="StartNotAcknowledged"),
        replace(LOST, roots=alike("n2", "n3")),
        REPLACE,
        "",
        False,
    ),
    ("like failure on another node", APPLICATION, case(roots=alike("n2")), STOP, "Deterministic", True),
    ("like failure elsewhere in the training", APPLICATION, case(roots=alike("n2", step=60)), IN_PLACE, "", True),
    ("like failure, saved between", APPLICATION, case(roots=alike("n2"), progressed=True), IN_PLACE, "", True),
    (
        "like failure, same node, another step: the node",
        APPLICATION,
        case(roots=alike("n1", step=60), first_failures=failed_before()),
        REPLACE,
        "",
        True,
    ),
    ("only a number alike", cause(AttemptCause.APPLICATION, bare=True), case(roots=alike("n2")), IN_PLACE, "", True),
    (
        "only a number alike, thrice",
        cause(AttemptCause.APPLICATION, bare=True),
        case(roots=alike("n2", "n3"), allowed=9),
        STOP,
        "Deterministic",
        True,
    ),
    ("mistake before the first step", MISTAKE, case(step=None), IN_PLACE, "", True),
    (
        "the same mistake on another node",
        MISTAKE,
        case(step=None, roots=alike("n2", step=0)),
        STOP,
        "Deterministic",
        True,
    ),
    (
        "the same mistake on the same node is not the node's",
        MISTAKE,
        case(step=None, roots=alike("n1", step=0), first_failures=failed_before()),
        IN_PLACE,
        "",
        True,
    ),
    (
        "the same mistake for the third time",
        MISTAKE,
        case(step=None, roots=alike("n1", "n1", step=0), allowed=9),
        STOP,
        "Deterministic",
        True,
    ),
    (
        "the same mistake for the third time, at the same batch",
        MISTAKE,
        case(roots=alike("n1", "n1"), allowed=9),
        STOP,
        "Deterministic",
        True,
    ),
    ("the same mistake twice, at the same batch", MISTAKE, case(roots=alike("n1"), allowed=9), IN_PLACE, "", True),
    (
        "the same mistake of a run of one node",
        MISTAKE,
        case(step=None, nodes=1, roots=alike("n1", step=0)),
        STOP,
        "Deterministic",
        True,
    ),
    ("hang", cause(AttemptCause.HANG, exited=False), case(), IN_PLACE, "", True),
    (
        "hang of the same node",
        cause(AttemptCause.HANG, exited=False),
        case(first_failures=failed_before()),
        REPLACE,
        "",
        True,
    ),
    (
        "hang where nobody stands out",
        cause(AttemptCause.HANG, exited=False, tied=(0, 2)),
        case(first_failures=failed_before()),
        IN_PLACE,
        "",
        True,
    ),
    ("NaN", NAN, case(), BACK, "", False),
    ("NaN after three roll-backs", NAN, case(roll_backs=3), STOP, "Diverged", False),
    ("NaN, onNaN: Stop", cause(AttemptCause.NAN), case(recovery=RecoverySpec(onNaN="Stop")), STOP, "Diverged", False),
    (
        "NaN, onNaN: Ignore, and it ended",
        cause(AttemptCause.NAN),
        case(recovery=RecoverySpec(onNaN="Ignore")),
        IN_PLACE,
        "",
        True,
    ),
    ("NaN without a checkpoint", NAN, case(checkpoints=False), STOP, "Diverged", False),
    ("loss spike", cause(AttemptCause.LOSS_SPIKE, exited=False), case(), BACK, "", False),
    ("straggler", cause(AttemptCause.STRAGGLER, exited=False), case(), REPLACE, "", False),
    ("corrupt checkpoint", cause(AttemptCause.CORRUPT_CHECKPOINT), case(step=None), BACK, "", False),
    ("corrupt, after steps were made", cause(AttemptCause.CORRUPT_CHECKPOINT), case(), IN_PLACE, "", True),
    (
        "corrupt, and nothing was loaded",
        cause(AttemptCause.CORRUPT_CHECKPOINT),
        case(resumed=None, step=None),
        IN_PLACE,
        "",
        True,
    ),
    (
        "unknown",
        cause(AttemptCause.UNKNOWN, lost=True, exited=False, reason="PodFailed"),
        case(lost_slots=(1,)),
        REPLACE,
        "",
        True,
    ),
    (
        "not acknowledged",
        cause(AttemptCause.UNKNOWN, lost=True, exited=False, reason="StartNotAcknowledged"),
        case(lost_slots=(1,)),
        REPLACE,
        "",
        False,
    ),
    ("no progress", APPLICATION, case(streak=2, allowed=3), STOP, "NoProgress", True),
    ("no progress, but saved", APPLICATION, case(streak=2, allowed=3, progressed=True), IN_PLACE, "", True),
    (
        "cap of restarts",
        cause(AttemptCause.NODE_LOST, lost=True),
        case(lost_slots=(1,), recovery=RecoverySpec(maxRestarts=5), restarts=5),
        STOP,
        "MaxRestarts",
        False,
    ),
]


@pytest.mark.parametrize(
    ("why", "known", "verb", "reason", "charged"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_the_table(why: Cause, known: Case, verb: Verb, reason: str, charged: bool) -> None:
    action = act(why, known)
    assert (action.verb, action.reason, action.charged) == (verb, reason, charged), action
    assert action.then


@pytest.mark.parametrize(("allowed", "words"), [(1, "1 attempt in a row ended"), (3, "3 attempts in a row ended")])
def test_how_many_attempts_saved_nothing_is_said(allowed: int, words: str) -> None:
    known = case(streak=allowed - 1, allowed=allowed)
    assert words in act(cause(AttemptCause.APPLICATION), known).message


def test_a_deterministic_failure_says_what_to_do() -> None:
    action = act(cause(AttemptCause.APPLICATION), case(roots=alike("n2")))
    assert "2 times" in action.message
    assert "n1, n2" in action.message
    assert "correct it" in action.message
    assert "lockstep logs llama" in action.message


def test_image_without_python_is_said_with_its_remedy() -> None:
    why = cause(AttemptCause.UNKNOWN, lost=True, exited=False, reason="PodFailed")
    why = replace(why, evidence=replace(why.evidence, message='"python3": executable file not found in $PATH'))
    assert act(why, case(lost_slots=(1,))).reason == "PythonNotFound"


@pytest.mark.parametrize(("before", "verb"), [(110, STOP), (109, IN_PLACE), (130, STOP), (131, IN_PLACE)])
def test_the_same_place_is_ten_steps_wide(before: int, verb: Verb) -> None:
    assert act(cause(AttemptCause.APPLICATION), case(roots=alike("n2", step=before))).verb is verb
