"""What the user's rules decide, and whether it counts."""

from dataclasses import replace

import pytest

from lockstep.core.failures.actions import act
from lockstep.core.model.reasons import AttemptCause
from support.failure_cases import BACK, IN_PLACE, REPLACE, case, cause, rules


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
