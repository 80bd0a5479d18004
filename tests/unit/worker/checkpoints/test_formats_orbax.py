"""What only Orbax has: temporary names, a time of commit, and arrays stored one by one."""

import json
import shutil
from pathlib import Path

import pytest

from lockstep.worker.checkpoints.tiers import scan_tier
from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age
from support.verdicts import verdict_on


@pytest.mark.parametrize("name", ["100.orbax-checkpoint-tmp", "100.orbax-checkpoint-tmp-1699"])
def test_orbaxs_temporary_name_speaks_against_it(tmp_path: Path, name: str) -> None:
    layouts.orbax(tmp_path / "u1/a1" / name)
    (row,) = scan_tier("shared", str(tmp_path), "u1")
    assert (row["step"], row["verdict"], row["format"]) == (100, "Invalid", "Orbax")


def test_orbax_is_committed_by_its_time_or_by_its_file(tmp_path: Path) -> None:
    path = layouts.orbax(tmp_path / "100", committed=False)
    assert verdict_on(path)[1].startswith("it was never committed: _CHECKPOINT_METADATA has no time of commit")
    (path / "commit_success.txt").touch()
    assert verdict_on(path) == ("Valid", "")
    shutil.rmtree(path / "default")
    assert verdict_on(path) == ("Invalid", "default/ is missing")


def test_an_orbax_checkpoint_whose_metadata_say_nothing_was_never_committed(tmp_path: Path) -> None:
    path = layouts.orbax(tmp_path / "100", committed=False)
    layouts.written(path / "_CHECKPOINT_METADATA", "{}")
    assert verdict_on(age(path))[1].startswith("it was never committed: _CHECKPOINT_METADATA has no time of commit")


def test_orbax_arrays_stored_one_by_one_are_looked_for(tmp_path: Path) -> None:
    path = layouts.orbax(tmp_path / "100")
    shutil.rmtree(path / "default")
    leaf = {"key_metadata": [{"key": "model"}, {"key": "w"}], "value_metadata": {"skip_deserialize": False}}
    layouts.written(path / "default/_METADATA", json.dumps({"tree_metadata": {"x": leaf}, "use_ocdbt": False}))
    layouts.written(path / "default/model.w/.zarray", "{}")
    layouts.written(path / "default/model.w/0", b"\5" * 9)
    age(path)
    assert verdict_on(path) == ("Valid", "")
    (path / "default/model.w/.zarray").unlink()
    assert verdict_on(path) == ("Invalid", "default/model.w is missing")
