"""The worker as pods get it: one zip application, made from the installed package."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

_MAIN = b"""import sys

if sys.version_info < (3, 8):
    sys.exit("lockstep: the worker needs Python 3.8 or newer, this is " + sys.version.split()[0])

from lockstep.worker.__main__ import start

start()
"""
_SUBMISSION = "lockstep/slurm/submission/"  # of no use where jobs run, …
_PACKED = tuple(f"{_SUBMISSION}{name}.py" for name in ("__init__", "directives", "options"))  # … but to its own sbatch
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can say


def worker_archive() -> bytes:
    """The zip application of the package that is installed here."""
    return archive_of(worker_sources())


def worker_sources() -> dict[str, bytes]:
    """The worker's modules, and Slurm's for its shims, by path as they are imported in the pod and here alike."""
    package = resources.files("lockstep")
    sources = {"__main__.py": _MAIN, "lockstep/__init__.py": package.joinpath("__init__.py").read_bytes()}
    for room in ("slurm", "worker"):
        sources.update(_modules(f"lockstep/{room}", package.joinpath(room)))
    return {name: source for name, source in sources.items() if name in _PACKED or not name.startswith(_SUBMISSION)}


def archive_of(sources: Mapping[str, bytes]) -> bytes:
    """The same bytes for the same sources, since they name the ConfigMap: no times, no order but the names'."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, sources[name], zipfile.ZIP_DEFLATED, 9)
    return stream.getvalue()


def _modules(path: str, directory: Traversable) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _modules(f"{path}/{entry.name}", entry)
        elif entry.name.endswith(".py"):
            yield f"{path}/{entry.name}", entry.read_bytes()
