"""What is damaged after the save: whatever is still called VALID, the library's own loader takes, and takes whole."""

import shutil
from pathlib import Path

import pytest
from layouts import LAYOUTS
from library import Library

from lockstep.worker.checkpoints.formats import VALID, examine, verify_checkpoint
from support.checkpoint_damage import age, losses

STEP, STAMP = 2, 102
NOT_KNOWN = {"accelerate": ("scheduler.bin removed",)}
"""What the loader needs and only the program knows: whether it has a scheduler."""


@pytest.fixture(scope="module")
def saved(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp(library.name)
    library.save(root, STEP)
    age(root, 60)
    return root


def checkpoint_below(root: Path, library: Library) -> Path:
    return root / LAYOUTS[library.name].checkpoint.format(step=STEP)


@pytest.mark.parametrize("auto", [False, True], ids=["named", "auto"])
def test_what_the_library_wrote_is_valid_and_loads(library: Library, saved: Path, auto: bool) -> None:
    path = str(checkpoint_below(saved, library))
    form = "Auto" if auto else library.form
    finding = examine(path, form=form)
    assert finding is not None
    assert (finding.verdict, finding.reason) == (VALID, "")
    assert verify_checkpoint(path, form=form) == (VALID, "")
    assert library.load(saved, STEP) == STAMP


def test_what_is_lost_is_noticed_or_not_needed(library: Library, saved: Path, tmp_path: Path) -> None:
    unnoticed = []
    for number, damage in enumerate(losses(checkpoint_below(saved, library))):
        root = tmp_path / str(number)
        shutil.copytree(saved, root)
        checkpoint = checkpoint_below(root, library)
        damage.inflict(checkpoint.parent / damage.file)
        finding = examine(str(checkpoint), form=library.form)
        if finding is not None and finding.verdict == VALID:
            try:
                loaded = library.load(root, STEP)
                print(f"{library.name}: {damage.file} {damage.name}: VALID, loads {loaded}")
            except Exception as error:
                loaded = -1
                print(f"{library.name}: {damage.file} {damage.name}: VALID, refused: {str(error)[:300]}")
            known = not f"{damage.file} {damage.name}".endswith(NOT_KNOWN.get(library.name, ()))
            if loaded != STAMP and known:
                unnoticed.append(f"{damage.file} {damage.name}")
        shutil.rmtree(root)
    assert not unnoticed
