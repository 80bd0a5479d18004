"""Known vulnerabilities among what is locked: the operator's Python packages, and the Go modules of the tools.

    python -m dependency_audit [--required]

The databases are on the network. What could not be looked through is named, last of all, and fails the audit only with
--required.
Exit code 1: something vulnerable was found. 2: it could not be looked for, and had to be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
GOVULNCHECK = "golang.org/x/vuln/cmd/govulncheck@v1.1.4"
GOVULNCHECK_FOUND = "exit status 3"  # as `go run` tells it, whose own code is 1
NOT_AUDITED = "could not be audited"  # pip-audit is content with that
SECONDS = 900
_MEANING = {
    True: "they had to be, so the audit fails",
    False: "nothing is known of their vulnerabilities, and with AUDIT_REQUIRED=1 the audit fails",
}


@dataclass(frozen=True)
class Audit:
    """One command that looks through one lock file."""

    of: str
    tool: str
    command: tuple[str, ...]
    folder: Path = ROOT

    def verdict(self) -> tuple[str, str]:
        """``clean``, ``vulnerable`` or ``unknown``, and the words of the tool."""
        try:
            answer = subprocess.run(
                self.command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "unknown", str(error)
        words = f"{answer.stdout}\n{answer.stderr}".strip()
        if answer.returncode == 0:
            return ("unknown" if NOT_AUDITED in words else "clean"), words
        # Both end with 1 for either; only what pip-audit found comes on its standard output, as a table.
        found = bool(answer.stdout.strip()) if self.tool == "pip-audit" else GOVULNCHECK_FOUND in answer.stderr
        return ("vulnerable" if found else "unknown"), words


def audits(folder: Path) -> Iterator[Audit]:
    """Of uv.lock with every extra, and of each Go module. ``folder`` takes the list of packages."""
    uv = str(Path(sys.executable).with_name("uv"))
    requirements = folder / "requirements.txt"
    export = [uv, "export", "--locked", "--all-extras", "--all-groups", "--no-emit-project", "--quiet"]
    subprocess.run([*export, "--output-file", str(requirements)], cwd=ROOT, check=True)
    checks = ("--requirement", str(requirements), "--require-hashes", "--disable-pip", "--progress-spinner", "off")
    yield Audit("uv.lock", "pip-audit", (uv, "tool", "run", PIP_AUDIT, *checks))
    for module in sorted((ROOT / "e2e" / "tools").glob("*/go.mod")):
        command = ("go", "run", GOVULNCHECK, "-scan", "module")
        yield Audit(f"e2e/tools/{module.parent.name}", "govulncheck", command, module.parent)


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each audit, and what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--required", action="store_true", help="what cannot be looked through fails the audit")
    required = parser.parse_args(arguments).required
    verdicts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for audit in audits(Path(folder)):
            verdict, words = audit.verdict()
            verdicts[audit.of] = verdict
            print(f"{audit.of}: {verdict}")
            if verdict == "vulnerable":
                print(words)
            elif verdict == "unknown":
                print(f"  {audit.tool} could not look: {words.splitlines()[-1] if words else 'no words'}")
    if unknown := [of for of, verdict in verdicts.items() if verdict == "unknown"]:
        print(f"NOT AUDITED: {', '.join(unknown)} ({len(unknown)} of {len(verdicts)}); {_MEANING[required]}")
    if "vulnerable" in verdicts.values():
        return 1
    return 2 if required and unknown else 0


if __name__ == "__main__":
    sys.exit(main())
