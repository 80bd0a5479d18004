"""promtool: rules judged by Prometheus' own code, on series made up in its own notation."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import build


class PromtoolError(Exception):
    """What promtool said when it found something."""


@dataclass(frozen=True)
class Promtool:
    """``folder`` is for the files that it is given."""

    folder: Path

    def check_rules(self, rules: Path) -> str:
        """What it says of a file of rules with every lint. Raises PromtoolError."""
        return self._run("check", "rules", "--lint=all", "--lint-fatal", str(rules))

    def test_rules(self, rules: Path, tests: Sequence[Mapping[str, Any]], every: str = "1m") -> None:
        """Run tests in the form of `promtool test rules`, their samples ``every`` so long. Raises PromtoolError."""
        file = self.folder / "tests.yaml"
        body = {"rule_files": [str(rules)], "evaluation_interval": every, "tests": list(tests)}
        file.write_text(json.dumps(body))  # which is YAML, too
        self._run("test", "rules", str(file))

    def _run(self, *arguments: str) -> str:
        answer = subprocess.run(
            [str(build.binary("promtool")), *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        if answer.returncode != 0:
            raise PromtoolError(answer.stdout + answer.stderr)
        return answer.stdout
