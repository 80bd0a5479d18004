"""What mypy, set up as for the operator, has against a few lines."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def lines_refused(source: str, scratch: Path) -> list[int]:
    """The numbers of the lines with an error."""
    snippet = scratch / "snippet.py"
    snippet.write_text(source)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(scratch / "cache"), str(snippet)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line]
