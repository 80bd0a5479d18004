"""What a job carries of the shell that it is submitted from: by default what its queue names, and nothing else.

Slurm carries all. Here the job runs in an image, where the login host's PATH, HOME and credentials are wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from lockstep.core.model.problems import reserved_variable
from lockstep.slurm.environment import export_items
from lockstep.slurm.handling import IGNORED, REFUSED
from lockstep.slurm.submission.batch import OptionOutcome

MOST = 256
MOST_CHARACTERS = 32_768
Reader = Callable[[str], str]


class Carried(NamedTuple):
    """Variables by name, and rows for what is left out."""

    variables: Mapping[str, str]
    rows: Sequence[OptionOutcome]


def carried(export: str, export_file: str, environ: Mapping[str, str], names: Sequence[str], reader: Reader) -> Carried:
    """``names``: patterns of variables that the queue carries, such as WANDB_*."""
    items = export_items(export)
    words = {item.upper() for item in items if "=" not in item}
    rows: list[OptionOutcome] = []
    found: dict[str, str] = {}
    if not items or "ALL" in words:
        found = {
            name: value
            for name, value in environ.items()
            if any(fnmatchcase(name, pattern) for pattern in names) and not name.startswith(("SLURM_", "SBATCH_"))
        }
        if "ALL" in words:
            left = len(environ) - len(found)
            what = "a job runs in an image; the queue's batch.carry, or --export=ALL,NAME, names what goes along"
            rows.append(OptionOutcome("--export", "ALL", IGNORED, f"{left} variables of this shell stay here: {what}"))
    if "NONE" not in words and "NIL" not in words:
        for item in items:
            name, equals, value = item.partition("=")
            if equals:
                found[name] = value
            elif item.upper() != "ALL" and item in environ:
                found[item] = environ[item]
            elif item.upper() != "ALL":
                rows.append(OptionOutcome("--export", item, IGNORED, f"{item} is not set here"))
    if export_file:
        try:
            found |= _of_file(reader(export_file))
        except OSError as error:
            rows.append(OptionOutcome("--export-file", export_file, REFUSED, f"cannot read it: {error.strerror}"))
    return _checked(found, rows)


def _of_file(text: str) -> dict[str, str]:
    lines = text.split("\0") if "\0" in text else text.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def _checked(found: Mapping[str, str], rows: list[OptionOutcome]) -> Carried:
    kept: dict[str, str] = {}
    for name, plain in found.items():
        value = plain.replace("$", "$$")  # of which the kubelet makes one again, and fills in nothing
        if not name.isidentifier() or not name.isascii() or reserved_variable(name):
            rows.append(OptionOutcome("--export", name, IGNORED, "it is set anew at every start, or is no name"))
        elif len(value) > MOST_CHARACTERS or "\0" in value:
            rows.append(OptionOutcome("--export", name, IGNORED, f"it has more than {MOST_CHARACTERS} characters"))
        else:
            kept[name] = value
    if len(kept) > MOST:
        rows.append(OptionOutcome("--export", "", REFUSED, f"{len(kept)} variables; a run has {MOST} at most"))
    return Carried(kept, rows)
