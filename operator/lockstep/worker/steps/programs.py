"""Programs for whoever starts steps, in the scratch of the pod: run by the worker's interpreter, from its archive."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import Dict, Mapping

from lockstep.worker.child.processes import STEP_CLIENT
from lockstep.worker.settings import Settings

PROGRAMS: Mapping[str, str] = {
    "lockstep-step": "lockstep.worker.steps.command",
    "lockstep-rank": "lockstep.worker.steps.rank",
}
"""By name the module whose ``main`` it is."""
_REMOTE_SHELLS = {"ssh": "lockstep.worker.steps.ssh", "pdsh": "lockstep.worker.steps.pdsh"}
_SLURM = {
    name: f"lockstep.worker.steps.slurm.{name}"
    for name in ("srun", "scontrol", "scancel", "squeue", "sacct", "sbcast", "sbatch", "module")
}
SHIMS: Mapping[str, Mapping[str, str]] = {
    "MPI": _REMOTE_SHELLS, "DeepSpeed": _REMOTE_SHELLS, "Slurm": {**_REMOTE_SHELLS, **_SLURM},
}  # fmt: skip
"""Of a launcher: programs of the same names as others, found before those."""
_TEXT = """#!{interpreter} -IS
import sys
try:
    with open("/proc/self/comm", "w") as stream:
        stream.write("{name}")  # so that the worker knows it
except OSError:
    pass
sys.path.insert(0, {root!r})
from {module} import main
main()
"""
_BASH_ENV = """\
case ":$PATH:" in *:{directory}:*) ;; *) PATH={directory}:$PATH ;; esac
if [ -n "${{{given}:-}}" ]; then eval "BASH_ENV=\\"${given}\\""; . "$BASH_ENV"; BASH_ENV={path}; fi
"""
"""What bash reads before a script, and a login shell after /etc/profile, which in most images sets PATH anew."""
_GIVEN_BASH_ENV = "LOCKSTEP_BASH_ENV"


def offer_library(settings: Settings) -> str:
    """The worker's modules as files, so that Python compiles them once. Once in the life of a pod. Raises OSError."""
    if os.path.isdir(root()):
        return root()
    directory = os.path.join(settings.scratch, "lib")
    if not os.path.isdir(directory):
        import zipfile  # for most workers never

        shutil.rmtree(directory + ".tmp", ignore_errors=True)
        with zipfile.ZipFile(root()) as archive:
            archive.extractall(
                directory + ".tmp", [name for name in archive.namelist() if name.startswith("lockstep/")]
            )
        os.rename(directory + ".tmp", directory)
    return directory


def programs_directory(settings: Settings) -> str:
    """Where they are."""
    return os.path.join(settings.scratch, "bin")


def offer_programs(settings: Settings) -> None:
    """Put them there. Once in the life of a pod. Raises OSError."""
    directory = programs_directory(settings)
    wanted: Dict[str, str] = {**PROGRAMS, **SHIMS.get(settings.launcher, {})}
    os.makedirs(directory, exist_ok=True)
    library = offer_library(settings)
    for name, module in wanted.items():
        path = os.path.join(directory, name)
        if os.path.exists(path):
            continue
        with open(path + ".tmp", "w") as stream:
            stream.write(_TEXT.format(interpreter=sys.executable, name=STEP_CLIENT, root=library, module=module))
        os.chmod(path + ".tmp", 0o755)
        os.rename(path + ".tmp", path)
    path = _bash_env(settings)
    with open(path + ".tmp", "w") as stream:
        stream.write(_BASH_ENV.format(directory=shlex.quote(directory), path=shlex.quote(path), given=_GIVEN_BASH_ENV))
    os.rename(path + ".tmp", path)


def program_environment(settings: Settings, environment: Mapping[str, str]) -> Dict[str, str]:
    """What finds them: before everything else on PATH where they take the place of others, else behind it."""
    directory = programs_directory(settings)
    path = environment.get("PATH") or os.defpath
    if not SHIMS.get(settings.launcher):
        return {"PATH": os.pathsep.join([path, directory])}
    made = {"PATH": os.pathsep.join([directory, path]), "BASH_ENV": _bash_env(settings)}
    if environment.get("BASH_ENV"):
        made[_GIVEN_BASH_ENV] = environment["BASH_ENV"]
    return made


def _bash_env(settings: Settings) -> str:
    return os.path.join(settings.scratch, "bash_env")


def root() -> str:
    """What the worker is imported from: its archive."""
    return os.path.abspath(__file__).rpartition("/lockstep/worker/")[0]
