"""What the gang's workers say of its checkpoints, seen by rank."""

from collections.abc import Sequence
from dataclasses import replace

from lockstep.api.checkpoint_status import SavedCheckpoint as SavedCheckpoint
from lockstep.api.run_status import TrainingRunStatus
from lockstep.core.checkpoints.one_directory import is_in_one_directory, is_of_another_run, starts_in_place
from lockstep.core.checkpoints.origin import directory_of
from lockstep.core.checkpoints.step_names import reached_step, without_doubtful
from lockstep.core.checkpoints.verdicts import Candidate, RankView, merge_inventories, newest_valid
from lockstep.core.model.assignment import ranked_slots
from lockstep.core.model.predecessor import predecessor
from lockstep.core.model.run_state import RunState
from lockstep.core.model.snapshot import RunSnapshot, RunView
from lockstep.core.model.tiers import LOCAL
from lockstep.core.model.worker_report import CheckpointReport, Verdict


def rank_view(snapshot: RunSnapshot, status: TrainingRunStatus) -> RankView:
    """The ranks as assigned, with the reports of their current incarnations."""
    assignment = status.assignment
    seats = ranked_slots(assignment)
    nodes = [""] * len(seats)
    reports = {}
    for rank, slot in enumerate(seats):
        nodes[rank] = assignment.nodes[slot]
        report = snapshot.reports.get(slot)
        if report is not None and report.incarnation == assignment.incarnations[slot]:
            reports[rank] = report
    former = list(nodes)
    ended = next((entry for entry in reversed(status.attempts) if entry.ended_at is not None), None)
    if (
        ended is not None
        and ended.rank is not None
        and ended.node
        and ended.nodes in (0, len(seats))
        and 0 <= ended.rank < len(former)
    ):
        former[ended.rank] = ended.node
    return RankView(nodes=tuple(nodes), reports=reports, former_nodes=tuple(former))


def candidates(snapshot: RunSnapshot, status: TrainingRunStatus) -> tuple[Candidate, ...]:
    """All checkpoints of the run itself that are seen now or known from before, newest first."""
    own = _part_of(snapshot, status, foreign=False)
    found = merge_inventories(own, snapshot.run.uid, status.checkpoint.latest)
    return without_doubtful(_of_so_many(found, status), reached(snapshot, status))


def _of_so_many(found: Sequence[Candidate], status: TrainingRunStatus) -> Sequence[Candidate]:
    """Shards on the nodes' own disks that do not say of how many they are: as many as their attempt had nodes, or fewer
    nodes would take a part for all of it."""
    if all(each.tier != LOCAL or each.world for each in found):
        return found
    nodes = {entry.number: entry.nodes for entry in status.attempts}
    return [
        each if each.tier != LOCAL or each.world else replace(each, world=nodes.get(each.attempt, 0)) for each in found
    ]


def seen_candidates(snapshot: RunSnapshot, status: TrainingRunStatus) -> tuple[Candidate, ...]:
    """All checkpoints of the run itself that some rank sees now, newest first."""
    found = merge_inventories(_part_of(snapshot, status, foreign=False), snapshot.run.uid)
    return without_doubtful(_of_so_many(found, status), reached(snapshot, status))


def reached(snapshot: RunSnapshot, status: TrainingRunStatus) -> int:
    """The highest step that the run reported, or is to do; 0: none is known."""
    steps = (report.progress.step for report in snapshot.reports.values() if report.progress is not None)
    return max((reached_step(status), *steps))


def foreign_candidates(snapshot: RunSnapshot, status: TrainingRunStatus) -> tuple[Candidate, ...]:
    """The checkpoints in the directory that the spec says to start from, newest first."""
    return merge_inventories(_part_of(snapshot, status, foreign=True), status.resolved.start_run_uid)


def is_foreign(path: str, start_root: str, run: RunView) -> bool:
    """Whether a checkpoint lies in the directory that the spec says to start from, however deep (Ray Train puts one
    more between), and not in the run's own in there."""
    if not start_root or not path.startswith(f"{start_root}/") or run.uid in path.split("/"):
        return False
    own = directory_of(run) if is_in_one_directory(run) else ""
    return not (own.startswith(f"{start_root}/") and path.startswith(f"{own}/"))


def is_own(row: CheckpointReport, state: RunState) -> bool:
    """Whether a row is of a checkpoint of this very run. Most formats do not say so; where it lies does."""
    if row.run_uid:
        return row.run_uid == state.run.uid
    return not is_of_another_run(row, state.run, state.status) and not _is_elsewhere(row, state.run, state.status)


def _is_elsewhere(row: CheckpointReport, run: RunView, status: TrainingRunStatus) -> bool:
    """Whether it is of what the spec says to start from."""
    if starts_in_place(run, status):
        return is_of_another_run(row, run, status)
    return is_foreign(row.path, status.resolved.start_root, run)


def _whom_it_goes_on_from(view: RankView, run: RunView, status: TrainingRunStatus) -> str:
    """UID of the run that it is to go on from, of all that have saved in its directory; empty: nobody was named."""
    if not starts_in_place(run, status):
        return ""
    before = predecessor(status, uids_there(view))
    return before.uid if before is not None else ""  # although none of its saves may be left


def uids_there(view: RankView) -> frozenset[str]:
    """UIDs of the runs of which the ranks see something that may be whole, of formats that say so."""
    rows = (row for report in view.reports.values() for row in report.inventory)
    return frozenset(row.run_uid for row in rows if row.verdict is not Verdict.INVALID)


def _part_of(snapshot: RunSnapshot, status: TrainingRunStatus, *, foreign: bool) -> RankView:
    view, run = rank_view(snapshot, status), snapshot.run
    if not status.resolved.start_root and not foreign and not is_in_one_directory(run):
        return view

    began_from = _whom_it_goes_on_from(view, run, status)

    def is_wanted(row: CheckpointReport) -> bool:
        elsewhere = _is_elsewhere(row, run, status)
        if foreign:
            return elsewhere and (not began_from or row.run_uid in ("", began_from))
        return not elsewhere and not is_of_another_run(row, run, status)

    reports = {
        rank: replace(report, inventory=tuple(row for row in report.inventory if is_wanted(row)))
        for rank, report in view.reports.items()
    }
    return replace(view, reports=reports)


def latest_valid(snapshot: RunSnapshot, status: TrainingRunStatus) -> tuple[SavedCheckpoint, ...]:
    """The newest VALID checkpoint of each tier; what status has stays until something newer is seen, or it turns out
    that its name has no step in it."""
    seen = candidates(snapshot, status)
    doubted = {(each.tier, each.path) for each in seen if each.doubted}
    newest = {saved.tier: saved for saved in status.checkpoint.latest if (saved.tier, saved.path) not in doubted}
    for found in newest_valid(seen):
        before = newest.get(found.tier)
        # The same step saved anew is another checkpoint: the one before may be in quarantine.
        if before is None or (found.step, found.attempt) > (before.step, before.attempt or 0):
            newest[found.tier] = SavedCheckpoint(
                tier=found.tier, step=found.step, path=found.path, attempt=found.attempt or None
            )
    return tuple(newest[tier] for tier in sorted(newest))


def committed_step(snapshot: RunSnapshot, status: TrainingRunStatus) -> int:
    """The highest step known to be saved on every rank; 0 when there is none."""
    return max((saved.step for saved in latest_valid(snapshot, status)), default=0)
