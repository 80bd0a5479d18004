"""Merging what the ranks see of the checkpoints: worst verdict wins, and the reason names who said it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from lockstep.api.checkpoint_status import SavedCheckpoint as SavedCheckpoint
from lockstep.core.checkpoints.verdicts import Candidate, RankView, merge_checks, merge_inventories, newest_valid
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.worker_report import CheckpointReport, Verdict, VerifyReport, WorkerPhase, WorkerReport

UID = "uid-of-run"
NODES = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")
STEP_300 = "/shared-checkpoints/ns/run/uid-of-run/a1/step-300"
LOCAL_300 = "/local-checkpoints/ns/run/uid-of-run/a1/step-300"


def shared_row(step: int = 300, **changes: object) -> CheckpointReport:
    row = CheckpointReport(
        tier=SHARED,
        step=step,
        path=f"/shared-checkpoints/ns/run/uid-of-run/a1/step-{step}",
        verdict=Verdict.VALID,
        format="Manifest",
        attempt=1,
        world=4,
        run_uid=UID,
        bytes=4_000,
        committed_at=100.0,
    )
    return structs.replace(row, **changes)


def local_row(shard: int, **changes: object) -> CheckpointReport:
    return shared_row(tier=LOCAL, path=f"{LOCAL_300}/rank-{shard}", bytes=1_000 + shard, **changes)


def report(rank: int, *inventory: CheckpointReport, verified: tuple[VerifyReport, ...] = ()) -> WorkerReport:
    return WorkerReport(
        slot=rank,
        incarnation=1,
        pod_uid=f"pod-{rank}",
        node=NODES[rank],
        phase=WorkerPhase.READY,
        received_at=0.0,
        inventory=inventory,
        verified=verified,
    )


def ranks(*inventories: tuple[CheckpointReport, ...] | None, former: tuple[str, ...] = ()) -> RankView:
    """One inventory per rank; None for a rank that was not heard of."""
    return RankView(
        nodes=NODES[: len(inventories)],
        reports={rank: report(rank, *rows) for rank, rows in enumerate(inventories) if rows is not None},
        former_nodes=former,
    )


def only(view: RankView, known: tuple[SavedCheckpoint, ...] = ()) -> Candidate:
    (candidate,) = merge_inventories(view, UID, known)
    return candidate


def test_a_shared_checkpoint_is_valid_when_every_rank_says_so() -> None:
    candidate = only(ranks(*[(shared_row(),)] * 4))
    assert candidate == Candidate(
        tier=SHARED,
        step=300,
        path=STEP_300,
        verdict=Verdict.VALID,
        format="Manifest",
        attempt=1,
        world=4,
        run_uid=UID,
        load_bytes=4_000,
        committed=True,
    )


TORN = shared_row(verdict=Verdict.INVALID, reason="rank-2.bin is 17 of 1000 bytes")
ABSENT = shared_row(verdict=Verdict.INVALID, reason="manifest.json is missing", committed_at=0.0)
UNREADABLE = shared_row(verdict=Verdict.UNKNOWN, reason="Stale file handle")


@pytest.mark.parametrize(
    ("inventories", "verdict", "reason"),
    [
        (
            [(shared_row(),), (shared_row(),), (TORN,), (shared_row(),)],
            Verdict.INVALID,
            "rank-2.bin is 17 of 1000 bytes (rank 2 on gpu-2)",
        ),
        ([(ABSENT,)] * 4, Verdict.INVALID, "manifest.json is missing"),
        (
            [(ABSENT,), (ABSENT,), (UNREADABLE,), (shared_row(),)],
            Verdict.INVALID,
            "manifest.json is missing (ranks 0-1)",
        ),
        (
            [(shared_row(),), (UNREADABLE,), (shared_row(),), (shared_row(),)],
            Verdict.UNKNOWN,
            "Stale file handle (rank 1 on gpu-1)",
        ),
        (
            [(shared_row(),), (), (shared_row(),), (shared_row(),)],
            Verdict.UNKNOWN,
            "not seen by rank 1 on gpu-1",
        ),
        (
            [(shared_row(),), None, None, (shared_row(),)],
            Verdict.UNKNOWN,
            "not reported on by ranks 1-2",
        ),
    ],
)
def test_the_worst_word_on_a_shared_checkpoint_counts_and_names_its_ranks(
    inventories: list[tuple[CheckpointReport, ...] | None], verdict: Verdict, reason: str
) -> None:
    candidate = only(ranks(*inventories))
    assert (candidate.verdict, candidate.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("inventories", "again"),
    [
        ([(shared_row(),), (), (shared_row(),), ()], (1, 3)),
        ([(shared_row(),), (ABSENT,), (shared_row(),), ()], (1, 3)),
        ([(shared_row(),), (TORN,)], (1,)),  # may have been half written when it looked
        ([(shared_row(),), (UNREADABLE,)], ()),  # who is unsure looks again unasked
        ([(shared_row(),), None, ()], ()),
        ([(ABSENT,)] * 4, ()),
        ([(local_row(0),), ()], ()),
    ],
)
def test_whoever_may_have_looked_before_a_save_was_whole_is_to_look_again(
    inventories: list[tuple[CheckpointReport, ...] | None], again: tuple[int, ...]
) -> None:
    assert only(ranks(*inventories)).look_again == again


@pytest.mark.parametrize(("looked_at", "again"), [(0, (1, 2)), (2, (1, 2)), (3, ())])
def test_a_fault_that_is_still_there_at_the_second_look_counts(looked_at: int, again: tuple[int, ...]) -> None:
    view = ranks((shared_row(),), (ABSENT,), ())
    reports = {rank: replace(each, ready_for=3, looked_again=looked_at) for rank, each in view.reports.items()}
    candidate = only(replace(view, reports=reports))
    assert (candidate.verdict, candidate.look_again) == (Verdict.INVALID, again)


def test_a_checkpoint_without_its_manifest_was_never_committed_and_a_damaged_one_was() -> None:
    assert not only(ranks(*[(ABSENT,)] * 4)).committed
    assert only(ranks(*[(TORN,)] * 4)).committed
    times_alone = structs.replace(ABSENT, reason="changed after its commit; all else is right", as_copied=True)
    assert only(ranks(*[(times_alone,)] * 4)).committed, "whatever its commit was"


def test_shards_that_disagree_on_the_world_size_are_no_checkpoint() -> None:
    candidate = only(ranks((local_row(0),), (local_row(1, world=8),)))
    assert candidate.verdict is Verdict.INVALID
    assert candidate.reason == "its shards disagree on the world size: 4,8"


def test_a_foreign_run_uid_in_any_row_is_kept() -> None:
    assert only(ranks((shared_row(),), (shared_row(run_uid="other"),))).run_uid == "other"


def test_a_local_checkpoint_is_valid_when_each_rank_has_its_own_shard() -> None:
    candidate = only(ranks(*[(local_row(rank),) for rank in range(4)]))
    assert (candidate.verdict, candidate.path, candidate.load_bytes) == (Verdict.VALID, LOCAL_300, 1_003)


def test_a_lost_node_takes_its_local_shard_with_it() -> None:
    view = ranks((local_row(0),), (local_row(1),), (local_row(2),), (), former=("gpu-0", "gpu-1", "gpu-2", "gpu-7"))
    candidate = only(view)
    assert candidate.verdict is Verdict.INVALID
    assert candidate.reason == "rank 3's shard was on gpu-7, which is lost"
    assert candidate.committed, "the survivors' shards show that the step was saved"


def test_a_local_shard_on_a_node_that_now_runs_another_rank_is_of_no_use() -> None:
    candidate = only(ranks((local_row(1),), (local_row(0),)))
    assert candidate.verdict is Verdict.INVALID
    assert candidate.reason == "rank 0's shard is on gpu-1, which now runs rank 1 (and those of 1 more)"


def test_a_local_checkpoint_that_a_node_in_place_does_not_hold_is_invalid() -> None:
    candidate = only(ranks((local_row(0),), ()))
    assert candidate.reason == "rank 1's shard is not on its node gpu-1"


def test_a_torn_local_shard_names_its_rank() -> None:
    torn = local_row(1, verdict=Verdict.INVALID, reason="manifest.json is missing", committed_at=0.0)
    candidate = only(ranks((local_row(0),), (torn,)))
    assert candidate.reason == "manifest.json is missing (rank 1 on gpu-1)"
    assert not candidate.committed


def test_a_local_checkpoint_waits_for_the_ranks_not_heard_of() -> None:
    candidate = only(ranks((local_row(0),), None))
    assert (candidate.verdict, candidate.reason) == (Verdict.UNKNOWN, "not reported on by rank 1 on gpu-1")


def test_local_shards_without_a_rank_directory_prove_nothing_unless_there_is_one_rank() -> None:
    row = shared_row(tier=LOCAL, path=LOCAL_300)
    many = only(ranks((row,), (row,)))
    assert many.verdict is Verdict.INVALID
    assert "rank-<rank>/" in many.reason
    assert only(ranks((row,))).verdict is Verdict.VALID


def test_a_checkpoint_known_from_before_that_nobody_sees_is_unknown_on_shared_storage() -> None:
    known = SavedCheckpoint(tier=SHARED, step=300, path=STEP_300, attempt=1)
    candidate = only(ranks((), ()), (known,))
    assert (candidate.verdict, candidate.committed) == (Verdict.UNKNOWN, True)
    assert candidate.reason == "was valid before, and no rank sees it now"


def test_a_checkpoint_known_from_before_that_nobody_holds_locally_is_gone() -> None:
    known = SavedCheckpoint(tier=LOCAL, step=300, path=LOCAL_300, attempt=1)
    candidate = only(ranks((), (), former=("gpu-8", "gpu-9")), (known,))
    assert candidate.verdict is Verdict.INVALID
    assert candidate.reason == "rank 0's shard was on gpu-8, which is lost (and those of 1 more)"


@pytest.mark.parametrize("tier", [SHARED, LOCAL])
def test_a_checkpoint_of_a_gang_without_nodes_is_unknown(tier: str) -> None:
    known = SavedCheckpoint(tier=tier, step=300, path=LOCAL_300, attempt=1)
    candidate = only(RankView((), {}), (known,))
    assert (candidate.verdict, candidate.committed) == (Verdict.UNKNOWN, True)
    assert candidate.reason.startswith("was valid before, and ")


def test_a_known_checkpoint_that_is_seen_is_listed_once() -> None:
    known = SavedCheckpoint(tier=SHARED, step=300, path=STEP_300)
    assert only(ranks((shared_row(),)), (known,)).verdict is Verdict.VALID


def test_the_same_step_of_two_attempts_is_two_candidates() -> None:
    again = shared_row(path=STEP_300.replace("/a1/", "/a2/"), attempt=2)
    candidates = merge_inventories(ranks((shared_row(), again)), UID)
    assert [candidate.attempt for candidate in candidates] == [1, 2]
    assert [candidate.attempt for candidate in newest_valid(candidates)] == [2]


def test_latest_is_the_newest_valid_of_each_tier() -> None:
    rows = (shared_row(100), shared_row(200), shared_row(300, verdict=Verdict.INVALID), local_row(0))
    latest = newest_valid(merge_inventories(ranks(rows), UID))
    assert [(each.tier, each.step) for each in latest] == [(LOCAL, 300), (SHARED, 200)]


READ = VerifyReport(SHARED, STEP_300, Verdict.VALID)
WRONG = VerifyReport(SHARED, STEP_300, Verdict.INVALID, "rank-1.bin: crc32 is 0badf00d, manifest says 12345678")
FAILED = VerifyReport(SHARED, STEP_300, Verdict.UNKNOWN, "Input/output error")


@pytest.mark.parametrize(
    ("shares", "verdict", "reason"),
    [
        ([READ, READ], Verdict.VALID, ""),
        ([READ, None], Verdict.UNKNOWN, "not read to the end by rank 1 on gpu-1"),
        ([FAILED, READ], Verdict.UNKNOWN, "Input/output error (rank 0 on gpu-0)"),
        ([FAILED, WRONG], Verdict.INVALID, f"{WRONG.reason} (rank 1 on gpu-1)"),
        ([None, WRONG], Verdict.INVALID, f"{WRONG.reason} (rank 1 on gpu-1)"),
    ],
)
def test_a_checkpoint_is_read_when_every_rank_has_read_its_share(
    shares: list[VerifyReport | None], verdict: Verdict, reason: str
) -> None:
    view = RankView(
        NODES[:2],
        {rank: report(rank, verified=(share,) if share else ()) for rank, share in enumerate(shares)},
    )
    check = merge_checks(view)[SHARED, STEP_300]
    assert (check.verdict, check.reason) == (verdict, reason)


SEVERITY = {Verdict.VALID: 0, Verdict.UNKNOWN: 1, Verdict.INVALID: 2}


EXCHANGED = "/local-checkpoints/ns/run/uid-of-run/a1/iter_0000300"


def held(*owners: int, **changes: object) -> tuple[CheckpointReport, ...]:
    """Local files whose loader fetches a shard from whichever node has it."""
    return (shared_row(tier=LOCAL, path=EXCHANGED, format="NVRxLocal", world=0, owners=owners, **changes),)


def test_copies_that_a_framework_made_stand_in_for_a_lost_node() -> None:
    whole = only(ranks(held(0, 1), held(0, 1), held(2, 3), held(2, 3)))
    assert (whole.verdict, whole.copies) == (Verdict.VALID, False)
    lost = only(ranks(held(0, 1), (), held(2, 3), held(2, 3)))
    assert (lost.verdict, lost.copies) == (Verdict.VALID, True)


def test_a_shard_that_no_node_holds_makes_the_local_step_unusable() -> None:
    lost = only(ranks(held(0, 1), held(0, 1), (), (), former=("gpu-0", "gpu-1", "gpu-7", "gpu-3")))
    assert lost.verdict is Verdict.INVALID
    assert lost.reason == "rank 2's shard was on gpu-7, which is lost (and those of 1 more), and no node holds a copy"
    unheard = only(ranks(held(0, 1), held(0, 1), None, None))
    assert unheard.verdict is Verdict.UNKNOWN


def test_copies_of_more_nodes_than_there_are_or_damaged_ones_are_refused() -> None:
    assert only(ranks(held(0, 1), held(2, 3))).reason == "was saved by 4 nodes and cannot be loaded by 2"
    damaged = held(verdict=Verdict.INVALID, reason="1/iter_0000300_1_local.pt is cut off")
    candidate = only(ranks(held(0, 1), damaged, held(2, 3), held(2, 3)))
    assert candidate.verdict is Verdict.INVALID
    assert "is cut off (rank 1 on gpu-1)" in candidate.reason


def test_without_a_loader_that_exchanges_them_copies_on_other_nodes_count_for_nothing() -> None:
    rows = (local_row(0, owners=(0,)), local_row(1, owners=(1,)))
    candidate = only(ranks(rows, (), former=("gpu-0", "gpu-9")))
    assert candidate.verdict is Verdict.INVALID


def test_whoever_holds_no_file_of_an_exchanged_step_has_nothing_to_read() -> None:
    absent = VerifyReport(LOCAL, EXCHANGED, Verdict.INVALID, "there is no file of this step")
    read = VerifyReport(LOCAL, EXCHANGED, Verdict.VALID)
    view = RankView(NODES[:2], {0: report(0, *held(0, 1), verified=(read,)), 1: report(1, verified=(absent,))})
    assert merge_checks(view)[LOCAL, EXCHANGED].verdict is Verdict.VALID


@given(st.lists(st.sampled_from(Verdict), min_size=1, max_size=4))
def test_no_rank_can_improve_what_another_found(verdicts: list[Verdict]) -> None:
    merged = only(ranks(*[(shared_row(verdict=verdict),) for verdict in verdicts]))
    assert merged.verdict is max(verdicts, key=SEVERITY.__getitem__)


@given(st.permutations(range(4)), st.lists(st.sampled_from(Verdict), min_size=4, max_size=4))
def test_the_order_in_which_ranks_report_does_not_matter(order: list[int], verdicts: list[Verdict]) -> None:
    reports = {
        rank: report(rank, local_row(rank, verdict=verdict), shared_row(verdict=verdict))
        for rank, verdict in enumerate(verdicts)
    }
    shuffled = {rank: reports[rank] for rank in order}
    assert merge_inventories(RankView(NODES, reports), UID) == merge_inventories(RankView(NODES, shuffled), UID)
