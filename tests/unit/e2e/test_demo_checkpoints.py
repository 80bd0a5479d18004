"""The demo finds a lineage wrong when it is, and tears checkpoints as an interrupted save does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from demo.checkpoints import Saved
from lockstep.worker.checkpoints.tiers import scan_tier

RANKS, TOTAL, RESUME = 2, 8, 4


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Attempt 1 took steps 1 to 6 and saved step 4; attempt 2 took 5 to 8."""
    run = Saved(tmp_path / "uid", RANKS)
    for attempt, steps in ((1, range(1, 7)), (2, range(5, 9))):
        (run.folder / f"a{attempt}").mkdir(parents=True)
        for rank in range(RANKS):
            write_lineage(run, attempt, rank, [(step, f"loss {step}") for step in steps])
    commit(run, attempt=1, step=4)
    return run


def write_lineage(run: Saved, attempt: int, rank: int, steps: Iterable[tuple[int, str]]) -> None:
    lines = [json.dumps({"step": step, "batch_hash": f"{step}/{rank}", "loss": loss}) for step, loss in steps]
    (run.folder / f"a{attempt}" / f"lineage-rank{rank}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def commit(run: Saved, attempt: int, step: int) -> None:
    directory = run.folder / f"a{attempt}" / f"step-{step}"
    directory.mkdir()
    files = []
    for rank in range(RANKS):
        (directory / f"shard-{rank}.f32").write_bytes(b"12345678")
        files.append({"name": f"shard-{rank}.f32", "bytes": 8, "crc32": "9ae0daaf"})
    head = {"format": "lockstep/1", "runUID": "uid", "attempt": attempt, "step": step, "world": RANKS}
    (directory / "manifest.json").write_text(json.dumps(head | {"files": files}))


def test_a_line_without_gap_or_difference_is_fine(saved: Saved) -> None:
    assert saved.broken_promises(RESUME, TOTAL) == []
    assert saved.repeated_steps(RESUME) == 2


def test_the_last_line_of_a_killed_rank_may_be_cut_short(saved: Saved) -> None:
    path = saved.folder / "a1" / "lineage-rank1.jsonl"
    path.write_text(path.read_text()[:-5])
    assert saved.broken_promises(RESUME, TOTAL) == []


def test_a_skipped_step_is_seen(saved: Saved) -> None:
    write_lineage(saved, 2, 1, [(step, f"loss {step}") for step in (6, 7, 8)])
    assert [line.partition(":")[0] for line in saved.broken_promises(RESUME, TOTAL)] == ["rank 1", "rank 1"]


def test_a_step_that_came_out_differently_is_seen(saved: Saved) -> None:
    write_lineage(saved, 2, 0, [(5, "loss 5"), (6, "loss 6.1"), (7, "loss 7"), (8, "loss 8")])
    (found,) = saved.broken_promises(RESUME, TOTAL)
    assert found.startswith("rank 0: step 6 differs")


def test_the_newest_valid_step_is_one_with_all_it_lists(saved: Saved) -> None:
    commit(saved, 1, 6)
    assert saved.newest_valid(1) == 6
    (saved.folder / "a1" / "step-6" / "shard-1.f32").write_bytes(b"1234")
    assert saved.newest_valid(1) == 4
    assert saved.newest_valid(2) == 0


def test_the_worker_refuses_what_the_demo_tore(saved: Saved) -> None:
    saved.tear(1, 5)
    assert saved.newest_valid(1) == 4
    rows = scan_tier("shared", str(saved.folder.parent), "uid", form="Manifest")
    assert {row["step"]: row["verdict"] for row in rows} == {4: "Valid", 5: "Invalid"}
