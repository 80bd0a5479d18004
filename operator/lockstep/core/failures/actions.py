"""What is done about a cause: a pure function of the cause and of what happened before.

The rows are tried in a fixed order, the surest knowledge first; docs/recovery.md is the same table for people.
Nothing here changes anything: ``recovery`` carries an Action out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from lockstep.api.recovery_spec import RecoveryRule, RecoverySpec
from lockstep.api.recovery_status import FailureRoot, FirstFailure
from lockstep.core.failures.causes import Cause
from lockstep.core.failures.signs import HOPELESS_EXITS
from lockstep.core.model.plural import plural
from lockstep.core.model.quarantine import Save
from lockstep.core.model.reasons import AttemptCause, LossReason, StopReason

ONE_DAY = 86_400.0
SOON_AFTER_LOAD = 10
"""Steps after which a checkpoint that was loaded is above suspicion."""
SAME_STEP = 10
"""Failures whose last steps are no further apart fell at the same place: steps are reported now and then."""
LIKE_FAILURES = 2
LIKE_FAILURES_BARE = 3
"""Like failures on different nodes after which it is the program; more where no more than a number is alike."""
MOST_ROLL_BACKS = 3
MOST_QUARANTINED = 16
FREE_OF_CHARGE = 3
"""Times in a row that bad luck is believed in."""
_NEVER_DETERMINISTIC = frozenset(
    {
        *(AttemptCause.HANG, AttemptCause.STORAGE, AttemptCause.NAN),
        *(AttemptCause.OUT_OF_MEMORY, AttemptCause.LIMIT_EXCEEDED),
    }
)
PYTHON_REMEDY = "the image has no python3, which Lockstep's worker needs; use an image with Python 3.8 or newer"


class Verb(StrEnum):
    """What an Action is."""

    COMPLETE = "Complete"
    STOP = "Stop"
    RESTART_IN_PLACE = "RestartInPlace"
    REPLACE_NODES = "ReplaceNodes"
    ROLL_BACK = "RollBack"
    WAIT = "Wait"


@dataclass(frozen=True, slots=True)
class Action:
    """One decision. ``reason`` and ``message`` are what a Stop is recorded with; ``then`` is what is done, in words.

    ``charged``: it counts towards the no-progress limit. ``slots`` leave their nodes, which the run keeps off for
    a day. ``ceiling``: the highest step to resume from. ``quarantine``: (tier, save) not to be loaded again; ``lift``:
    those that may be after all.
    ``waits``: even a first restart waits. ``rule``: the user's rule that decided. ``alert``: why a node that
    should have been left was not.
    """

    verb: Verb
    then: str
    charged: bool = False
    reason: StopReason | Literal[""] = ""
    message: str = ""
    slots: tuple[int, ...] = ()
    ceiling: int | None = None
    quarantine: tuple[str, Save] | None = None
    lift: tuple[tuple[str, Save], ...] = ()
    waits: bool = False
    rule: str = ""
    alert: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """What an action depends on besides its cause.

    ``run`` is the run's name. ``step`` is the last one reported, ``resumed`` (tier, save) what the attempt began from,
    ``valid_steps`` the steps of valid checkpoints, newest first. ``lost_slots`` have lost their pod or node, and come
    back in any case. ``alike_before`` counts earlier attempts that diverged at the same place after the same checkpoint
    was loaded. ``unmoved``: no step was made since the last failure of this root, at which ``doubted`` were put in
    quarantine. ``streak`` counts restarts without progress before this one, ``allowed`` how many there may be;
    ``progressed``: something new was saved since. ``seen_rules`` are rules whose pattern the rank's log matched,
    ``conditions`` those of its node. ``held``: why no node may be replaced now. ``excluded_enough``: why no
    further node may be excluded, as many as are to be. ``suspects``: the nodes that the evidence speaks of together
    with the cause's. ``diverged_step``: the first step whose loss was no number, or had jumped.
    ``outlasted``: nobody reports steps, and the attempt ran longer than any start takes. ``runs_once``: what was
    started is not to be started again, whatever ended it.
    """

    now: float
    recovery: RecoverySpec
    nodes: int
    run: str = "RUN"
    checkpoints: bool = True
    step: int | None = None
    resumed: tuple[str, Save] | None = None
    valid_steps: tuple[int, ...] = ()
    lost_slots: tuple[int, ...] = ()
    streak: int = 0
    allowed: int = 3
    progressed: bool = False
    restarts: int = 0
    runs_once: bool = False
    roots: Sequence[FailureRoot] = ()
    first_failures: Sequence[FirstFailure] = ()
    rules_used: dict[str, int] | None = None
    roll_backs: int = 0
    quarantined: int = 0
    seen_rules: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()
    held: str = ""
    excluded_enough: str = ""
    diverged_step: int | None = None
    alike_before: int = 0
    unmoved: bool = False
    doubted: tuple[tuple[str, Save], ...] = ()
    suspects: frozenset[str] = frozenset()
    outlasted: bool = False

    @property
    def has_stepped(self) -> bool:
        """A step was made since the attempt began, as far as anybody can tell."""
        return self.steps_since_load > 0 or self.outlasted

    @property
    def steps_since_load(self) -> int:
        """Steps made since the attempt began."""
        return 0 if self.step is None else self.step - (self.resumed[1].step if self.resumed else 0)

    @property
    def went_wrong_at(self) -> int | None:
        """What was saved at a lower step may be gone back to; None: nobody can tell."""
        return self.diverged_step if self.diverged_step is not None else self.step


def act(cause: Cause, case: Case) -> Action:
    """The action for ``cause``. Total: a cause of which nothing is known is treated like any failing program."""
    if case.held and cause.kind is AttemptCause.NODE_LOST and not cause.victims:
        return Action(Verb.WAIT, f"nothing is replaced while {case.held}")
    action = _within_budgets(_by_rule(cause, case) or _by_kind(cause, case), cause, case)
    if not (case.doubted and _is_doubtful_again(cause, case)):
        return action
    saves = ", ".join(save.label for _, save in case.doubted)
    words = f"; {saves} may be loaded again, as what was loaded instead failed alike"
    if action.verb is Verb.STOP:
        return replace(action, lift=case.doubted, message=action.message + words)
    return replace(action, lift=case.doubted, then=action.then + words)


def _by_kind(cause: Cause, case: Case) -> Action:
    match cause.kind:
        case AttemptCause.FINISHED:
            return Action(Verb.COMPLETE, "nothing is left to do")
        case AttemptCause.DELIBERATE:
            return _stop(cause, StopReason.STOPPED_BY_PROGRAM, "the run is stopped, as the program asks")
        case AttemptCause.DETERMINISTIC if cause.reason in HOPELESS_EXITS:
            return _stop(cause, StopReason(cause.reason), "check spec.command and the image")
        case AttemptCause.NODE_LOST if cause.slot in case.lost_slots and _failed_before(cause, case):
            return _leave(cause, case)
        case AttemptCause.NODE_LOST | AttemptCause.DISRUPTION:
            return _replaced_or_again(cause, case)
    if lacks_python(cause.evidence.message):
        return Action(Verb.STOP, "the run is stopped", reason=StopReason.PYTHON_NOT_FOUND, message=PYTHON_REMEDY)
    is_machines = cause.reading.link or (cause.kind is AttemptCause.HARDWARE and not cause.reading.weak)
    if not case.checkpoints and cause.exited and not is_machines:
        return _stop(
            cause,
            StopReason.PROCESS_FAILED,
            "without spec.checkpoint a failing program is not started again",
            charged=True,
        )
    match cause.kind:
        case AttemptCause.HARDWARE if not (cause.reading.weak and _nodes_of_root(cause, case) - {cause.node}):
            return _leave(cause, case, charged=cause.reading.weak)
        case AttemptCause.CORRUPT_CHECKPOINT if (
            case.resumed is not None and not case.has_stepped and not _is_doubtful_again(cause, case)
        ):
            return _quarantine(case, "the next candidate is tried")
        case AttemptCause.STRAGGLER if case.held or case.excluded_enough:
            # To start again on the same node would cost time and leave it as slow.
            return Action(Verb.WAIT, f"training goes on as it is: {case.held or case.excluded_enough}")
        case AttemptCause.STRAGGLER:
            return _leave(cause, case)
    if _is_deterministic(cause, case):
        return _stop(cause, StopReason.DETERMINISTIC, _remedy(cause, case), charged=True)
    match cause.kind:
        case AttemptCause.NAN if case.recovery.on_nan == "Ignore":
            return _failed(cause, case)
        case AttemptCause.NAN | AttemptCause.LOSS_SPIKE:
            return _diverged(cause, case)
        case AttemptCause.OUT_OF_MEMORY:
            return _out_of_memory(cause, case)
        case AttemptCause.LIMIT_EXCEEDED:
            return _limit_exceeded(cause, case)
    return _failed(cause, case)


def _is_doubtful_again(cause: Cause, case: Case) -> bool:
    """Two checkpoints in a row could not be read, by words that name neither: it will be something else that is read
    at each start, or the machine that reads it."""
    weak = cause.kind is AttemptCause.CORRUPT_CHECKPOINT and cause.reading.weak
    return weak and case.unmoved and not case.has_stepped


def _failed(cause: Cause, case: Case) -> Action:
    """A program that failed, for a reason that may be a different one next time."""
    charged = not ((cause.reading.passing or cause.reading.link) and _count(cause, case) < FREE_OF_CHARGE)
    if cause.points_at_node and not cause.lost and _failed_before(cause, case):
        return _leave(cause, case, charged=charged)
    # The container of a pod that the worker or its node let down: losses without a reason are no charge.
    charged = charged and not (cause.lost and cause.reason != LossReason.POD_FAILED)
    return replace(_replaced_or_again(cause, case), charged=charged, waits=cause.reading.waits)


def _replaced_or_again(cause: Cause, case: Case) -> Action:
    """The least: what was lost is made anew, everybody else starts again in place."""
    if case.lost_slots:
        return Action(Verb.REPLACE_NODES, "what was lost is replaced, all ranks start again")
    if cause.kind is AttemptCause.NODE_LOST:
        return Action(Verb.RESTART_IN_PLACE, f"all ranks start again once its nodes are back: {case.held}")
    return Action(Verb.RESTART_IN_PLACE, "all ranks start again where they are")


def _leave(cause: Cause, case: Case, *, charged: bool = False) -> Action:
    """Another node for the slot, or for all that the evidence points at."""
    # A faulty machine is of no use to anybody: there the alert alone has to do.
    why_not = case.held or ("" if cause.kind is AttemptCause.HARDWARE else case.excluded_enough)
    if why_not:
        stay = _replaced_or_again(cause, case)
        return replace(stay, then=f"{stay.then}; its node is kept: {why_not}", charged=charged, alert=why_not)
    slots = cause.suspects
    them = f"node {cause.node} is" if len(slots) == 1 else f"{len(slots)} nodes are"
    return Action(
        Verb.REPLACE_NODES,
        f"{them} left for another, all ranks start again",
        charged,
        slots=slots,
        alert=case.excluded_enough,
    )


def _quarantine(case: Case, then: str) -> Action:
    assert case.resumed is not None
    tier, save = case.resumed
    # Each checkpoint can fail so once: only where they can no longer be told apart does it count.
    charged = case.quarantined >= MOST_QUARANTINED
    words = f"{save.label} ({tier}) is not loaded again, {then}"
    return Action(Verb.ROLL_BACK, words, charged, quarantine=(tier, save))


def _diverged(cause: Cause, case: Case) -> Action:
    if cause.kind is AttemptCause.NAN and case.recovery.on_nan == "Stop":
        return _stop(cause, StopReason.DIVERGED, "recovery.onNaN is Stop")
    if not case.checkpoints:
        return _stop(cause, StopReason.DIVERGED, "without spec.checkpoint there is nothing to go back to")
    local = case.resumed is not None and case.resumed[0] == "local"
    if cause.kind is AttemptCause.NAN and local and case.steps_since_load <= SOON_AFTER_LOAD:
        return _quarantine(case, "the next candidate is tried")
    if case.alike_before and case.resumed is not None:  # nothing but what was loaded is the same each time
        tier, save = case.resumed
        times = f"training diverged {case.alike_before + 1} times at the same place after {save.label} ({tier})"
        if any(step < save.step for step in case.valid_steps):
            return _quarantine(case, f"as {times}; the next older one is tried")
        if case.alike_before > 1 or not _may_be_one_machine(cause, case):
            remedy = "start from an earlier one by hand, or look at the data and the learning rate"
            return _stop(cause, StopReason.DIVERGED, f"{times} was loaded, and nothing older is valid; {remedy}")
    return _roll_back(cause, case)


def _may_be_one_machine(cause: Cause, case: Case) -> bool:
    """What fails again after a roll-back may be the machine's arithmetic, if a single rank saw it first."""
    evidence = cause.evidence
    alone = not evidence.tied and not evidence.slots and not evidence.sole_witness
    return bool(case.roll_backs) and alone and not (case.held or case.excluded_enough)


def _roll_back(cause: Cause, case: Case) -> Action:
    """One valid checkpoint further back than necessary, the next time two, then four."""
    diverged = case.went_wrong_at
    earlier = [step for step in case.valid_steps if diverged is None or step < diverged]
    oldest = case.resumed is not None and earlier == [case.resumed[1].step]
    if case.roll_backs >= MOST_ROLL_BACKS:
        why = f", and nothing older than step {earlier[0]} is valid" if oldest else ""
        remedy = "look at the data around that step, the learning rate and the ranks named"
        return _stop(cause, StopReason.DIVERGED, f"{case.roll_backs} roll-backs did not help{why}; {remedy}")
    further = min(2**case.roll_backs, len(earlier) - 1)
    # What was saved a moment ago may not have been reported yet: at the barrier everything is checked again.
    ceiling = earlier[further] if earlier else max(0, (diverged or 0) - 1)
    suspects = (cause.slot,) if _may_be_one_machine(cause, case) else ()
    back = f"step {ceiling}" if earlier or not ceiling else f"what is saved up to step {ceiling}"
    again = " again, as nothing older is valid" if oldest else ""
    words = f"training goes back to {back}{again}" + (", on another node for that rank" if suspects else "")
    return Action(Verb.ROLL_BACK, words, slots=suspects, ceiling=ceiling)


def _out_of_memory(cause: Cause, case: Case) -> Action:
    if not case.has_stepped or (_count(cause, case) and not case.progressed):
        why = "it would not fit again" if case.has_stepped else "it did not even reach its first step"
        remedy = "ask for more in resourcesPerNode.memory or shmSize, or load less at once"
        return _stop(cause, StopReason.OUT_OF_MEMORY, f"{why}: {remedy}", charged=True)
    return replace(_replaced_or_again(cause, case), charged=True)


def _limit_exceeded(cause: Cause, case: Case) -> Action:
    if _count(cause, case) and not case.progressed:
        words = "nothing was saved since the last time, so it would be exceeded again"
        return _stop(cause, StopReason.LIMIT_EXCEEDED, words, charged=True)
    return replace(_replaced_or_again(cause, case), charged=True)


def _is_deterministic(cause: Cause, case: Case) -> bool:
    """It failed like this before, at the same place, with another node to blame: then none is."""
    reading = cause.reading
    if (
        reading.symptom
        or reading.passing
        or reading.link
        or case.progressed
        or (cause.lost and reading.on_node)  # no program of its own ran there
        or cause.kind in _NEVER_DETERMINISTIC
    ):
        return False
    root = _root(cause, case)
    if root is None:
        return False
    step = case.step or 0
    alike = [node for at, node in zip(root.steps, root.nodes, strict=False) if abs(at - step) <= SAME_STEP]
    nodes = {*alike, cause.node}
    count = len(alike) + 1
    if reading.by_nature:
        return count >= LIKE_FAILURES and (len(nodes) > 1 or case.nodes == 1 or count > LIKE_FAILURES)
    return count >= (LIKE_FAILURES_BARE if reading.bare else LIKE_FAILURES) and len(nodes) > 1


def _remedy(cause: Cause, case: Case) -> str:
    root = _root(cause, case)
    count = 1 + (root.count if root is not None else 0)
    nodes = sorted({*(root.nodes if root is not None else ()), cause.node})
    where = "before the first step" if not case.has_stepped else f"at much the same step ({case.step})"
    on = f" on {len(nodes)} nodes ({', '.join(nodes[:4])})" if len(nodes) > 1 else ""
    return (
        f"it failed like this {count} times {where}{on}, so it is the program or its data: "
        f"read its log (lockstep logs {case.run}) and correct it"
    )


def _by_rule(cause: Cause, case: Case) -> Action | None:
    """What the first of the user's rules that fits has to say. A node that is gone is beyond them."""
    if cause.kind in (AttemptCause.NODE_LOST, AttemptCause.DISRUPTION):
        return None
    rule = next((rule for rule in case.recovery.rules if _fits(rule, cause, case)), None)
    if rule is None:
        return None
    used = (case.rules_used or {}).get(rule.name, 0)
    if rule.limit is not None and used >= rule.limit:
        words = f"rule {rule.name} has decided {plural(used, 'time')}, which is its limit"
        return replace(_stop(cause, StopReason.RULE_LIMIT, words), rule=rule.name)
    counted = (
        rule.limit is None and cause.kind is not AttemptCause.HARDWARE
    )  # a limit of its own takes the place of ours
    if rule.action == "Stop":
        return replace(_stop(cause, StopReason.STOPPED_BY_RULE, f"rule {rule.name} says Stop"), rule=rule.name)
    if rule.action == "ReplaceNode":
        return replace(_leave(cause, case, charged=counted), rule=rule.name)
    if rule.action == "RollBack" and case.checkpoints:
        return replace(_roll_back(cause, case), rule=rule.name)
    return replace(_replaced_or_again(cause, case), charged=counted, rule=rule.name)


def _fits(rule: RecoveryRule, cause: Cause, case: Case) -> bool:
    """Everything that the rule names is so."""
    return (
        (not rule.exit_codes or cause.exit_code in rule.exit_codes)
        and (rule.log_pattern is None or rule.name in case.seen_rules)
        and (rule.node_condition is None or rule.node_condition in case.conditions)
    )


def _within_budgets(action: Action, cause: Cause, case: Case) -> Action:
    """The same action, or the end of the run when trying again is pointless."""
    if action.verb in (Verb.STOP, Verb.COMPLETE, Verb.WAIT):
        return action
    cap = case.recovery.max_restarts
    is_refused = cause.reason == LossReason.NODE_REFUSED  # nothing of it ran
    if cap is not None and case.restarts >= cap and not is_refused:
        return _stop(cause, StopReason.MAX_RESTARTS, f"recovery.maxRestarts is {cap}", charged=action.charged)
    if case.runs_once and not is_refused:
        words = "by --no-requeue its script does not run twice"
        return _stop(cause, StopReason.NOT_REQUEUED, words, charged=action.charged)
    streak = 0 if case.progressed else case.streak + action.charged
    if action.charged and streak >= case.allowed:
        limit = case.recovery.no_progress_limit
        here = "" if isinstance(limit, int) else f", here {case.allowed}"
        words = (
            f"{plural(streak, 'attempt')} in a row ended without a new checkpoint (recovery.noProgressLimit is "
            f"{limit}{here}); lockstep history shows what they have in common, lockstep logs why the last one ended"
        )
        return _stop(cause, StopReason.NO_PROGRESS, words, charged=True)
    return action


def _stop(cause: Cause, reason: StopReason, words: str, *, charged: bool = False) -> Action:
    message = f"{cause.evidence.message}; {words}"
    return Action(Verb.STOP, "the run is stopped", charged, reason=reason, message=message)


def _root(cause: Cause, case: Case) -> FailureRoot | None:
    return next((root for root in case.roots if root.root == cause.reading.root), None)


def _count(cause: Cause, case: Case) -> int:
    root = _root(cause, case)
    return root.count if root is not None else 0


def _nodes_of_root(cause: Cause, case: Case) -> set[str]:
    root = _root(cause, case)
    return set(root.nodes) if root is not None else set()


def _failed_before(cause: Cause, case: Case) -> bool:
    """Its node, or one of those suspected with it, was first to fail already within a day."""
    suspects = {cause.node, *case.suspects}
    return any(one.node in suspects and case.now - one.time < ONE_DAY for one in case.first_failures)


def lacks_python(message: str) -> bool:
    """The container's runtime could not find the interpreter of the worker."""
    return "python3" in message and "not found" in message
