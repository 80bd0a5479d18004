"""Tests that upgrade know what from, and do not pass for done where a clone cannot tell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness import previous as history
from harness.previous import previous

pytestmark = pytest.mark.process


def git(folder: Path, *arguments: str) -> str:
    someone = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.com"]
    told = subprocess.run(["git", *someone, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def commit(folder: Path, file: str, content: str) -> str:
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(content)
    git(folder, "add", file)
    git(folder, "commit", "--message", content)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with three commits, of which the last one changes nothing that is installed."""
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for file, content in (("operator/code.py", "old"), ("operator/code.py", "new"), ("README.md", "words")):
        commit(folder, file, content)
    monkeypatch.setattr(history, "ROOT", folder)
    monkeypatch.delenv("LOCKSTEP_TEST_UPGRADE_FROM", raising=False)
    return folder


def test_it_is_what_was_there_before_the_newest_change_of_what_is_installed(clone: Path, tmp_path: Path) -> None:
    found = previous(tmp_path / "found")
    assert found.commit == git(clone, "rev-parse", "HEAD~2")
    assert (found.operator / "code.py").read_text() == "old"


def test_beside_a_change_that_is_not_committed_it_is_the_newest_commit(clone: Path, tmp_path: Path) -> None:
    (clone / "operator/code.py").write_text("newer")
    assert (previous(tmp_path / "found").operator / "code.py").read_text() == "new"


def test_another_commit_can_be_named(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_TEST_UPGRADE_FROM", "HEAD^")
    assert (previous(tmp_path / "found").operator / "code.py").read_text() == "new"


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_fails_and_says_how_it_gets_its_history(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", f"--depth={depth}", f"file://{clone}", str(shallow))
    monkeypatch.setattr(history, "ROOT", shallow)
    with pytest.raises(pytest.fail.Exception, match="git fetch --unshallow"):
        previous(tmp_path / "found")


def test_a_folder_that_is_no_clone_fails_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "ROOT", tmp_path)
    with pytest.raises(pytest.fail.Exception, match="LOCKSTEP_TEST_UPGRADE_FROM"):
        previous(tmp_path / "found")
