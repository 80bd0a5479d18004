"""The version stands in operator/lockstep/__init__.py; everything else has it from there."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from kindcluster import image_contents, images
from lockstep import __version__

ROOT = Path(__file__).parents[3]
SOURCE = "operator/lockstep/__init__.py"
MADE = ("charts/lockstep/Chart.yaml", "manifests/", "tests/chart/golden/", "crds/")
"""By `make generate`, and by LOCKSTEP_UPDATE_GOLDEN=1."""
OF_OTHERS = re.compile(r"(\.lock|go\.mod|go\.sum)$")
HISTORY = "CHANGELOG.md"
TAG_ON_A_PAGE = re.compile(rf"lockstep-operator:{re.escape(__version__)}\b")
"""charts/generate.py writes it."""


def copies(name: str) -> list[str]:
    """Lines of a file that seem to say the project's version."""
    try:
        text = (ROOT / name).read_text(encoding="utf-8")
    except (UnicodeDecodeError, IsADirectoryError, FileNotFoundError):
        return []
    if name.endswith(".md"):
        text = TAG_ON_A_PAGE.sub("", text)
    said = re.compile(rf"(?<![\w.]){re.escape(__version__)}(?![\w.]*\d)")
    about_us = re.compile("lockstep|version|image|tag|chart", re.IGNORECASE)
    return [f"{name}: {line.strip()}" for line in text.splitlines() if said.search(line) and about_us.search(line)]


@pytest.mark.process
def test_nobody_writes_the_version_by_hand_a_second_time() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [
        name
        for name in tracked.splitlines()
        if not name.startswith((SOURCE, HISTORY, *MADE)) and not OF_OTHERS.search(name)
    ]
    assert len(names) > 500
    assert [line for name in names for line in copies(name)] == []


def test_the_wheel_has_it_from_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": SOURCE}


def test_the_image_is_given_it_by_who_builds_it(tmp_path: Path) -> None:
    assert images.version() == __version__
    assert re.findall(r"^ARG VERSION=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE) == ["", ""]
    bill = tmp_path / "sbom.cdx.json"
    bill.write_text(json.dumps({"metadata": {"component": {"name": "lockstep-operator"}}, "components": []}))
    image_contents.main(bill, tmp_path, __version__)
    assert json.loads(bill.read_text())["metadata"]["component"]["version"] == __version__


@pytest.mark.parametrize("field", ["version", "appVersion"])
def test_the_chart_has_it(field: str) -> None:
    assert f"\n{field}: {__version__}\n" in (ROOT / "charts" / "lockstep" / "Chart.yaml").read_text()
