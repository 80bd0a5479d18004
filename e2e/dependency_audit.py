"""Known vulnerabilities among what is locked: the operator's Python packages, and the Go modules of the tools.

    python -m dependency_audit [--required]

Python's database is on the network. Go's is a Go module as well, golang.org/x/vulndb, so that it answers wherever
modules can be downloaded. What could not be looked through is named, last of all, and fails only with --required.
The tools are other people's programs as they released them, and run nowhere but in tests: what is known against them is
told, and fails nothing. The standard library they are built with is that of the Go at hand, and not looked at.
Exit code 1: something vulnerable was found among what is shipped. 2: it could not be looked for, and had to be.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import build

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
GOVULNCHECK = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
GO_DATABASE = "golang.org/x/vulndb@latest"
NOT_AUDITED = "could not be audited"  # pip-audit is content with that
SECONDS = 900
_MEANING = {
    True: "they had to be, so the audit fails",
    False: "nothing is known of their vulnerabilities, and with AUDIT_REQUIRED=1 the audit fails",
}


@dataclass(frozen=True)
class Audit:
    """One command that looks through one lock file. ``is_shipped``: what it finds fails the audit."""

    of: str
    tool: str
    command: tuple[str, ...]
    folder: Path = ROOT
    is_shipped: bool = True

    def verdict(self) -> tuple[str, str]:
        """``clean``, ``vulnerable`` or ``unknown``, and the words of the tool."""
        try:
            answer = subprocess.run(
                self.command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "unknown", str(error)
        if self.tool == "govulncheck":
            return _by_govulncheck(answer)
        words = f"{answer.stdout}\n{answer.stderr}".strip()
        if answer.returncode == 0:
            return ("unknown" if NOT_AUDITED in words else "clean"), words
        # It ends with 1 for either; only what it found comes on its standard output, as a table.
        return ("vulnerable" if answer.stdout.strip() else "unknown"), words


def _by_govulncheck(answer: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """What its messages, JSON one after the other, say of packages that are really used."""
    if answer.returncode != 0:
        return "unknown", f"{answer.stdout}\n{answer.stderr}".strip()
    found: dict[tuple[str, str, str], set[str]] = {}
    for message in _messages(answer.stdout):
        finding = message.get("finding")
        if finding and (frame := finding["trace"][0]).get("package") and frame["module"] != "stdlib":
            fixed = finding.get("fixed_version") or "no version"
            found.setdefault((frame["module"], frame["version"], fixed), set()).add(finding["osv"])
    lines = [
        f"  {module} {version}: {', '.join(sorted(entries))} (fixed in {fixed})"
        for (module, version, fixed), entries in sorted(found.items())
    ]
    return ("vulnerable" if found else "clean"), "\n".join(lines)


def _messages(text: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while text := text[at:].lstrip():
        message, at = decoder.raw_decode(text)
        yield message


def audits(folder: Path) -> Iterator[Audit]:
    """Of uv.lock with every extra, and of each Go module. ``folder`` takes the list of packages."""
    uv = str(Path(sys.executable).with_name("uv"))
    requirements = folder / "requirements.txt"
    export = [uv, "export", "--locked", "--all-extras", "--all-groups", "--no-emit-project", "--quiet"]
    subprocess.run([*export, "--output-file", str(requirements)], cwd=ROOT, check=True)
    checks = ("--requirement", str(requirements), "--require-hashes", "--disable-pip", "--progress-spinner", "off")
    yield Audit("uv.lock", "pip-audit", (uv, "tool", "run", PIP_AUDIT, *checks))
    database = _go_database(folder)
    for module in sorted((ROOT / "e2e" / "tools").glob("*/go.mod")):
        name = module.parent.name
        options = ("-format", "json", "-scan", "package", *database, *_tags(name))
        command = ("go", "run", GOVULNCHECK, *options, "tool")
        yield Audit(f"e2e/tools/{name}", "govulncheck", command, module.parent, is_shipped=False)


def _go_database(folder: Path) -> tuple[str, ...]:
    """Where govulncheck is to look, by its options; without any it asks vuln.go.dev."""
    download = ["go", "mod", "download", "-json", GO_DATABASE]
    try:
        answer = subprocess.run(download, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if answer.returncode != 0:
        return ()
    module = json.loads(answer.stdout)
    print(f"Go's database of vulnerabilities is {module['Path']} {module['Version']}")
    return "-db", f"file://{module['Dir']}/data/osv"


def _tags(module: str) -> tuple[str, ...]:
    """The build tags of its programs, as some packages of others are not even locked."""
    programs = (*build.PROGRAMS, build.KIND, *build.NODE_PROGRAMS, *build.MONITORING)
    tags = {program.tags for program in programs if program.module == module and program.tags}
    return ("-tags", ",".join(sorted(tags))) if tags else ()


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each audit, and what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--required", action="store_true", help="what cannot be looked through fails the audit")
    required = parser.parse_args(arguments).required
    verdicts: dict[str, str] = {}
    is_harmed = False
    with tempfile.TemporaryDirectory() as folder:
        for audit in audits(Path(folder)):
            verdict, words = audit.verdict()
            verdicts[audit.of] = verdict
            is_harmed |= audit.is_shipped and verdict == "vulnerable"
            where = "" if audit.is_shipped or verdict != "vulnerable" else ", in programs that only tests run"
            print(f"{audit.of}: {verdict}{where}", flush=True)
            if verdict == "vulnerable":
                print(words)
            elif verdict == "unknown":
                print(f"  {audit.tool} could not look: {words.splitlines()[-1] if words else 'no words'}")
    if unknown := [of for of, verdict in verdicts.items() if verdict == "unknown"]:
        print(f"NOT AUDITED: {', '.join(unknown)} ({len(unknown)} of {len(verdicts)}); {_MEANING[required]}")
    if is_harmed:
        return 1
    return 2 if required and unknown else 0


if __name__ == "__main__":
    sys.exit(main())
