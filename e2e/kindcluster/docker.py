"""Docker by its command line: the daemon that answers, or one of our own that is ended again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.waiting import WaitedInVain, wait_for
from kindcluster import commands, leftovers, traces
from kindcluster.errors import KindClusterError
from kindcluster.host import HostChanges, install, missing_sys_resource, require_free
from localcluster import processes

_RUN = Path("/run/lockstep-kind")  # sockets; their paths may have 107 characters
_OURS = f"unix://{_RUN}/docker.sock"
_RECORD = _RUN / "dockerd.json"
_CHANGES = _RUN / "host.json"
_PACKAGES = {"docker": "docker.io", "dockerd": "docker.io", "runc": "runc", "iptables": "iptables"}
_RUNNING_GB = 16  # four nodes with their images, and images on their way into them
_IMAGES_GB = 9
_INOTIFY_INSTANCES = "1024"  # a node takes 14, its control plane 27; 128 is usual
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_PULL_SECONDS = 600
_LOOK_UP_SECONDS = 20
_WITHOUT_SYS_RESOURCE = Path(__file__).parent / "runc-without-sys-resource"


@dataclass(frozen=True)
class Docker:
    """The docker command and the daemon it speaks to. ``logs``: the folder for the output of builds."""

    environment: Mapping[str, str]
    logs: Path

    @property
    def is_ours(self) -> bool:
        """It speaks to a daemon of our own, where nobody else keeps images."""
        return self.environment.get("DOCKER_HOST") == _OURS

    def __call__(self, *arguments: str | Path) -> str:
        """Run it; its standard output. Raises KindClusterError."""
        return commands.output(["docker", *arguments], environment=self.environment)

    def has_image(self, name: str) -> bool:
        """Whether the daemon has it."""
        return bool(self("images", "--quiet", name).strip())

    def pull(self, name: str) -> bool:
        """Fetch an image; False where no registry answers or it has none."""
        if self.has_image(name):
            return True
        try:
            subprocess.run(
                ["docker", "pull", "--quiet", name],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=_PULL_SECONDS,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def build(
        self,
        name: str,
        dockerfile: Path,
        context: Path,
        arguments: Mapping[str, str] | None = None,
        *,
        stage: str = "",
    ) -> None:
        """Build an image, or one stage of it. Raises KindClusterError with the last lines."""
        options: list[str | Path] = ["--tag", name, "--file", dockerfile]
        options += ["--target", stage] if stage else []
        for key, value in (arguments or {}).items():
            options += ["--build-arg", f"{key}={value}"]
        log = self.logs / f"{name.partition(':')[0].rpartition('/')[2]}.log"
        commands.run(["docker", "build", *options, context], log=log, environment=self.environment)


@dataclass(frozen=True)
class Daemon:
    """The daemon we start where none answers. Its record outlives whoever started it; there is one a machine.

    ``folder`` keeps its images for the next time.
    """

    folder: Path

    @contextmanager
    def up(self, report: commands.Report) -> Iterator[Docker]:
        """The daemon that answers, or one of our own for as long as the block runs.

        Raises KindClusterError, also where anything of it is left on this machine.
        """
        if _RUN.exists():
            if _RECORD.exists():
                report("ending a Docker daemon that was left over ...")
            self.stop()
        is_ours = self._found_or_installed(report) is None
        with traces.none_left(_RUN, self.folder, daemon_is_ours=is_ours, report=report):
            try:
                yield self.found_or_started(report)
            finally:
                self.stop()

    def found_or_started(self, report: commands.Report) -> Docker:
        """The daemon that answers, or one of our own; `stop` puts back what changes from now on.

        Raises KindClusterError.
        """
        docker = self._found_or_installed(report)
        if docker is None:
            return self._start(report)
        if os.geteuid() == 0:  # nobody else could put a sysctl back
            HostChanges(_CHANGES).record(daemon_is_ours=False)
        return docker

    def _found_or_installed(self, report: commands.Report) -> Docker | None:
        """The daemon that answers. Where systemd runs, that of a package which is installed now does, and stays."""
        docker = self.found()
        if docker is None:
            install(_PACKAGES, log=self.folder / "packages.log", report=report)
            docker = self.found()
        return docker

    def found(self) -> Docker | None:
        """Docker with a daemon that answers: the user's, or ours from before."""
        if shutil.which("docker") is None:
            return None
        for environment in ({}, {"DOCKER_HOST": _OURS}):
            if _answers(environment):
                return self._docker(environment)
        return None

    def _start(self, report: commands.Report) -> Docker:
        data = self.folder / "docker"
        require_free(self.folder, _RUNNING_GB + (0 if data.exists() else _IMAGES_GB))
        report("starting a Docker daemon of our own ...")
        changes = HostChanges(_CHANGES)
        changes.record(daemon_is_ours=True)
        # Otherwise dockerd switches it on and lets nothing be forwarded but its own, bridged packets included.
        changes.set("net.ipv4.ip_forward", "1")
        changes.set("fs.inotify.max_user_instances", _INOTIFY_INSTANCES)
        command = [
            _which("dockerd"),
            f"--host={_OURS}",
            f"--data-root={data}",
            f"--exec-root={_RUN}/exec",
            f"--pidfile={_RUN}/dockerd.pid",
        ]
        if missing_sys_resource():
            command += [f"--add-runtime=without-sys-resource={_WITHOUT_SYS_RESOURCE}"]
            command += ["--default-runtime=without-sys-resource"]
        log = self.folder / "dockerd.log"
        process = processes.spawn(command, log, os.environ)
        _RECORD.write_text(json.dumps({"process": asdict(process), "data": str(data)}))
        environment = {"DOCKER_HOST": _OURS}
        try:
            wait_for("dockerd answers", lambda: _answers(environment), seconds=_START_SECONDS)
        except WaitedInVain as in_vain:
            self.stop()
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise KindClusterError(f"dockerd did not start:\n{tail}") from in_vain
        return self._docker(environment)

    def stop(self) -> None:
        """End ours, by its process, and put back what was changed. None of ours is fine."""
        if _RECORD.exists():
            record = json.loads(_RECORD.read_text())
            processes.end([processes.ProcessRecord(**record["process"])], grace=_STOP_SECONDS)
            leftovers.end_processes(_RUN / "exec")  # a daemon that was killed leaves its containers
            leftovers.unmount(Path(record["data"]))
        HostChanges(_CHANGES).undo()
        leftovers.clear(_RUN)

    def _docker(self, environment: Mapping[str, str]) -> Docker:
        # Without the buildx plugin the daemon's own builder has to do.
        has_buildx = subprocess.run(["docker", "buildx", "version"], capture_output=True, check=False).returncode == 0
        builder = {} if has_buildx else {"DOCKER_BUILDKIT": "0"}
        return Docker(dict(environment) | builder, self.folder / "builds")


def _answers(environment: Mapping[str, str]) -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        answer = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            env={**os.environ, **environment},
            capture_output=True,
            check=False,
            timeout=_LOOK_UP_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return answer.returncode == 0


def _which(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise KindClusterError(f"{program} was not found in PATH")
    return found


def digest(parts: Iterable[bytes | str | Path], values: Sequence[str] = ()) -> str:
    """Twelve characters that change with the contents of files and folders, and with values."""
    sha = hashlib.sha256()
    for part in (*parts, *values):
        if isinstance(part, Path):
            for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
                if path.is_file() and "__pycache__" not in path.parts:
                    sha.update(path.name.encode() + b"\0" + path.read_bytes())
        else:
            sha.update(part.encode() if isinstance(part, str) else part)
    return sha.hexdigest()[:12]
