"""Orbax CheckpointManager: one process, a tree of arrays."""

from pathlib import Path
from typing import Any

import numpy
import orbax.checkpoint as checkpoint

import writers
from writers import only, stamp

FORM, WORLD, LIBRARIES = "Orbax", 1, ("orbax-checkpoint", "jax")


def filled(number: int) -> dict[str, Any]:
    array = numpy.full((32 * writers.size**2, 16), number, numpy.float32)
    return {"model": {"embedding": array, "attention": array, "mlp": array}, "optimizer": {"moment": array}}


def save(root: Path, steps: list[int], generation: int) -> None:
    options = checkpoint.CheckpointManagerOptions(max_to_keep=None)
    with checkpoint.CheckpointManager(root, options=options) as keeper:
        for step in steps:
            keeper.save(step, args=checkpoint.args.StandardSave(filled(stamp(step, generation))), force=True)
        keeper.wait_until_finished()


def load(root: Path, step: int) -> int:
    with checkpoint.CheckpointManager(root) as keeper:
        state = keeper.restore(step, args=checkpoint.args.StandardRestore(filled(0)))
        arrays = [*state["model"].values(), *state["optimizer"].values()]
        return only({int(number) for array in arrays for number in numpy.unique(array)})


def resume(root: Path) -> tuple[int, int]:
    with checkpoint.CheckpointManager(root) as keeper:
        step = keeper.latest_step()
    assert step is not None, "no step was found"
    return step, load(root, step)
