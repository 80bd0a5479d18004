"""What the ranks of a gang say of its checkpoints, merged into one verdict per checkpoint.

A verdict is three-valued, and merging keeps it so: one rank that finds a fault makes the
checkpoint INVALID, one that cannot tell makes it UNKNOWN, and only all of them make it VALID.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.api.checkpoint_status import SavedCheckpoint as SavedCheckpoint
from lockstep.core.model.ranges import shown_ranges
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.worker_report import CheckpointReport, Verdict, VerifyReport, WorkerReport

EXCHANGING_FORMATS = frozenset({"NVRxLocal"})
"""Local formats whose loaders fetch a shard from whichever node has it."""


@dataclass(frozen=True, slots=True)
class RankView:
    """The ranks of the attempt that is about to start, and what was last heard of each.

    ``nodes`` and ``former_nodes`` (those of the attempt before, for naming a lost node) are by rank.
    ``reports`` is by rank, without the ranks that were not heard of; never by slot.
    """

    nodes: tuple[str, ...]
    reports: Mapping[int, WorkerReport]
    former_nodes: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """Number of ranks, which is the number of nodes that train."""
        return len(self.nodes)

    @property
    def silent(self) -> tuple[int, ...]:
        """The ranks that were not heard of."""
        return tuple(rank for rank in range(self.world) if rank not in self.reports)

    def has_looked_again(self, rank: int) -> bool:
        """It did so at the barrier where it stands, when no program ran anywhere any more."""
        report = self.reports[rank]
        return 0 < report.ready_for == report.looked_again

    def former_node(self, rank: int) -> str:
        """Where the rank ran in the attempt before; empty when there was none."""
        return self.former_nodes[rank] if rank < len(self.former_nodes) else ""

    def named(self, ranks: Iterable[int]) -> str:
        """For messages: ``rank 3 on gpu-9`` or ``ranks 0-2``, whatever the number of ranks."""
        listed = sorted(set(ranks))
        if len(listed) == 1:
            return f"rank {listed[0]} on {self.nodes[listed[0]] or 'no node'}"
        return f"ranks {shown_ranges(listed)}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One checkpoint as the whole gang sees it.

    ``load_bytes`` is what has to pass the tier's bottleneck: everything for the shared tier, the
    largest shard for the local one. ``committed`` says that it once was complete as far as can be
    seen, whatever became of it. ``world`` 0 and ``run_uid`` "" mean that the format does not say.
    """

    tier: str
    step: int
    path: str
    verdict: Verdict
    reason: str = ""
    format: str = ""
    attempt: int = 0
    world: int = 0
    run_uid: str = ""
    load_bytes: int = 0
    committed: bool = False
    as_copied: bool = False  # whole, but for times that a copy may not have kept
    copies: bool = False  # some rank loads a copy of its shard that another node holds
    doubted: bool = False  # INVALID as its name has a number that is no step
    lacking: bool = False  # INVALID for what these nodes do not hold; other nodes, or as many as saved it, may
    # Ranks that speak otherwise than some who find it VALID, maybe as they looked before it was whole.
    look_again: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of reading a checkpoint's bytes. UNKNOWN: unreadable, or not read by every rank yet."""

    verdict: Verdict
    reason: str = ""


def merge_inventories(ranks: RankView, run_uid: str, known: Sequence[SavedCheckpoint] = ()) -> tuple[Candidate, ...]:
    """One candidate per checkpoint that any rank sees or that is ``known`` from before, newest first.

    Cost grows with ranks times rows; call it when an inventory changed, not with every heartbeat.
    """
    shared: dict[str, dict[int, CheckpointReport]] = defaultdict(dict)
    local: dict[str, dict[tuple[int, int], CheckpointReport]] = defaultdict(dict)
    for rank, report in ranks.reports.items():
        for row in report.inventory:
            if row.tier == SHARED:
                shared[row.path][rank] = row
            else:
                directory, shard = _shard_of(row.path, ranks.world)
                for owner in row.owners or (shard,):
                    local[directory][rank, owner] = row
    found = [_shared_candidate(ranks, run_uid, path, rows) for path, rows in shared.items()]
    found += [_local_candidate(ranks, run_uid, path, shards) for path, shards in local.items()]
    found += [
        _vanished(ranks, saved)
        for saved in known
        if saved.path and saved.path not in (shared if saved.tier == SHARED else local)
    ]
    return tuple(sorted(found, key=lambda candidate: (-candidate.step, candidate.tier, candidate.path)))


def merge_checks(ranks: RankView) -> dict[tuple[str, str], Check]:
    """By (tier, path): what all ranks together say after reading their shares of the bytes."""
    shares: dict[tuple[str, str], dict[int, VerifyReport]] = defaultdict(dict)
    for rank, report in ranks.reports.items():
        for share in report.verified:
            shares[share.tier, share.path][rank] = share
    return {checkpoint: _check(ranks, by_rank, _readers(ranks, *checkpoint)) for checkpoint, by_rank in shares.items()}


def newest_valid(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The newest VALID candidate of each tier, ordered by tier: what status shows as latest."""
    newest: dict[str, Candidate] = {}
    for candidate in candidates:
        best = newest.get(candidate.tier)
        if candidate.verdict is Verdict.VALID and (
            best is None or (candidate.step, candidate.attempt) > (best.step, best.attempt)
        ):
            newest[candidate.tier] = candidate
    return tuple(newest[tier] for tier in sorted(newest))


def _shared_candidate(ranks: RankView, run_uid: str, path: str, rows: Mapping[int, CheckpointReport]) -> Candidate:
    """Every rank sees the same directory, so all have to agree."""
    verdict, reason = _first_fault(ranks, rows)
    silent = ranks.silent
    blind = [rank for rank in ranks.reports if rank not in rows]
    early: list[int] = []
    if verdict is Verdict.VALID and silent:
        verdict, reason = Verdict.UNKNOWN, f"not reported on by {ranks.named(silent)}"
    elif verdict is Verdict.VALID and blind:
        verdict, reason, early = Verdict.UNKNOWN, f"not seen by {ranks.named(blind)}", blind
    elif verdict is Verdict.INVALID and any(row.verdict is Verdict.VALID for row in rows.values()):
        against = [rank for rank, row in rows.items() if row.verdict is Verdict.INVALID]
        if not any(ranks.has_looked_again(rank) for rank in against):
            early = against + blind
    found = _candidate(
        run_uid,
        path,
        rows.values(),
        verdict,
        reason,
        load_bytes=max(row.bytes for row in rows.values()),
        committed=any(_was_committed(row) for row in rows.values()),
    )
    return replace(found, look_again=tuple(sorted(early))) if early else found


def _local_candidate(
    ranks: RankView, run_uid: str, path: str, shards: Mapping[tuple[int, int], CheckpointReport]
) -> Candidate:
    """Each rank has to find its own shard on the node it is to run on; keys are (rank, shard)."""
    if any(row.format in EXCHANGING_FORMATS for row in shards.values()):
        return _exchanged_candidate(ranks, run_uid, path, shards)
    own = {rank: row for (rank, shard), row in shards.items() if rank == shard}
    verdict, reason = _first_fault(ranks, own)
    missing = sorted(rank for rank in ranks.reports if rank not in own)
    lacking = verdict is not Verdict.INVALID and bool(missing)
    if lacking:
        holders = {shard: rank for rank, shard in shards}
        verdict, reason = Verdict.INVALID, _missing_shard(ranks, missing, holders)
    elif verdict is Verdict.VALID and ranks.silent:
        verdict, reason = Verdict.UNKNOWN, f"not reported on by {ranks.named(ranks.silent)}"
    found = _candidate(
        run_uid,
        path,
        shards.values(),
        verdict,
        reason,
        load_bytes=max(row.bytes for row in shards.values()),
        # What a lost node held nobody can say; what is left decides whether this step was ever complete.
        committed=all(_was_committed(row) for row in shards.values()),
    )
    return replace(found, lacking=lacking)


def _exchanged_candidate(
    ranks: RankView, run_uid: str, path: str, shards: Mapping[tuple[int, int], CheckpointReport]
) -> Candidate:
    """The nodes together have to hold the shards of all ranks, whoever holds which; keys are (rank, shard).

    A damaged file anywhere speaks against the step: the loader goes by names, and would take it for a copy.
    """
    rows = {rank: row for (rank, _), row in shards.items()}
    verdict, reason = _first_fault(ranks, rows)
    held = {shard for (_, shard), row in shards.items() if row.verdict is Verdict.VALID and shard >= 0}
    missing = [rank for rank in range(ranks.world) if rank not in held]
    if verdict is Verdict.VALID and held and max(held) >= ranks.world:
        verdict, reason = Verdict.INVALID, f"was saved by {max(held) + 1} nodes and cannot be loaded by {ranks.world}"
    elif verdict is Verdict.VALID and missing and ranks.silent:
        verdict, reason = Verdict.UNKNOWN, f"not reported on by {ranks.named(ranks.silent)}"
    elif verdict is Verdict.VALID and missing:
        verdict, reason = Verdict.INVALID, f"{_missing_shard(ranks, missing, {})}, and no node holds a copy"
    found = _candidate(
        run_uid,
        path,
        rows.values(),
        verdict,
        reason,
        load_bytes=max(row.bytes for row in rows.values()),
        committed=all(_was_committed(row) for row in rows.values()),
    )
    copies = any((rank, rank) not in shards for rank in range(ranks.world))
    # Without the node that has the damaged file the others may hold all that is needed.
    return replace(found, copies=copies, lacking=found.verdict is Verdict.INVALID)


def _missing_shard(ranks: RankView, missing: Sequence[int], holders: Mapping[int, int]) -> str:
    rank = missing[0]
    others = f" (and those of {len(missing) - 1} more)" if len(missing) > 1 else ""
    if -1 in holders:
        return "does not say which rank its shards belong to; save each rank's in rank-<rank>/"
    former = ranks.former_node(rank)
    if rank in holders:
        holder = holders[rank]
        return f"rank {rank}'s shard is on {ranks.nodes[holder]}, which now runs rank {holder}{others}"
    if former and former not in ranks.nodes:
        return f"rank {rank}'s shard was on {former}, which is lost{others}"
    return f"rank {rank}'s shard is not on its node {ranks.nodes[rank] or '(none yet)'}{others}"


def _vanished(ranks: RankView, saved: SavedCheckpoint) -> Candidate:
    """Known to have been complete, seen by nobody now. Shared storage may lag; a node's own disk does not."""
    if ranks.silent:
        verdict, reason = Verdict.UNKNOWN, f"not reported on by {ranks.named(ranks.silent)}"
    elif saved.tier == SHARED:
        verdict, reason = Verdict.UNKNOWN, "was valid before, and no rank sees it now"
    elif not ranks.world:
        verdict, reason = Verdict.UNKNOWN, "was valid before, and the gang has no nodes now"
    else:
        verdict, reason = Verdict.INVALID, _missing_shard(ranks, range(ranks.world), {})
    return Candidate(
        tier=saved.tier,
        step=saved.step,
        path=saved.path,
        verdict=verdict,
        reason=reason,
        attempt=saved.attempt or 0,
        committed=True,
    )


def _first_fault(ranks: RankView, rows: Mapping[int, CheckpointReport]) -> tuple[Verdict, str]:
    """The worst verdict among the rows and why, with the ranks that say exactly this."""
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
        at_fault = {rank: row.reason for rank, row in sorted(rows.items()) if row.verdict is verdict}
        if at_fault:
            reason = next(iter(at_fault.values()))
            return verdict, _attributed(ranks, reason, [r for r, said in at_fault.items() if said == reason])
    return Verdict.VALID, ""


def _attributed(ranks: RankView, reason: str, said_by: Sequence[int]) -> str:
    """The reason with the ranks that gave it, unless it is all of them."""
    reason = reason or "no reason given"
    return reason if len(said_by) == ranks.world > 1 else f"{reason} ({ranks.named(said_by)})"


def _candidate(
    run_uid: str,
    path: str,
    rows: Iterable[CheckpointReport],
    verdict: Verdict,
    reason: str,
    *,
    load_bytes: int,
    committed: bool,
) -> Candidate:
    """The facts that all rows share. Where they differ, the one that speaks against the checkpoint counts."""
    listed = list(rows)
    first = listed[0]
    uids = {row.run_uid for row in listed if row.run_uid}
    worlds = {row.world for row in listed if row.world}
    if len(worlds) > 1 and verdict is Verdict.VALID:
        verdict, reason = Verdict.INVALID, f"its shards disagree on the world size: {shown_ranges(worlds)}"
    return Candidate(
        tier=first.tier,
        step=first.step,
        path=path,
        verdict=verdict,
        reason=reason,
        format=first.format,
        attempt=first.attempt,
        world=min(worlds, default=0),
        run_uid=min(uids - {run_uid}, default=run_uid if uids else ""),
        load_bytes=load_bytes,
        committed=committed,
        as_copied=any(row.as_copied for row in listed),
    )


def _was_committed(row: CheckpointReport) -> bool:
    return row.verdict is Verdict.VALID or row.committed_at > 0 or row.as_copied


def _readers(ranks: RankView, tier: str, path: str) -> frozenset[int]:
    """The ranks whose word counts: all, but where those that hold files give the others theirs."""
    held = {
        rank
        for rank, report in ranks.reports.items()
        for row in (report.inventory if tier == LOCAL else ())
        if row.path == path and row.format in EXCHANGING_FORMATS
    }
    return frozenset(held or range(ranks.world))


def _check(ranks: RankView, shares: Mapping[int, VerifyReport], readers: frozenset[int]) -> Check:
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN):
        for rank, share in sorted(shares.items()):
            if share.verdict is verdict and rank in readers:
                return Check(verdict, _attributed(ranks, share.reason, [rank]))
    unread = readers - shares.keys()
    if unread:
        return Check(Verdict.UNKNOWN, f"not read to the end by {ranks.named(unread)}")
    return Check(Verdict.VALID)


def _shard_of(path: str, world: int) -> tuple[str, int]:
    """Splits ``…/step-300/rank-3`` into directory and rank; -1 when the path does not tell."""
    directory, mark, rank = path.rpartition("/rank-")
    if mark and rank.isdecimal():
        return directory, int(rank)
    return path, 0 if world == 1 else -1
