"""What is below the Python packages of an image, as its list of contents has it."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from kindcluster import image_contents

STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc (2.41-1)
Version: 2.41-12
Description: GNU C Library: Shared libraries
 Version: of something else
 .

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: libstdc++6
Status: install ok installed
Architecture: amd64
Version: 1:14.2.0-19+b1
"""
OS_RELEASE = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\n'
KOPF = {"type": "library", "name": "kopf", "version": "1.0", "purl": "pkg:pypi/kopf@1.0"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("usr/lib", "var/lib/dpkg/status.d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text(OS_RELEASE)
    return tmp_path


def contents(root: Path) -> list[dict[str, Any]]:
    file = root / "sbom.cdx.json"
    file.write_text(json.dumps({"bomFormat": "CycloneDX", "components": [KOPF]}))
    image_contents.main(file, root)
    components: list[dict[str, Any]] = json.loads(file.read_text())["components"]
    return components


def test_the_system_the_interpreter_and_debians_packages_are_added(root: Path) -> None:
    (root / "var/lib/dpkg/status").write_text(STATUS)
    first, system, python, *packages = contents(root)
    assert first == KOPF
    assert (system["type"], system["name"], system["version"]) == ("operating-system", "debian", "13")
    assert (python["type"], python["name"], python["version"]) == ("platform", "cpython", platform.python_version())
    assert [(each["type"], each["name"], each["version"], each["purl"]) for each in packages] == [
        ("library", "libc6", "2.41-12", "pkg:deb/debian/libc6@2.41-12?arch=amd64&distro=debian-13&upstream=glibc"),
        (
            "library",
            "libstdc++6",
            "1:14.2.0-19+b1",
            "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2.0-19%2Bb1?arch=amd64&distro=debian-13",
        ),
    ]


def test_what_is_added_can_be_told_apart(root: Path) -> None:
    (root / "var/lib/dpkg/status").write_text(STATUS + "\n" + STATUS.replace("amd64", "i386"))
    references = [each["bom-ref"] for each in contents(root)[1:]]
    assert len(references) == len(set(references)) == 6


def test_a_base_without_dpkg_has_a_record_of_each_package(root: Path) -> None:
    libc, _, libstdc = STATUS.replace("Status: install ok installed\n", "").split("\n\n")
    for name, record in {"libc6": libc, "libstdc": libstdc}.items():
        (root / "var/lib/dpkg/status.d" / name).write_text(record)
    (root / "var/lib/dpkg/status.d/libc6.md5sums").write_text("0123  usr/lib/libc.so\n")
    assert [each["name"] for each in contents(root)[3:]] == ["libc6", "libstdc++6"]


def test_another_system_has_no_packages_of_debians(root: Path) -> None:
    (root / "usr/lib/os-release").unlink()
    assert [each["name"] for each in contents(root)] == ["kopf", "cpython"]
