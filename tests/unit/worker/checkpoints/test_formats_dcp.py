"""Whether a checkpoint of torch's DCP is whole, by a pickle that is never unpickled: table tests over real files."""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.worker.checkpoints.formats import examine
from lockstep.worker.checkpoints.formats.dcp import dcp_extents
from support.saved_steps import RUN_UID, look

# torch's own classes, as far as their pickles go.


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


@dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: tuple[int, ...] | None = None
    index: int | None = None


@dataclass
class Metadata:
    state_dict_metadata: dict[str, Any]
    planner_data: Any = None
    storage_data: Any = None


def dcp_metadata(protocol: int = 4, **sizes: int) -> bytes:
    """Of files `__<name>.distcp`, each with two entries that together need so many bytes."""
    storage = {}
    for name, size in sizes.items():
        path = f"__{name}.distcp"
        storage[MetadataIndex(f"{name}.w", (0,), 0)] = _StorageInfo(path, 0, size // 2)
        storage[MetadataIndex(f"{name}.v", (5,), 1)] = _StorageInfo("".join(path), size // 2, size - size // 2)
    return pickle.dumps(Metadata({"model": "tensors"}, storage_data=storage), protocol)


def save_dcp(directory: Path, metadata: bytes, **sizes: int) -> Path:
    directory.mkdir(parents=True)
    for name, size in sizes.items():
        (directory / f"__{name}.distcp").write_bytes(b"x" * size)
    (directory / ".metadata").write_bytes(metadata)
    return directory


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_extents_are_read_off_the_metadata_without_unpickling(protocol: int) -> None:
    big = 5 << 32
    metadata = dcp_metadata(protocol, r0=1000, r1=big, r2=0)
    assert dcp_extents(metadata) == {"__r0.distcp": 1000, "__r1.distcp": big, "__r2.distcp": 0}


def test_metadata_that_would_run_code_is_never_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "boom"),)

    directory = save_dcp(tmp_path / "step-100", pickle.dumps(Bomb()), r0=10)
    look(directory)
    assert not (tmp_path / "boom").exists()


def test_a_complete_dcp_checkpoint_is_valid(tmp_path: Path) -> None:
    directory = save_dcp(tmp_path / "iter_0000100", dcp_metadata(r0=1000, r1=0), r0=1000, r1=0)
    finding = examine(str(directory), run_uid=RUN_UID, step=100)
    assert finding is not None
    assert (finding.verdict, finding.reason, finding.format, finding.bytes) == ("Valid", "", "TorchDCP", 1000)


def test_dcp_metadata_of_an_unknown_structure_leaves_the_cheap_test(tmp_path: Path) -> None:
    directory = save_dcp(tmp_path / "step-100", pickle.dumps({"new": "layout"}), r0=1000)
    verdict, reason = look(directory)
    assert verdict == "Valid"
    assert "sizes were not compared" in reason


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda d: (d / ".metadata").unlink(), "no .metadata: it was never committed"),
        (lambda d: (d / ".metadata.tmp").touch(), ".metadata.tmp is left over"),
        (lambda d: (d / "__r0.distcp").unlink(), "__r0.distcp is missing"),
        (lambda d: (d / "__r0.distcp").write_bytes(b"x"), "__r0.distcp has 1 bytes, its commit says at least 1000"),
        (lambda d: os.utime(d / "__r1.distcp", (4e9, 4e9)), "__r1.distcp changed after its commit"),
        (lambda d: (d / ".metadata").write_bytes(b"\0" * 100), ".metadata is not a whole pickle"),
        (lambda d: (d / ".metadata").write_bytes((d / ".metadata").read_bytes()[:-20]), ".metadata is not a whole"),
        (lambda d: [(d / f"__r{n}.distcp").unlink() for n in (0, 1)], "there is no .distcp file"),
    ],
)
def test_a_torn_dcp_checkpoint_is_invalid_with_the_reason(tmp_path: Path, damage: Any, reason: str) -> None:
    directory = save_dcp(tmp_path / "step-100", dcp_metadata(r0=1000, r1=8), r0=1000, r1=8)
    damage(directory)
    verdict, said = look(directory)
    assert verdict == "Invalid"
    assert said.startswith(reason)


@given(cut=st.integers(min_value=0, max_value=10_000))
def test_no_part_of_a_metadata_file_passes_for_the_whole(cut: int) -> None:
    whole = dcp_metadata(r0=1000, r1=2000)
    with pytest.raises(ValueError):  # noqa: PT011
        dcp_extents(whole[: cut % len(whole)])


@given(marker=st.binary(max_size=300), name=st.sampled_from(["manifest.json", ".metadata"]))
def test_no_bytes_in_a_commit_marker_make_a_verdict_impossible(
    tmp_path_factory: pytest.TempPathFactory, marker: bytes, name: str
) -> None:
    directory = tmp_path_factory.getbasetemp() / "step-100"
    directory.mkdir(exist_ok=True)
    for other in directory.iterdir():
        other.unlink()
    (directory / "__0_0.distcp").touch()
    (directory / name).write_bytes(marker)
    assert look(directory)[0] in ("Valid", "Invalid")
