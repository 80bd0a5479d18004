"""From what is seen to what is to be done, for one array. What ``decide`` is to a run, this is to a TrainingRunSet.

Runs are made as they may get nodes, in ascending order but for those that are refused, never more at a time than the
width allows; what came of them is in status before they may be deleted. Made twice they cannot be: the name follows
from the index, and an index with a run or an outcome gets no other. The steps are those of ``decide_run_set``, in its
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.durations import parse_duration
from lockstep.api.base.indices import parse_indices
from lockstep.api.base.times import to_rfc3339
from lockstep.api.run_set import SetStop, TrainingRunSetSpec, TrainingRunSetStatus
from lockstep.core.arrays.correspondence import Correspondence, correspond
from lockstep.core.arrays.members import read_ranges, run_body, run_name
from lockstep.core.arrays.refusals import is_due, never_tried_now, next_to_try, refusal_after
from lockstep.core.arrays.tally import Tally, tally
from lockstep.core.model.array_views import CreateRun, RunSetPlan, RunSetSnapshot, RunSetView
from lockstep.core.model.conditions import cannot_decide, find, is_true, with_condition, without_condition
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.lifecycle import Outcome, Phase
from lockstep.core.model.plan import Event
from lockstep.core.model.ranges import format_ranges
from lockstep.core.model.reasons import ActionWord, ConditionReason, ConditionType, EventReason, Recorded, SetReason
from lockstep.core.model.tunables import Mode, Tunables
from lockstep.core.pods.validation import KnownNames, validate

WAITING_AT_ONCE = 64
"""Runs of one set that wait for nodes at the same time. More would only make the queue long: each has a place and an
estimate in it, and the set says how many come after."""
_NAMED, _SHOWN = 3, 40


def decide_run_set(snapshot: RunSetSnapshot, tunables: Tunables, now: float) -> RunSetPlan:
    """What is to be done for one set at ``now``. The same snapshot and time give the same plan."""
    run_set = snapshot.run_set
    looks_on = run_set.annotations.get(names.ANNOTATION_PAUSED) == "true" or tunables.mode is Mode.REPORT_ONLY
    if run_set.deleting or looks_on:
        return RunSetPlan()
    if run_set.status_error:  # a write would wipe out what is on record, and a run would be a second one
        note = f"{run_set.status_error[:900]}; nothing is made until it is corrected, or another set created"
        return RunSetPlan(events=(Event("Warning", EventReason.STATE_REGRESSION, ActionWord.RECORD, note),))
    draft = _Draft(snapshot, tunables, now)
    if draft.is_over():
        return draft.forget_when_due()
    if not draft.read_record():
        return draft.plan()
    if not draft.take_number():
        return RunSetPlan(take_job_id=True)
    draft.give_up_after_failures()
    draft.follow_the_other_set()
    draft.cancel_what_is_left()
    draft.note_refusals()
    draft.make_runs()
    draft.conclude()
    return draft.plan()


def without_deciding(run_set: RunSetView, tunables: Tunables, now: float, error: str) -> RunSetPlan:
    """What is said of a set that ``decide_run_set`` fails with, by an ``error`` of that kind.

    Its runs are decided about one by one, and hear what the set says (``members.governed``), cancel and suspend
    included; only new ones are not made, and outcomes not counted.
    """
    looks_on = run_set.annotations.get(names.ANNOTATION_PAUSED) == "true" or tunables.mode is Mode.REPORT_ONLY
    if run_set.deleting or looks_on or run_set.status_error or is_true(run_set.status, ConditionType.FINISHED):
        return RunSetPlan()
    message = (
        f"{cannot_decide(error)}; the operator goes on trying, and until it can, runs that there are go on and obey "
        "cancel and suspend, and no other is made; undo what is unusual in its spec, or create another set"
    )
    told = is_true(run_set.status, ConditionType.UNDECIDABLE)
    status = with_condition(
        run_set.status,
        ConditionType.UNDECIDABLE,
        True,
        ConditionReason.DECISION_FAILS,
        message,
        now=now,
        generation=run_set.generation,
    )
    event = Event("Warning", EventReason.UNDECIDABLE, ActionWord.REPORT, message)
    return RunSetPlan(status if status != run_set.status else None, () if told else (event,))


class _Draft:
    """A plan in the making."""

    def __init__(self, snapshot: RunSetSnapshot, tunables: Tunables, now: float) -> None:
        self.snapshot, self.run_set = snapshot, snapshot.run_set
        self.tunables = tunables
        self.now, self.stamp = now, float(int(now))
        self.status: TrainingRunSetStatus = self.run_set.status
        self.events: list[Event] = []
        self.creates: list[CreateRun] = []
        self.tally = Tally(frozenset())
        self.dependency = Correspondence()
        self.taken: list[int] = []
        self.room = 0
        self.has_room = True
        self.wake_at: float | None = None

    @property
    def spec(self) -> TrainingRunSetSpec:
        """Steps after ``read_record`` may rely on it."""
        assert self.run_set.spec is not None
        return self.run_set.spec

    def plan(self) -> RunSetPlan:
        """What came of the steps."""
        self.status = without_condition(self.status, ConditionType.UNDECIDABLE)
        self.status = changed(self.status, observed_generation=self.run_set.generation)
        written = self.status if self.status != self.run_set.status else None
        return RunSetPlan(written, tuple(self.events), tuple(self.creates), self.room, wake_at=self.wake_at)

    # -- the steps ------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Terminal is terminal."""
        ended = find(self.status, ConditionType.FINISHED)
        return ended is not None and ended.status == "True"

    def forget_when_due(self) -> RunSetPlan:
        """Have the set deleted so long after its end; its runs go with it."""
        ended = find(self.status, ConditionType.FINISHED)
        ttl = self.run_set.spec.ttl_after_finished if self.run_set.spec is not None else None
        if ttl is None or ended is None:
            return RunSetPlan()
        due = ended.last_transition_time + parse_duration(ttl)
        return RunSetPlan(delete_set=True) if self.now >= due else RunSetPlan(wake_at=due)

    def read_record(self) -> bool:
        """False: spec or status do not say what they are to; nothing is made then, and nothing is taken for done."""
        if self.run_set.spec is None:
            self._refuse(SetReason.INVALID_SPEC, self.run_set.spec_error)
            return False
        try:
            self.tally = tally(self.snapshot)
        except ValueError as error:
            self._refuse(
                SetReason.STATE_REGRESSION, f"status.indices cannot be read: {error}; correct it, or create another set"
            )
            return False
        self.events += self.tally.events
        return True

    def take_number(self) -> bool:
        """An array of batch jobs has its number in status before any of them is made, who are told it. False: it waits
        for one."""
        if not has_job_id(self.spec.template.spec) or self.status.job_id is not None or self.spec.cancel:
            return True
        if self.snapshot.job_id:
            self.status = changed(self.status, job_id=self.snapshot.job_id)
        return bool(self.snapshot.job_id)

    def give_up_after_failures(self) -> None:
        """In status before anybody is cancelled for it."""
        rule, failed = self.spec.stop_on_failure, len(self.tally.failed)
        if rule is None or self.status.stop is not None or failed < rule.failures:
            return
        words = f"{failed} {'index has' if failed == 1 else 'indices have'} failed: {format_ranges(self.tally.failed)}"
        message = f"{words[:400]}; stopOnFailure allows fewer than {rule.failures}"
        stop = SetStop(reason=SetReason.STOPPED_ON_FAILURE, message=message, time=self.stamp, cancel=rule.cancel)
        self.status = changed(self.status, stop=stop)
        whom = "whoever never had nodes is" if rule.cancel == "Waiting" else "everybody is"
        self.events.append(
            Event("Warning", SetReason.STOPPED_ON_FAILURE, ActionWord.STOP, f"{message}; {whom} cancelled")
        )

    def follow_the_other_set(self) -> None:
        """Which indices may start, as far as afterCorr is concerned."""
        self.dependency = correspond(self.snapshot, self.tally.left)
        self.status = changed(self.status, dependency=self.dependency.status)

    def cancel_what_is_left(self) -> None:
        """Indices that will get no run any more. Those that have one are cancelled as runs (``members.governed``)."""
        spec, left = self.spec, self.tally.left
        if not (spec.cancel or self.status.stop is not None):
            doomed = parse_indices(spec.cancel_indices) if spec.cancel_indices else frozenset()
            never = self.dependency.never if spec.on_unsatisfiable == "Cancel" else frozenset()
            left &= doomed | never
        self.tally.cancelled |= left

    def note_refusals(self) -> None:
        """Which runs the API server does not take, and when that is tried again: in status before it is."""
        tally, before = self.tally, self.run_set.status.refusal
        with_runs = tally.active | tally.succeeded | tally.failed
        seen = self.snapshot
        self.status = changed(
            self.status, refusal=refusal_after(before, seen.refused, tally.left, with_runs, seen.fruitless, self.now)
        )

    def make_runs(self) -> None:
        """The next ones, as many as may have nodes and as the queue is to see."""
        if self.snapshot.namesake and not is_true(self.run_set.status, ConditionType.ACCEPTED):
            name = self.run_set.name
            self._refuse(SetReason.NAME_TAKEN, f"a run is called {name} as well; create this array under another name")
            return
        problems = [f"{p.field}: {p.message}" for p in self._problems()]
        if problems:
            self._refuse(SetReason.INVALID_SPEC, "; ".join(problems).replace("spec.", "spec.template.spec."))
            return
        self._condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "the spec is valid")
        tally, width = self.tally, self.spec.max_running
        free = WAITING_AT_ONCE - len(tally.waiting)
        if width is not None:
            free = min(free, width - len(tally.holding) - len(tally.waiting))
        self.room = max(0, free)
        self.has_room = free > 0
        if self.spec.suspend:
            return
        ready = sorted(tally.left & self.dependency.ready if self.spec.after_corr else tally.left)
        self.taken = [index for index in ready if index in self.snapshot.taken]
        ready = [index for index in ready if index not in self.snapshot.taken]
        for index in self._allowed(ready) if self.has_room else ():
            body = run_body(self.run_set, index, self.status.job_id)
            self.creates.append(CreateRun(run_name(self.run_set.name, index), index, body))

    def _allowed(self, ready: Sequence[int]) -> Sequence[int]:
        """Those of ``ready`` that may be tried now, in this order: one that was refused only now and then, and the
        others meanwhile; of them too only a few while the API server takes none."""
        refusal, room = self.status.refusal, self.room
        if refusal is None:
            return ready[:room]
        due, refused = is_due(refusal, self.now), read_ranges(refusal.indices)
        if not due and self.has_room:
            self.wake_at = refusal.retry_at
        again = next_to_try(refusal, ready) if due else None
        once_more = [again] if again is not None else []
        others = [index for index in ready if index not in refused]
        if self.snapshot.fruitless:  # there is room for one at the least: who is refused takes up none
            return [*others[: never_tried_now(refusal)], *once_more] if due else ()
        return [*once_more, *others][:room]

    def conclude(self) -> None:
        """Counts, conditions, and the words for people."""
        tally = self.tally
        counts = tally.counts()
        done = counts.succeeded + counts.failed + counts.cancelled
        self.status = changed(self.status, indices=tally.ranges(), counts=counts, done=f"{done}/{counts.total}")
        value, reason, message = self._progress()
        self._condition(ConditionType.PROGRESSING, value, reason, message)
        if reason in (SetReason.NAME_TAKEN, SetReason.RUN_REFUSED):
            self._say_once(reason, message)
        suspended = self.spec.suspend and not tally.holding
        self._condition(
            ConditionType.SUSPENDED,
            suspended,
            ConditionReason.SUSPEND_REQUESTED if suspended else ConditionReason.NOT_SUSPENDED,
            "",
        )
        if done < counts.total:
            self._condition(ConditionType.FINISHED, False, ConditionReason.NOT_FINISHED, "")
            self._condition(ConditionType.SUCCEEDED, None, ConditionReason.NOT_FINISHED, "")
            self.status = changed(self.status, state=self._state().value, reason=str(reason))
            return
        state, reason, words = self._outcome()
        self._condition(ConditionType.PROGRESSING, False, ConditionReason.FINISHED, "")
        self._condition(ConditionType.FINISHED, True, reason, words)
        self._condition(ConditionType.SUCCEEDED, state is Outcome.SUCCEEDED, reason, words)
        self.status = changed(self.status, state=state.value, reason=str(reason))
        self.events.append(
            Event("Normal" if state is Outcome.SUCCEEDED else "Warning", reason, ActionWord.FINISH, words)
        )

    # -- words ----------------------------------------------------------------------------------

    def _progress(self) -> tuple[bool, SetReason | Recorded, str]:
        """Whether what is left gets its runs, and why not. What needs somebody to act goes first."""
        left = self.tally.left
        if self.taken:
            named = ", ".join(run_name(self.run_set.name, index) for index in self.taken[:_NAMED])
            more = f" and {len(self.taken) - _NAMED} more" if len(self.taken) > _NAMED else ""
            words = f"there are runs {named}{more} that are not of this set; delete them, or add their indices to"
            return False, SetReason.NAME_TAKEN, f"{words} cancelIndices"
        refusal = self.status.refusal
        if refusal is not None:
            others = "; the others go on" if read_ranges(refusal.indices) < left and not self.snapshot.fruitless else ""
            words = f"the API server refuses {refusal.indices[:_SHOWN]}{others}; tried again at"
            named = f"{run_name(self.run_set.name, refusal.last)}: {refusal.message}"
            return False, SetReason.RUN_REFUSED, f"{words} {to_rfc3339(refusal.retry_at)}; {named}"
        accepted = find(self.status, ConditionType.ACCEPTED)
        if accepted is not None and accepted.status == "False":
            return False, Recorded(accepted.reason), accepted.message
        if self.spec.suspend:
            return False, SetReason.SUSPENDED, "suspend: true"
        if self.spec.after_corr and self.dependency.never & left:
            return False, SetReason.DEPENDENCY_NEVER_SATISFIED, self.dependency.message
        if self.tally.active:
            return True, SetReason.RUNS_ACTIVE, ""
        if self.spec.after_corr and left and not self.dependency.ready & left:
            return False, SetReason.DEPENDENCY, self.dependency.message
        if left and not self.has_room:
            return False, SetReason.MAX_RUNNING, "maxRunning: 0; raise it to let runs start"
        return True, SetReason.RUNS_ACTIVE, ""

    def _state(self) -> Phase:
        spec, stop = self.spec, self.status.stop
        if spec.cancel or stop is not None:
            return Phase.STOPPING
        if self.tally.holding:
            return Phase.RUNNING
        return Phase.SUSPENDED if spec.suspend else Phase.PENDING

    def _outcome(self) -> tuple[Outcome, SetReason, str]:
        counts = self.status.counts
        words = f"{counts.succeeded} of {counts.total} succeeded"
        if counts.succeeded == counts.total:
            return Outcome.SUCCEEDED, SetReason.ALL_SUCCEEDED, words
        words += f", {counts.failed} failed, {counts.cancelled} were cancelled"
        if self.status.stop is not None:
            return Outcome.FAILED, SetReason.STOPPED_ON_FAILURE, words
        if self.spec.cancel:  # that some had failed before is in the words
            return Outcome.CANCELLED, SetReason.CANCELLED, words
        if counts.failed:
            return Outcome.FAILED, SetReason.SOME_FAILED, words
        return Outcome.CANCELLED, SetReason.SOME_CANCELLED, words

    def _problems(self) -> list[Any]:
        return validate(
            self.spec.template.spec, self.snapshot.namespace_labels, KnownNames.from_tunables(self.tunables)
        )

    def _refuse(self, reason: SetReason, message: str) -> None:
        self._condition(ConditionType.ACCEPTED, False, reason, message)
        if not self.tally.active:
            self.status = changed(self.status, state=Phase.PENDING.value, reason=reason.value)

    def _say_once(self, reason: SetReason | Recorded, message: str) -> None:
        before = find(self.run_set.status, ConditionType.PROGRESSING)
        if before is None or before.reason != reason:
            self.events.append(Event("Warning", reason, ActionWord.CREATE_RUN, message))

    def _condition(
        self, kind: ConditionType, value: bool | None, reason: ConditionReason | SetReason | Recorded, message: str
    ) -> None:
        generation = self.run_set.generation
        self.status = with_condition(self.status, kind, value, reason, message, now=self.now, generation=generation)
