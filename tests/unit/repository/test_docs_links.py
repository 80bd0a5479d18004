"""What the documentation points to exists: files, headings, make targets, the manifest of the README."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDERS = ("docs", "charts", "manifests", "e2e", "tests", ".github")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
by_path = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub links them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@by_path
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@by_path
def test_make_targets_that_a_page_names_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"(?:^\$ |`)make ([a-z0-9-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= targets


def test_continuous_integration_runs_what_the_readme_begins_with() -> None:
    begins = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it does")[0]
    targets = re.findall(r"^\$ make ([a-z0-9-]+)", begins, re.MULTILINE)
    assert targets
    runs = set(re.findall(r"[a-z0-9-]+", (ROOT / ".ci" / "run").read_text(encoding="utf-8")))
    assert set(targets) <= runs


def test_the_manifest_of_the_readme_is_the_example_with_a_real_program() -> None:
    shown = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert len(shown[1].splitlines()) == 7
    run, hello = (yaml.safe_load(text) for text in (shown[1], (ROOT / "manifests" / "hello.yaml").read_text("utf-8")))
    for each in (run, hello):
        del each["spec"]["image"], each["spec"]["command"]
    assert run == hello


def test_the_tests_that_the_changelog_names_are_there() -> None:
    named = set(re.findall(r"\b(test_[a-z0-9_]+)(?:\.py)?`", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    files = [*(ROOT / "tests").rglob("test_*.py")]
    defined = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}
    assert not named - defined - {file.stem for file in files}
