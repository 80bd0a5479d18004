"""The command line as krew installs it, made for this machine and run as kubectl runs it."""

import hashlib
import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

import cli_archive
from lockstep import __version__

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
PLATFORM = f"{sys.platform}-{MACHINE}"
IMPORTS_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import kubernetes.client, kubernetes.config, lockstep.cli
for module in pkgutil.walk_packages(lockstep.cli.__path__, "lockstep.cli."):
    importlib.import_module(module.name)
print(lockstep.cli.__path__[0])
"""

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if PLATFORM not in cli_archive.PLATFORMS or PYTHON not in cli_archive.PYTHONS:
        pytest.skip(f"nothing is made for {PLATFORM} and Python {PYTHON}")
    return cli_archive.make(tmp_path_factory.mktemp("dist"), PLATFORM, [PYTHON])


@pytest.fixture(scope="module")
def installed(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where krew leaves it: a folder, and a link to its program on PATH."""
    store, links = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("bin")
    with tarfile.open(archive) as files:
        files.extractall(store, filter="data")
    link = links / cli_archive.PROGRAM
    link.symlink_to(store / cli_archive.PROGRAM)
    return link


def run(*command: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    at_hand = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path or at_hand, "HOME": "/nonexistent"}
    return subprocess.run([*command], env=environment, capture_output=True, text=True, check=False)


def test_what_krew_installs_shows_its_help_as_a_plugin_of_kubectl(installed: Path) -> None:
    said = run(installed, "--help")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("Usage: kubectl lockstep ")
    assert run(installed, "--version").stdout == f"lockstep {__version__}\n"


def test_every_verb_finds_what_it_imports_in_the_archive(installed: Path) -> None:
    lib = installed.resolve().parent / "lib"
    said = run(sys.executable, "-I", "-S", "-c", IMPORTS_ALL, lib)
    assert said.stdout == f"{lib}/lockstep/cli\n", said.stderr


def test_who_has_no_python_that_it_was_made_for_is_told_which(installed: Path, tmp_path: Path) -> None:
    for name in ("dirname", "readlink"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    said = run("/bin/sh", installed, "queue", path=str(tmp_path))
    assert (said.returncode, said.stderr) == (1, f"error: kubectl lockstep needs one of Python {PYTHON} on PATH\n")


def test_the_manifest_leads_krew_to_the_archive_and_to_no_other(archive: Path) -> None:
    plugin = yaml.safe_load(cli_archive.manifest([archive], "https://REPOSITORY", [PYTHON]))
    assert (plugin["kind"], plugin["metadata"]) == ("Plugin", {"name": "lockstep"})
    spec = plugin["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    [only] = spec["platforms"]
    assert "-".join(only["selector"]["matchLabels"].values()) == PLATFORM
    assert only["uri"] == f"https://REPOSITORY/releases/download/v{__version__}/{archive.name}"
    assert only["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as files:
        names = files.getnames()
    assert {"LICENSE", only["bin"]} <= set(names)
    assert not [name for name in names if ".." in name or name.startswith("/")]  # krew refuses them
