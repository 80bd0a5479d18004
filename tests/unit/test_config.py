"""The operator's configuration file."""

from pathlib import Path

import pytest

from lockstep.controller.config import ConfigError, load


def test_without_a_file_workers_insist_on_their_gpus() -> None:
    assert load(None, {}).check_gpus is True


def test_the_check_of_gpus_is_off_where_they_are_simulated(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("checkGpus: false\n")
    assert load(str(path), {}).check_gpus is False


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "operator.yaml"
    path.write_text("checkGpu: false\n")
    with pytest.raises(ConfigError, match="checkGpu"):
        load(str(path), {})
