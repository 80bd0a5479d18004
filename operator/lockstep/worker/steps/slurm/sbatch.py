"""The program ``sbatch`` of a batch job: the operator is asked to submit another one, for the same user and queue."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Dict, List, Mapping, NoReturn, Sequence

from lockstep.slurm import scontrol
from lockstep.slurm.environment import export_items
from lockstep.slurm.getopt import Found, OptionError, read
from lockstep.slurm.submission.directives import ScriptError, directives
from lockstep.slurm.submission.options import OPTIONS
from lockstep.worker.settings import JSON
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm.asking import AskedError, ask
from lockstep.worker.steps.slurm.job import given_environment, job_here

FAILED = 1
_MOST = 128 << 10  # bytes of a script
_ERROR = "sbatch: error: Batch job submission failed"


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        found, words = read("sbatch", OPTIONS, arguments)
        said = dict(found)
        if "version" in said:
            os.write(1, scontrol.version().encode("ascii"))
            return 0
        here = job_here(environ)
        answer = ask(here.directory, "submit", body_of(found, words, environ))
    except OptionError as error:
        shimmed.say(str(error))
        return FAILED
    except (CredentialError, AskedError) as error:
        shimmed.say(f"{_ERROR}: {error}\n")
        return FAILED
    except OSError as error:
        shimmed.say(f"sbatch: error: Unable to open file {error.filename}: {error.strerror}\n")
        return FAILED
    if not answer.agreed or not answer.job:
        shimmed.say(f"{_ERROR}: {answer.words}\n")
        return FAILED
    for line in answer.words.splitlines() if "quiet" not in said else ():
        shimmed.say(f"sbatch: {line}\n")
    if "parsable" in said:
        os.write(1, f"{answer.job}\n".encode("ascii"))
    elif "quiet" not in said:
        os.write(1, f"Submitted batch job {answer.job}\n".encode("ascii"))
    return 0


def body_of(found: Sequence[Found], words: List[str], environ: Mapping[str, str]) -> JSON:
    """What the operator gets: the command line in its two parts, the script, and where all of that was.

    Raises OptionError, OSError.
    """
    own: Dict[str, str] = {name: value for name, value in environ.items() if name.startswith("SBATCH_")}
    options = [f"--{name}" if value is None else f"--{name}={value}" for name, value in found]
    now = time.time()
    clock = {"now": now, "utc_offset": time.localtime(now).tm_gmtoff}  # by which --begin is read
    body: JSON = {"options": options, "directory": os.getcwd(), "environment": own, **clock}
    if any(name == "wrap" for name, _ in found):
        if words:
            raise OptionError("sbatch: fatal: Script arguments not permitted with --wrap option\n")
        return {**body, "script": "", "name": "wrap", "arguments": [], "variables": _named(found, "", environ)}
    path = _found(words[0], environ) if words else ""
    text = _script(path) if words else sys.stdin.buffer.read(_MOST + 1)
    if len(text) > _MOST or not text.startswith(b"#!"):
        raise OptionError("sbatch: error: This does not look like a batch script.\n")
    name = os.path.basename(words[0]) if words else "sbatch"
    script = text.decode("utf-8", "surrogateescape")
    variables = _named(found, script, environ)
    of_file = {"script": script, "name": name, "command": path}
    return {**body, **of_file, "arguments": words[1:], "variables": variables}


def _named(found: Sequence[Found], script: str, environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables here that an --export names, wherever it is written: which of them counts the operator says."""
    said = [*found, ("export", environ.get("SBATCH_EXPORT"))]
    with contextlib.suppress(ScriptError, OptionError):  # which the operator refuses
        for component in directives("", script).components:
            said += read("sbatch", OPTIONS, [word.text for word in component])[0]
    items = [item for name, value in said if name == "export" for item in export_items(value or "")]
    return {item: environ[item] for item in items if item in environ}


def _found(name: str, environ: Mapping[str, str]) -> str:
    """By its path, in this directory, or on PATH."""
    if "/" in name or os.path.exists(name):
        return name
    folders = environ.get("PATH", "").split(os.pathsep)
    return next((found for found in (os.path.join(each, name) for each in folders) if os.path.isfile(found)), name)


def _script(path: str) -> bytes:
    """Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(_MOST + 1)


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
