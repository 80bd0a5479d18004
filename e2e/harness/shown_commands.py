"""The commands that the documentation shows: in its console blocks, and in the middle of its sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FURTHER_PAGES = [
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *(ROOT / name for name in ("CHANGELOG.md", "manifests/README.md", "charts/lockstep/README.md")),
]


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


def block_on(page: Path, language: str, holding: str) -> str:
    """The one block of a page in a language that has some words in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if holding in block]
    return str(found)


def shown() -> list[Shown]:
    """On every page."""
    return [each for page in PAGES for each in shown_on(page)]


def mentioned_on(page: Path) -> list[Shown]:
    """What stands between backticks and begins with a program of ours or Kubernetes', in the order of the page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`((?:helm|kubectl|lockstep)\s[^`]+)`", text)
    return [Shown(page.stem, " ".join(command.split())) for command in found]


def mentioned() -> list[Shown]:
    """On every page, each command once for each page."""
    return [each for page in (*PAGES, *_FURTHER_PAGES) for each in dict.fromkeys(mentioned_on(page))]


def is_a_name(command: Shown) -> bool:
    """Whether it only says which command is meant, as `helm upgrade`, and nobody can take it for one to be typed."""
    return re.fullmatch(r"(helm|kubectl|lockstep)( [a-z-]+){1,2}", command.line) is not None
