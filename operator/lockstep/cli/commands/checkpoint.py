"""`lockstep checkpoint` and its verbs: save now, verify, and what runs that are gone have left on a node."""

from __future__ import annotations

import time
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer import Argument

from lockstep.cli.errors import UsageError
from lockstep.cli.options import (
    ClusterTarget,
    ObjectOutput,
    Run,
    Target,
    epilog,
    flag,
    seconds_of,
    timeout_seconds,
    verb,
)
from lockstep.cli.output import echo, print_done
from lockstep.cli.verbs import Verbs


class _SaveByDefault(Verbs):
    """`checkpoint RUN` is short for `checkpoint save RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A first word that is no verb names a run. Raises UsageError where it is one that is misspelt: a run stands
        alone."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            near = get_close_matches(args[0], self.commands, 1) if args[1:] and not args[1].startswith("-") else []
            if near:
                raise UsageError(
                    f"{ctx.command_path} has no verb {args[0]}; did you mean {near[0]}?",
                    f"{ctx.command_path} --help lists its verbs",
                )
            args = ["save", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_SaveByDefault,
    no_args_is_help=True,
    help="Have a run save now; judge checkpoints.",
    epilog=epilog("lockstep checkpoint hello --wait"),
)


@verb(app, "save", "lockstep checkpoint save hello --wait")
def save(
    target: Target,
    run: Run,
    wait: Annotated[bool, flag("--wait", "Until it is valid on all ranks; fail unless it is.")] = False,
    timeout: Annotated[str | None, flag("--timeout DURATION", "Of --wait: e.g. 90s; for ever by default.")] = None,
    output: ObjectOutput = "name",
) -> None:
    """Ask all ranks of a run to save now, at one step. `checkpoint RUN` does the same."""
    from lockstep.cli.actions.save import answer, ask

    seconds = timeout_seconds(timeout)
    cluster = target.connect()
    raw, token = ask(cluster, run)
    if wait:
        echo(f"{raw['metadata']['name']}: {answer(cluster, raw, token, seconds)}")
    else:
        print_done(raw, output, "asked to save")


@verb(app, "verify", "lockstep checkpoint verify /shared-checkpoints/team/hello")
def verify(
    path: Annotated[str, Argument(metavar="PATH", help="A checkpoint, or a directory of some.")],
    form: Annotated[str, flag("--format FORMAT", "As in checkpoint.format; Torch:PATTERN with one.")] = "Auto",
    quick: Annotated[bool, flag("--quick", "Compare no checksums.")] = False,
    trust_times: Annotated[
        str, flag("--trust-times yes|no", "no: it is a copy that did not keep the times of its files.")
    ] = "yes",
    skew: Annotated[float | None, flag("--skew SECONDS", "Clocks may be so far apart; 2 by default.", min=0)] = None,
) -> None:
    """Say whether a checkpoint is complete: exit code 0 Valid, 1 Invalid, 2 Unknown. Of several, the newest counts."""
    from lockstep.cli.actions.verify import verify

    raise typer.Exit(verify(path, form, not quick, skew, trust_times))


@verb(app, "leftovers", "lockstep checkpoint leftovers /local-checkpoints --older-than 14d")
def leftovers(
    target: ClusterTarget,
    root: Annotated[str, Argument(metavar="DIRECTORY", help="Of a local storage, on this node.")],
    older_than: Annotated[str, flag("--older-than DURATION", "Only what was last written that long ago.")] = "7d",
    remove: Annotated[bool, flag("--remove", "Remove it; else it is only listed.")] = False,
) -> None:
    """Local checkpoints on this node of runs that are gone from the cluster. For administrators."""
    from lockstep.cli.actions.leftovers import show_or_remove

    seconds = seconds_of("--older-than", older_than)
    show_or_remove(target.connect(), root, older_than=seconds, removes=remove, now=time.time())
