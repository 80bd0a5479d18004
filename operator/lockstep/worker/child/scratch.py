"""The worker's own records in its scratch volume: which attempts it has started."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import shutil
from typing import Dict

from lockstep.worker.checkpoints.tiers import ATTEMPT_NAME
from lockstep.worker.child.launch import python_directory
from lockstep.worker.child.process import LaunchError
from lockstep.worker.errors import trouble
from lockstep.worker.launchers import mpi, ray
from lockstep.worker.settings import Settings
from lockstep.worker.start import Launch


def make_scratch(settings: Settings, launch: Launch, contract: Dict[str, str]) -> None:
    """Scratch of the attempt, new by necessity: its presence means that the attempt has run.

    Raises LaunchError.
    """
    scratch = os.path.dirname(contract["LOCKSTEP_PROGRESS_FILE"])
    try:
        os.mkdir(scratch)
        with open(contract["LOCKSTEP_NODELIST_FILE"], "w") as stream:
            stream.writelines(address + "\n" for address in launch.nodelist)
        with open(contract["LOCKSTEP_PROGRESS_FILE"], "w"):
            pass
        if settings.launcher == "MPI":
            mpi.write_hostfiles(settings, launch, os.environ.get("PATH", ""))
        if settings.launcher == "Ray":
            if not launch.token:  # whoever reaches Ray would have it run what he likes
                raise LaunchError(125, "ProcessNotStarted", "the operator gave no token for Ray with START")
            ray.make_directory(settings, launch)
        _offer_modules(settings)
    except OSError as error:
        raise LaunchError(125, "DirectoryNotCreated", trouble(error)) from None


def remove_older(settings: Settings, attempt: int) -> None:
    """Remove the scratch of the attempts before this one, whose own says that they are over. Never raises OSError."""
    with contextlib.suppress(OSError):
        for name in os.listdir(settings.scratch):
            matched = ATTEMPT_NAME.match(name)
            if matched and int(matched.group(1)) < attempt:
                shutil.rmtree(os.path.join(settings.scratch, name), ignore_errors=True)


def _offer_modules(settings: Settings) -> None:
    """Put there what Python programs may import. Once in the life of a pod. Raises OSError."""
    directory = python_directory(settings)
    path = os.path.join(directory, "lockstep_training.py")
    if not os.path.exists(path):
        source = pkgutil.get_data("lockstep.worker", "lockstep_training.py") or b""
        os.makedirs(directory, exist_ok=True)
        with open(path + ".tmp", "wb") as stream:
            stream.write(source)
        os.rename(path + ".tmp", path)


def free_space(settings: Settings) -> None:
    """Remove what earlier attempts have left, but for their directories: those say that the attempts have run.

    Only while no process of them lives. Never raises OSError.
    """
    with contextlib.suppress(OSError):
        for name in os.listdir(settings.scratch):
            attempt = os.path.join(settings.scratch, name)
            if ATTEMPT_NAME.match(name) and not os.path.islink(attempt):
                for left in os.listdir(attempt):
                    path = os.path.join(attempt, left)
                    try:
                        os.unlink(path)
                    except OSError:
                        shutil.rmtree(path, ignore_errors=True)  # leaves links, and where they lead


def highest_attempt(settings: Settings) -> int:
    """The last attempt that an earlier life of this worker started in the same pod, or 0."""
    try:
        matches = [ATTEMPT_NAME.match(name) for name in os.listdir(settings.scratch)]
    except OSError:
        return 0
    return max((int(matched.group(1)) for matched in matches if matched), default=0)
