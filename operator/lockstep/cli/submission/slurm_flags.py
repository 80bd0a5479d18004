"""Flags of sbatch and srun that `lockstep submit` and `retry` do not have, answered with its own word for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from lockstep.cli.errors import UsageError

_SCRIPT = "a batch script keeps all of its options: lockstep sbatch SCRIPT"
_LEAVE_OUT = "leave it out"
_MANIFEST = "in a manifest"
_OURS: Mapping[str, str] = {
    "job-name": "--name NAME",
    "partition": "-q QUEUE",
    "qos": "--priority-class NAME",
    "nodefile": "-w NODE,NODE",
    "gres": "--gpus-per-node N, and --gpu-type TYPE for their type",
    "gpus": "--gpus-per-node N: the same on each node",
    "gpus-per-task": "--gpus-per-node N",
    "gpus-per-socket": "--gpus-per-node N",
    "tres-per-task": "--gpus-per-node N",
    "constraint": f"--gpu-type TYPE, or podTemplate.spec.nodeSelector {_MANIFEST}",
    "prefer": f"--gpu-type TYPE,TYPE takes the first that is free; else placement {_MANIFEST}",
    "chdir": "--workdir PATH, in the container",
    "export": "--env NAME=VALUE: nothing of your shell goes along by itself",
    "export-file": "--env NAME=VALUE, each",
    "no-requeue": f"recovery.maxRestarts: 0 {_MANIFEST}",
    "output": "lockstep logs RUN has what is printed; to a file: -- bash -c 'python train.py > /data/out.txt'",
    "error": "lockstep logs RUN has what is printed",
    "open-mode": "lockstep logs RUN has what is printed, of all attempts",
    "input": "-- bash -c 'python train.py < /data/in.txt'",
    "label": "lockstep logs RUN writes the rank in front",
    "unbuffered": "output comes as it is printed",
    "ntasks": "-N NODES; --launcher Torchrun starts a process for each GPU of them",
    "ntasks-per-node": "--launcher Torchrun starts a process for each GPU",
    "ntasks-per-gpu": "--launcher Torchrun starts a process for each GPU",
    "mpi": "--launcher MPI -- mpirun python train.py",
    "pty": "there is no terminal: lockstep logs -f RUN, or kubectl exec -it into a pod of a run (lockstep info)",
    "interactive": "there is no terminal: lockstep logs -f RUN",
    "account": "leave it out: the queue (-q) and the namespace (-n) say who pays",
    "comment": f"an annotation {_MANIFEST}",
    "mail-type": "lockstep wait RUN, or the alerts of your cluster",
    "mail-user": "lockstep wait RUN, or the alerts of your cluster",
    "signal": "a run is asked to save before its limit: onTimeLimit.leadTime, checkpoint.signal in a manifest",
    "wrap": "-- bash -c 'COMMAND'",
    "parsable": "-o name",
    "quiet": "-o name",
    "verbose": "lockstep explain RUN",
    "immediate": "--test-only says whether it would start now",
    "exclusive": "leave it out: nodes are always your own",
    "oversubscribe": "leave it out: nodes are always your own",
    "overlap": "leave it out: nodes are always your own",
    "kill-on-invalid-dep": f"onUnsatisfiable: Fail {_MANIFEST}",
    "kill-on-bad-exit": "leave it out: one rank that fails ends its attempt on all",
    "no-kill": f"elastic, or spareNodes, {_MANIFEST}",
    "switches": f"placement.topology {_MANIFEST}",
    "contiguous": f"placement.topology {_MANIFEST}",
    "segment": f"placement.topology {_MANIFEST}",
    "priority": "--priority-class NAME, or --nice to give some up",
    "container-image": "--image IMAGE",
    "container-mounts": "--volume CLAIM:PATH",
    "container-workdir": "--workdir PATH",
    "environment": "--image IMAGE",
    "batch": f"{_LEAVE_OUT}: the command runs on every node",
    "cluster-constraint": f"{_LEAVE_OUT}: there is one cluster here; --context names another",
    "clusters": "--context NAME, of the kubeconfig",
    "container": "--image IMAGE",
    "container-id": "--image IMAGE",
    "bb": "--volume CLAIM:PATH",
    "bbf": "--volume CLAIM:PATH",
    "bcast": "--code DIR takes a program along",
    "bcast-exclude": "--code DIR takes a program along",
    "multi-prog": "have one command choose by LOCKSTEP_NODE_RANK",
    "async": f"{_LEAVE_OUT}: submit returns at once; --wait stays",
    "het-group": f"{_LEAVE_OUT}: a gang is alike on all its nodes",
    "no-allocate": f"{_LEAVE_OUT}: nodes are given whole",
    "distribution": f"{_LEAVE_OUT}: ranks are in the order of the nodes",
    **dict.fromkeys(
        ("gpu-bind", "cpu-bind", "mem-bind", "tres-bind", "gres-flags", "accel-bind"),
        f"{_LEAVE_OUT}: processes are bound to nothing",
    ),
    **dict.fromkeys(("get-user-env", "propagate", "umask", "preserve-env"), f"{_LEAVE_OUT}: the container's own apply"),
    **dict.fromkeys(
        ("prolog", "epilog", "task-prolog", "task-epilog"),
        "write it into the command: -- bash -c 'a && b'",
    ),
    "usage": "--help",
    "version": "lockstep --version",
    "jobid": "a run is a job of its own: leave it out",
}
"""By the name of an option: what to type for it."""


_TASKS = re.compile(r"-n ?(\d{1,4})")
"""With Slurm's letter for them, which is ours for the namespace. A namespace may be called so, and hardly is."""
_A_FILE = re.compile(r"[./%]")
"""In what is given to ``--output``, which has words here."""


class SubmitCommand(TyperCommand):
    """Reads its flags as any verb does, and knows those that people bring along."""

    remedy = _SCRIPT

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UsageError on a flag of Slurm's, also on one that is meant so and has the letters of one of ours."""
        ours_end = args.index("--") if "--" in args else len(args)
        tasks = _tasks(args[:ours_end])
        if tasks:
            remedy = f"--namespace {tasks} is the namespace of that name"
            raise UsageError(f"-n {tasks} is Slurm's, and -n the namespace; here: {_OURS['ntasks']}", remedy)
        given = list(args)  # which is read to its end
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of click, wherever typer has its click from
            flag = str(getattr(error, "option_name", ""))
            ours = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
            words = answer(flag, ours) if type(error).__name__ == "NoSuchOption" else ""
            if getattr(getattr(error, "param", None), "name", None) == "output":
                value = self.make_parser(ctx).parse_args(given)[0]["output"]
                flag, words = f"--output {value}", _OURS["output"] if _A_FILE.search(value) else ""
            if not words:
                raise
            raise UsageError(f"{flag} is Slurm's; here: {words}", self.remedy) from error


class RetryCommand(SubmitCommand):
    """The same of a verb that takes no script."""

    remedy = ""


def answer(flag: str, ours: Collection[str]) -> str:
    """Our word for a flag of sbatch or srun, with its dashes; empty: they have none such. ``ours``: the flags that
    there are."""
    from lockstep.slurm import srun_options
    from lockstep.slurm.handling import IGNORED, REFUSED
    from lockstep.slurm.submission import options as sbatch_options

    for table, handling in (
        (sbatch_options.OPTIONS, sbatch_options.HANDLING),
        (srun_options.OPTIONS, srun_options.HANDLING),
    ):
        wanted = flag.lstrip("-")
        for option in table:
            if wanted not in ((option.name,) if flag.startswith("--") else (option.short,)):
                continue
            name = option.same_as or option.name
            if f"--{name}" in ours:
                return f"--{name}"
            if name in _OURS:
                return _OURS[name]
            if name.startswith(("container-", "no-container-")):
                return f"{_LEAVE_OUT}: the run is in its image, as the image is"
            kind, words = handling.get(name, ("", ""))
            if kind == REFUSED:
                return words
            return f"{_LEAVE_OUT}{f': {words}' if (words and kind == IGNORED) or _whole(words) else ''}"
    return ""


def _tasks(args: Sequence[str]) -> str:
    """What ``-n 8`` or ``-n8`` says among flags; empty: neither is there."""
    typed = (*args, *map(" ".join, pairwise(args)))
    return next((found[1] for found in map(_TASKS.fullmatch, typed) if found), "")


def _whole(words: str) -> bool:
    return words.startswith("nodes are given whole")


def names_of_slurm() -> Sequence[str]:
    """Every flag that sbatch and srun have, by its long name and by its letter."""
    from lockstep.slurm import srun_options
    from lockstep.slurm.submission import options as sbatch_options

    known = [*sbatch_options.OPTIONS, *srun_options.OPTIONS]
    return sorted({f"--{option.name}" for option in known} | {f"-{option.short}" for option in known if option.short})
