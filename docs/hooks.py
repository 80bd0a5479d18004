"""What mkdocs does not do by itself: pages lead out of docs/ as they do in the repository.

README.md is the first page. Any other file that a page links to outside of docs/ is part of the site, in `repository/`,
and so is what that links to.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASE.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[#)])")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what stands outside of docs/."""
    todo = [*FIRST, *(f"docs/{page.src_uri}" for page in files.documentation_pages())]
    seen = set(todo)
    while todo:
        name = todo.pop()
        if not name.startswith("docs/"):
            files.append(File.generated(config, site_path(name), abs_src_path=str(ROOT / name)))
        if name.endswith(".md"):
            leads_to = {target for _, target in links(name)} - seen
            todo += leads_to
            seen |= leads_to


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are on the site."""
    name = repository_path(page.file.src_uri)
    targets = dict(links(name))
    here = posixpath.dirname(site_path(name))

    def leads(found: re.Match[str]) -> str:
        return posixpath.relpath(site_path(targets[found[1]]), here or ".") if found[1] in targets else found[1]

    return LINK.sub(leads, markdown)


def links(name: str) -> list[tuple[str, str]]:
    """The links of a page to files that exist: as written, and the file's path in the repository."""
    found = LINK.findall((ROOT / name).read_text(encoding="utf-8"))
    return [(link, file) for link in found if "://" not in link and (file := _file(name, link))]


def _file(name: str, link: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
    path = posixpath.join(path, "README.md") if (ROOT / path).is_dir() else path
    return path if (ROOT / path).is_file() else ""


def site_path(name: str) -> str:
    """Where a file of the repository stands on the site."""
    if name == "README.md":
        return "index.md"
    return name.removeprefix("docs/") if name.startswith("docs/") else f"repository/{name}"


def repository_path(name: str) -> str:
    """Where a file of the site stands in the repository."""
    if name == "index.md":
        return "README.md"
    return name.removeprefix("repository/") if name.startswith("repository/") else f"docs/{name}"
