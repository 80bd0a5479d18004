"""What the gang's workers say of its checkpoints, seen by rank."""

from lockstep.api.run_status import Candidate as SavedCheckpoint
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.assignment import slot_ranks
from lockstep.core.checkpoints import Candidate, RankView, merge_inventories, newest_valid
from lockstep.core.snapshot import RunSnapshot


def rank_view(snapshot: RunSnapshot, status: TrainingRunStatus) -> RankView:
    """The ranks as assigned, with the reports of their current incarnations."""
    assignment = status.assignment
    ranks = slot_ranks(assignment)
    nodes = [""] * len(ranks)
    reports = {}
    for slot, rank in enumerate(ranks):
        nodes[rank] = assignment.nodes[slot]
        report = snapshot.reports.get(slot)
        if report is not None and report.incarnation == assignment.incarnations[slot]:
            reports[rank] = report
    former = list(nodes)
    ended = next((entry for entry in reversed(status.attempts) if entry.ended_at is not None), None)
    if ended is not None and ended.rank is not None and ended.node and ended.rank < len(former):
        former[ended.rank] = ended.node
    return RankView(nodes=tuple(nodes), reports=reports, former_nodes=tuple(former))


def candidates(snapshot: RunSnapshot, status: TrainingRunStatus) -> tuple[Candidate, ...]:
    """All checkpoints seen now or known from before, newest first."""
    return merge_inventories(rank_view(snapshot, status), snapshot.run.uid, status.checkpoint.latest)


def latest_valid(snapshot: RunSnapshot, status: TrainingRunStatus) -> tuple[SavedCheckpoint, ...]:
    """The newest VALID checkpoint of each tier; what status has stays until something newer is seen."""
    newest = {saved.tier: saved for saved in status.checkpoint.latest}
    for found in newest_valid(candidates(snapshot, status)):
        before = newest.get(found.tier)
        if before is None or found.step > before.step:
            newest[found.tier] = SavedCheckpoint(
                tier=found.tier, step=found.step, path=found.path, attempt=found.attempt or None
            )
    return tuple(newest[tier] for tier in sorted(newest))


def committed_step(snapshot: RunSnapshot, status: TrainingRunStatus) -> int:
    """The highest step known to be saved on every rank; 0 when there is none."""
    return max((saved.step for saved in latest_valid(snapshot, status)), default=0)
