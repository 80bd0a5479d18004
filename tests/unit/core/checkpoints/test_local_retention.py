"""Which saves on the nodes' own disks may go: by table, and what never goes whatever there is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.api.base.changes import changed
from lockstep.api.checkpoint_status import LocalRetentionStatus, LocalSave, QuarantinedCheckpoint
from lockstep.api.recovery_status import AttemptStatus
from lockstep.controller.workers.orders import Orders, encode_reply
from lockstep.core.checkpoints.local_retention import local_retention, order_for_workers, retention_order
from lockstep.core.checkpoints.resume import ResumeContext, choose_resume
from lockstep.core.checkpoints.verdicts import Candidate, Check, RankView, merge_inventories
from lockstep.core.model.gang_settings import GangSettings
from lockstep.core.model.plan import DesiredPhase, Directive, RetentionOrder
from lockstep.core.model.plan_builder import PlanBuilder
from lockstep.core.model.quarantine import Quarantine, Save
from lockstep.core.model.run_state import RunContext
from lockstep.core.model.tiers import LOCAL, SHARED
from lockstep.core.model.tunables import Tunables
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase, WorkerReport
from lockstep.core.run import barrier
from lockstep.worker.checkpoints.removal import RemovalOrder as OrderOfWorker
from support.world import World, node, spec

UID, OTHER = "run", "other-run"
NOW = 4  # the attempt that starts
VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
Label = str
"""A save as ``1/300``: of attempt 1, step 300."""


def local(label: Label, verdict: Verdict = VALID, **changes: object) -> Candidate:
    attempt, step = map(int, label.split("/"))
    found = Candidate(LOCAL, step, f"/local/{UID}/a{attempt}/step-{step}", verdict, attempt=attempt, world=2)
    return replace(found, **changes)  # type: ignore[arg-type]


def torn(label: Label) -> Candidate:
    return local(label, INVALID)


def lacking(label: Label) -> Candidate:
    """A node that has a part of it is not in the gang now."""
    return local(label, INVALID, lacking=True)


SHARED_CHOICE = Candidate(SHARED, 250, f"/shared/{UID}/a1/step-250", VALID, attempt=1)


def in_shared(step: int, **changes: object) -> Candidate:
    return replace(SHARED_CHOICE, step=step, path=f"/shared/{UID}/a3/step-{step}", attempt=3, **changes)  # type: ignore[arg-type]


BAD_BYTES = {(LOCAL, f"/local/{UID}/a3/step-300"): Check(INVALID, "crc")}


def order(
    found: Sequence[Candidate],
    *,
    choice: Candidate = SHARED_CHOICE,
    keep_last: int = 2,
    checks: Mapping[tuple[str, str], Check] | None = None,
    quarantined: Sequence[Save] = (),
) -> RetentionOrder:
    return retention_order(
        found,
        attempt=NOW,
        world=2,
        run_uid=UID,
        keep_last=keep_last,
        choice=choice,
        checks=checks or {},
        quarantine=frozenset((LOCAL, save) for save in quarantined),
    )


def going(found: Sequence[Candidate], **how: object) -> list[Label]:
    given = order(found, **how)  # type: ignore[arg-type]
    assert all(0 < save.attempt < NOW for save in given.spent)
    earlier = [each for each in found if each.tier == LOCAL and each.attempt < NOW]
    return [f"{each.attempt}/{each.step}" for each in earlier if given.lets_go(save_of(each))]


FOUR = [local("1/100"), local("2/200"), local("3/300"), local("3/310")]


@pytest.mark.parametrize(
    ("found", "how", "gone"),
    [
        ([], {}, []),
        (FOUR, {}, ["1/100", "2/200"]),
        (FOUR, {"keep_last": 1}, ["1/100", "2/200", "3/300"]),
        ([*FOUR, local("3/20251101", INVALID, doubted=True)], {}, ["1/100", "2/200"]),  # a number that is no step
        (FOUR, {"keep_last": 4}, []),
        (FOUR, {"keep_last": 9}, []),
        # An older one may be cheaper to resume from, or the newer ones could not be read.
        (FOUR, {"choice": local("1/100")}, ["2/200"]),
        (FOUR, {"choice": local("1/100"), "keep_last": 1}, ["2/200", "3/300"]),
        # What training failed on goes, and counts for nothing; by whom it was saved matters.
        (FOUR, {"quarantined": [Save(310, 3)]}, ["1/100", "3/310"]),
        (FOUR, {"quarantined": [Save(310, 2)]}, ["1/100", "2/200"]),
        (FOUR, {"quarantined": [Save(310)]}, ["1/100", "3/310"]),
        (FOUR, {"quarantined": [Save(s) for s in (100, 200, 300, 310)]}, ["1/100", "2/200", "3/300", "3/310"]),
        # Bytes that were read wrong once count for nothing, and are looked at again.
        (FOUR, {"checks": BAD_BYTES}, ["1/100"]),
        # A step saved anew stands for itself; of two saves of one step the later attempt's counts.
        ([local("1/300"), local("2/200"), local("3/300")], {}, ["1/300"]),
        ([local("1/300"), local("2/300"), local("3/300")], {"keep_last": 1}, ["1/300", "2/300"]),
        # Torn saves are of no use, wherever they lie.
        ([torn("1/90"), torn("3/320"), *FOUR], {}, ["1/90", "3/320", "1/100", "2/200"]),
        ([torn("1/90"), torn("2/90"), torn("3/90")], {}, ["1/90", "2/90", "3/90"]),
        # What may be whole again with another node is kept beside those that are whole now.
        ([lacking("1/400"), *FOUR], {}, ["1/100", "2/200"]),
        ([lacking("1/50"), *FOUR], {"choice": local("3/310")}, ["1/100", "2/200"]),
        ([lacking("1/50"), *FOUR], {}, ["1/50", "1/100", "2/200"]),  # the shared tier has step 250
        ([lacking("1/400"), in_shared(400), *FOUR], {}, ["1/400", "1/100", "2/200"]),
        ([lacking("1/400"), in_shared(400, world=3), *FOUR], {}, ["1/100", "2/200"]),
        ([lacking("1/400"), in_shared(400, verdict=UNKNOWN), *FOUR], {}, ["1/100", "2/200"]),
        ([lacking("1/400"), lacking("1/390"), lacking("1/380")], {}, ["1/380"]),
        ([lacking("1/400"), lacking("2/400"), lacking("1/390")], {}, ["1/400"]),
        ([local("1/400", world=3), local("1/390", world=3), local("1/380", world=3)], {}, ["1/380"]),
        # What its times alone speak against may be accepted (checkpoint.trustTimes: false).
        ([local("1/400", INVALID, as_copied=True), *FOUR], {}, ["1/100", "2/200"]),
        # Whatever could not be judged stays.
        ([local("1/50", UNKNOWN), local("3/400", UNKNOWN), *FOUR], {}, ["1/100", "2/200"]),
        ([local("1/50", run_uid=OTHER), *FOUR], {}, ["1/100", "2/200"]),
        # Fewer valid ones than are to stay: who knows what lies below those that were told of.
        ([local("2/200"), torn("1/100")], {}, ["1/100"]),
        # Nothing of the attempt that starts, whatever its number was used for.
        ([torn("4/100"), torn("4/400"), torn("5/400"), local("4/390"), *FOUR], {}, ["1/100", "2/200"]),
        ([replace(torn("1/300"), tier=SHARED, attempt=0), *FOUR], {}, ["1/100", "2/200"]),
    ],
)
def test_what_goes(found: list[Candidate], how: dict[str, object], gone: list[Label]) -> None:
    assert going(found, **how) == gone


def test_what_nobody_told_of_goes_only_below_as_many_valid_steps_as_are_asked_for() -> None:
    untold = Save(40, 1)
    assert order(FOUR).lets_go(untold)
    assert not order(FOUR, keep_last=5).lets_go(untold)
    assert not order(FOUR).lets_go(Save(305, 3))


def test_of_two_checkpoints_of_one_save_the_better_one_counts() -> None:
    renamed = torn("3/310")
    assert going([replace(renamed, path=renamed.path + "-final"), *FOUR]) == ["1/100", "2/200"]


def test_where_too_much_cannot_be_judged_nothing_goes() -> None:
    blind = [local(f"2/{step}", UNKNOWN) for step in range(1000, 1100)]
    assert order([*blind, *FOUR]) == RetentionOrder()


saves = st.builds("{}/{}".format, st.integers(0, 6), st.integers(0, 12))
verdicts = st.sampled_from([VALID, VALID, INVALID, UNKNOWN])


@st.composite
def gangs(draw: st.DrawFn) -> list[list[CheckpointReport]]:
    """Three nodes, each with what it has of the ranks' shards, as its worker would list it: the newest alone."""
    held: list[list[CheckpointReport]] = []
    for _ in range(3):
        rows = []
        for label, shard in draw(st.sets(st.tuples(saves, st.integers(0, 1)), max_size=24)):
            attempt, step = map(int, label.split("/"))
            path = f"/local/{UID}/a{attempt}/step-{step}/rank-{shard}"
            world = draw(st.sampled_from([2, 2, 2, 3]))
            rows.append(CheckpointReport(LOCAL, step, path, draw(verdicts), attempt=attempt, world=world))
        held.append(sorted(rows, key=lambda row: (row.step, row.attempt, row.path), reverse=True))
    return held


def gang(held: Sequence[Sequence[CheckpointReport]], nodes: Sequence[int], told: int) -> RankView:
    reports = {
        rank: WorkerReport(rank, 1, "pod", f"n{at}", WorkerPhase.READY, 0.0, inventory=tuple(held[at][:told]))
        for rank, at in enumerate(nodes)
    }
    return RankView(tuple(f"n{at}" for at in nodes), reports)


ANY_SAVE = st.builds(Save, st.integers(0, 12), st.integers(0, 4))
IN_SHARED = Candidate(SHARED, 3, f"/shared/{UID}/a1/step-3", VALID, attempt=1)


def chosen(found: Sequence[Candidate], quarantine: Quarantine) -> Candidate:
    """What would be resumed from, with all bytes right."""
    context = ResumeContext(NOW, 2, UID, since=0.0, quarantine=quarantine, probe_grace=0.0, saved_before=True)
    there = [*found, IN_SHARED]
    choice = choose_resume(there, {(each.tier, each.path): Check(VALID) for each in there}, context, 1.0).choice
    assert choice is not None
    return choice


@given(
    gangs(),
    st.permutations([0, 1, 2]),
    st.integers(1, 3),
    st.frozensets(ANY_SAVE, max_size=4),
    st.sampled_from([6, 24]),
)
def test_whatever_there_is_nothing_goes_that_the_gang_could_need(
    held: list[list[CheckpointReport]], nodes: list[int], keep_last: int, bad: frozenset[Save], told: int
) -> None:
    quarantine = frozenset((LOCAL, save) for save in bad)
    found = merge_inventories(gang(held, nodes[:2], told), UID)
    choice = chosen(found, quarantine)
    given_order = retention_order(
        found, attempt=NOW, world=2, run_uid=UID, keep_last=keep_last, choice=choice, checks={}, quarantine=quarantine
    )
    earlier = [each for each in found if 0 < each.attempt < NOW]
    gone = {save_of(each) for each in earlier if given_order.lets_go(save_of(each))}
    usable = {
        save_of(each)
        for each in earlier
        if each.verdict is VALID and each.world == 2 and not any(save.may_be(save_of(each)) for save in bad)
    }
    newest = sorted({save.step for save in usable}, reverse=True)[:keep_last]
    assert not gone & {save_of(each) for each in earlier if each.verdict is UNKNOWN}
    assert set(newest) <= {save.step for save in usable - gone}
    assert choice.tier == SHARED or save_of(choice) not in gone
    assert len(newest) == keep_last or given_order.floor is None  # nobody knows what lies below
    # All nodes are told the same. With what is left nobody has to go back further than without it.
    left = [[row for row in rows if row.attempt >= NOW or not given_order.lets_go(save_of(row))] for rows in held]
    best = chosen(merge_inventories(gang(left, nodes[:2], told), UID), quarantine)
    assert best.step >= choice.step


@given(st.none() | ANY_SAVE, st.lists(ANY_SAVE, max_size=6), st.lists(ANY_SAVE, max_size=6), ANY_SAVE)
def test_a_worker_reads_an_order_as_it_is_meant(
    floor: Save | None, kept: list[Save], spent: list[Save], save: Save
) -> None:
    meant = RetentionOrder(floor, tuple(kept), tuple(spent))
    directive = Directive(NOW, DesiredPhase.RUN, (1,), (0,), retention=meant)
    reply = encode_reply(
        Orders(directive, 1), slot=0, incarnation=1, attempt=NOW - 1, epoch=(1, 1), now=0.0, heartbeat_seconds=1.0,
        fence_seconds=1.0,
    )  # fmt: skip
    assert OrderOfWorker.from_reply(json.loads(reply)["retention"]).lets_go((save.step, save.attempt)) == meant.lets_go(
        save
    )


def save_of(each: Candidate | CheckpointReport) -> Save:
    return Save(each.step, each.attempt)


# With the START of a run


def gathered(*, keep_last: int | str | None = None, attempt: int = 3, **checkpoint: object) -> PlanBuilder:
    """Two ranks at the barrier of an attempt; the two before have saved on both nodes, each three times."""
    w = World(
        {name: node(name) for name in ("n0", "n1")}, Tunables(gang=GangSettings(local_storages={"nvme": "/nvme"}))
    )
    tier = {"storage": "nvme"} | ({} if keep_last is None else {"keepLast": keep_last})
    w.roll_out("one", spec(2, checkpoint={"shared": {"claimName": "lustre"}, "local": tier}))
    view, snapshot = w.runs["one"], w.snapshot("one")
    known = {"local_retention": LocalRetentionStatus(attempt=attempt - 1)} | checkpoint
    status = changed(
        view.status,
        attempt=attempt,
        checkpoint=changed(view.status.checkpoint, **known),
        attempts=tuple(AttemptStatus(number=number, started_at=1.0) for number in range(1, attempt)),
    )
    rows = [(number, 100 * number + step) for number in range(1, attempt) for step in (10, 20, 30)]
    reports = {
        rank: replace(
            snapshot.reports[rank],
            inventory=tuple(
                CheckpointReport(
                    LOCAL, step, f"/local/a{by}/step-{step}/rank-{rank}", VALID, attempt=by, world=2, run_uid=view.uid
                )
                for by, step in rows
            ),
        )
        for rank in (0, 1)
    }
    return PlanBuilder(
        RunContext(replace(snapshot, run=replace(view, status=status), reports=reports), w.tunables, w.now)
    )


def decided(plan: PlanBuilder, choice: Candidate | None = None) -> LocalRetentionStatus:
    retention = local_retention(plan, choice or replace(SHARED_CHOICE, step=1))
    assert retention is not None
    return retention


def test_by_default_the_two_newest_valid_steps_of_earlier_attempts_stay() -> None:
    retention = decided(gathered())
    assert [(save.step, save.attempt) for save in retention.kept] == [(230, 2), (220, 2)]
    assert retention.floor == LocalSave(step=220, attempt=2)
    assert retention.message == ""


def test_nothing_is_decided_where_nothing_is_to_be_removed() -> None:
    assert local_retention(gathered(keep_last="Disabled"), SHARED_CHOICE) is None


@pytest.mark.parametrize(
    ("plan", "choice", "why"),
    [
        (gathered(ceiling=215), SHARED_CHOICE, "the run goes back to step 215"),
        (gathered(), None, "the attempt begins at step 0"),
        # A backup of before the last attempt was restored, or status was lost as a whole.
        (
            gathered(local_retention=LocalRetentionStatus(attempt=1)),
            SHARED_CHOICE,
            "status does not know of everything",
        ),
        (gathered(local_retention=None), SHARED_CHOICE, "status does not know of everything"),
    ],
)
def test_what_is_not_sure_removes_nothing_and_says_why(plan: PlanBuilder, choice: Candidate | None, why: str) -> None:
    retention = local_retention(plan, choice)
    assert retention is not None
    assert (retention.attempt, retention.floor, retention.spent) == (3, None, ())
    assert why in retention.message


def test_what_saves_show_that_status_has_forgotten_is_missing_knowledge() -> None:
    forgotten = gathered()
    forgotten.status = changed(forgotten.status, attempts=(), attempt=3)
    assert decided(forgotten).floor is not None
    checkpoint = changed(forgotten.status.checkpoint, local_retention=LocalRetentionStatus(attempt=1))
    forgotten.status = changed(forgotten.status, checkpoint=checkpoint)
    assert decided(forgotten).floor is None


def test_what_is_in_quarantine_goes() -> None:
    bad = QuarantinedCheckpoint(tier=LOCAL, step=230, attempt=2, reason="NaN")
    retention = decided(gathered(quarantined=(bad,)))
    assert [(save.step, save.attempt) for save in retention.kept] == [(220, 2), (210, 2)]
    assert retention.spent == (LocalSave(step=230, attempt=2),)


def trained() -> World:
    """A run of two ranks with a shared and a local tier that has trained and saved once."""
    w = World(
        {name: node(name) for name in ("n0", "n1", "n2")}, Tunables(gang=GangSettings(local_storages={"nvme": "/nvme"}))
    )
    w.roll_out("one", spec(2, checkpoint={"shared": {"claimName": "lustre"}, "local": {"storage": "nvme"}}))
    w.train("one", 10)
    w.settle()
    return w


def test_the_decision_is_in_status_with_start_and_any_leader_repeats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    w = trained()
    meant = LocalRetentionStatus(attempt=2, floor=LocalSave(step=20, attempt=1), kept=(LocalSave(step=20, attempt=1),))
    monkeypatch.setattr(barrier, "local_retention", lambda plan, choice: meant)
    w.end_child("one", 1, 1)
    order = RetentionOrder(Save(20, 1), (Save(20, 1),))
    assert w.status("one").checkpoint.local_retention == meant
    assert w.directives["uid-one"].retention == order
    w.crash()
    w.settle()
    assert w.directives["uid-one"].retention == order
    monkeypatch.setattr(barrier, "local_retention", lambda plan, choice: None)
    w.end_child("one", 1, 1)
    assert w.status("one").attempt == 3
    assert w.directives["uid-one"].retention is None


def test_what_was_decided_for_an_earlier_start_is_told_to_nobody() -> None:
    w = trained()
    order = LocalRetentionStatus(attempt=1, floor=LocalSave(step=20, attempt=1))
    status = w.status("one")
    status = changed(status, checkpoint=changed(status.checkpoint, local_retention=order))
    assert order_for_workers(status) == RetentionOrder(Save(20, 1))
    assert status.start is not None
    rebuilt = changed(status, start=changed(status.start, attempt=2))
    assert order_for_workers(rebuilt) is None


def test_with_one_start_after_the_other_status_knows_of_everything() -> None:
    w = trained()
    for attempt in (1, 2, 3):
        retention = w.status("one").checkpoint.local_retention
        assert retention is not None
        assert (retention.attempt, retention.message) == (attempt, "")
        w.end_child("one", 1, 1)
