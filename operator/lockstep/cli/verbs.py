"""The program's verbs, and those that people bring from kubectl and Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

from lockstep.cli.errors import UsageError

_OURS: Mapping[str, str] = {
    **dict.fromkeys(("delete", "rm", "kill", "stop", "scancel", "abort"), "lockstep cancel RUN"),
    **dict.fromkeys(("squeue", "ps", "list", "ls", "get", "jobs", "runs"), "lockstep queue"),
    **dict.fromkeys(("describe", "show", "inspect"), "lockstep info RUN"),
    **dict.fromkeys(("why", "debug"), "lockstep explain RUN"),
    **dict.fromkeys(("log", "tail", "attach", "sattach"), "lockstep logs -f RUN"),
    **dict.fromkeys(("sacct",), "lockstep history RUN"),
    **dict.fromkeys(("sinfo", "node", "top"), "lockstep nodes"),
    **dict.fromkeys(("sprio", "priority"), "lockstep prio"),
    **dict.fromkeys(("srun", "run", "create", "apply", "launch", "start"), "lockstep submit FILE"),
    **dict.fromkeys(("salloc", "exec", "ssh", "shell"), "kubectl exec -it POD; lockstep info RUN says where it runs"),
    **dict.fromkeys(("pause",), "lockstep suspend RUN"),
    **dict.fromkeys(("unpause", "continue"), "lockstep resume RUN"),
    **dict.fromkeys(("unhold",), "lockstep release RUN"),
    **dict.fromkeys(("scontrol",), "lockstep info, hold, release, suspend, resume, requeue and nodes drain"),
    **dict.fromkeys(("web", "dashboard"), "lockstep ui"),
    **dict.fromkeys(("save",), "lockstep checkpoint RUN"),
}
"""By the word that is typed: what does it here."""


class Verbs(TyperGroup):
    """Says which verb is meant by another program's word for it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises UsageError on such a word."""
        word = args[0] if args else ""
        if word in _OURS and self.get_command(ctx, word) is None:
            raise UsageError(f"there is no verb {word}; here: {_OURS[word]}", "lockstep --help lists them all")
        return super().resolve_command(ctx, args)
