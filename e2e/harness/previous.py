"""Lockstep as it was before its newest change, or as of LOCKSTEP_TEST_UPGRADE_FROM=COMMIT: what is upgraded from."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ("charts/lockstep", "operator", "crds", "Dockerfile", "uv.lock")
"""Of these there has to be a change: an upgrade to the same would show nothing."""


@dataclass(frozen=True)
class Previous:
    """All files of a commit, in ``folder``."""

    commit: str
    folder: Path

    @property
    def chart(self) -> Path:
        return self.folder / "charts" / "lockstep"

    @property
    def operator(self) -> Path:
        """What is to be on PYTHONPATH."""
        return self.folder / "operator"


def previous(folder: Path) -> Previous:
    """The files, put into ``folder``. A clone that has not got them fails the test with the remedy."""
    name = os.environ.get("LOCKSTEP_TEST_UPGRADE_FROM") or before_the_newest_change()
    try:
        commit = _git("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as files:
            files.extractall(folder, filter="data")
    except subprocess.CalledProcessError as error:
        pytest.fail(
            f"there is nothing to upgrade from, as this clone has no {name}: `git fetch --unshallow` brings its history"
            f", LOCKSTEP_TEST_UPGRADE_FROM=COMMIT names a commit that it has ({error.stderr.decode().strip()})"
        )
    return Previous(commit, folder)


def before_the_newest_change() -> str:
    """HEAD where the working tree differs from it, else the parent of the newest commit that changed something."""
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *INSTALLED], cwd=ROOT, check=False).returncode == 1:
        return "HEAD"
    newest = subprocess.run(
        ["git", "log", "-1", "--format=%H", "--", *INSTALLED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return f"{newest.stdout.strip() or 'HEAD'}^"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
