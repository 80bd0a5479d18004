"""What `launcher.type: Slurm` runs: a batch script, and what its submission said."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lockstep.api.base.schema import Rule, SpecModel

MOST_CHARACTERS = 131_072
"""Of a script. An array has it in each of its runs."""
MOST_OF_A_PATH = 4096
MOST_OF_AN_OPTION = 32_768
Option = Annotated[str, Field(max_length=MOST_OF_AN_OPTION)]
Pattern = Annotated[str, Field(min_length=1, max_length=MOST_OF_A_PATH)]


class BatchSpec(SpecModel):
    """A batch script of Slurm. What it asks for in nodes, GPUs, time and so on is in the run's own fields; its #SBATCH
    lines are read by whoever submits it (lockstep sbatch), not here."""

    script: Annotated[
        str,
        Field(min_length=3, max_length=MOST_CHARACTERS),
        Rule("self.startsWith('#!')", "begin with #! and the path of an interpreter, e.g. #!/bin/bash"),
    ]
    """The script, run once, on rank 0, as a copy."""
    arguments: Annotated[tuple[Annotated[str, Field(max_length=32_768)], ...], Field(max_length=512)] = ()
    """What it gets as $1 and so on."""
    name: Annotated[str, Field(max_length=255)] = ""
    """Name of its file as submitted; the job's name where --job-name is not among options."""
    command: (
        Annotated[
            str,
            Field(min_length=1, max_length=MOST_OF_A_PATH),
            Rule("self.startsWith('/')", "write the path of the script's file from the root, or leave it out"),
        ]
        | None
    ) = None
    """Path of its file as submitted: Command= of scontrol show job. Nothing is read there."""
    directory: (
        Annotated[
            str,
            Field(min_length=1, max_length=MOST_OF_A_PATH),
            Rule("self.startsWith('/')", "write a path from the root, as a volume has it"),
        ]
        | None
    ) = None
    """Directory it starts in; that of the image when left out."""
    submit_directory: (
        Annotated[
            str,
            Field(min_length=1, max_length=MOST_OF_A_PATH),
            Rule("self.startsWith('/')", "write a path from the root, as a volume has it"),
        ]
        | None
    ) = None
    """Directory it was submitted in, SLURM_SUBMIT_DIR; the one that it starts in when left out."""
    host: Annotated[str, Field(max_length=253)] = ""
    """Where it was submitted, SLURM_SUBMIT_HOST."""
    user: Annotated[str, Field(max_length=253)] = ""
    """Who submitted it, SLURM_JOB_USER; what runs it is the pod's own user."""
    uid: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Their number, SLURM_JOB_UID."""
    gid: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Their group's, SLURM_JOB_GID."""
    options: Annotated[dict[str, Option], Field(max_length=128)] = Field(default_factory=dict)
    """Options as they were typed, without their dashes; SLURM_* repeat some of them. They ask for nothing, but for
    ``no-requeue``: once the script has begun, nothing but a person has it run again."""
    ntasks: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Tasks of a step that says none, where the submission said how many; SLURM_NTASKS."""
    memory_mib: Annotated[int, Field(ge=1, le=2**40)] | None = Field(default=None, alias="memoryMiB")
    """Memory of a node in MiB, where the submission said how much; SLURM_MEM_PER_NODE. It reserves nothing."""
    components: Annotated[tuple[Annotated[int, Field(ge=1, le=16_384)], ...], Field(max_length=1024)] = ()
    """Nodes of each component of a heterogeneous job, whose components are alike."""
    component_tasks: Annotated[tuple[Annotated[int, Field(ge=0, le=10_000_000)], ...], Field(max_length=1024)] = ()
    """Tasks of each of them, 0 of one that says none; ntasks over all nodes alike when left out."""
    signal: (
        Annotated[
            str,
            Field(min_length=6, max_length=9),
            Rule("self.matches('^SIG[A-Z]+[12]?$')", "write the name of a signal, e.g. SIGUSR1"),
        ]
        | None
    ) = None
    """Sent onTimeLimit.leadTime before the time limit, and before other stops, as checkpoint.signal is; that is what
    counts where both are written."""
    output: Pattern | None = None
    """File for what it prints, with patterns such as %j; slurm-%j.out when left out."""
    error: Pattern | None = None
    """File for its errors; the same as output when left out."""
    input: Pattern | None = None
    """File that it reads; empty when left out."""
    append: bool = False
    """Go on at the end of files that are there, and do not empty them."""
