"""Whether a run is accepted: its spec parses and makes sense, what it names is there, and the API server would take its
pod."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from lockstep.api.base import names
from lockstep.api.base.changes import changed
from lockstep.api.base.quantities import parse_quantity
from lockstep.core.checkpoints.origin import resolve_origin
from lockstep.core.failures.failure_memory import forget_earlier_refusals
from lockstep.core.kueue.choice import choice_of, kueue_problems
from lockstep.core.model.conditions import find, is_accepted_or_waits, is_true
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DryRunPod
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.problems import Problem
from lockstep.core.model.reasons import NAMED_IN_VAIN, ConditionReason, ConditionType
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import EDIT_GRACE, TOLD_AFTER, DryRunResult
from lockstep.core.model.test_only import is_test_only
from lockstep.core.pods.gang import dry_run_body
from lockstep.core.pods.named_objects import (
    absent_problems,
    missing_account,
    named_objects,
    reason_of,
    retry_after,
    unknown_words,
)
from lockstep.core.pods.plain_pods import plain_dry_run_body
from lockstep.core.pods.pod_policy import remedy_for
from lockstep.core.run.changed_spec import is_as_given, problems_of
from lockstep.core.run.lineage import record_previous

_QUOTA = re.compile(r"exceeded quota: \S+, requested: (\S+), used: \S+, limited: (\S+)")
_MOST_LETTERS = 4096  # of an answer, that are read for this
DRY_RUN_AGAIN_AFTER = 60.0
"""Seconds after which a refusal by the API server is put to it again: quotas and accounts get mended."""


def report_unreadable_spec(plan: PlanBuilder) -> bool:
    """A gang that runs goes on, and waits for a spec that can be read."""
    if plan.run.spec_error:
        plan.condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID_SPEC, plan.run.spec_error)
    elif plan.phase not in (Phase.PENDING, Phase.SUSPENDED):
        _judge_of_gang(plan)
    return False


def refuse_what_cannot_run(plan: PlanBuilder) -> bool:
    """Accepted: the spec parses, makes sense, and the API server would take its pod."""
    if plan.phase not in (Phase.PENDING, Phase.SUSPENDED):
        _ = _give_number(plan)
        _judge_of_gang(plan)
        return False
    problems = problems_of(plan)
    problems += _refused_with_kueue(plan)
    elsewhere = resolve_origin(plan)
    problems += [elsewhere] if elsewhere is not None else []
    record_previous(plan)
    if problems:
        _report_invalid(plan, problems)
        return not plan.spec.cancel
    if plan.snapshot.namesake and not is_accepted_or_waits(plan.status):
        words = f"an array is called {plan.run.name} as well; create this run under another name"
        plan.condition(ConditionType.ACCEPTED, False, ConditionReason.NAME_TAKEN, words)
        return not plan.spec.cancel
    if plan.tunables.pod_groups.lack and not plan.tunables.pod_groups.is_optional:
        plan.condition(
            ConditionType.ACCEPTED, False, ConditionReason.POD_GROUPS_NOT_SERVED, plan.tunables.pod_groups.lack
        )
        return not plan.spec.cancel
    answer = plan.snapshot.dry_run
    if answer is None or answer.generation != plan.run.generation or answer.accepted is None:
        plan.dry_run = _dry_run(plan)
        # What was accepted before it was edited keeps its place meanwhile, for as long at most.
        told_after = EDIT_GRACE if is_true(plan.status, ConditionType.ACCEPTED) else TOLD_AFTER
        if answer is not None and answer.generation == plan.run.generation and plan.reached(answer.at + told_after):
            _report_unjudged(plan, answer.message)
        return not plan.spec.cancel
    if answer.looked_up.missing or not answer.accepted:
        if _waits_for_quota(answer) and not _give_number(plan):
            return not plan.spec.cancel  # without a number it would be taken for refused for good
        _report_refused(plan, answer)
        return not plan.spec.cancel
    if not _give_number(plan):
        return not plan.spec.cancel
    before, queue = plan.status, plan.status.queue
    forget_earlier_refusals(plan)
    in_vain = NAMED_IN_VAIN.get(queue.reason) if plan.phase is Phase.PENDING else None
    if in_vain is not None and not _asks_elsewhere(plan):
        plan.condition(ConditionType.ACCEPTED, False, in_vain, queue.message)
    else:
        words = f"the spec is valid{unknown_words(answer.looked_up)}"
        plan.condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, words)
    plan.admission_changed = plan.admission_changed or before != plan.status
    return False


def _judge_of_gang(plan: PlanBuilder) -> None:
    """Of a run that has nodes, and goes on: what was changed since is judged, and in part only once it has none."""
    problems = problems_of(plan) if plan.status.resolved.generation != plan.run.generation else []
    if problems:
        _report_invalid(plan, problems)
    elif is_as_given(plan):
        plan.condition(ConditionType.ACCEPTED, True, ConditionReason.ACCEPTED, "the spec is valid")
    else:
        words = "what it runs was changed, which is judged once it has given its nodes back"
        plan.condition(ConditionType.ACCEPTED, None, ConditionReason.SPEC_CHANGED, words)


def _report_invalid(plan: PlanBuilder, problems: Sequence[Problem]) -> None:
    words = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
    plan.condition(ConditionType.ACCEPTED, False, ConditionReason.INVALID_SPEC, words)


def _asks_elsewhere(state: RunState) -> bool:
    """What is wrong with its names is told where it asks: by Kueue's answer, or by that to a dry run."""
    return is_test_only(state.run) or choice_of(state.run, state.snapshot.queue) is not None


def _report_refused(plan: PlanBuilder, answer: DryRunResult) -> None:
    """Say what is missing, or what the API server has against the pod, and ask again: either gets mended elsewhere."""
    account = missing_account(plan.spec, answer)
    missing = (*account, *answer.looked_up.missing)
    words = [f"{each.field}: {each.message}" for each in absent_problems(missing, plan.run.namespace)]
    if not answer.accepted and not account:
        words += [f"the API server refuses the pod: {answer.message}{remedy_for(answer.message, plan.spec)}"]
    reason = reason_of(missing[0]) if missing else ConditionReason.POD_REFUSED
    plan.condition(ConditionType.ACCEPTED, False, reason, "; ".join(words))
    told = find(plan.status, ConditionType.ACCEPTED)
    waited = answer.at - told.last_transition_time if told is not None else 0.0
    if plan.reached(answer.at + (retry_after(waited) if missing else DRY_RUN_AGAIN_AFTER)):
        asked = _dry_run(plan)
        plan.dry_run = replace(asked, body=None) if answer.accepted else asked


def _waits_for_quota(answer: DryRunResult) -> bool:
    """The namespace is full, which passes: who submits a batch job has its number all the same, as in Slurm. Not so
    where a quota has never room for one pod."""
    if answer.accepted is not False or answer.looked_up.missing or "exceeded quota:" not in answer.message:
        return False
    return not any(_is_beyond(*found) for found in _QUOTA.findall(answer.message[:_MOST_LETTERS]))


def _is_beyond(requested: str, limited: str) -> bool:
    limits = dict(each.split("=", 1) for each in limited.split(",") if "=" in each)
    for name, _, amount in (each.partition("=") for each in requested.split(",")):
        with suppress(ValueError):
            if name in limits and parse_quantity(amount) > parse_quantity(limits[name]):
                return True
    return False


def _give_number(plan: PlanBuilder) -> bool:
    """A batch job has its number in status before it is accepted, and so before anything of it starts. False: it waits
    for one."""
    if not has_job_id(plan.run.spec) or plan.status.job_id is not None or is_test_only(plan.run):
        return True
    plan.take_job_id = not plan.snapshot.job_id
    if plan.snapshot.job_id:
        plan.status = changed(plan.status, job_id=plan.snapshot.job_id)
    return not plan.take_job_id


def _report_unjudged(plan: PlanBuilder, words: str) -> None:
    """Nothing is believed of what is no verdict, not even that it is none any more."""
    before = find(plan.status, ConditionType.ACCEPTED)
    if before is None or before.status != "True" or before.observed_generation != plan.run.generation:
        words = f"the API server does not judge the pod, and is asked again: {words}"
        plan.condition(ConditionType.ACCEPTED, None, ConditionReason.POD_NOT_JUDGED, words)


def _refused_with_kueue(state: RunState) -> list[Problem]:
    """What cannot be asked for where Kueue admits."""
    choice = choice_of(state.run, state.snapshot.queue)
    if choice is None:
        return []
    if is_test_only(state.run):
        field = f"metadata.annotations[{names.ANNOTATION_TEST_ONLY}]"
        return [Problem(field, "Kueue tells nobody when a run would start; leave it out")]
    levels = state.snapshot.kueue.levels_of(state.run.namespace, choice.queue)
    return list(kueue_problems(state.spec, levels, state.tunables))


def _dry_run(state: RunState) -> DryRunPod:
    body = dry_run_body if state.has_workers else plain_dry_run_body
    return DryRunPod(state.run.generation, body(state.run, state.tunables), named_objects(state.spec))
