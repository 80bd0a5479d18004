"""`lockstep sbatch`: its command line is that of sbatch, which typer's reader would not read alike."""

from __future__ import annotations

import typer

app = typer.Typer()
_AS_TYPED = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}


@app.command(
    "sbatch",
    context_settings=_AS_TYPED,
    add_help_option=False,
    options_metavar="[OPTIONS OF SBATCH]",
    epilog="Examples:\n\n  lockstep sbatch -N 4 train.sbatch\n\n  lockstep sbatch --explain train.sbatch",
)
def sbatch(context: typer.Context) -> None:
    """Submit a batch script of Slurm as it is. --explain shows what becomes of each option."""
    from lockstep.cli.submission.sbatch import run

    raise typer.Exit(run(context.args))
