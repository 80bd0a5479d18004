"""Verdicts on small checkpoints that the real libraries wrote: tests/formats/record.py, `make formats`."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from lockstep.worker.checkpoints.formats import INVALID, UNKNOWN, VALID, Finding, examine, verify_checkpoint
from support.checkpoint_damage import HOUR, Damage, files_of, flip, losses, shift, unreadable

RECORDED = Path(__file__).resolve().parents[3] / "formats" / "fixtures"
FIXTURES = Path(os.environ.get("LOCKSTEP_FORMATS_FIXTURES", RECORDED))
STAMP = 102  # what the tensors of every recorded `whole` are filled with


class Case(NamedTuple):
    """A recorded directory: who wrote it, and what it is."""

    library: str
    name: str
    form: str
    checkpoint: str
    verdict: str
    step: int

    def laid_out(self, root: Path) -> Path:
        """Its checkpoint, in a copy below root with the recorded order of times, its last file an hour old."""
        recorded = FIXTURES / self.library / self.name
        shutil.copytree(recorded / "tree", root / self.library)
        times = json.loads((recorded / "mtimes.json").read_text())
        first = time.time() - HOUR - max(times.values())
        for path, after in times.items():
            os.utime(root / self.library / path, (first + after, first + after))
        return root / self.library / self.checkpoint


def cases(*names: str) -> list[Case]:
    found = []
    for path in sorted(FIXTURES.glob("*/*/provenance.json")):
        told = json.loads(path.read_text())
        case = Case(
            path.parts[-3], path.parts[-2], told["format"], told["checkpoint"], told["verdict"], told["step"]
        )  # fmt: skip
        if not names or case.name in names:
            found.append(case)
    return found


def named(case: Case) -> str:
    return f"{case.library}-{case.name}"


def judged(path: Path, form: str, **options: float) -> Finding:
    finding = examine(str(path), form=form, **options)  # type: ignore[arg-type]
    assert finding is not None, f"{path} is not taken for a checkpoint"
    return finding


# What no marker, size or end of a file tells of, and the real loaders do without: of HuggingFace's Trainer what only
# describes the model to other programs, and the newline at the end of a JSON file; of Orbax all that its merged OCDBT
# database has replaced.
NOT_NEEDED = {
    "hf": ("config.json removed", "generation_config.json", "training_args.bin removed", ".json shortened"),
    "nvrx": (" removed",),  # each shard has a copy
    "orbax": ("ocdbt.process_0/", "commit_success.txt", "_METADATA removed", "_CHECKPOINT_METADATA removed"),
}
# And what they do need: Orbax's list of data files is compressed with zstandard, which Python does not read by itself;
# whether a program that uses Accelerate has a scheduler only the program knows.
NOT_KNOWN = {"orbax": ("/default/d/",), "accelerate": ("scheduler.bin removed",)}


def is_listed(table: dict[str, tuple[str, ...]], case: Case, damage: Damage) -> bool:
    return any(part in f"{damage.file} {damage.name}" for part in table.get(case.library, ()))


def test_fixtures_of_all_formats_are_recorded() -> None:
    assert {case.form for case in cases("whole")} >= {
        "TorchDCP", "HuggingFace", "Accelerate", "Lightning", "Orbax", "DeepSpeed", "Megatron",
    }  # fmt: skip


def test_the_documentation_names_the_versions_that_wrote_the_fixtures() -> None:
    told = (RECORDED.parent.parent.parent / "docs" / "checkpoints.md").read_text()
    provenances = [json.loads(path.read_text()) for path in RECORDED.glob("*/*/provenance.json")]
    written = {item for provenance in provenances for item in provenance["libraries"].items()}
    assert [f"{name} {version}" for name, version in sorted(written) if f"{name} {version}" not in told] == []


@pytest.mark.parametrize("form", ["named", "Auto"])
@pytest.mark.parametrize("case", cases(), ids=named)
def test_what_a_real_library_left_is_judged_as_it_was_recorded(case: Case, form: str, tmp_path: Path) -> None:
    path = case.laid_out(tmp_path)
    finding = judged(path, case.form if form == "named" else form)
    assert finding.verdict == case.verdict, finding.reason
    assert bool(finding.reason) == (case.verdict != VALID)
    assert verify_checkpoint(str(path), form=case.form)[0] == case.verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("whole"), ids=named)
def test_a_file_that_is_lost_or_cut_makes_it_invalid_unless_it_is_not_needed(case: Case, tmp_path: Path) -> None:
    unnoticed, noticed = [], 0
    for number, damage in enumerate(list(losses(case.laid_out(tmp_path)))):
        path = case.laid_out(tmp_path / str(number))
        damage.inflict(path.parent / damage.file)
        finding = examine(str(path), form=case.form)
        if finding is not None and finding.verdict == VALID:
            unnoticed.append(damage)
        else:
            noticed += 1
    assert noticed
    spared = [
        damage for damage in unnoticed if is_listed(NOT_NEEDED, case, damage) or is_listed(NOT_KNOWN, case, damage)
    ]
    assert [f"{damage.file} {damage.name}" for damage in unnoticed if damage not in spared] == []


# Libraries that write tensors with a checksum beside them: the CRCs of torch.save's archives.
CHECKSUMMED = ("accelerate", "deepspeed_zero", "hf", "lightning_files", "nvrx")
# Each file is its own commit.
UNMARKED = ("lightning_files", "nvrx")


def marker_of(path: Path) -> Path:
    """The file that was written last."""
    return max(files_of(path), key=lambda file: file.stat().st_mtime_ns)


@pytest.mark.parametrize("case", [case for case in cases("whole") if case.library not in UNMARKED], ids=named)
def test_data_written_after_the_commit_makes_it_invalid(case: Case, tmp_path: Path) -> None:
    path = case.laid_out(tmp_path)
    largest = max(files_of(path), key=lambda file: file.stat().st_size)
    shift(largest, HOUR / 2)
    finding = judged(path, case.form)
    assert finding.verdict == INVALID, f"{largest.name} is half an hour younger than the rest"


@pytest.mark.parametrize("case", cases("whole"), ids=named)
def test_clocks_that_differ_within_the_allowance_change_nothing(case: Case, tmp_path: Path) -> None:
    path = case.laid_out(tmp_path)
    newest = max(file.stat().st_mtime for file in files_of(path))
    for file in files_of(path):
        if file != marker_of(path):
            shift(file, newest - file.stat().st_mtime + 1.5)
    assert judged(path, case.form, skew=2.0).verdict == VALID


@pytest.mark.parametrize("case", [case for case in cases("whole") if case.library in CHECKSUMMED], ids=named)
def test_a_flipped_bit_is_noticed_on_reading_where_the_format_has_checksums(case: Case, tmp_path: Path) -> None:
    path = case.laid_out(tmp_path)
    archives = [file for file in files_of(path) if file.suffix in (".bin", ".pt", ".pth", ".ckpt")]
    flipped = [file for file in archives if flip(file, STAMP)]
    assert flipped
    assert judged(path, case.form).verdict == VALID, "presence and sizes say nothing of it"
    verdict, reason = verify_checkpoint(str(path), form=case.form)
    assert verdict == INVALID
    assert any(file.name in reason for file in flipped)


@pytest.mark.parametrize("case", cases("whole"), ids=named)
def test_what_cannot_be_read_is_unknown(case: Case, tmp_path: Path) -> None:
    path = case.laid_out(tmp_path)
    unreadable(path if path.exists() else path.parent / "0")
    finding = examine(str(path), form=case.form)
    assert finding is not None
    assert finding.verdict == UNKNOWN, finding.reason
