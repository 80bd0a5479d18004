"""What users get wrong about launchers and batch scripts, with the words they get back."""

from __future__ import annotations

from typing import Any

from support.good_specs import ABSENT, spec

BATCH: dict[str, Any] = {"type": "Slurm", "batch": {"script": "#!/bin/sh\nsrun hostname\n"}}
# what is wrong -> the spec, the field that the refusal names, and what it says about it
BAD_LAUNCHERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a launcher that does not exist": (
        spec(launcher={"type": "torchrun"}),
        "spec.launcher.type",
        'supported values: "Plain", "Torchrun", "JAX", "MPI", "DeepSpeed", "Slurm", "Ray"',
    ),
    "torchrun started by torchrun": (
        spec(launcher={"type": "Torchrun"}),
        "spec.command",
        "write command: [train.py]",
    ),
    "torchrun by its path started by torchrun": (
        spec(launcher={"type": "Torchrun"}, command=["/opt/venv/bin/torchrun", "train.py"]),
        "spec.command",
        "leave launcher out",
    ),
    "settings of another launcher": (
        spec(launcher={"type": "JAX", "torchrun": {"nprocPerNode": 8}}),
        "spec.launcher.torchrun",
        "need launcher.type: Torchrun",
    ),
    "slots for another launcher": (
        spec(launcher={"type": "DeepSpeed", "mpi": {"slotsPerNode": 8}}, command=["deepspeed", "t.py"]),
        "spec.launcher.mpi",
        "need launcher.type: MPI",
    ),
    "MPI without the worker": (
        spec(launcher={"type": "MPI"}, command=["mpirun", "t"], worker="Disabled"),
        "spec.launcher.type",
        "leave one of them out",
    ),
    "a batch script without the worker": (
        spec(launcher=BATCH, command=ABSENT, worker="Disabled"),
        "spec.launcher.type",
        "leave one of them out",
    ),
    "a batch script and a command": (
        spec(launcher=BATCH),
        "spec.command",
        "the script in launcher.batch is what runs",
    ),
    "Slurm without a script": (
        spec(launcher={"type": "Slurm"}, command=ABSENT),
        "spec.launcher.batch",
        "write both, or leave both out",
    ),
    "a batch script for another launcher": (
        spec(launcher={**BATCH, "type": "MPI"}),
        "spec.launcher.batch",
        "write both, or leave both out",
    ),
    "a batch script without an interpreter": (
        spec(launcher={"type": "Slurm", "batch": {"script": "srun x"}}, command=ABSENT),
        "spec.launcher.batch.script",
        "begin with #!",
    ),
    "a batch script that is too long": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh\n" + 131_072 * "#"}}, command=ABSENT),
        "spec.launcher.batch.script",
        "may not be more than 131072",
    ),
    "a directory from nowhere": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh", "directory": "work"}}, command=ABSENT),
        "spec.launcher.batch.directory",
        "write a path from the root",
    ),
    "a script from nowhere": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh", "command": "t.sh"}}, command=ABSENT),
        "spec.launcher.batch.command",
        "write the path of the script's file from the root",
    ),
    "a submission from nowhere": (
        spec(launcher={"type": "Slurm", "batch": {"script": "#!/bin/sh", "submitDirectory": "work"}}, command=ABSENT),
        "spec.launcher.batch.submitDirectory",
        "write a path from the root",
    ),
    "what Ray does about a lost node, for another launcher": (
        spec(launcher={"type": "Torchrun", "ray": {"onNodeLoss": "Join"}}, command=["t.py"]),
        "spec.launcher.ray",
        "need launcher.type: Ray",
    ),
    "an answer to a lost node that there is not": (
        spec(launcher={"type": "Ray", "ray": {"onNodeLoss": "Ignore"}}),
        "spec.launcher.ray.onNodeLoss",
        'supported values: "Join", "Restart"',
    ),
    "Ray without the worker": (
        spec(launcher={"type": "Ray"}, command=["python", "t.py"], worker="Disabled"),
        "spec.launcher.type",
        "leave one of them out",
    ),
    "steps without the worker": (
        spec(launcher={"steps": True}, worker="Disabled"),
        "spec.launcher.steps",
        "leave one of them out",
    ),
}
