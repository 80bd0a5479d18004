"""What only files of Lightning and of torch.save have: a step inside, and an end record."""

import struct
from pathlib import Path

import pytest

from lockstep.worker.checkpoints.formats import verify_checkpoint
from lockstep.worker.checkpoints.tiers import scan_tier
from support import checkpoint_layouts as layouts
from support.verdicts import verdict_on


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=1-step=200-val_loss=0.12.ckpt", 200),
        ("epoch=1-step=200-v3.ckpt", 200),
        ("step=200-last.ckpt", 200),
        ("model-7.ckpt", 120),  # the step inside counts, whatever the number is
        ("val_loss=0.12.ckpt", 120),
    ],
)
def test_a_number_in_a_name_is_not_always_the_step(tmp_path: Path, name: str, step: int) -> None:
    layouts.lightning(tmp_path / "u1/a1" / name, 120)
    for form in ("Auto", "Lightning"):
        assert [row["step"] for row in scan_tier("shared", str(tmp_path), "u1", form=form)] == [step]


def test_the_step_of_last_ckpt_is_read_from_inside(tmp_path: Path) -> None:
    layouts.lightning(tmp_path / "u1/a1/last.ckpt", 120)
    layouts.lightning_sharded(tmp_path / "u1/a2/last.ckpt", 70_000)
    layouts.lightning(tmp_path / "u1/a2/hpc_ckpt_3.ckpt", 90)
    (tmp_path / "u1/a2/last-v1.ckpt").symlink_to("hpc_ckpt_3.ckpt")  # links are not followed
    rows = scan_tier("shared", str(tmp_path), "u1", form="Lightning")
    assert [(row["step"], row["verdict"]) for row in rows] == [(70_000, "Valid"), (120, "Valid"), (90, "Valid")]


def test_an_archive_too_large_for_the_old_end_record_is_whole_too(tmp_path: Path) -> None:
    path = layouts.lightning(tmp_path / "large.ckpt", 1)
    data = path.read_bytes()
    end = len(data) - 22
    length, offset = struct.unpack("<II", data[end + 12 : end + 20])
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 2, 2, length, offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    old = data[end : end + 8] + b"\xff" * 12 + b"\0\0"
    path.write_bytes(data[:end] + record + locator + old)
    assert verdict_on(path) == verify_checkpoint(str(path)) == ("Valid", "")
    path.write_bytes(data[: end - 9] + record + locator + old)
    assert verdict_on(path) == ("Invalid", "large.ckpt is damaged: its end record leads nowhere")


def test_torchs_old_format_cannot_be_told_cut_off(tmp_path: Path) -> None:
    layouts.written(tmp_path / "old.ckpt", b"\x80\x02}q\x00.and bytes")
    assert verdict_on(tmp_path / "old.ckpt") == ("Valid", "")
    layouts.written(tmp_path / "garbage.ckpt", b"\0" * 400)
    assert verdict_on(tmp_path / "garbage.ckpt")[1] == "garbage.ckpt was not written by torch.save, or is cut off"
