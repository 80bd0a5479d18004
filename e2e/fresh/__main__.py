"""``python -m fresh``: do what the README says, on a machine that has nothing but what it lists."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from fresh import readme
from fresh.machine import ROOT, USER, CannotBeMade, Machine, made, require_rights
from kindcluster.ended_early import alone, ends_like_an_error
from kindcluster.errors import KindClusterError
from localcluster.build import build_dir

NEEDS_NO_RIGHTS = "make check"
NEEDS_NO_ROOT = (
    "make setup-demo build && PYTHONPATH=e2e .venv/bin/python -m localcluster.processnodes enter -- make demo"
)


def main() -> int:
    """The exit code: 0 also where no such machine can be made, which is said, unless one is required."""
    parser = argparse.ArgumentParser(prog="python -m fresh", description=__doc__)
    parser.add_argument("--account", choices=(ROOT, USER), default=ROOT, help="who types COMMAND (default: root)")
    parser.add_argument("--folder", type=Path, default=build_dir() / "fresh", help="where it is made")
    parser.add_argument("--required", action="store_true", help="fail where no such machine can be made")
    whole = f"the README's when left out, before them `{NEEDS_NO_RIGHTS}` and the demo as an ordinary user"
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=f"lines of shell; {whole}")
    options = parser.parse_args()
    typed = [(options.account, line) for line in options.commands] or [
        (USER, NEEDS_NO_RIGHTS),
        (USER, NEEDS_NO_ROOT),
        *((ROOT, line) for line in readme.commands()),
    ]
    try:
        require_rights()
        options.folder.mkdir(parents=True, exist_ok=True)
        with (
            ends_like_an_error() as from_now_on_ignored,
            alone("fresh", "fresh machine", _say),
            made(options.folder.resolve(), readme.packages(), _say) as machine,
        ):
            try:
                return _typed(machine, typed)
            finally:
                from_now_on_ignored()
    except CannotBeMade as reason:
        _say(f"fresh: skipped, as no fresh machine can be made here: {reason}")
        return 1 if options.required else 0
    except KindClusterError as error:
        print(f"fresh: {error}", file=sys.stderr)
        return 1


def _typed(machine: Machine, typed: list[tuple[str, str]]) -> int:
    """All of them, whatever becomes of the others: 0 where all end with 0."""
    worst = 0
    for account, line in typed:
        _say(f"\n{account}@fresh $ {line}")
        begun = time.monotonic()
        code = machine.run(line, account=account)
        _say(f"`{line}` as {account} ended with {code} after {time.monotonic() - begun:.0f} s")
        worst = worst or code
    return worst


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
