"""What the README says to a fresh machine: what to install, and what to type."""

from __future__ import annotations

import re
from pathlib import Path

from harness.shown_commands import shown_on

README = Path(__file__).resolve().parents[2] / "README.md"


def packages(readme: Path = README) -> list[str]:
    """Debian's, of its one `apt-get install`. Raises LookupError."""
    found = re.findall(r"`apt-get install ([^`]+)`", " ".join(readme.read_text(encoding="utf-8").split()))
    if len(found) != 1:
        raise LookupError(f"{readme} names {len(found)} times what `apt-get install` is to install, not once")
    return str(found[0]).split()


_UNTIL_ENDED = "make playground"


def commands(readme: Path = README) -> list[str]:
    """Those that need nothing but a clone, as typed and with their comments; what would last until somebody ends it
    ends by itself. Raises LookupError."""
    shown = [command.line for command in shown_on(readme) if command.line.startswith("make ")]
    found = [line.replace(_UNTIL_ENDED, f"{_UNTIL_ENDED} FOR=1") for line in shown]
    if not found:
        raise LookupError(f"{readme} shows no make command")
    return found
