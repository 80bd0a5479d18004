"""What only Megatron and NeMo have: markers of a commit, and model ranks that are counted."""

import shutil
from pathlib import Path

from support import checkpoint_layouts as layouts
from support.checkpoint_layouts import age
from support.verdicts import verdict_on


def test_megatron_is_committed_by_metadata_json_and_not_by_metadata(tmp_path: Path) -> None:
    path = layouts.megatron(tmp_path / "iter_0000100")
    (path / "metadata.json").unlink()
    assert verdict_on(path) == ("Invalid", "no metadata.json: it was never committed")


def test_megatron_counts_the_model_ranks_that_its_arguments_name(tmp_path: Path) -> None:
    path = age(layouts.megatron_by_rank(tmp_path / "iter_0000100", 2, 2))
    shutil.rmtree(path / "mp_rank_00_001")
    shutil.rmtree(path / "mp_rank_01_001")
    assert verdict_on(path)[1].startswith("the model_optim_rng.pt of rank 0/1 is missing (2 of 2x2 are there")


def test_nemos_marker_beside_it_speaks_against_it(tmp_path: Path) -> None:
    path = age(layouts.nemo(tmp_path / "gpt-step=100"))
    (tmp_path / "gpt-step=100-unfinished").touch()
    assert verdict_on(path)[1] == "gpt-step=100-unfinished is beside it: a save or a removal did not end"
