"""What the worker finds in the directories of its tiers, and says of them at the barrier, over real files."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.core.checkpoints.resume import ResumeContext, ResumeKind, choose_resume
from lockstep.core.checkpoints.verdicts import RankView, merge_inventories
from lockstep.core.model.worker_report import CheckpointReport, Verdict, WorkerPhase, WorkerReport
from lockstep.worker.checkpoints.inventory import survey
from lockstep.worker.checkpoints.tiers import ENOUGH_VALID, NEWEST, passes_over, scan_tier
from lockstep.worker.limits import encoded
from lockstep.worker.node import preflight
from lockstep.worker.node.barrier import seen_in_words
from lockstep.worker.node.preflight import prepare
from lockstep.worker.settings import JSON
from support import checkpoint_layouts as layouts
from support.saved_steps import RUN_UID, commit, node, step_of


def test_the_scan_is_newest_first_over_all_attempts_and_knows_other_names(tmp_path: Path) -> None:
    commit(step_of(tmp_path, 1, "step-100"))
    commit(step_of(tmp_path, 2, "iter_0000100"), attempt=2)
    commit(step_of(tmp_path, 2, "200"), step=200)
    step_of(tmp_path, 3, "step-300").mkdir(parents=True)
    step_of(tmp_path, 3, "logs-7").mkdir()  # no checkpoint of ours, nor of torch
    (tmp_path / RUN_UID / "other").mkdir()
    rows = scan_tier("shared", str(tmp_path), RUN_UID)
    assert [(row["step"], row["attempt"], row["verdict"]) for row in rows] == [
        (300, 3, "Invalid"), (200, 2, "Valid"), (100, 2, "Valid"), (100, 1, "Valid"),
    ]  # fmt: skip


def test_the_scan_ends_when_enough_valid_ones_were_found(tmp_path: Path) -> None:
    for step in range(40):
        commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
    rows = scan_tier("shared", str(tmp_path), RUN_UID)
    assert [row["step"] for row in rows] == list(range(39, 39 - ENOUGH_VALID, -1))


@pytest.mark.parametrize(
    ("order", "older"),
    [
        ({"beyond": 20, "saves": []}, range(20, 12, -1)),
        ({"beyond": None, "saves": [["shared", step, 1] for step in range(24, 40)]}, range(23, 15, -1)),
        ({"beyond": 20, "saves": [["shared", 20, 0], ["local", 19, 1], ["shared", 18, 2]]}, range(19, 11, -1)),
        ({"beyond": None, "saves": [], "diverged": [[30, 1], [24, 1]]}, range(23, 15, -1)),
        ({"beyond": None, "saves": [], "diverged": [[24, 0]]}, ()),
        ({"beyond": 3, "saves": []}, range(3, -1, -1)),
        ({"beyond": 39, "saves": []}, ()),
        (None, ()),
    ],
)
def test_what_may_not_be_chosen_hides_nothing_older_that_may(
    tmp_path: Path, order: JSON | None, older: Sequence[int]
) -> None:
    for step in range(40):
        commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
    rows = scan_tier("shared", str(tmp_path), RUN_UID, may_not_be=passes_over(order))
    newest = range(39, 39 - ENOUGH_VALID, -1)
    assert [row["step"] for row in rows] == [*newest, *older]


def test_what_is_torn_beyond_a_ceiling_leaves_room_for_what_lies_below_it(tmp_path: Path) -> None:
    for step in range(60):
        directory = commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
        if step > 10:
            (directory / "manifest.json").unlink()
    rows = scan_tier("shared", str(tmp_path), RUN_UID, may_not_be=passes_over({"beyond": 10}))
    assert len(rows) <= NEWEST
    assert [row["step"] for row in rows if row["verdict"] == "Valid"] == list(range(10, 2, -1))


def test_no_directory_means_no_checkpoint_but_an_unreadable_one_means_not_knowing(tmp_path: Path) -> None:
    assert scan_tier("shared", str(tmp_path / "none"), RUN_UID) == []
    (tmp_path / RUN_UID).write_text("not a directory")
    with pytest.raises(NotADirectoryError):
        scan_tier("shared", str(tmp_path), RUN_UID)


@pytest.fixture
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making ready ends all other processes of the node: here that would be children of the tests."""
    monkeypatch.setattr(preflight, "end_other_processes", lambda: "")


def test_a_survey_makes_the_directories_to_save_in(tmp_path: Path) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    assert survey(node(shared, local), 3, 0, 2) == []
    assert (local / RUN_UID / "a3").is_dir()
    assert (shared / RUN_UID / "a3").is_dir()


@pytest.mark.usefixtures("no_sweep")
def test_what_a_node_sees_is_told_in_one_line_the_newest_first(tmp_path: Path) -> None:
    for step in range(1, 11):
        commit(step_of(tmp_path, 1, f"step-{step}"), step=step)
    (step_of(tmp_path, 1, "step-10") / "manifest.json").unlink()
    told = seen_in_words(survey(node(tmp_path, tmp_path / "local"), 2, 0, 1))
    first = "shared a1/step-10 Invalid (no manifest.json: it was never committed); shared a1/step-9 Valid; "
    assert told.startswith(first)
    assert told.endswith("; shared a1/step-3 Valid; 1 older ones"), "no more than eight valid ones are looked for"


@pytest.mark.usefixtures("no_sweep")
def test_a_rank_that_cannot_see_the_shared_tier_says_so_and_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    commit(step_of(shared, 1, "step-100"))
    sees = prepare(node(shared, local), 2, 0, 2)
    real = os.scandir

    def stale(path: Any) -> Any:
        if str(path).startswith(str(shared)):
            raise OSError(116, "Stale file handle", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", stale)
    blind = prepare(node(shared, local), 2, 1, 2)
    for prepared in (sees, blind):
        assert prepared.problem == ""
        assert prepared.port is not None
        prepared.port.close()
    (row,) = blind.inventory
    assert (row["tier"], row["verdict"], row["path"]) == ("shared", "Unknown", str(shared / RUN_UID))
    assert row["reason"].startswith("Stale file handle")
    # What the operator makes of it: the checkpoint that the other rank found valid has to wait.
    reports = {
        rank: WorkerReport(
            slot=rank, incarnation=1, pod_uid="p", node=f"gpu-{rank}", phase=WorkerPhase.READY, received_at=0.0,
            inventory=tuple(msgspec.convert(row, CheckpointReport) for row in prepared.inventory),
        )
        for rank, prepared in enumerate((sees, blind))
    }  # fmt: skip
    candidates = merge_inventories(RankView(nodes=("gpu-0", "gpu-1"), reports=reports), RUN_UID)
    assert [(found.step, found.verdict) for found in candidates] == [(100, Verdict.UNKNOWN), (0, Verdict.UNKNOWN)]
    assert candidates[0].reason == "not seen by rank 1 on gpu-1"
    assert candidates[1].reason.endswith("(rank 1 on gpu-1)")
    decision = choose_resume(candidates, {}, ResumeContext(attempt=2, world=2, run_uid=RUN_UID, since=0.0), 1.0)
    assert decision.kind is ResumeKind.WAIT


@pytest.mark.usefixtures("no_sweep")
def test_a_node_whose_own_disk_cannot_be_read_cannot_train(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / RUN_UID).write_text("not a directory")
    prepared = prepare(node(tmp_path / "shared", local), 2, 0, 1)
    assert prepared.problem.startswith("preparing failed: Not a directory")
    assert prepared.port is None


@pytest.mark.usefixtures("no_sweep")
def test_a_tier_that_takes_no_writes_is_found_out_before_the_barrier(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / RUN_UID).mkdir(parents=True)
    (shared / RUN_UID / "a2").write_text("in the way")
    prepared = prepare(node(shared, tmp_path / "local"), 2, 0, 1)
    assert prepared.problem.startswith("preparing failed: File exists")


def test_in_the_local_tier_each_shard_is_a_row(tmp_path: Path) -> None:
    step = step_of(tmp_path, 1, "step-100")
    commit(step / "rank-0", rank=0)
    commit(step / "rank-3", rank=3)
    (step / "rank-3/a.bin").unlink()
    rows = scan_tier("local", str(tmp_path), RUN_UID)
    assert [(Path(row["path"]).name, row["verdict"]) for row in rows] == [("rank-0", "Valid"), ("rank-3", "Invalid")]


def test_whatever_lies_in_a_directory_the_inventory_is_one_that_the_operator_takes(tmp_path: Path) -> None:
    root = tmp_path / RUN_UID / "a1"
    commit(root / "step-100", attempt=1 << 40, world=1 << 40)
    commit(root / "\udcff-step-200", step=200)
    commit(root / "step-300", step=300, format="\ud800")
    old = commit(root / "step-400", step=400) / "manifest.json"
    os.utime(old, (-1000, -1000))
    vast = commit(root / "step-600", step=600) / "manifest.json"
    said = json.loads(vast.read_text())
    said["files"][0]["bytes"] = 10**30
    vast.write_text(json.dumps(said))
    (root / "0").mkdir()
    (root / "0" / f"iter_{10**20}_0_local.pt").write_bytes(b"")
    layouts.torch_file(root / "0" / "iter_0000500_99999999_local.pt")
    rows = scan_tier("local", str(tmp_path), RUN_UID)
    assert {row["step"] for row in rows} >= {100, 200, 300, 400, 500, 600}
    read = msgspec.json.decode(encoded({"rows": rows}), type=dict[str, list[CheckpointReport]])["rows"]
    assert len(read) == len(rows)
