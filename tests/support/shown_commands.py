"""The commands that the documentation shows in its console blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Shown:
    """One command line, without its prompt and with what is continued on the next line.

    ``refusal`` is what is shown below it, where that is an error.
    """

    page: str
    line: str
    refusal: str = ""

    def __str__(self) -> str:
        return f"{self.page}: {self.line[:50]}"


def shown_on(page: Path) -> list[Shown]:
    """In the order of the page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [
        Shown(page.stem, " ".join(line.split()), "\n".join(below) if below[:1] and below[0].startswith("Error") else "")
        for block in blocks
        for line, *below in (each.splitlines() for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
    ]


def shown() -> list[Shown]:
    """On every page."""
    return [each for page in PAGES for each in shown_on(page)]
