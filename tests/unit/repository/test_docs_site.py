"""The documentation as a site has every page once; `make docs` builds it and checks its links."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


def pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from pages(each)


def test_every_page_stands_once_in_the_navigation() -> None:
    shown = Counter(page for page in pages(SITE["nav"]) if not page.startswith("repository/"))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").glob("*.md")}
    assert shown == Counter({*there, "index.md", "decisions/README.md"})


def test_pages_from_elsewhere_in_the_repository_exist() -> None:
    named = [page.removeprefix("repository/") for page in pages(SITE["nav"]) if page.startswith("repository/")]
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_pages_are_grouped_by_what_their_reader_wants() -> None:
    assert [next(iter(group)) for group in SITE["nav"]] == [
        *("Lockstep", "Tutorials", "How-to", "Reference", "Explanation", "Contribute"),
    ]


def test_what_would_be_fetched_when_it_is_read_is_off_and_links_are_checked() -> None:
    assert SITE["theme"]["font"] == "false"
    assert "mermaid" not in str(SITE["markdown_extensions"])  # the theme loads its renderer from a CDN
    assert not SITE.keys() & {"extra_javascript", "extra_css"}
    assert {level for group in SITE["validation"].values() for level in group.values()} == {"warn"}
    assert re.search(r"mkdocs build --strict(?! --quiet)", (ROOT / "Makefile").read_text(encoding="utf-8"))
