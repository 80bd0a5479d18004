"""What only NVRx's local files have: copies of other ranks' shards."""

from pathlib import Path

import pytest

from lockstep.worker.checkpoints.formats import nvrx, verify_checkpoint
from lockstep.worker.checkpoints.formats.examination import commit_mark
from lockstep.worker.checkpoints.tiers import scan_tier
from support import checkpoint_layouts as layouts


def test_local_files_say_whose_shards_the_node_holds(tmp_path: Path) -> None:
    # Two processes a node; this is node 1, and it keeps copies of node 0's.
    layouts.nvrx(tmp_path / "u1/a3/session", 100, {2: (2, 0), 3: (3, 1)})
    layouts.nvrx(tmp_path / "u1/a3/session", 50, {2: (2,), 3: (3, 1)})
    newer, older = scan_tier("local", str(tmp_path), "u1")
    assert newer["path"] == str(tmp_path / "u1/a3/session/iter_0000100")
    assert (newer["verdict"], newer["format"], newer["owners"]) == ("Valid", "NVRxLocal", [0, 1])
    assert (older["step"], older["owners"]) == (50, [1])  # half of node 0 is nothing
    assert verify_checkpoint(newer["path"]) == ("Valid", "")


@pytest.mark.parametrize(
    ("held", "empty", "per_node", "owners"),
    [
        ({0: (0,), 1: (1,)}, (2, 3), 2, [0]),  # its node had another rank later, which looked for saves there
        ({2: (2, 0), 3: (3, 1)}, (0, 1), 2, [0, 1]),
        ({0: (0,), 1: (1,)}, (6, 7), 0, [0]),  # no four of these are of one node
        ({0: (0,), 1: (1,)}, (2, 3), 0, []),  # of four processes two may have saved nothing
        ({0: (0,)}, (1,), 0, []),
        ({0: (0,), 1: (1,), 2: (2,), 3: (3,)}, (), 2, [0]),  # they were four
        ({0: (0,), 1: (1,)}, (2,), 2, [0]),  # it has only begun to look there
        ({0: (0,), 1: (1,)}, (), 4, [0]),
    ],
)
def test_a_directory_of_another_rank_makes_no_whole_save_torn(
    held: dict[int, tuple[int, ...]],
    empty: tuple[int, ...],
    per_node: int,
    owners: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvrx, "PROCESSES_PER_NODE", per_node, raising=False)
    layouts.nvrx(tmp_path / "u1/a1", 100, held)
    for rank in empty:
        (tmp_path / f"u1/a1/{rank}").mkdir()
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert (row["verdict"], row["owners"]) == ("Valid" if owners else "Invalid", owners)


def test_a_copy_stands_in_for_a_dirty_local_file_but_not_for_one_cut_off(tmp_path: Path) -> None:
    root = tmp_path / "u1/a3"
    layouts.nvrx(root, 100, {0: (0, 1), 1: (1, 0)})
    (root / "1/iter_0000100_1_local.pt").rename(root / "1/iter_0000100_1_local.dirty.pt")
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert (row["verdict"], row["owners"]) == ("Valid", [0])
    copy = root / "0/iter_0000100_1_local.pt"
    whole = copy.read_bytes()
    copy.write_bytes(whole[:50])  # the loader goes by names
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert row["reason"] == "0/iter_0000100_1_local.pt is cut off: it has no end record"
    copy.rename(root / "0/iter_0000100_1_local.dirty.pt")
    (row,) = scan_tier("local", str(tmp_path), "u1")
    assert (row["verdict"], row["owners"]) == ("Invalid", [])
    assert commit_mark(row["path"]) is not None
    assert row["reason"] == "0/iter_0000100_1_local.dirty.pt was never committed"
