"""Environment variables that tell the pods of an array's runs their index."""

from collections.abc import Mapping

from lockstep.api.base import names
from lockstep.api.base.indices import MAX_INDEX
from lockstep.core.model.snapshot import RunView


def array_environment(run: RunView) -> dict[str, str]:
    """The array's variables for the training container; SLURM_ARRAY_TASK_* are for programs that know those."""
    shape = {name: str(value) for name, value in array_shape(run.annotations).items()}
    ours = {f"LOCKSTEP_ARRAY_{name.upper()}": value for name, value in shape.items()}
    slurm = {"index": "ID", "count": "COUNT", "min": "MIN", "max": "MAX"}
    return ours | {f"SLURM_ARRAY_TASK_{slurm[name]}": value for name, value in shape.items()}


def array_shape(annotations: Mapping[str, str]) -> dict[str, int]:
    """Index, count, min and max of a run of an array; empty: it is in none, or somebody wrote something else."""
    words = annotations.get(names.ANNOTATION_ARRAY, "").split()
    shape = {name: value for name, _, value in (word.partition("=") for word in words)}
    if set(shape) != {"index", "count", "min", "max"} or not all(_is_number(value) for value in shape.values()):
        return {}
    return {name: int(value) for name, value in shape.items()}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INDEX))
