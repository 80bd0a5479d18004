"""`lockstep` and `kubectl lockstep`: one program of all verbs, and its exit codes.

Each verb imports what it needs when it runs: reading a kubeconfig alone takes most of a second, which
`--help` and shell completion need not spend.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from lockstep import __version__
from lockstep.api.base.nesting import TOO_DEEP
from lockstep.cli.commands import checkpoint, control, nodes, reading, retry, sbatch, submit, ui
from lockstep.cli.errors import CliError, ExitCode
from lockstep.cli.output import note
from lockstep.cli.verbs import Verbs

TRACEBACK = "LOCKSTEP_TRACEBACK"
"""Variable with which a defect is shown as Python shows it."""
_WORDS = 300
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> None:
    """Run one verb and leave with its exit code (docs/cli.md lists them)."""
    called = Path(sys.argv[0]).name
    _open_what_is_closed()
    try:
        app(arguments, prog_name="kubectl lockstep" if called.startswith("kubectl-") else "lockstep")
    except CliError as error:
        _end(str(error), error.remedy, error.exit_code)
    except RecursionError:  # a manifest, or what is to be printed of an object: either is anybody's to write
        _end(f"it {TOO_DEEP}")
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            _end(f"the output cannot be written: {error.strerror}", "make room, or send it elsewhere")
        words = f"{type(error).__name__}: {' '.join(str(error)[:_WORDS].split())}"
        remedy = f"with {TRACEBACK}=1 it says where; please report that, with what was typed"
        _end(f"a defect of lockstep: {words}", remedy)


def _open_what_is_closed() -> None:
    """Python has no stream where the caller closed one, as with ``<&-``: nothing is read there, and what is written is
    for nobody."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (as long as the program lives)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _end(words: str, remedy: str = "", code: ExitCode = ExitCode.FAILED) -> NoReturn:
    with contextlib.suppress(OSError):  # nobody reads it
        note(f"error: {words}")
        if remedy:
            note(f"  {remedy}")
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstep {__version__}")
        raise typer.Exit


@app.callback()
def lockstep(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """LLM training as one gang on Kubernetes: submit runs, see why they wait, what they do, why they stopped."""


for verbs in (submit, retry, sbatch, reading, control, ui):
    app.registered_commands += verbs.app.registered_commands
app.add_typer(nodes.app, name="nodes")
app.add_typer(checkpoint.app, name="checkpoint")
