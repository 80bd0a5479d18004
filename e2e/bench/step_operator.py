"""What the operator has to do with steps: CPU of a real one while a gang of process nodes runs many."""

from __future__ import annotations

import time

from harness.proc import cpu_seconds
from harness.training import TrainingSite, training_world

_SCRIPT = """#!/bin/bash
cd "$LOCKSTEP_CHECKPOINT_DIR"
touch up
until [ -e go ]; do sleep 0.1; done
for step in $(seq {steps}); do srun true || exit 1; done
touch done
until [ -e end ]; do sleep 0.1; done
"""
_SECONDS = 600.0


def operator_cpu(steps: int) -> dict[str, float]:
    """Parts of a core that the operator uses: ``operator_cpu`` while the steps run, ``operator_cpu_idle`` in as long a
    time after them, with the gang up all the while; and the seconds of both."""
    with training_world() as world:
        site = TrainingSite(world)
        batch = {"script": _SCRIPT.format(steps=steps), "output": "/dev/null"}
        run = site.apply("steps", 2, [], launcher={"type": "Slurm", "batch": batch})
        folder = run.folder / "a1"
        run.wait("its script runs", (folder / "up").exists, _SECONDS)
        pid = world.operator.pid
        assert pid is not None, "the operator has ended"
        begun, used = time.monotonic(), cpu_seconds(pid)
        (folder / "go").touch()
        run.wait("its steps have run", (folder / "done").exists, _SECONDS)
        taken, of_steps = time.monotonic() - begun, cpu_seconds(pid) - used
        used = cpu_seconds(pid)
        time.sleep(taken)
        idle = cpu_seconds(pid) - used
        (folder / "end").touch()
        run.wait_until_succeeded()
    return {
        "operator_cpu": round(of_steps / taken, 4), "operator_cpu_idle": round(idle / taken, 4),
        "operator_steps": steps, "operator_s": round(taken, 1),
    }  # fmt: skip
