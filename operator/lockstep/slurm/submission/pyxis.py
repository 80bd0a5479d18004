"""Images as pyxis and enroot name them, made into what Kubernetes pulls."""

from __future__ import annotations

import re
from typing import Dict, Optional

MOST_CHARACTERS = 1024
_OPTION = re.compile(r"--container-image(?:=|\s+)(\"[^\"]*\"|'[^']*'|[^\s\\;|&)]+)")
_ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+|readonly\s+|declare\s+)?([A-Za-z_]\w*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s;]*)", re.MULTILINE
)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-([^}]*))?\})")


def image(text: str) -> str:
    """``nvcr.io#nvidia/pytorch:24.01-py3`` as an image reference. Raises ValueError on what no registry has."""
    name = text[len("docker://") :] if text.startswith("docker://") else text
    if text.endswith((".sqsh", ".squashfs")) or name.startswith(("/", "./", "~", "dockerd://", "podman://")):
        raise ValueError(
            f"{text} is a file and no image; push it to a registry and name it there, as REGISTRY#IMAGE:TAG"
        )
    registry, mark, rest = name.rpartition("#")
    if mark:
        registry = registry.rpartition("@")[2]  # who pulls it is said by pull secrets
        name = f"{registry}/{rest}" if registry else rest
    if not re.fullmatch(r"[A-Za-z0-9][\w.:/@-]*", name):
        raise ValueError(f"{text} is no image")
    return name


def hoisted(script: str) -> Optional[str]:
    """The ``--container-image`` of the script's first step that names one, with plain variables of the script filled
    in. None: none does. Raises ValueError when its name is only known once the script runs."""
    found = _OPTION.search(_joined(script))
    if found is None:
        return None
    known: Dict[str, str] = {}
    for name, value in _ASSIGNMENT.findall(_joined(script)):
        own = re.fullmatch(rf"[\"']?\$\{{{name}:?-([^}}]*)\}}[\"']?", value)  # a default of its own
        known.setdefault(name, (own[1] if own else value)[:MOST_CHARACTERS])
    text = found[1]
    for _ in range(8):  # variables of variables
        if "$" not in text or len(text) > MOST_CHARACTERS or found[1].startswith("'"):
            break
        text = _VARIABLE.sub(lambda seen: known.get(seen[1] or seen[2], seen[3] or seen[0]), text)
    text = text.replace('"', "").replace("'", "")
    if "$" in text or "`" in text:
        raise ValueError(
            f"--container-image={found[1]} is known only once the script runs; write #SBATCH --container-image=IMAGE"
        )
    return image(text)


def _joined(script: str) -> str:
    """Without comments, and with continued lines as one."""
    lines = [line for line in script.split("\n") if not line.lstrip().startswith("#")]
    return re.sub(r"\\\n\s*", " ", "\n".join(lines))
