"""The benchmarks of e2e/bench, as `make` runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def figures_of(bench: str, *options: str) -> dict[str, Any]:
    """What a benchmark says in its last line; it has to end well."""
    ended = subprocess.run(
        [sys.executable, "-m", f"bench.{bench}", *options],
        env=os.environ | {"PYTHONPATH": f"{_ROOT / 'operator'}:{_ROOT / 'e2e'}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return figures
