"""What holds for the action after every cause and history."""

import hypothesis.strategies as st
from hypothesis import given

from lockstep.api.recovery_spec import RecoverySpec
from lockstep.core.failures.actions import Action, Case, act
from lockstep.core.failures.causes import Cause
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import AttemptCause
from support.failure_cases import STOP, alike, case, cause, failed_before, rules

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
