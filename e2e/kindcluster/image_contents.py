"""``python3 image_contents.py SBOM``: adds what is below the Python packages to a CycloneDX list, in place.

It runs while the Dockerfile builds, in the base image itself, with nothing but Python: the interpreter that is asked,
the operating system, and every package of Debian's, whose records are read without dpkg, as slim bases may have none.
``VERSION`` in the environment is that of the whole.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

Component = dict[str, Any]


def below(root: Path) -> Iterator[Component]:
    """The components of a file system. ``root``: where it begins; the interpreter is the one that runs this."""
    system = _assignments(root / "usr/lib/os-release") or _assignments(root / "etc/os-release")
    name, version = system.get("ID", ""), system.get("VERSION_ID", "")
    if name:
        yield _component("operating-system", name, version)
    python = platform.python_version()
    yield _component("platform", "cpython", python, purl=f"pkg:generic/python@{python}") | {
        "cpe": f"cpe:2.3:a:python:python:{python}:*:*:*:*:*:*:*"
    }
    for package in sorted(installed(root), key=lambda each: (each["Package"], each["Architecture"])):
        told = {
            "arch": package["Architecture"],
            "distro": f"{name}-{version}" if name else "",
            "upstream": package.get("Source", "").partition(" ")[0],
        }
        purl = f"pkg:deb/{name or 'debian'}/{quote(package['Package'])}@{quote(package['Version'], safe='')}"
        qualifiers = urlencode({key: value for key, value in told.items() if value})
        yield _component("library", package["Package"], package["Version"], purl=f"{purl}?{qualifiers}")


def installed(root: Path) -> Iterator[dict[str, str]]:
    """Fields of every package that dpkg has on record as installed; distroless bases have a file for each."""
    records = [root / "var/lib/dpkg/status", *sorted((root / "var/lib/dpkg/status.d").glob("*"))]
    for record in records:
        if record.is_file() and record.suffix != ".md5sums":
            for paragraph in record.read_text(encoding="utf-8").split("\n\n"):
                fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
                if "Package" in fields and fields.get("Status", "install ok installed").endswith(" installed"):
                    yield fields


def _assignments(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
    return {name: value.strip("'\"") for name, _, value in pairs if value}


def _component(kind: str, name: str, version: str, purl: str = "") -> Component:
    identity = {"bom-ref": purl or f"{kind}:{name}@{version}", "type": kind, "name": name, "version": version}
    return identity | ({"purl": purl} if purl else {})


def main(file: Path, root: Path = Path("/"), version: str = "") -> None:
    """Read the list, write it with what is below and the version of the whole."""
    bill = json.loads(file.read_text(encoding="utf-8"))
    if version:
        bill["metadata"]["component"]["version"] = version
    bill["components"] += below(root)
    file.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), version=os.environ.get("VERSION", ""))
