"""The program's verbs, and those that people bring from kubectl and Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from typer.core import TyperGroup

from lockstep.cli.errors import UsageError
from lockstep.cli.usage import in_our_words

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
    """Says which verb is meant by another program's word for it, or by one that is misspelt; and of the command line of
    any of its verbs in one sentence what is wrong."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Raises UsageError."""
        with in_our_words():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Raises UsageError."""
        with in_our_words(ctx):
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises UsageError on a word that is no verb."""
        word, path = args[0] if args else "", ctx.command_path
        if self.get_command(ctx, word) is not None or word.startswith("-"):
            return super().resolve_command(ctx, args)
        if ctx.parent is None and word in _OURS:
            raise UsageError(f"there is no verb {word}; here: {_OURS[word]}", f"{path} --help lists them all")
        near = " or ".join(get_close_matches(word, self.list_commands(ctx)))
        none = "there is no verb" if ctx.parent is None else f"{path} has no verb"
        alone = f"{path} alone shows all; " if self.invoke_without_command else ""
        raise UsageError(
            f"{none} {word}{f'; did you mean {near}?' if near else ''}", f"{alone}{path} --help lists its verbs"
        )
