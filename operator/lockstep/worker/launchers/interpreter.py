"""The Python that a program of an installed package is for."""

from __future__ import annotations

import os
import re
import shutil


def interpreter_of(script: str, path: str = "") -> str:
    """What the script's first line says, else the Python beside it. ``path``: PATH, where that is another one."""
    try:
        with open(shutil.which(script, path=path or None) or script, "rb") as stream:
            first = stream.readline(512).decode("utf-8", "replace").strip()
    except OSError:
        first = ""
    named = first[2:].strip() if first.startswith("#!") else ""
    matched = re.match(r"(?:/usr/bin/env )?(\S*python[0-9.]*)$", named)
    if matched:
        return matched.group(1)
    directory, _ = os.path.split(script)
    return os.path.join(directory, "python")
