"""The program of a pod that `--code-claim` makes: an archive, in parts, becomes a directory on a claim.

Its source goes along in the pod and runs in the run's image: standard library, Python 3.8.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import io
import os
import shutil
import sys
import tarfile
import time

CUT_OFF = 3600.0
"""Seconds after which what a pod left half made is nobody's any more: it had ten minutes to live."""


def unpack(parts: str, target: str, digest: str, mine: str) -> None:
    """Make ``target`` of the files in ``parts``, unless it is there: beside it, and renamed once it is whole, so that
    it is whole wherever it is. ``mine``: a word that nobody else has. Raises ValueError and OSError."""
    if os.path.isdir(target):
        return
    content = b"".join(_read(os.path.join(parts, name)) for name in sorted(os.listdir(parts)) if name[:1] != ".")
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError("the code did not arrive as it was sent")
    above, name = os.path.split(target)
    os.makedirs(above, exist_ok=True)
    _remove_cut_off(above, name)
    beside = os.path.join(above, f".{name}.{mine}")
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    _write(os.path.join(beside, member.name), file.read())
        os.sync()
        os.rename(beside, target)
    except OSError:
        if not os.path.isdir(target):  # else another pod made it meanwhile
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o555)


def _remove_cut_off(above: str, name: str) -> None:
    for path in glob.glob(os.path.join(glob.escape(above), f".{glob.escape(name)}.*")):
        with contextlib.suppress(OSError):  # another pod removes it as well
            if time.time() - os.stat(path).st_mtime > CUT_OFF:
                shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    os.umask(0o022)
    try:
        unpack(*sys.argv[1:])
    except (OSError, ValueError, tarfile.TarError) as problem:
        sys.exit(str(problem))
