"""`resumeBy: Pointer`: after `rewrite_pointers` a library that is left alone resumes from exactly the chosen step."""

import shutil
from pathlib import Path

import pytest
from layouts import LAYOUTS
from library import Library

from lockstep.worker.checkpoints.formats import examine
from lockstep.worker.checkpoints.pointers import rewrite_pointers
from support.checkpoint_damage import age, cut, files_of


@pytest.fixture(scope="module")
def saved(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if library.name == "nvrx":
        pytest.skip("it keeps one step only, and finds by itself what all ranks have")
    root = tmp_path_factory.mktemp(library.name)
    library.save(root, 2, 4, 6)
    age(root, 60)
    layout = LAYOUTS[library.name]
    torn = root / layout.checkpoint.format(step=6)
    largest = max(files_of(torn), key=lambda path: path.stat().st_size)
    cut(largest, largest.stat().st_size // 3)
    if library.name == "orbax":
        (torn / "default" / "manifest.ocdbt").unlink()  # data files are beyond what can be checked
    finding = examine(str(torn), form=library.form)
    assert finding is not None
    assert finding.verdict == "Invalid"
    return root


@pytest.mark.parametrize("step", [4, 2])
def test_the_library_resumes_from_the_chosen_step_whatever_is_newer(
    library: Library, saved: Path, tmp_path: Path, step: int
) -> None:
    root = tmp_path / "root"
    shutil.copytree(saved, root, symlinks=True)
    before = {path.relative_to(root): path.stat().st_ino for path in root.rglob("*") if path.is_file()}
    done = rewrite_pointers(str(root), library.form, step, 3)
    print(f"\n{library.name} {step}: {done}")
    assert done
    assert not rewrite_pointers(str(root), library.form, step, 3), "a second time there is nothing to do"
    assert library.resume(root) == (step, 100 + step)
    kept = {path.stat().st_ino for path in root.rglob("*") if path.is_file()}
    lost = {str(path) for path, inode in before.items() if inode not in kept}
    assert lost <= {"latest", "latest_checkpointed_iteration.txt"}, "no file of a checkpoint may vanish"
