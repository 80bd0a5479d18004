"""A real DeepSpeed for tests."""

from __future__ import annotations

import os
from pathlib import Path

from harness.deepspeed_program import ON_CPUS

VENV = Path(os.environ.get("LOCKSTEP_TEST_DEEPSPEED") or Path(__file__).parents[2] / ".build" / "formats" / "venv")
"""A virtual environment with torch and deepspeed: that of `make formats-ready`."""
MISSING = f"no DeepSpeed in {VENV}: `make formats-ready`"
ENVIRONMENT = {"PATH": f"{VENV / 'bin'}:/usr/local/bin:/usr/bin:/bin", **ON_CPUS}
