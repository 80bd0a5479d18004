"""Makes the machine, runs commands on it, and removes it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fresh import handed_in
from kindcluster import commands, images
from kindcluster.commands import Report, told
from kindcluster.errors import KindClusterError
from kindcluster.host import install, require_free
from localcluster.build import REPOSITORY
from localcluster.processnodes.daemon import Settings
from localcluster.processnodes.network import remove_links

SUITE = "trixie"
ROOT, USER = "root", "user"
"""Its accounts. Each has a clone in its home, and caches of its own, empty at first."""
_HOMES = {ROOT: "root", USER: f"home/{USER}"}
_CLONE = "lockstep"
_GIGABYTES = 12  # of Go's modules and build cache, two virtual environments, what is built
_GRACE = 60.0  # seconds in which what is ended early can take down what it has up
_ENTER = Path(__file__).with_name("enter.sh")
# It ends when we do, also by SIGKILL, with all that runs in it; and its mounts with it, as nobody else has them.
_APART = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork",
          "--kill-child")  # fmt: skip
_USED = ("git", "mount", "pivot_root", "setpriv", "unshare")
_NO_MIRROR = "Failed getting release file"  # debootstrap's words


class CannotBeMade(Exception):  # noqa: N818 - it is no error
    """Not on this machine; the text says why."""


@dataclass(frozen=True)
class Machine:
    """``root`` has its files; ``environment`` is what every command there gets beside what a login sets."""

    root: Path
    environment: Mapping[str, str]

    def run(self, line: str, *, account: str = ROOT, folder: str = _CLONE, log: Path | None = None) -> int:
        """Run a line of shell in a folder of the account's home, its output to ``log``, else to ours. Its exit code."""
        become = ("setpriv", f"--reuid={account}", f"--regid={account}", "--init-groups", "--reset-env")
        variables = (f"{name}={value}" for name, value in self.environment.items())
        shell = ("bash", "-c", f"cd ~/{folder} && {line}\n")
        try:
            return _apart(["bash", _ENTER, self.root, *become, "env", *variables, *shell], log)
        finally:
            for record in self.root.rglob("processnodes/settings.json"):  # of what had no time to remove them
                remove_links(Settings.load(record.parent.parent).bridge)


def _apart(argv: Sequence[str | Path], log: Path | None) -> int:
    """Run a program in mount and PID namespaces of its own; nothing runs there afterwards. Its exit code."""
    with open(log, "ab") if log else contextlib.nullcontext() as output:
        process = subprocess.Popen(
            [*_APART, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )
        try:
            return process.wait()
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)  # heard by all but unshare, which waits, and the first process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    if process.poll() is None:
        for first in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(first), signal.SIGKILL)  # it ends when all others have
        process.wait()


def why_not(euid: int, programs: Collection[str]) -> str | None:
    """Why no machine can be made with these rights and these programs of this one's, or None."""
    if euid != 0:
        return "only root can make one"
    if not {"debootstrap", "apt-get"} & set(programs):
        return "neither debootstrap nor an apt-get to install it is here"
    missing = sorted(set(_USED) - set(programs))
    return f"{', '.join(missing)} missing" if missing else None


def says_that_no_mirror_answers(log: str) -> bool:
    """Whether debootstrap failed for that, by what it wrote."""
    return _NO_MIRROR in log


def require_rights() -> None:
    """Raises CannotBeMade where this process may not make one, or has not the programs."""
    here = [name for name in ("debootstrap", "apt-get", *_USED) if which(name)]
    if reason := why_not(os.geteuid(), here):
        raise CannotBeMade(reason)
    if subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode != 0:
        raise CannotBeMade("this machine gives its root no namespaces")


@contextmanager
def made(folder: Path, packages: list[str], report: Report) -> Iterator[Machine]:
    """A machine below ``folder`` for as long as the block runs. Raises CannotBeMade, KindClusterError."""
    images.clear_workshops(folder)
    require_free(folder, _GIGABYTES)
    log = folder / "machine.log"
    log.unlink(missing_ok=True)
    try:
        install({"debootstrap": "debootstrap"}, log=log, report=report)
    except KindClusterError as error:
        raise CannotBeMade(f"debootstrap cannot be installed: {error}") from error
    with images.workshop(folder) as root:
        with told(report, f"making a minimal Debian {SUITE} with {' '.join(packages)}"):
            machine = _made(root, packages, log)
        yield machine


def which(program: str) -> str | None:
    """Also where an ordinary user's PATH does not lead."""
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _made(root: Path, packages: list[str], log: Path) -> Machine:
    if _apart(images.debootstrap(SUITE, root), log) != 0:
        if says_that_no_mirror_answers(log.read_text(errors="replace")):
            raise CannotBeMade(f"no mirror of Debian answers (log {log})")
        raise KindClusterError(f"debootstrap failed (log {log})")
    root.chmod(0o755)
    machine = Machine(root, handed_in.variables(os.environ, handed_in.of_go()))
    _hand_in(machine)
    (root / "etc/dpkg/dpkg.cfg.d/quickly").write_text("force-unsafe-io\n")
    words = " ".join(packages)
    for line in (
        "apt-get update -qq",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends {words}",
        "apt-get clean",
        f"useradd --create-home --shell /bin/bash {USER}",
    ):
        if machine.run(line, folder="", log=log) != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise KindClusterError(f"`{line}` failed on the fresh machine (log {log}):\n{tail}")
    _hand_in(machine)  # once more: packages write some of them
    for account, home in _HOMES.items():
        commands.run(["git", "clone", "--quiet", "--no-hardlinks", REPOSITORY, root / home / _CLONE], log=log)
        machine.run(f"chown -R {account}:{account} /{home}", folder="", log=log)
    return machine


def _hand_in(machine: Machine) -> None:
    for path in handed_in.files(machine.environment):
        _copy(path, machine.root / path.relative_to("/"))
    for name in handed_in.OF_A_HOME:
        path = Path.home() / name
        for home in _HOMES.values():
            if path.is_file() and (machine.root / home).is_dir():
                _copy(path, machine.root / home / name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # a link there would lead to a file of this machine
    shutil.copyfile(source, target)
