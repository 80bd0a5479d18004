"""What ends an attempt of a gang without workers, and with what the next one starts: always with new pods for all.

Cause and action are found as for every gang. Whether something was achieved nobody reports: an attempt that ran
longer than a restart and a checkpoint usually take counts as progress, a shorter one counts towards the limit.
"""

from dataclasses import replace

from lockstep.core.failures.actions import Action, Verb, act
from lockstep.core.failures.causes import Cause, collected, first_cause
from lockstep.core.failures.failure_memory import readmit_mended
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.reasons import ActionWord, AttemptCause
from lockstep.core.model.run_state import RunState
from lockstep.core.run.attempt_end import carry_out
from lockstep.core.run.backoff import SECONDS_AT_RISK
from lockstep.core.run.failure_case import case_of
from lockstep.core.run.plain.evidence import plain_exits, plain_losses, seconds_of_training
from lockstep.core.run.recovery import hold_back_nodes
from lockstep.core.run.replacement import replace_before_start
from lockstep.core.run.root_cause import blame_earlier_loss

NODE_NOTICED = 60.0
"""Seconds within which the node controller declares a machine NotReady, which may be what its peers died of."""
PEERS_TELL = 3.0
"""Seconds within which the kubelets tell of ends at about the same time."""
PODS_TELL_TIMES_TO = 1.0
"""Seconds: pods give the times of their containers' ends in whole ones."""
_BY_ITS_OWN_WORD = frozenset({AttemptCause.DELIBERATE, AttemptCause.DETERMINISTIC})


def answer_failures(plan: PlanBuilder) -> None:
    """End the running attempt if something of it is lost or failed."""
    readmit_mended(plan)
    lost = plain_losses(plan)
    replaceable = hold_back_nodes(plan, lost)
    found = collected(plan, lost, plain_exits(plan), ())
    if not found:
        return
    cause = first_cause(found, PODS_TELL_TIMES_TO)
    if cause.exited and _peers_may_have_been_first(plan, cause):
        return
    outlasted = seconds_of_training(plan) >= SECONDS_AT_RISK
    case = replace(case_of(plan, cause, replaceable), outlasted=outlasted, progressed=outlasted)
    action = act(cause, case)
    if action.verb in (Verb.WAIT, Verb.COMPLETE) or _may_be_a_node(plan, cause, action):
        return
    number = plan.status.attempt
    carry_out(plan, cause, action, case, replaceable)
    if action.verb is not Verb.STOP:
        plan.put_attempt(plan.attempt(number), action=ActionWord.REPLACE_GANG)


def mend_before_start(plan: PlanBuilder) -> None:
    """Nodes that are lost while the gang gathers are replaced; one that was gone before explains the last end."""
    readmit_mended(plan)
    replaceable = hold_back_nodes(plan, plain_losses(plan))
    if replaceable:
        blame_earlier_loss(plan, replaceable)
        replace_before_start(plan, replaceable)


def _may_be_a_node(state: RunState, cause: Cause, action: Action) -> bool:
    """A program's error may only be its peers' machine that died: a verdict that is final waits until that is known."""
    if action.verb is not Verb.STOP or not cause.exited or cause.kind in _BY_ITS_OWN_WORD:
        return False
    nodes = [state.snapshot.nodes.get(name) for name in state.status.assignment.nodes]
    if any(node is not None and not node.ready for node in nodes):
        return True  # it comes back, or is taken for lost
    if _all_have_ended(state):
        return False
    return not state.reached(cause.at + NODE_NOTICED)


def _peers_may_have_been_first(state: RunState, cause: Cause) -> bool:
    """The end that is heard of first need not be the one that came first."""
    return not _all_have_ended(state) and not state.reached(cause.at + PEERS_TELL)


def _all_have_ended(state: RunState) -> bool:
    """Every node has reported its pod's end."""
    pods = [state.pod(slot) for slot in state.slot_range()]
    return all(pod is not None and pod.is_terminal for pod in pods)
