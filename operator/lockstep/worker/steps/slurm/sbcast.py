"""The program ``sbcast`` of a batch job: a file of this node on all nodes of the job."""

from __future__ import annotations

import os
import stat
import sys
from typing import NoReturn, Sequence

from lockstep.slurm import scontrol
from lockstep.slurm.getopt import OptionError, options, read_anywhere
from lockstep.worker.shims.request import EVERYBODY, ShimPart, ShimRequest, ShimTask
from lockstep.worker.steps import shimmed
from lockstep.worker.steps.credentials import CredentialError
from lockstep.worker.steps.slurm.job import given_environment, job_here

OPTIONS = options("""
    compress/C? exclude: fanout/F: force/f help jobid/j: preserve/p quiet/Q send-libs? size/s: timeout/t: usage
    verbose/v version/V no-allocation/Z:
""")
FAILED = 1
TAKE = """
import os, shutil, sys, tempfile
path, force, mode, accessed, modified = sys.argv[1:]
if os.path.isdir(path):
    sys.exit("sbcast: error: %s: Is a directory" % path)
if force != "1" and os.path.lexists(path):
    sys.exit("sbcast: error: %s: File exists" % path)
beside = None
try:
    # nodes may share the folder, and their containers have the same process ids
    descriptor, beside = tempfile.mkstemp(prefix=os.path.basename(path) + ".sbcast-", dir=os.path.dirname(path) or ".")
    with open(descriptor, "wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    os.chmod(beside, int(mode))
    if modified:
        os.utime(beside, ns=(int(accessed), int(modified)))
    os.rename(beside, path)
except OSError as error:
    if beside is not None and os.path.lexists(beside):
        os.unlink(beside)
    sys.exit("sbcast: error: %s: %s" % (path, error.strerror))
"""
"""The program of each node: PATH FORCE(0|1) MODE and, to be kept, ATIME MTIME (ns) or two empty words; the file is
its stdin."""


def run(arguments: Sequence[str]) -> int:
    """Its exit code."""
    environ = given_environment()
    try:
        found, words = read_anywhere("sbcast", OPTIONS, arguments)
        said = dict(found)
        if "version" in said:
            os.write(1, scontrol.version().encode("ascii"))
            return 0
        if len(words) != 2:
            raise OptionError(f"sbcast: error: Need two file names, have {len(words)} names\n")
        here = job_here(environ)
        if said.get("jobid") and not here.is_own((said["jobid"] or "").partition(".")[0]):
            raise OptionError(f"sbcast: error: Job {said['jobid']} is not this one\n")
        source, path = words
        path = os.path.join(path, os.path.basename(source)) if path.endswith("/") else path
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OptionError(f"sbcast: error: {source}: Not a regular file\n")
        os.dup2(descriptor, 0)
        times = [str(about.st_atime_ns), str(about.st_mtime_ns)] if "preserve" in said else ["", ""]
        command = [
            sys.executable, "-ISB", "-c", TAKE, path, str(int("force" in said)), str(stat.S_IMODE(about.st_mode)),
            *times,
        ]  # fmt: skip
        parts = [ShimPart(rank, [ShimTask(rank)], argv=command) for rank in range(len(here.job.nodes))]
        outcomes = shimmed.run(ShimRequest(parts, cwd=os.getcwd(), stdin=EVERYBODY), here.at)
    except OptionError as error:
        shimmed.say(str(error))
        return FAILED
    except (CredentialError, OSError) as error:
        shimmed.say(f"sbcast: error: {error}\n")
        return FAILED
    shimmed.say([f"sbcast: error: {each.words}" for each in outcomes.values() if each.words])
    return FAILED if any(each.exit_code for each in outcomes.values()) else 0


def main() -> NoReturn:
    """The program."""
    os._exit(run(sys.argv[1:]))
