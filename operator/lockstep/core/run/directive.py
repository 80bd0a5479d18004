"""What the workers are answered: a function of the status, so that any leader says the same."""

from dataclasses import replace

from lockstep.api.base.durations import parse_duration
from lockstep.core.checkpoints.local_retention import order_for_workers
from lockstep.core.checkpoints.saves import save_order
from lockstep.core.failures.ranks import slots_to_join
from lockstep.core.model import assignment as slots
from lockstep.core.model.job_ids import has_job_id
from lockstep.core.model.lifecycle import Phase
from lockstep.core.model.plan import DesiredPhase, Directive, PassOver, SaveRequest
from lockstep.core.model.run_state import RunState
from lockstep.core.model.start_record import to_record
from lockstep.core.pods.launchers import has_token, takes_steps
from lockstep.core.run.asks import answers
from lockstep.core.run.batch_job import batch_order
from lockstep.core.run.cadence_orders import cadence_order
from lockstep.core.run.debug_hold import held_until
from lockstep.core.run.handover import Handover
from lockstep.core.run.leaving import ends_with_the_save
from lockstep.core.run.time_limit import grace_of_ranks


def directive_for(state: RunState, known: Handover) -> Directive | None:
    """None: workers that are not answered go on with what they do."""
    if not state.status.assignment.nodes or not state.has_workers:
        return None
    if state.run.deleting:  # else those that listen would go on until a save that nobody orders
        return _directed(state, DesiredPhase.STOP, known)
    if state.trains:
        return _released(state, known)
    desired = {
        Phase.LAUNCHING: DesiredPhase.PREPARE,
        Phase.RECOVERING: DesiredPhase.PREPARE,
        Phase.STOPPING: DesiredPhase.STOP,
        Phase.FINISHED: DesiredPhase.STOP if state.now < held_until(state) else DesiredPhase.COMPLETE,
    }.get(state.phase)
    return _directed(state, desired, known) if desired is not None else None


def _directed(state: RunState, phase: DesiredPhase, known: Handover) -> Directive:
    """For the gang as it is assigned."""
    assignment, gathering = state.status.assignment, known.gathering
    return Directive(
        attempt=state.status.attempt,
        phase=phase,
        incarnations=assignment.incarnations[: len(assignment.nodes)],
        slot_ranks=slots.slot_ranks(assignment),
        takes_steps=phase is DesiredPhase.PREPARE and takes_steps(state.run.spec),
        verify=gathering.verify,
        look_again=frozenset(slots.slot_of_rank(assignment, rank) for rank in gathering.look_again),
        pass_over=_passed_over(state) if phase is DesiredPhase.PREPARE else None,
        point=gathering.point,
        warm_up=gathering.warm_up,
        stop_grace=grace_of_ranks(state),
        stacks=known.stacks,
        asked=answers(state),
    )


def _passed_over(state: RunState) -> PassOver | None:
    checkpoint = state.status.checkpoint
    if checkpoint.ceiling is None and not checkpoint.quarantined and not checkpoint.diverged:
        return None
    # Where nothing up to the ceiling is left, what was saved before training went wrong may be chosen.
    before = state.status.recovery.diverged_from - 1
    return PassOver(
        beyond=max(checkpoint.ceiling, before) if checkpoint.ceiling is not None else None,
        saves=tuple((save.tier, save.step, save.attempt) for save in checkpoint.quarantined),
        diverged=tuple((bad.step, bad.attempt) for bad in checkpoint.diverged),
    )


def _released(state: RunState, known: Handover) -> Directive | None:
    """RUN with the START record of status, once the addresses of all its members are known, and with them the ports of
    their step servers."""
    start = state.status.start
    if start is None:  # taken out of a status that says that all ranks save
        return None
    by_rank, ports = [], []
    joining = slots_to_join(state)
    for slot in state.ranked_slots():
        report = state.report(slot)
        if slot in joining and report is None:
            by_rank.append("")
            ports.append(0)
            continue
        if report is None or not report.address:
            return None
        by_rank.append(report.address)
        ports.append(report.steps_port)
    spec = state.run.spec  # may have become unreadable while the gang trains
    # Past the barrier, where all of them were known, a port that is lacking holds up nobody: its node is named to whom
    # wants to start something there.
    has_steps = any(ports) and (spec is None or takes_steps(spec))
    batch, nodes = batch_order(state, tuple(by_rank)), state.status.assignment.nodes
    if batch is None and has_job_id(spec):  # its status was lost, and with it its number
        return None
    spread = spec.preflight.start_jitter if spec is not None else None
    rules = spec.recovery.rules if spec is not None else ()
    save = save_order(state.status)
    return replace(
        _directed(state, DesiredPhase.RUN, known),
        joining=joining,
        start=to_record(start),
        nodelist=tuple(by_rank),
        step_ports=tuple(ports) if has_steps else (),
        step_nodes=tuple(nodes[slot] for slot in state.ranked_slots()) if has_steps else (),
        batch=batch,
        has_token=has_token(spec),
        save=save,
        stopping_at=_stopping_at(state, save),
        cadence=cadence_order(state),
        jitter=parse_duration(spread) if spread is not None else 0.0,
        retention=order_for_workers(state.status),
        watch=tuple((rule.name, rule.log_pattern) for rule in rules if rule.log_pattern is not None),
        progress_pattern=(spec.progress.pattern or "") if spec is not None else "",
    )


def _stopping_at(state: RunState, save: SaveRequest | None) -> float:
    """When the gang is stopped at the latest, whose save comes before a stop; 0: it goes on after it."""
    if save is None or (state.status.stop is None and not ends_with_the_save(save.reason)):
        return 0.0
    return save.deadline
