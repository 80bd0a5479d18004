"""Images and mounts as pyxis and enroot name them, and what a step may say of them within its job."""

from __future__ import annotations

import posixpath
import re
from typing import List, Optional, Sequence

from lockstep.slurm.layout import LayoutError


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


def are_the_same(one: str, other: str) -> bool:
    """Whether two references mean one image, as far as their names tell."""
    return _in_full(one) == _in_full(other)


def insides(mounts: str) -> List[str]:
    """The paths inside, of ``SOURCE:PATH:FLAGS,...``; a source alone has the same path inside."""
    return [mount.split(":")[1] if ":" in mount else mount for mount in mounts.split(",") if mount]


def is_below(path: str, mounts: Sequence[str]) -> bool:
    """Whether one of these mount paths has it."""
    path = posixpath.normpath(path) if path else ""
    roots = [mount.rstrip("/") for mount in mounts]
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def of_step(named: str, mounted: str, job_image: str, job_mounts: Optional[Sequence[str]]) -> List[str]:
    """What srun says of the image and the mounts of a step. ``job_mounts`` None, an empty image: not known.

    Raises LayoutError: a step has the image of its job.
    """
    notices = [
        f"srun: --container-mounts: {path} is on no volume of the job; it is what the image has there"
        for path in insides(mounted)
        if job_mounts is not None and not is_below(path, job_mounts)
    ]
    if not named:
        return notices
    try:
        other = bool(job_image) and not are_the_same(image(named), job_image)
    except ValueError:
        return [f"srun: --container-image={named} is not used: steps run in the job's image {job_image}", *notices]
    if other:
        raise LayoutError(
            f"--container-image={named}: the job runs in {job_image}, and a step has no other image; have that one "
            "hold what both need, or submit the step as a job of its own"
        )
    return notices


def _in_full(reference: str) -> str:
    """With the registry and the tag that are meant where there is none."""
    first, _, rest = reference.partition("/")
    if not rest:
        reference = f"docker.io/library/{reference}"
    elif "." not in first and ":" not in first and first != "localhost":
        reference = f"docker.io/{reference}"
    name = reference.rpartition("/")[2]
    return reference if ":" in name or "@" in name else f"{reference}:latest"
