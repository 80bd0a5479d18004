"""Cause and history -> action: every row of the table in docs/recovery.md."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lockstep.api.recovery_spec import RecoveryRule, RecoverySpec
from lockstep.api.recovery_status import FailureRoot, FirstFailure
from lockstep.core.failures.actions import ONE_DAY, Action, Case, Verb, act
from lockstep.core.failures.causes import Cause, Evidence
from lockstep.core.failures.signs import Reading
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import AttemptCause, LossReason

NOW = 1_000_000.0


def cause(kind: AttemptCause, root: str = "some root", *, node: str = "n1", slot: int = 1, **more: object) -> Cause:
    reading_fields = {"symptom", "bare", "by_nature", "weak", "waits", "on_node", "passing", "link"}
    traits = {name: value for name, value in more.items() if name in reading_fields}
    rest = {"exited": True} | {name: value for name, value in more.items() if name not in reading_fields}
    tied, slots = rest.pop("tied", ()), rest.pop("slots", ())
    evidence = Evidence(kind.value, slot, node, NOW, "what was seen", root, tied=tied, slots=slots)  # type: ignore[arg-type]
    return Cause(evidence, Reading(kind, root, **traits), **rest)  # type: ignore[arg-type]


def case(**changes: object) -> Case:
    known = Case(
        now=NOW,
        recovery=RecoverySpec(),
        nodes=4,
        run="llama",
        step=120,
        resumed=("shared", Save(100, 1)),
        valid_steps=(110, 100, 90),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


def failed_before(*, node: str = "n1", ago: float = 3600.0) -> tuple[FirstFailure, ...]:
    return (FirstFailure(node=node, time=NOW - ago),)


def alike(*nodes: str, step: int = 120, root: str = "some root") -> tuple[FailureRoot, ...]:
    return (FailureRoot(root=root, count=len(nodes), nodes=nodes, steps=(step,) * len(nodes)),)


def rules(*entries: dict[str, object]) -> RecoverySpec:
    return RecoverySpec(rules=tuple(RecoveryRule.model_validate(entry) for entry in entries))


IN_PLACE, REPLACE, STOP, BACK = Verb.RESTART_IN_PLACE, Verb.REPLACE_NODES, Verb.STOP, Verb.ROLL_BACK
MISTAKE = cause(AttemptCause.APPLICATION, by_nature=True)
APPLICATION = cause(AttemptCause.APPLICATION)
NAN = cause(AttemptCause.NAN, exited=False)

LINK = cause(AttemptCause.UNKNOWN, link=True, waits=True, slots=(0, 1))
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


def test_only_what_the_evidence_points_at_leaves_its_node() -> None:
    assert act(cause(AttemptCause.HARDWARE), case()).slots == (1,)
    assert act(cause(AttemptCause.HANG, exited=False, slots=(3,)), case(first_failures=failed_before())).slots == (1, 3)
    assert act(cause(AttemptCause.APPLICATION), case()).slots == ()


def test_of_two_nodes_that_do_not_reach_each_other_the_one_that_is_named_leaves() -> None:
    assert act(LINK, case(first_failures=failed_before(), suspects=frozenset({"n0", "n1"}))).slots == (1,)


def test_a_suspect_that_failed_before_counts_although_another_comes_first() -> None:
    hang = cause(AttemptCause.HANG, exited=False, slots=(3,))
    known = case(first_failures=failed_before(node="n3"))
    assert act(hang, known).verb is IN_PLACE
    assert act(hang, replace(known, suspects=frozenset({"n3"}))).slots == (1, 3)


def test_a_node_lost_twice_in_a_day_is_not_taken_back() -> None:
    lost = cause(AttemptCause.NODE_LOST, exited=False, lost=True)
    assert act(lost, case(lost_slots=(1,))).slots == ()
    assert act(lost, case(lost_slots=(1,), first_failures=failed_before())).slots == (1,)


def test_no_further_node_is_excluded_than_the_limit_allows_and_it_is_said() -> None:
    enough = "2 nodes were excluded within an hour, and 2 are the most"
    kept = act(cause(AttemptCause.APPLICATION), case(first_failures=failed_before(), excluded_enough=enough))
    assert (kept.verb, kept.slots, kept.alert) == (IN_PLACE, (), enough)
    broken = act(cause(AttemptCause.HARDWARE), case(excluded_enough=enough))
    assert (broken.verb, broken.alert) == (REPLACE, enough)


# (local 120 quarantined, shared 100 and 90 are left): NaN within ten steps of the load of a local checkpoint
@pytest.mark.parametrize(
    ("resumed", "step", "verb", "quarantined"),
    [
        (("local", Save(120, 1)), 123, BACK, ("local", Save(120, 1))),
        (("local", Save(120, 1)), 130, BACK, ("local", Save(120, 1))),
        (("local", Save(120, 1)), 131, BACK, None),
        (("shared", Save(120, 1)), 123, BACK, None),
    ],
)
def test_nan_soon_after_a_local_load_is_put_down_to_what_was_loaded(
    resumed: tuple[str, Save], step: int, verb: Verb, quarantined: tuple[str, Save] | None
) -> None:
    action = act(cause(AttemptCause.NAN, exited=False), case(resumed=resumed, step=step, valid_steps=(120, 100, 90)))
    assert (action.verb, action.quarantine) == (verb, quarantined)
    assert (action.ceiling is None) is (quarantined is not None)
    assert quarantined is None or "step 120 of attempt 1 (local) is not loaded again" in action.then


@pytest.mark.parametrize(("known", "is_charged"), [(15, False), (16, True)])
def test_checkpoints_that_cannot_be_loaded_count_once_no_more_of_them_can_be_remembered(
    known: int, is_charged: bool
) -> None:
    action = act(cause(AttemptCause.CORRUPT_CHECKPOINT), case(step=None, quarantined=known))
    assert (action.verb, action.charged) == (BACK, is_charged)


@pytest.mark.parametrize(("before", "verb"), [(110, STOP), (109, IN_PLACE), (130, STOP), (131, IN_PLACE)])
def test_the_same_place_is_ten_steps_wide(before: int, verb: Verb) -> None:
    assert act(cause(AttemptCause.APPLICATION), case(roots=alike("n2", step=before))).verb is verb


@pytest.mark.parametrize(
    ("kind", "limit", "is_charged"),
    [
        (AttemptCause.APPLICATION, None, True),
        (AttemptCause.APPLICATION, 5, False),
        (AttemptCause.HARDWARE, None, False),
    ],
)
def test_what_a_rule_decides_counts_unless_the_machine_failed_or_the_rule_has_a_limit_of_its_own(
    kind: AttemptCause, limit: int | None, is_charged: bool
) -> None:
    rule = {"name": "r", "exitCodes": [42], "action": "ReplaceNode"} | ({"limit": limit} if limit else {})
    assert act(cause(kind, exit_code=42), case(recovery=rules(rule))).charged is is_charged


def test_without_a_checkpoint_a_rule_that_rolls_back_starts_again() -> None:
    recovery = rules({"name": "r", "exitCodes": [42], "action": "RollBack"})
    action = act(cause(AttemptCause.APPLICATION, exit_code=42), case(recovery=recovery, checkpoints=False))
    assert (action.verb, action.ceiling, action.rule) == (IN_PLACE, None, "r")


@pytest.mark.parametrize(("roll_backs", "ceiling"), [(0, 80), (1, 70), (2, 50)])
def test_each_roll_back_goes_twice_as_far_beyond_the_newest_valid_checkpoint(roll_backs: int, ceiling: int) -> None:
    known = case(step=97, diverged_step=95, valid_steps=(96, 95, 90, 80, 70, 60, 50, 40), roll_backs=roll_backs)
    assert act(cause(AttemptCause.NAN, exited=False), known).ceiling == ceiling


def test_a_roll_back_ends_at_the_oldest_checkpoint_and_at_the_beginning_without_any() -> None:
    assert act(cause(AttemptCause.NAN, exited=False), case(valid_steps=(90,), roll_backs=2)).ceiling == 90
    assert act(cause(AttemptCause.NAN, exited=False), case(valid_steps=(), step=None)).ceiling == 0


def test_it_is_said_when_there_is_nothing_older_to_go_back_to() -> None:
    only = case(valid_steps=(90,), step=91, diverged_step=91, resumed=("shared", Save(90)))
    assert "step 90 again, as nothing older is valid" in act(cause(AttemptCause.NAN, exited=False), only).then
    last = act(cause(AttemptCause.NAN, exited=False), replace(only, roll_backs=3))
    assert (last.reason, "nothing older than step 90 is valid" in last.message) == ("Diverged", True)


def test_a_checkpoint_after_which_training_diverges_alike_a_second_time_is_not_loaded_a_third_time() -> None:
    known = case(valid_steps=(90, 80), step=91, diverged_step=91, resumed=("shared", Save(90, 1)), roll_backs=1)
    assert act(cause(AttemptCause.NAN, exited=False), known).quarantine is None
    again = act(cause(AttemptCause.NAN, exited=False), replace(known, alike_before=1))
    assert (again.verb, again.quarantine) == (BACK, ("shared", Save(90, 1)))
    assert "diverged 2 times at the same place" in again.then


@pytest.mark.parametrize(("before", "tied", "verb"), [(1, (), BACK), (1, (0,), STOP), (2, (), STOP)])
def test_the_only_checkpoint_is_tried_on_another_machine_at_most_and_not_four_times(
    before: int, tied: tuple[int, ...], verb: Verb
) -> None:
    only = case(valid_steps=(90,), step=91, diverged_step=91, resumed=("shared", Save(90)), roll_backs=before)
    action = act(cause(AttemptCause.NAN, exited=False, tied=tied), replace(only, alike_before=before))
    assert action.verb is verb
    assert action.slots == ((1,) if verb is BACK else ())
    assert verb is BACK or (action.reason, "nothing older is valid" in action.message) == ("Diverged", True)


def test_a_roll_back_leaves_room_for_checkpoints_that_nobody_has_told_of_yet() -> None:
    for known in (case(valid_steps=(), diverged_step=95), case(valid_steps=(110, 100), diverged_step=95)):
        assert act(cause(AttemptCause.NAN, exited=False), known).ceiling == 94


def test_a_rank_that_alone_saw_nan_first_twice_gets_another_node() -> None:
    assert act(cause(AttemptCause.NAN, exited=False), case(roll_backs=0)).slots == ()
    assert act(cause(AttemptCause.NAN, exited=False), case(roll_backs=1)).slots == (1,)
    assert act(cause(AttemptCause.NAN, exited=False, tied=(0,)), case(roll_backs=1)).slots == ()


class TestRules:
    """The user's rules go before everything but the loss of a node."""

    def test_an_exit_code(self) -> None:
        known = case(recovery=rules({"name": "gone", "exitCodes": [42], "action": "Stop"}))
        assert act(cause(AttemptCause.APPLICATION, exit_code=42), known).reason == "StoppedByRule"
        assert act(cause(AttemptCause.APPLICATION, exit_code=43), known).verb is IN_PLACE

    def test_a_line_of_the_log(self) -> None:
        known = case(recovery=rules({"name": "fabric", "logPattern": "link down", "action": "ReplaceNode"}))
        assert act(cause(AttemptCause.APPLICATION), known).verb is IN_PLACE
        decided = act(cause(AttemptCause.APPLICATION), replace(known, seen_rules=frozenset({"fabric"})))
        assert (decided.verb, decided.slots, decided.rule) == (REPLACE, (1,), "fabric")

    def test_a_condition_of_the_node(self) -> None:
        known = case(recovery=rules({"name": "gpu", "nodeCondition": "GpuUnhealthy", "action": "ReplaceNode"}))
        assert act(cause(AttemptCause.APPLICATION), replace(known, conditions=frozenset({"GpuUnhealthy"}))).slots == (
            1,
        )
        assert act(cause(AttemptCause.APPLICATION), known).rule == ""

    def test_everything_a_rule_names_must_fit(self) -> None:
        rule = {"name": "both", "exitCodes": [42], "nodeCondition": "GpuUnhealthy", "action": "Stop"}
        assert act(cause(AttemptCause.APPLICATION, exit_code=42), case(recovery=rules(rule))).rule == ""

    def test_the_first_that_fits_decides(self) -> None:
        known = case(
            recovery=rules(
                {"name": "first", "exitCodes": [42], "action": "RollBack"},
                {"name": "second", "exitCodes": [42], "action": "Stop"},
            )
        )
        decided = act(cause(AttemptCause.DELIBERATE, exit_code=42), known)
        assert (decided.verb, decided.rule, decided.ceiling) == (BACK, "first", 100)

    def test_a_limit_takes_the_place_of_the_no_progress_limit(self) -> None:
        rule = {"name": "busy", "exitCodes": [42], "action": "RestartInPlace", "limit": 5}
        known = case(recovery=rules(rule), streak=2, allowed=3, rules_used={"busy": 4})
        decided = act(cause(AttemptCause.APPLICATION, exit_code=42), known)
        assert (decided.verb, decided.charged) == (IN_PLACE, False)
        assert (
            act(cause(AttemptCause.APPLICATION, exit_code=42), replace(known, rules_used={"busy": 5})).reason
            == "RuleLimit"
        )

    @pytest.mark.parametrize(("limit", "words"), [(1, "has decided 1 time, which"), (2, "has decided 2 times, which")])
    def test_how_often_it_has_decided_is_said(self, limit: int, words: str) -> None:
        rule = {"name": "busy", "exitCodes": [42], "action": "RestartInPlace", "limit": limit}
        known = case(recovery=rules(rule), rules_used={"busy": limit})
        assert words in act(cause(AttemptCause.APPLICATION, exit_code=42), known).message

    def test_a_rule_starts_again_what_has_no_checkpoint(self) -> None:
        known = case(checkpoints=False, recovery=rules({"name": "r", "exitCodes": [42], "action": "RestartInPlace"}))
        assert act(cause(AttemptCause.APPLICATION, exit_code=42), known).verb is IN_PLACE

    def test_no_rule_keeps_a_lost_node(self) -> None:
        known = case(
            lost_slots=(1,), recovery=rules({"name": "r", "nodeCondition": "Sick", "action": "RestartInPlace"})
        )
        known = replace(known, conditions=frozenset({"Sick"}))
        assert act(cause(AttemptCause.NODE_LOST, lost=True), known).rule == ""


ANY_CAUSE = st.builds(
    cause,
    st.sampled_from(AttemptCause),
    st.sampled_from(["some root", "Port:InUse", "exit 1"]),
    node=st.sampled_from(["n1", "n2"]),
    tied=st.sampled_from([(), (2,)]),
    lost=st.booleans(),
    exited=st.booleans(),
    bare=st.booleans(),
    symptom=st.booleans(),
    weak=st.booleans(),
    by_nature=st.booleans(),
    on_node=st.booleans(),
    passing=st.booleans(),
    reason=st.sampled_from(["", "PodFailed", "CommandNotFound"]),
    exit_code=st.sampled_from([None, 1, 42]),
)
ANY_CASE = st.builds(
    case,
    recovery=st.sampled_from(
        [
            RecoverySpec(),
            RecoverySpec(onNaN="Stop"),
            RecoverySpec(maxRestarts=2),
            rules({"name": "r", "exitCodes": [42], "action": "RollBack", "limit": 2}),
        ]
    ),
    checkpoints=st.booleans(),
    step=st.one_of(st.none(), st.integers(0, 200)),
    resumed=st.sampled_from([None, ("local", Save(100)), ("shared", Save(100, 1))]),
    valid_steps=st.sampled_from([(), (110, 100, 90), (100,)]),
    lost_slots=st.sampled_from([(), (1,)]),
    streak=st.integers(0, 5),
    progressed=st.booleans(),
    restarts=st.integers(0, 4),
    roots=st.sampled_from([(), alike("n2"), alike("n1", "n2")]),
    first_failures=st.sampled_from([(), failed_before()]),
    roll_backs=st.integers(0, 4),
    quarantined=st.integers(0, 16),
    held=st.sampled_from(["", "the cluster is disrupted"]),
    excluded_enough=st.sampled_from(["", "enough"]),
)


@given(ANY_CAUSE, ANY_CASE)
def test_there_is_an_action_for_everything_and_always_the_same_one(why: Cause, known: Case) -> None:
    action = act(why, known)
    assert isinstance(action, Action)
    assert action == act(why, known)
    assert (action.verb is STOP) == bool(action.reason)


@given(ANY_CAUSE, ANY_CASE)
def test_disruptions_and_lost_nodes_cost_nothing(why: Cause, known: Case) -> None:
    action = act(why, known)
    if why.kind in (AttemptCause.DISRUPTION, AttemptCause.NODE_LOST):
        assert not action.charged
        assert action.verb is not STOP or action.reason == "MaxRestarts"


@given(ANY_CAUSE, ANY_CASE)
def test_nobody_leaves_a_node_while_the_cluster_is_disrupted(why: Cause, known: Case) -> None:
    assert not known.held or act(why, known).slots == ()


@given(ANY_CAUSE, ANY_CASE)
def test_a_roll_back_goes_to_what_is_valid_or_to_before_the_bad_step(why: Cause, known: Case) -> None:
    ceiling = act(why, known).ceiling
    bad = known.diverged_step if known.diverged_step is not None else known.step
    assert ceiling is None or ceiling in {0, *known.valid_steps} or ceiling == (bad or 0) - 1
