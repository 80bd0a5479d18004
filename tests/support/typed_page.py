"""A tutorial as its reader follows it: files that are saved, commands that are typed, and what is shown below them."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"\bSave\s+this\s+as\s+`([\w.-]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
ANYTHING = "…"


@dataclass(frozen=True)
class Typed:
    """One command, and the lines that are to be seen below it, in this order and with others between them."""

    command: str
    shown: tuple[str, ...]

    def missing(self, output: str) -> str:
        """The first of its lines that the output does not have after those before it; empty: none. ``…`` stands for
        anything within a line, and space for any."""
        at, lines = 0, output.splitlines()
        for wanted in self.shown:
            parts = [r"\s+".join(map(re.escape, part.split())) for part in wanted.split(ANYTHING)]
            pattern = re.compile(r".*?".join(parts))
            at = next((i + 1 for i in range(at, len(lines)) if pattern.fullmatch(lines[i].strip())), 0)
            if not at:
                return wanted
        return ""


def files_on(page: Path) -> dict[str, str]:
    """By their names, what a page says to save ("Save this as `NAME`:"), which is the block after that."""
    return {found[1]: found[2] for found in _FILE.finditer(page.read_text(encoding="utf-8"))}


def typed_on(page: Path) -> list[Typed]:
    """The commands of its console blocks, in their order."""
    blocks = _CONSOLE.findall(page.read_text(encoding="utf-8"))
    entries = [each.splitlines() for block in blocks for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Typed(command, tuple(filter(str.strip, shown))) for command, *shown in entries]


def type_all(commands: list[Typed], folder: Path, environment: Mapping[str, str], seconds: float) -> list[str]:
    """Type them into one shell, which begins in ``folder``, until one fails or shows something else; what each of them
    put out. Raises AssertionError, with the transcript."""
    script = f"typed={shlex.quote(str(folder))}\n" + "".join(
        f'{{ {each.command}\n}} >"$typed/{number}.out" 2>&1 </dev/null '
        f'|| {{ echo "exit code $?" >>"$typed/{number}.out"; exit 1; }}\n'
        for number, each in enumerate(commands)
    )
    (folder / "typed.sh").write_text(script)
    done = subprocess.run(
        ["bash", "typed.sh"], cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=seconds
    )
    files = [folder / f"{number}.out" for number in range(len(commands))]
    outputs = [file.read_text(errors="replace") for file in files if file.exists()]
    transcript = "".join(f"$ {each.command}\n{output}" for each, output in zip(commands, outputs, strict=False))
    for each, output in zip(commands, outputs, strict=False):
        wanted = each.missing(output)
        assert not wanted, f"`{each.command}` shows no line {wanted!r}:\n{transcript}"
    assert done.returncode == 0, transcript + done.stderr
    return outputs
