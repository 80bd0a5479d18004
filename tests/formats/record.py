"""Writes the fixtures anew with the installed libraries: `make formats-record`.

Up to three cases each: `whole`; `killed`, a save that was killed; `overwritten`, a step that was saved an hour before
and whose second save was killed. The library's own loader refuses the last two, or loads a mixture of two saves.
Times are recorded beside the files, as git keeps none.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from layouts import LAYOUTS
from library import HERE, KilledError, Library, LibraryError

from support.checkpoint_damage import HOUR, age

FIXTURES = Path(os.environ.get("LOCKSTEP_FORMATS_FIXTURES", HERE / "fixtures"))
STEP = 2


def record(name: str) -> None:
    layout = LAYOUTS[name]
    with Library(name) as library, tempfile.TemporaryDirectory(prefix="lockstep-record-") as scratch:
        whole = Path(scratch, "whole")
        whole.mkdir()
        events = library.save(whole, STEP)
        keep(library, whole, "whole", "Valid", "a save that ended")
        if not layout.files:  # a single file is moved into place: see test_kills.py
            keep_torn(library, Path(scratch), events[0], "killed", 1, "a save")
        if layout.overwrites and not layout.files:
            age(whole, HOUR)
            keep_torn(library, Path(scratch), events[0], "overwritten", 2, "a save, an hour later a second one over it")


def keep_torn(library: Library, scratch: Path, events: int, case: str, generation: int, story: str) -> None:
    """Keeps what is left by the latest kill after which the library's own loader refuses, or loads a mixture."""
    for event in range(events, 0, -1):
        root, tried = scratch / f"{case}-{event}", scratch / f"{case}-{event}-tried"
        if generation == 1:
            root.mkdir()
        else:
            shutil.copytree(scratch / "whole", root)
        with contextlib.suppress(KilledError, LibraryError):
            library.save(root, STEP, generation=generation, crash={"rank": 0, "event": event})
        shutil.copytree(root, tried)  # a loader may clean up
        try:
            library.load(tried, STEP)
        except LibraryError:
            if not files_below(root):
                continue  # nothing was left that could be taken for a checkpoint
            keep(library, root, case, "Invalid", f"{story}, killed before change {event} of {events}")
            return
    shutil.rmtree(FIXTURES / library.name / case, ignore_errors=True)


def files_below(root: Path) -> list[Path]:
    """What was saved, without the scripts that DeepSpeed adds."""
    return sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".py")


def keep(library: Library, root: Path, case: str, verdict: str, story: str) -> None:
    target = FIXTURES / library.name / case
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target / "tree", ignore=shutil.ignore_patterns("*.py"))  # scripts that DeepSpeed adds
    checkpoint = LAYOUTS[library.name].checkpoint.format(step=STEP)
    left = [path.name for path in root.iterdir() if path.name.startswith(f"{checkpoint}.")]
    checkpoint = left[0] if left else checkpoint  # Orbax's name for what is not committed
    files = files_below(root)
    first = min(path.stat().st_mtime_ns for path in files)
    times = {str(path.relative_to(root)): (path.stat().st_mtime_ns - first) / 1e9 for path in files}
    provenance = {
        "format": library.form, "step": STEP, "checkpoint": checkpoint, "verdict": verdict,
        "story": story, "processes": library.world, "libraries": library.versions,
    }  # fmt: skip
    for name, content in (("mtimes.json", times), ("provenance.json", provenance)):
        (target / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or LAYOUTS:
        record(chosen)
